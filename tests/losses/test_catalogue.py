"""The losses of other papers: value, gradient and weights of slow loops, and which losses are equal."""

import contextlib
import functools

import catalogue
import oracles
import pytest
import torch
from helpers.closeness import close
from helpers.losses import (
    OF_LOSSES,
    close_each,
    label,
    make_views,
    oracle_of,
    parameters,
    scales_of,
    terms_of,
    value_and_gradients,
)
from helpers.refusals import refused

from lightning_ssl import losses
from lightning_ssl.losses import (
    DCL,
    DCLW,
    FMICL,
    MACL,
    RINCE,
    AdaptiveNegative,
    AlignUniform,
    Circle,
    Debiased,
    FamilyLoss,
    HardContrastive,
    HardNegative,
    InfoNCE,
    MarginInfoNCE,
    MultiSimilarity,
    PairLoss,
    Sigmoid,
    SoftTriplet,
    Spectral,
    device,
)

N, D = 5, 4
CASES = [
    *OF_LOSSES,
    DCL(tau=0.5, learn_tau=True),
    DCLW(tau=0.3, sigma=0.2, learn_tau=True),
    Debiased(tau_plus=0.0),
    Debiased(tau=0.3, tau_plus=0.4),  # some rows are at the floor
    HardNegative(beta=0.0),
    HardNegative(tau=0.3, tau_plus=0.3, beta=2.0),
    HardNegative(tau=0.3, tau_plus=0.05, detached=True),
    AdaptiveNegative(tau=0.2, mu=0.8, sigma=1.0, learn_tau=True),
    HardContrastive(tau=0.5, fraction=0.4, learn_tau=True),
    HardContrastive(fraction=1.0),
    Sigmoid(tau=0.5, bias=-1.0),
    Sigmoid(learn_tau=False),
    Sigmoid(learn_tau=False, learn_bias=False),
    RINCE(tau=0.5, lam=0.1, q=1.0),
    RINCE(tau=0.2, lam=0.01, q=0.1, learn_tau=True),
    MACL(tau=0.3, alpha=0.9, a0=-0.2),
    AlignUniform(t=3.0, power=4.0, w_align=0.3, w_uniform=0.5),
    AlignUniform(power=1.0),
    MultiSimilarity(pos_scale=5.0, neg_scale=10.0, base=0.2),
    MultiSimilarity(mining=0.1),
    MultiSimilarity(mining=-0.5),  # some rows keep no negative
    Circle(margin=0.4, gamma=80.0),
    Circle(margin=0.25, gamma=2.0),
    MarginInfoNCE(margin=0.3),
    MarginInfoNCE(tau=0.2, margin=0.3, angular=True),
    *(FMICL(kind, width=0.7, height=2.0, weight=3.0) for kind in ("kl", "js", "chi2")),
]
every_case = pytest.mark.parametrize("rule", CASES, ids=label)
both_anchors = pytest.mark.parametrize("anchors", ["both", "one"])
PLACES = {
    "tiles": (contextlib.nullcontext, None),
    "small tiles": (contextlib.nullcontext, 3),
    "rows": (device.acting_as_accelerator, None),
    "blocks of rows": (device.acting_as_accelerator, 3),
}


def clusters():
    """Two views of two clusters, near each other's opposite, with two samples that are nearly equal."""
    z1, z2, _ = (z.detach() for z in make_views(n=N, d=D))
    centre, sign = z1[:1], torch.where(torch.arange(N) % 2 == 0, 1.0, -1.0)[:, None]
    z1, z2 = (torch.nn.functional.normalize(0.3 * z + sign * centre) for z in (z1, z2))
    z1[2] = z1[0] + 1e-4 * z1[1]
    return [z.requires_grad_() for z in (z1, z2)]


BATCHES = {"spread": lambda: make_views(n=N, d=D)[:2], "clusters": clusters}
every_batch = pytest.mark.parametrize("batch", BATCHES)


