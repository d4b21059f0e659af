"""The fused kernel has the value and the gradient of the equations, for every tile size."""

import copy

import oracles
import pytest
import torch
from helpers.closeness import close
from helpers.losses import CASES as IMPORTANCE_CASES
from helpers.losses import FAMILY_CASES as DEFAULT_FAMILIES
from helpers.losses import close_each, label, oracle_gain, scales
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from lightning_ssl import losses
from lightning_ssl.losses.energy import FamilyLoss, PairLoss, contrastive_covariance, energy, tile_kernel
from lightning_ssl.losses.families import InfoNCE, LiftedStructured, ModifiedTriplet, Quadratic, Triplet
from lightning_ssl.losses.importance import Direct, Entropy, Exact, FromFamily, Gaussian, Streaming, Uniform
from lightning_ssl.losses.pairs import Pairs
from lightning_ssl.losses.solved import Inverse, Regularized, Square, Tsallis

N, D = 7, 4
ANCHORS = ["both", "one"]


def make_views(n=N, d=D, dtype=torch.float64, seed=0, normalize=False):
    generator = torch.Generator().manual_seed(seed)
    views = [torch.randn(n, d, dtype=torch.float64, generator=generator) * 0.6 + 0.5 for _ in range(3)]
    if normalize:
        views = [F.normalize(z, dim=1) for z in views]
    return [z.to(dtype).requires_grad_(i < 2) for i, z in enumerate(views)]


def value_and_gradients(loss, z1, z2, *clean):
    value = loss(z1, z2, *clean)
    return value.detach(), *torch.autograd.grad(value, (z1, z2))


def assert_same(actual, expected, loss, *views, gain=1.0):
    """Value and gradients (or gradients alone) of a loss at these views, up to rounding."""
    n, d = views[0].shape
    scale = scales(lambda *z: value_and_gradients(loss, *z), *views)
    # up to 2N candidates of an anchor, and D + 2 products for each distance
    close_each(actual, expected, 2 * n * (d + 2), scale[-len(expected) :], gain)


@pytest.mark.parametrize("anchors", ANCHORS)
@pytest.mark.parametrize(("rule", "oracle", "parameters"), IMPORTANCE_CASES, ids=label)
def test_pair_loss_has_the_value_and_gradient_of_the_loop_with_alpha_fixed(rule, oracle, parameters, anchors):
    z1, z2, clean = make_views()
    d2_pos, d2_neg = oracles.distances(z1, z2, anchors)
    weighed = oracles.clean_distances(clean, anchors) if rule.uses_clean_view else d2_neg
    alpha = oracles.each_row(oracle, weighed.detach(), **parameters)
    expected = oracles.pair_loss(alpha, d2_pos, d2_neg, beta=-0.5)
    expected = expected.detach(), *torch.autograd.grad(expected, (z1, z2))
    loss = PairLoss(rule, anchors=anchors, beta=-0.5, tile=3)
    extra = [clean] if rule.uses_clean_view else []
    actual = value_and_gradients(loss, z1, z2, *extra)
    assert_same(actual, expected, loss, z1, z2, *extra, gain=oracle_gain(alpha, weighed.detach(), **parameters))


FAMILY_CASES = [
    *DEFAULT_FAMILIES,
    ("InfoNCE", {"tau": 0.1, "eps": 0.0}),
    ("Triplet", {"margin": 0.2}),
    ("SoftTriplet", {"tau": 0.3, "margin": 0.5}),
    ("LiftedStructured", {"margin": 0.0}),
    ("ModifiedTriplet", {"c": 3.0}),
]


@pytest.mark.parametrize("anchors", ANCHORS)
@pytest.mark.parametrize(("name", "parameters"), FAMILY_CASES)
def test_family_loss_has_the_value_and_gradient_of_the_loop(name, parameters, anchors):
    z1, z2, _ = make_views()
    expected = oracles.family_values(name, *oracles.distances(z1, z2, anchors), **parameters).mean()
    expected = expected.detach(), *torch.autograd.grad(expected, (z1, z2))
    loss = FamilyLoss(getattr(losses, name)(**parameters), anchors=anchors)
    assert_same(value_and_gradients(loss, z1, z2), expected, loss, z1, z2)


