"""The fused kernel has the value and the gradient of the equations, for every tile size."""

import copy
import functools

import oracles
import pytest
import torch
from helpers import losses as losses_of_tests
from helpers.closeness import close
from helpers.losses import (
    CASES,
    DIFFERENTIABLE,
    FAMILY_CASES,
    close_each,
    label,
    oracle_gain,
    scales_of,
    terms_of,
    value_and_gradients,
)
from helpers.refusals import refused
from helpers.watching import Operators
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from lightning_ssl import losses
from lightning_ssl.losses.energy import FamilyLoss, PairLoss, contrastive_covariance, energy
from lightning_ssl.losses.families import InfoNCE, Triplet
from lightning_ssl.losses.importance import Direct, Entropy, Exact, FromFamily, Gaussian, Streaming, Uniform
from lightning_ssl.losses.solved import Inverse, Square, Tsallis

N, D = 7, 4
ANCHORS = ["both", "one"]
make_views = functools.partial(losses_of_tests.make_views, n=N, d=D, normalize=False)


def of_loop(value, z1, z2, **options):
    """Value and gradients by autograd of a loop."""
    return value.detach(), *torch.autograd.grad(value, (z1, z2), **options)


def assert_same(actual, expected, loss, *views, gain=1.0):
    """Value and gradients (or gradients alone) of a loss at these views, up to rounding."""
    close_each(actual, expected, terms_of(views), scales_of(loss, views)[-len(expected) :], gain)


@pytest.mark.parametrize(("anchors", "beta_times"), [("both", "row_sum"), ("one", "row_sum"), ("both", "one")])
@pytest.mark.parametrize(("rule", "oracle", "parameters"), CASES, ids=label)
def test_pair_loss_has_the_value_and_gradient_of_the_loop(rule, oracle, parameters, anchors, beta_times):
    z1, z2, clean = views = make_views()
    d2_pos, d2_neg = oracles.distances(z1, z2, anchors)
    weighed = oracles.clean_distances(clean, anchors) if rule.uses_clean_view else d2_neg
    alpha = oracles.each_row(oracle, weighed.detach(), **parameters)
    expected = of_loop(oracles.pair_loss(alpha, d2_pos, d2_neg, -0.5, beta_times), z1, z2)
    loss = PairLoss(rule, anchors=anchors, beta=-0.5, beta_times=beta_times, tile=3)
    gain = oracle_gain(alpha, weighed.detach(), **parameters)
    assert_same(value_and_gradients(loss, *views), expected, loss, *views, gain=gain)


@pytest.mark.parametrize("anchors", ANCHORS)
@pytest.mark.parametrize(("name", "parameters"), FAMILY_CASES)
def test_family_loss_has_the_value_and_gradient_of_the_loop_and_its_descent_is_ascent_of_the_energy(
    name, parameters, anchors
):
    """Theorem 1: ∇L = −∇E_{sg(α)} with α_ij = φ'(ξ_i) ψ'(d2_pos_i − d2_neg_ij), in the loops and in the kernel."""
    z1, z2, _ = make_views(seed=3)
    family = getattr(losses, name)(**parameters)
    d2_pos, d2_neg = oracles.distances(z1, z2, anchors)
    alpha = oracles.family_alpha(name, d2_pos, d2_neg, **parameters)
    of_energy = of_loop(oracles.pair_loss(alpha, d2_pos, d2_neg), z1, z2, retain_graph=True)
    of_loss = of_loop(oracles.family_values(name, d2_pos, d2_neg, **parameters).mean(), z1, z2)
    for loss, expected in ((FamilyLoss(family, anchors), of_loss), (PairLoss(family, anchors), of_energy)):
        assert_same(of_loss[1:], of_energy[1:], loss, z1, z2)
        assert_same(value_and_gradients(loss, z1, z2), expected, loss, z1, z2)


def ntxent(z1, z2, tau):
    """NT-Xent by torch's cross-entropy, on cosines."""
    n = len(z1)
    z = torch.cat([z1, z2])
    logits = (z @ z.T / tau).masked_fill(torch.eye(2 * n, dtype=torch.bool), -torch.inf)
    return F.cross_entropy(logits, (torch.arange(2 * n) + n) % (2 * n))