def of_loop(rule, z1, z2, anchors):
    """The similarities, and the value and gradients of the loop."""
    similarities = [1 - d2 for d2 in oracles.distances(z1, z2, anchors)]
    value = oracle_of(rule)(*similarities, **parameters(rule))
    return similarities, (value.detach(), *torch.autograd.grad(value, (z1, z2), retain_graph=True))


EXACT = 1e-8  # of the largest entry, or of 1


def test_every_loss_has_a_loop():
    names = {type(rule).__name__ for rule in OF_LOSSES}
    assert len(names) == 15
    assert all(callable(oracle_of(rule)) for rule in OF_LOSSES)


@every_case
@every_batch
@both_anchors
def test_value_and_gradient_are_those_of_the_loop(rule, batch, anchors):
    z1, z2 = BATCHES[batch]()
    similarities, expected = of_loop(rule, z1, z2, anchors)
    names = PairLoss(rule).learned
    of_learned = catalogue.learned_gradients(oracle_of(rule), *similarities, parameters(rule), names)
    for name, (place, tile) in PLACES.items():
        loss = PairLoss(rule, anchors=anchors, tile=tile).double()
        with place():
            value = loss(z1, z2)
            found = value.detach(), *torch.autograd.grad(value, (z1, z2, *loss.parameters()))
        for a, e in zip(found, (*expected, *of_learned), strict=True):
            assert (a - e).abs().max() <= EXACT * max(1, e.abs().max()), name


@every_case
@both_anchors
def test_the_weights_are_the_derivatives_by_the_distances(rule, anchors):
    """α_ij = −∂ML/∂d2_neg_ij and a_i = ∂ML/∂d2_pos_i."""
    z1, z2 = BATCHES["spread"]()
    d2_pos, d2_neg = (x.detach().requires_grad_() for x in oracles.distances(z1, z2, anchors))
    value = len(d2_pos) * oracle_of(rule)(1 - d2_pos, 1 - d2_neg, **parameters(rule))
    attraction, slope = torch.autograd.grad(value, (d2_pos, d2_neg))
    alpha = rule(d2_pos.detach(), d2_neg.detach())
    assert (alpha + slope).abs().max() <= EXACT * max(1, slope.abs().max())
    found = rule.for_batch(d2_pos.detach()).rows(d2_pos.detach(), d2_neg.detach().clone(), losses.rows.Negatives(None))
    own = found.row_sum if found.attraction is None else found.attraction
    assert (own - attraction).abs().max() <= EXACT * max(1, attraction.abs().max())
    close(found.row_sum, alpha.sum(1), terms=alpha.shape[1], scale=alpha.abs().sum(1).max().item())


@every_case
@pytest.mark.parametrize("beta_times", ["row_sum", "one"])
def test_beta_adds_to_the_attraction(rule, beta_times):
    z1, z2 = views = BATCHES["spread"]()
    d2_pos, d2_neg = oracles.distances(z1, z2, "both")
    factor = rule(d2_pos.detach(), d2_neg.detach()).sum(1) if beta_times == "row_sum" else 1
    added = 0.4 * (factor * d2_pos).mean()
    of_added = added.detach(), *torch.autograd.grad(added, views)
    plain = value_and_gradients(PairLoss(rule), *views)
    found = value_and_gradients(PairLoss(rule, beta=0.4, beta_times=beta_times), *views)
    scale = [a.abs().max().item() + b.abs().max().item() for a, b in zip(plain, of_added, strict=True)]
    close_each(found, [a + b for a, b in zip(plain, of_added, strict=True)], terms_of(views), scale, gain=10)


@every_case
def test_float32_is_as_accurate_as_its_rounding(rule):
    views = make_views(n=40, d=8)[:2]
    loss = PairLoss(rule)
    found = value_and_gradients(loss, *(z.detach().float().requires_grad_() for z in views))
    close_each(found, value_and_gradients(loss, *views), terms_of(views), scales_of(loss, views), gain=8)


# ---------------------------------------------------------------------------------------------------------------------
# Which losses are equal