@pytest.mark.parametrize("anchors", ANCHORS)
@pytest.mark.parametrize(("name", "parameters"), FAMILY_CASES)
def test_theorem_1_descent_of_the_loss_is_ascent_of_the_energy(name, parameters, anchors):
    """∇L = −∇E_{sg(α)} with α_ij = φ'(ξ_i) ψ'(d2_pos_i − d2_neg_ij), by autograd of the loops and by the kernel."""
    z1, z2, _ = make_views(seed=3)
    d2_pos, d2_neg = oracles.distances(z1, z2, anchors)
    of_loss = torch.autograd.grad(
        oracles.family_values(name, d2_pos, d2_neg, **parameters).mean(), (z1, z2), retain_graph=True
    )
    alpha = oracles.family_alpha(name, d2_pos, d2_neg, **parameters)
    of_energy = torch.autograd.grad(oracles.pair_loss(alpha, d2_pos, d2_neg), (z1, z2))
    loss = PairLoss(FromFamily(getattr(losses, name)(**parameters)), anchors=anchors)
    assert_same(of_loss, of_energy, loss, z1, z2)
    assert_same(value_and_gradients(loss, z1, z2)[1:], of_loss, loss, z1, z2)


def test_entropy_has_the_gradient_of_infonce_without_the_positive():
    z1, z2, _ = make_views(normalize=True)
    entropy = PairLoss(Entropy(tau=0.2))
    infonce = FamilyLoss(InfoNCE(tau=0.2, eps=0.0))
    assert_same(value_and_gradients(entropy, z1, z2)[1:], value_and_gradients(infonce, z1, z2)[1:], entropy, z1, z2)


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


def test_infonce_is_lightlys_ntxent_times_tau():
    lightly = pytest.importorskip("lightly.loss", reason="lightly is installed for benchmarks only")
    z1, z2, _ = make_views(n=20, dtype=torch.float32, normalize=True)
    loss = FamilyLoss(InfoNCE(tau=0.2))
    expected = 0.2 * lightly.NTXentLoss(temperature=0.2)(z1, z2)
    scale = scales(lambda *z: [loss(*z)], z1, z2)[0]
    close(loss(z1, z2), expected, terms=2 * len(z1) * (D + 2), scale=scale)


RULES = [
    Entropy(),
    Direct(),
    Direct(p=3.0, normalize=False),
    Inverse(tau=0.05),
    Square(tau=0.5),
    Tsallis(q=0.5),
    Tsallis(q=1.5),
    Regularized(lambda a: 0.05 / a, lambda x: 0.05 / x),
]


@pytest.mark.parametrize("anchors", ANCHORS)
@pytest.mark.parametrize("rule", [*RULES, Uniform()], ids=label)
def test_backprop_alpha_gives_the_gradient_through_alpha(rule, anchors):
    beta = 0.2
    z1, z2, _ = make_views()
    d2_pos, d2_neg = oracles.distances(z1, z2, anchors)
    expected = oracles.pair_loss(rule(d2_pos, d2_neg), d2_pos, d2_neg, beta)
    expected = expected.detach(), *torch.autograd.grad(expected, (z1, z2))
    for tile in (None, 3):
        loss = PairLoss(rule, anchors=anchors, beta=beta, backprop_alpha=True, tile=tile)
        assert_same(value_and_gradients(loss, z1, z2), expected, loss, z1, z2)


def test_backprop_alpha_changes_the_gradient_and_not_the_value():
    z1, z2, _ = make_views()
    loss = PairLoss(Entropy())
    detached = value_and_gradients(loss, z1, z2)
    attached = value_and_gradients(PairLoss(Entropy(), backprop_alpha=True), z1, z2)
    close(attached[0], detached[0], terms=2 * N * (D + 2), scale=scales(lambda *z: [loss(*z)], z1, z2)[0])
    assert not torch.allclose(detached[1], attached[1], rtol=1e-2)


@pytest.mark.parametrize("rule", [FromFamily(InfoNCE()), Gaussian(), lambda p, n, v: torch.ones_like(n)], ids=label)
def test_backprop_alpha_without_a_vjp_is_refused_at_construction(rule):
    with pytest.raises(ValueError, match="backprop_alpha=True"):
        PairLoss(rule, backprop_alpha=True)