def test_infonce_is_ntxent_times_tau():
    z1, z2, _ = make_views(n=20, normalize=True)
    loss = FamilyLoss(InfoNCE(tau=0.1, eps=1.0))
    ours, expected = loss(z1, z2), 0.1 * ntxent(z1, z2, 0.1)
    g, e = (torch.autograd.grad(x, (z1, z2)) for x in (ours, expected))
    # Gradients are compared along the sphere: off it a cosine and a distance have different radial gradients.
    assert_same([ours, *map(along_sphere, (z1, z2), g)], [expected, *map(along_sphere, (z1, z2), e)], loss, z1, z2)


def along_sphere(z, gradient):
    z = z.detach()
    return gradient - z * (z * gradient).sum(1, keepdim=True)


@pytest.mark.parametrize(("anchors", "beta_times"), [("both", "row_sum"), ("one", "row_sum"), ("both", "one")])
@pytest.mark.parametrize("rule", [*DIFFERENTIABLE, Uniform()], ids=label)
def test_backprop_alpha_gives_the_gradient_through_alpha(rule, anchors, beta_times):
    beta = 0.2
    z1, z2, _ = make_views()
    d2_pos, d2_neg = oracles.distances(z1, z2, anchors)
    expected = of_loop(oracles.pair_loss(rule(d2_pos, d2_neg), d2_pos, d2_neg, beta, beta_times), z1, z2)
    for tile in (None, 3):
        loss = PairLoss(rule, anchors=anchors, beta=beta, beta_times=beta_times, backprop_alpha=True, tile=tile)
        assert_same(value_and_gradients(loss, z1, z2), expected, loss, z1, z2)


OWN = {
    "like the class": lambda d2_pos, d2_neg, valid: torch.exp(-d2_neg) * valid,
    "in another dtype, without the mask": lambda d2_pos, d2_neg, valid: torch.exp(-d2_neg).float(),
    "in place": lambda d2_pos, d2_neg, valid: d2_neg.neg_().exp_(),
}


@pytest.mark.parametrize("anchors", ANCHORS)
@pytest.mark.parametrize("tile", [None, 3])
@pytest.mark.parametrize("rule", OWN.values(), ids=OWN)
def test_a_plain_callable_gives_the_same_as_a_class(rule, tile, anchors):
    z1, z2, _ = make_views()
    loss = PairLoss(Direct(tau=1.0, p=2.0, normalize=False), anchors, beta=0.2)
    found = value_and_gradients(PairLoss(rule, anchors, beta=0.2, tile=tile), z1, z2)
    found = [x.float() for x in found] if rule is OWN["in another dtype, without the mask"] else found  # its eps
    assert_same(found, value_and_gradients(loss, z1, z2), loss, z1, z2)


def test_a_loss_is_copied_and_saved_without_its_workspace(tmp_path):
    z1, z2, _ = make_views()
    loss = PairLoss(Direct())
    value = loss(z1, z2)
    assert loss.workspace.flat
    torch.save(loss, tmp_path / "loss.pt")
    for other in (copy.deepcopy(loss), torch.load(tmp_path / "loss.pt", weights_only=False)):
        assert not other.workspace.flat
        assert torch.equal(other(z1, z2), value)


@pytest.mark.parametrize("rule", [Direct(), Square(), Tsallis(q=2.5)], ids=label)
def test_a_smaller_batch_after_a_larger_one_gives_the_same_result(rule):
    z1, z2, _ = make_views(n=5)
    fresh = value_and_gradients(PairLoss(rule), z1, z2)
    loss = PairLoss(rule)
    loss(*make_views(n=30)[:2])
    for a, b in zip(value_and_gradients(loss, z1, z2), fresh, strict=True):
        assert torch.equal(a, b)