class Times:
    """A loss times a number."""

    def __init__(self, factor, loss):
        self.factor, self.loss = factor, loss

    def __call__(self, *views):
        return [self.factor * x for x in value_and_gradients(self.loss, *views)]


def equal(one, other, parts=slice(None)):
    for anchors in ("both", "one"):
        views = BATCHES["spread"]()
        losses_of = [make(anchors) for make in (one, other)]
        found, expected = ([*each(*views)][parts] for each in losses_of)
        close_each(found, expected, terms_of(views), [max(1.0, x.abs().max().item()) for x in expected], gain=10)


def pair(rule, factor=1.0):
    return lambda anchors: Times(factor, PairLoss(rule, anchors=anchors))


def family(loss, factor=1.0):
    return lambda anchors: Times(factor, FamilyLoss(loss, anchors=anchors))


TAU = 0.4
GRADIENTS = slice(1, None)


def test_dcl_times_tau_is_infonce_without_the_positive_and_has_the_weights_of_entropy_over_tau():
    equal(pair(DCL(TAU), TAU), family(InfoNCE(TAU, eps=0.0)))
    equal(pair(DCL(TAU), TAU), pair(losses.Entropy(TAU)), GRADIENTS)


def test_debiased_without_a_class_prior_is_ntxent():
    equal(pair(Debiased(TAU, tau_plus=0.0), TAU), family(InfoNCE(TAU)))


def test_hard_negative_without_concentration_is_debiased():
    equal(pair(HardNegative(TAU, beta=0.0)), pair(Debiased(TAU)))
    equal(pair(HardNegative(TAU, beta=0.0, detached=True)), pair(Debiased(TAU)))


def test_hard_contrastive_with_all_negatives_is_ntxent():
    equal(pair(HardContrastive(TAU, fraction=1.0), TAU), family(InfoNCE(TAU)))


def test_adaptive_negative_with_a_wide_gaussian_is_ntxent():
    equal(pair(AdaptiveNegative(TAU, sigma=1e9), TAU), family(InfoNCE(TAU)))


def test_macl_has_the_gradient_of_dcl_at_its_temperature():
    z1, z2 = BATCHES["spread"]()
    alignment = 1 - oracles.distances(z1, z2, "both")[0].mean().item()
    equal(pair(MACL(TAU, alpha=0.7, a0=0.1)), pair(DCL(TAU * (1 + 0.7 * (alignment - 0.1)))), GRADIENTS)


def test_a_margin_of_the_cosine_is_the_soft_triplet_loss():
    equal(pair(MarginInfoNCE(TAU, margin=0.2), TAU), family(SoftTriplet(TAU, margin=0.2 / TAU)))


def test_margins_of_zero_are_ntxent():
    for angular in (False, True):
        equal(pair(MarginInfoNCE(TAU, margin=0.0, angular=angular), TAU), family(InfoNCE(TAU)))


def test_rince_with_a_small_q_has_the_gradient_of_ntxent():
    q = 1e-7  # the difference is of this order
    views = BATCHES["spread"]()
    found = value_and_gradients(PairLoss(RINCE(TAU, lam=1.0, q=q)), *views)[1:]
    for a, e in zip(found, Times(1 / TAU, FamilyLoss(InfoNCE(TAU)))(*views)[1:], strict=True):
        assert (a - e).abs().max() <= 100 * q


def test_fmicl_js_is_sigmoid_with_its_negatives_weighted():
    """Equal where the weight of the negatives is their number; the values differ by a constant."""
    rho, h = 0.8, 2.0
    for anchors, count in (("both", 2 * N - 2), ("one", N - 1)):
        one = pair(FMICL("js", width=rho, height=h, weight=float(count)))(anchors)
        other = pair(Sigmoid(tau=rho**2, bias=torch.tensor(h).double().log().item() - 1 / rho**2))(anchors)
        equal(lambda _, one=one: one, lambda _, other=other: other, GRADIENTS)


# ---------------------------------------------------------------------------------------------------------------------
# What is particular to a loss