@pytest.mark.parametrize("anchors", ANCHORS)
@pytest.mark.parametrize("rule", RULES, ids=label)
def test_a_plain_callable_gives_the_same_as_the_class(rule, anchors):
    z1, z2, _ = make_views()
    loss = PairLoss(rule, anchors=anchors, beta=0.2)
    for tile in (None, 3):
        plain = PairLoss(lambda p, n, v: rule(p, n, v), anchors=anchors, beta=0.2, tile=tile)
        assert_same(value_and_gradients(plain, z1, z2), value_and_gradients(loss, z1, z2), loss, z1, z2)


def test_a_plain_callable_may_ignore_the_mask_and_the_dtype():
    z1, z2, _ = make_views()
    rounded = value_and_gradients(PairLoss(lambda d2_pos, d2_neg, valid: torch.exp(-d2_neg).float()), z1, z2)
    loss = PairLoss(Direct(tau=1.0, p=2.0, normalize=False))
    in_float32 = [x.float() for x in rounded]  # α was rounded to float32, so the bound takes its eps
    assert_same(in_float32, value_and_gradients(loss, z1, z2), loss, z1, z2)


def test_a_plain_callable_of_the_wrong_shape_is_refused():
    z1, z2, _ = make_views()
    with pytest.raises(ValueError, match=r"test_energy.py:\d+: it returned shape \(14,\); expected .* \(14, 14\)"):
        PairLoss(lambda d2_pos, d2_neg, valid: d2_pos)(z1, z2)


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


@pytest.mark.parametrize("rule", [Entropy(tau=2e-3), Direct(tau=1e-3), FromFamily(InfoNCE(tau=2e-3))], ids=label)
def test_rows_that_underflow_are_fitted_in_log_space(rule):
    z1, z2, _ = make_views(n=40, d=16, dtype=torch.float32, normalize=True)
    loss = PairLoss(rule)
    assert tile_kernel(Pairs(z1, z2), loss) is None
    assert_same(value_and_gradients(loss, z1, z2), in_float64(loss, z1, z2), loss, z1, z2)


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

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if "mm" in str(func):
                seen.append(args[-1].dtype)
            return func(*args, **(kwargs or {}))

    with torch.autocast("cpu", dtype=torch.bfloat16), Products():
        cast = value_and_gradients(loss, z1, z2)
    assert set(seen) == {torch.float32}
    assert_same(cast, plain, loss, z1, z2)


def test_the_gradient_is_scaled_by_the_incoming_gradient():
    z1, z2, _ = make_views()
    one = value_and_gradients(PairLoss(Direct()), z1, z2)
    three = torch.autograd.grad(3 * PairLoss(Direct())(z1, z2), (z1, z2))
    close(three, [3 * g for g in one[1:]])


def test_one_view_may_have_no_gradient():
    z1, z2, _ = make_views()
    both = value_and_gradients(PairLoss(Direct()), z1, z2)
    (alone,) = torch.autograd.grad(PairLoss(Direct())(z1, z2.detach()), z1)
    assert torch.equal(alone, both[1])


def test_a_second_derivative_is_refused():
    z1, z2, _ = make_views()
    with pytest.raises(RuntimeError, match="create_graph=True"):
        torch.autograd.grad(PairLoss(Entropy())(z1, z2), z1, create_graph=True)
    d2 = torch.rand(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="create_graph=True: Square"):
        torch.autograd.grad(Square()(torch.zeros(2), d2)[0, 0], d2, create_graph=True)