def test_an_own_importance_may_keep_its_argument():
    kept = []

    def rule(d2_pos, d2_neg, valid):
        kept.append((d2_neg, d2_neg.clone()))
        return torch.exp(-d2_neg)

    PairLoss(rule, tile=4)(*make_views(n=6)[:2])
    assert len(kept) == 3
    assert all(torch.equal(after, before) for after, before in kept)


def in_float64(loss, *views):
    return value_and_gradients(loss, *(z.detach().double().requires_grad_() for z in views))


def test_a_shift_of_all_embeddings_keeps_the_accuracy_of_distances():
    """The error is relative to the distance of the points from their mean, not to their norm of about 512."""
    z1, z2, _ = make_views(n=30, dtype=torch.float32)
    moved = [(z + 512).detach().requires_grad_() for z in (z1, z2)]
    loss = PairLoss(Entropy())
    assert_same(value_and_gradients(loss, *moved), in_float64(loss, *moved), loss, z1, z2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("loss", [PairLoss(Entropy()), PairLoss(Inverse()), FamilyLoss(InfoNCE(tau=0.1))], ids=label)
def test_half_precision_is_computed_in_float32(loss, dtype):
    z1, z2, _ = make_views(n=50, d=16, dtype=dtype, normalize=True)
    value, g1, g2 = value_and_gradients(loss, z1, z2)
    assert value.dtype == torch.float32
    assert g1.dtype == g2.dtype == dtype
    wide = value_and_gradients(loss, *(z.detach().float().requires_grad_() for z in (z1, z2)))
    assert_same([value], wide[:1], loss, z1, z2)
    close([g1, g2], wide[1:])  # rounded once, at the end


@pytest.mark.parametrize(
    "importance", [Entropy(tau=0.05), Entropy(tau=1e-3), Inverse(), lambda p, n, v: torch.exp(-4 * n)], ids=label
)
def test_distances_stay_in_float32_under_autocast(importance):
    z1, z2, _ = make_views(n=50, d=16, dtype=torch.float32, normalize=True)
    loss = PairLoss(importance)
    plain = value_and_gradients(loss, z1, z2)
    seen = []
    products = Operators(lambda func, arguments, _: seen.append(arguments[-1].dtype if "mm" in str(func) else None))
    with torch.autocast("cpu", dtype=torch.bfloat16), products:
        cast = value_and_gradients(loss, z1, z2)
    assert set(seen) == {torch.float32, None}
    assert_same(cast, plain, loss, z1, z2)


def test_the_gradient_is_scaled_by_the_incoming_gradient_and_one_view_may_have_none():
    z1, z2, _ = make_views()
    loss = PairLoss(Direct())
    _, *both = value_and_gradients(loss, z1, z2)
    close(torch.autograd.grad(3 * loss(z1, z2), (z1, z2)), [3 * g for g in both])
    (alone,) = torch.autograd.grad(loss(z1, z2.detach()), z1)
    assert torch.equal(alone, both[0])


def test_a_second_derivative_is_refused():
    z1, z2, _ = make_views()
    with pytest.raises(RuntimeError, match="create_graph=True"):
        torch.autograd.grad(PairLoss(Entropy())(z1, z2), z1, create_graph=True)
    d2 = torch.rand(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="create_graph=True: Square"):
        torch.autograd.grad(Square()(torch.zeros(2), d2)[0, 0], d2, create_graph=True)


@pytest.mark.parametrize(
    "loss",
    [
        PairLoss(Entropy(), tile=16),
        PairLoss(Inverse(), tile=16),
        PairLoss(Entropy(), tile=16, backprop_alpha=True),
        PairLoss(lambda p, n, v: v.to(n.dtype), tile=16),
        FamilyLoss(Triplet(0.1), tile=16),
    ],
    ids=label,
)
def test_no_tensor_is_larger_than_the_tile_allows(loss):
    n, d, tile = 300, 8, 16
    z1, z2, _ = make_views(n=n, d=d, dtype=torch.float32)
    sizes = []

    def note(func, arguments, result):
        sizes.extend(x.numel() for x in tree_leaves(result) if isinstance(x, torch.Tensor))

    with Operators(note):
        loss(z1, z2).backward()
    assert 0 < max(sizes) <= 2 * n * (d + tile)


def test_energy_is_half_the_trace_of_the_contrastive_covariance():
    z1, z2, _ = make_views()
    d2_pos, d2_neg = oracles.distances(z1, z2, "one")
    compact = torch.rand(N, N - 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    alpha = torch.zeros(N, N, dtype=torch.float64)
    alpha[~torch.eye(N, dtype=torch.bool)] = compact.flatten()
    trace = contrastive_covariance(z1, z1, alpha, z2, z2).trace()
    # the two halves of the trace cancel
    repulsion, attraction = (compact * d2_neg).sum().item(), (compact.sum(1) * d2_pos).sum().item()
    close(energy(compact, d2_pos, d2_neg), trace / 2, terms=N * N * D, scale=repulsion + attraction)


def test_contrastive_covariance_equals_the_loop_and_takes_batches():
    generator = torch.Generator().manual_seed(0)
    a1, b1, a2, b2 = (torch.randn(3, 5, d, dtype=torch.float64, generator=generator) for d in (2, 4, 2, 4))
    alpha = torch.rand(3, 5, 5, dtype=torch.float64, generator=generator)
    batched = contrastive_covariance(a1, b1, alpha, a2, b2)
    for k in range(3):
        expected = oracles.contrastive_covariance(a1[k], b1[k], alpha[k], a2[k], b2[k])
        close(batched[k], expected, terms=alpha[k].numel())


@pytest.mark.parametrize("where", [0, 1])
def test_non_finite_embeddings_are_refused_if_check_finite(where):
    views = [z.detach() for z in make_views(dtype=torch.float32)[:2]]
    views[where][2, 1] = torch.nan
    with pytest.raises(ValueError, match=f"z{where + 1}: 1 of {N} embeddings are not finite"):
        PairLoss(Entropy())(*views)
    assert PairLoss(Entropy(), check_finite=False)(*views).isnan()


def test_embeddings_whose_norm_overflows_are_refused():
    z = torch.full((4, 3), 1e25) * torch.tensor([1.0, -1.0, 1.0, -1.0])[:, None]
    with pytest.raises(ValueError, match="squared norms overflow"):
        PairLoss(Entropy())(z, z)


MORE_RULES = [*DIFFERENTIABLE, Direct(p=6.0, tau=0.01), Square(), Tsallis(q=-2.0), Tsallis(q=1.25), Tsallis(q=2.5)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("backprop", [False, True])
@pytest.mark.parametrize("rule", MORE_RULES, ids=label)
def test_a_finite_loss_has_a_finite_gradient_at_every_norm(rule, backprop, dtype):
    """Where a gradient overflows, the loss is NaN, so nobody has to look at the gradient."""
    loss = PairLoss(rule, backprop_alpha=backprop, check_finite=False)
    for norm in (1e-20, 1e-4, 1e4, 1e6, 1e9, 1e11, 1e14, 1e18):
        for far in (1.0, 1e4):
            views = [z.detach() * norm for z in make_views(dtype=dtype)[:2]]
            views[0][0] *= far
            value, *gradients = value_and_gradients(loss, *(z.requires_grad_() for z in views))
            assert value.isnan() or all(g.isfinite().all() for g in gradients), (norm, far)


@pytest.mark.parametrize("anchors", ANCHORS)
@pytest.mark.parametrize("norm", [1e4, 1e9, 1e14])
@pytest.mark.parametrize("tau", [0.1, 5.0])
def test_square_of_huge_embeddings_is_that_of_the_loop(tau, norm, anchors):
    """The nearest pair of each row has the whole weight. Distances from two matrix products would not agree on it."""
    z1, z2 = ((z.detach() * norm).requires_grad_() for z in make_views()[:2])
    d2_pos, d2_neg = oracles.distances(z1, z2, anchors)
    alpha = oracles.each_row(oracles.square_by_sort, d2_neg.detach(), tau=tau)
    assert (alpha.amax(1) == 1).all()
    expected = of_loop(oracles.pair_loss(alpha, d2_pos, d2_neg), z1, z2)
    loss = PairLoss(Square(tau), anchors=anchors)
    assert_same(value_and_gradients(loss, z1, z2), expected, loss, z1, z2)


Z, _, CLEAN = (z.detach() for z in make_views())
BAD_VIEWS = [
    ((Z, Z[:3]), r"z2=\(3, 4\)"),
    ((Z[0], Z[0]), "z1="),
    ((Z[:1], Z[:1]), "N=1"),
    ((Z[:0], Z[:0]), r"z1=\(0, 4\)"),
    ((Z, Z.float()), "z2=torch.float32"),
    ((Z.long(), Z.long()), "z1=torch.int64"),
    ((Z, Z.to("meta")), "z2=.*meta"),
    ((Z, None), "z2=None"),
    ((Z, Z, CLEAN), "clean=a tensor: Entropy"),
]
BAD_LOSSES = [
    ({"anchors": "two"}, "anchors='two'"),
    ({"beta": float("nan")}, "beta=nan"),
    ({"tile": 0}, "tile=0"),
    ({"tile": True}, "tile=True"),
    ({"importance": "entropy"}, "importance='entropy'"),
    ({"importance": Entropy}, "importance=<class"),
    ({"importance": FromFamily(InfoNCE()), "backprop_alpha": True}, "backprop_alpha=True"),
    ({"importance": Gaussian(), "backprop_alpha": True}, "backprop_alpha=True"),
    ({"importance": lambda p, n, v: torch.ones_like(n), "backprop_alpha": True}, "backprop_alpha=True"),
]
test_bad_input_is_refused_by_name_and_value = refused(
    *((functools.partial(PairLoss(Entropy()), *views), message) for views, message in BAD_VIEWS),
    *((functools.partial(PairLoss, **{"importance": Entropy(), **bad}), message) for bad, message in BAD_LOSSES),
    (lambda: PairLoss(Exact())(Z, Z), "clean=None: Exact"),
    (lambda: PairLoss(Exact())(Z, Z, CLEAN[:3]), r"clean=\(3, 4\)"),
    (lambda: FamilyLoss(Entropy()), "family="),
)


def test_the_clean_view_gets_no_gradient():
    z1, z2, clean = make_views()
    clean.requires_grad_()
    PairLoss(Exact())(z1, z2, clean).backward()
    assert clean.grad is None
    assert not PairLoss(Exact())(z1.detach(), z2.detach(), clean).requires_grad


class Shifted(Streaming):
    """Entropy with a constant added to its logits, which changes no weight."""

    constant = 200.0

    def log_kernel(self, d2_neg):
        return d2_neg.mul_(-1 / Entropy().tau).add_(self.constant)


def test_logits_that_overflow_are_fitted_in_log_space():
    z1, z2, _ = make_views(dtype=torch.float32)
    loss = PairLoss(Entropy())
    shifted = value_and_gradients(PairLoss(Shifted()), z1, z2)
    plain = value_and_gradients(loss, z1, z2)
    # the rounding of a logit of this size is the relative error of the weight; the value has terms as large as d2
    largest_d2 = max(d2.max().item() for d2 in oracles.distances(z1, z2, "both"))
    close(shifted, plain, scale=largest_d2, gain=Shifted.constant)


def test_near_duplicates_weigh_no_more_than_the_kernel_allows():
    """d2 of nearly equal vectors of norm 3000 rounds below 0, where exp(−d2/τ) would exceed 1."""
    generator = torch.Generator().manual_seed(0)
    directions = F.normalize(torch.randn(4, 16, generator=generator), dim=1) * 3000
    z1 = directions.repeat(8, 1) + 1e-3 * torch.randn(32, 16, generator=generator)
    loss = PairLoss(Direct(p=2.0, normalize=False))
    rough, exact = loss(z1, z1 + 1e-3).item(), loss(z1.double(), (z1 + 1e-3).double()).item()
    assert abs(rough - exact) < 16  # 14 near neighbours with weights of at most 1, times the rounding of d2


def test_the_repr_of_a_loss_names_its_family():
    assert "Triplet(margin=0.1)" in str(FamilyLoss(Triplet(0.1)))