def test_some_weights_of_hard_negative_and_spectral_are_negative_and_none_if_detached():
    d2_pos, d2_neg = (x.detach() for x in oracles.distances(*BATCHES["spread"](), "both"))
    for rule in (HardNegative(), Spectral()):
        assert (rule(d2_pos, d2_neg) < 0).any()
    assert (HardNegative(detached=True)(d2_pos, d2_neg) >= 0).all()


def test_the_cases_have_rows_at_the_floor_and_rows_without_a_kept_negative():
    for name in BATCHES:
        d2_pos, d2_neg = (x.detach() for x in oracles.distances(*BATCHES[name](), "both"))
        floored = [(rule(d2_pos, d2_neg) == 0).all(1) for rule in (Debiased(0.3, 0.4), MultiSimilarity(mining=-0.5))]
        if name == "spread":
            assert all(x.any() and not x.all() for x in floored)


def test_a_loss_at_equal_and_opposite_samples_is_finite():
    z = torch.nn.functional.normalize(torch.randn(1, 4, generator=torch.Generator().manual_seed(0)).double())
    for z1, z2 in ((z.expand(5, -1), z.expand(5, -1)), (z.expand(5, -1), -z.expand(5, -1))):
        for rule in CASES:
            views = [x.clone().requires_grad_() for x in (z1, z2)]
            value, *gradients = value_and_gradients(PairLoss(rule), *views)
            assert all(x.isfinite().all() for x in (value, *gradients)), rule


def test_circle_with_a_large_scale_does_not_overflow():
    views = make_views(dtype=torch.float32)[:2]
    value, *gradients = value_and_gradients(PairLoss(Circle()), *views)
    assert value.isfinite()
    assert 0 < max(g.abs().max() for g in gradients) < Circle().gamma


def test_the_temperature_of_a_trained_loss_moves_and_is_stored():
    views = [z.detach() for z in BATCHES["spread"]()]
    loss = PairLoss(Sigmoid())
    assert loss.learned_values() == pytest.approx({"tau": 0.1, "bias": -10.0})
    optimizer = torch.optim.SGD(loss.parameters(), lr=0.1)
    loss(*views).backward()
    optimizer.step()
    moved = loss.learned_values()
    assert moved["tau"] != 0.1
    assert moved["bias"] != -10
    copied = PairLoss(Sigmoid())
    copied.load_state_dict(loss.state_dict())
    assert copied.learned_values() == moved
    assert torch.equal(copied(*views), loss(*views))


REFUSED = [
    (functools.partial(DCL, tau=0.0), "tau=0.0"),
    (functools.partial(DCLW, sigma=-1.0), "sigma=-1.0"),
    (functools.partial(Debiased, tau_plus=1.0), "tau_plus=1.0: tau_plus must be a number from 0 to below 1"),
    (functools.partial(HardNegative, beta=-0.1), "beta=-0.1"),
    (functools.partial(AdaptiveNegative, mu=float("nan")), "mu=nan"),
    (functools.partial(HardContrastive, fraction=0.0), "fraction=0.0"),
    (functools.partial(Sigmoid, bias=float("inf")), "bias=inf"),
    (functools.partial(RINCE, q=0.0), "q=0.0"),
    (functools.partial(RINCE, tau=0.005), "tau=0.005: tau must be at least q/80 = 0.00625"),
    (functools.partial(MACL, alpha=1.0), r"alpha=1.0: alpha must be below 1/\(1 \+ a0\)"),
    (functools.partial(AlignUniform, power=0.5), "power=0.5"),
    (functools.partial(MultiSimilarity, mining=float("nan")), "mining=nan"),
    (functools.partial(Circle, gamma=0.0), "gamma=0.0"),
    (functools.partial(MarginInfoNCE, margin=-0.1), "margin=-0.1"),
    (functools.partial(FMICL, divergence="hellinger"), "divergence='hellinger'"),
    *((functools.partial(PairLoss, rule, backprop_alpha=True), "backprop_alpha=True") for rule in OF_LOSSES),
]
test_bad_parameters_are_refused_by_name_and_value = refused(*REFUSED)