class LargestTensor(TorchDispatchMode):
    """Largest number of elements of a tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(x, torch.Tensor):
                self.numel = max(self.numel, x.numel())
        return out


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
    with LargestTensor() as seen:
        loss(z1, z2).backward()
    assert 0 < seen.numel <= 2 * n * (d + tile)


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


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("where", [0, 1])
def test_non_finite_embeddings_are_refused_if_check_finite(where, check):
    views = make_views(dtype=torch.float32)[:2]
    with torch.no_grad():
        views[where][2, 1] = torch.nan
    loss = PairLoss(Entropy(), check_finite=check)
    if check:
        with pytest.raises(ValueError, match=f"z{where + 1}: 1 of {N} embeddings are not finite"):
            loss(*views)
    else:
        assert loss(*views).isnan()


def test_embeddings_whose_norm_overflows_are_refused():
    z = torch.full((4, 3), 1e25) * torch.tensor([1.0, -1.0, 1.0, -1.0])[:, None]
    with pytest.raises(ValueError, match="squared norms overflow"):
        PairLoss(Entropy())(z, z)


MORE_RULES = [*RULES, Direct(p=6.0, tau=0.01), Square(), Tsallis(q=-2.0), Tsallis(q=1.25), Tsallis(q=2.5)]


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
    expected = oracles.pair_loss(alpha, d2_pos, d2_neg)
    expected = expected.detach(), *torch.autograd.grad(expected, (z1, z2))
    actual = value_and_gradients(PairLoss(Square(tau), anchors=anchors), z1, z2)
    assert_same(actual, expected, PairLoss(Square(tau), anchors=anchors), z1, z2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda z, c: PairLoss(Entropy())(z, z[:3]), r"z2=\(3, 4\)"),
        (lambda z, c: PairLoss(Entropy())(z[0], z[0]), "z1="),
        (lambda z, c: PairLoss(Entropy())(z[:1], z[:1]), "N=1"),
        (lambda z, c: PairLoss(Entropy())(z[:0], z[:0]), r"z1=\(0, 4\)"),
        (lambda z, c: PairLoss(Entropy())(z, z.float()), "z2=torch.float32"),
        (lambda z, c: PairLoss(Entropy())(z.long(), z.long()), "z1=torch.int64"),
        (lambda z, c: PairLoss(Entropy())(z, z.to("meta")), "z2=.*meta"),
        (lambda z, c: PairLoss(Entropy())(z, z, c), "clean=a tensor: Entropy"),
        (lambda z, c: PairLoss(Exact())(z, z), "clean=None: Exact"),
        (lambda z, c: PairLoss(Exact())(z, z, c[:3]), r"clean=\(3, 4\)"),
        (lambda z, c: PairLoss(Entropy(), anchors="two"), "anchors='two'"),
        (lambda z, c: PairLoss(Entropy(), beta=float("nan")), "beta=nan"),
        (lambda z, c: PairLoss(Entropy(), tile=0), "tile=0"),
        (lambda z, c: PairLoss("entropy"), "importance='entropy'"),
        (lambda z, c: PairLoss(Entropy), "importance=<class"),
        (lambda z, c: PairLoss(Entropy(), tile=2.5), "tile=2.5"),
        (lambda z, c: PairLoss(Entropy(), tile=True), "tile=True"),
        (lambda z, c: PairLoss(Entropy(), beta=None), "beta=None"),
        (lambda z, c: Entropy(tau="0.5"), "tau='0.5'"),
        (lambda z, c: PairLoss(Entropy())(z, None), "z2=None"),
        (lambda z, c: PairLoss(Gaussian(), backprop_alpha=True), "backprop_alpha=True"),
        (lambda z, c: FamilyLoss(Entropy()), "family="),
    ],
)
def test_bad_input_is_refused_by_name_and_value(call, message):
    z1, _, clean = make_views()
    with pytest.raises(ValueError, match=message):
        call(z1.detach(), clean)


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


def test_a_callable_may_work_in_place():
    z1, z2, _ = make_views()
    in_place = value_and_gradients(PairLoss(lambda p, n, v: n.mul_(-2).exp_()), z1, z2)
    loss = PairLoss(lambda p, n, v: torch.exp(-2 * n))
    assert_same(in_place, value_and_gradients(loss, z1, z2), loss, z1, z2)


def test_a_second_backward_needs_the_graph_kept():
    z1, z2, _ = make_views()
    value = PairLoss(Entropy())(z1, z2)
    value.backward()
    with pytest.raises(RuntimeError, match="second time"):
        value.backward()


@pytest.mark.parametrize("family", [LiftedStructured(), ModifiedTriplet(), Quadratic()], ids=label)
def test_the_repr_of_a_loss_names_its_family(family):
    assert str(family) in str(FamilyLoss(family))
