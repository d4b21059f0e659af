"""Embeddings and parameters far from 1: every finite loss has the value and the gradient of the equations.

A loss whose exact value or gradient does not fit into the dtype is NaN or infinite, and training stops. It is never a
finite number with a wrong gradient.
"""

import contextlib
import dataclasses
import functools

import oracles
import pytest
import torch
from helpers.closeness import bound
from helpers.losses import DEFAULTS, OWN, at_tau, label, oracle_of, parameters, scales_of, value_and_gradients
from helpers.losses import FAMILIES as DEFAULT_FAMILIES
from helpers.refusals import refused

from lightning_ssl import losses
from lightning_ssl.losses import FamilyLoss, FromFamily, PairLoss, Regularized, device

N, D = 3, 3
NORMS = (1e-8, 1.0, 1e2, 1e4, 1e9, 1e14)
TAUS = (1e-20, 0.5, 1e20)

IMPORTANCES = [
    *dict.fromkeys(at_tau(rule, tau) for rule in DEFAULTS for tau in TAUS),
    *(
        rule
        for tau in TAUS
        for rule in (
            losses.Exact(tau, kind="soft_triplet", r0=0.4),
            losses.Direct(tau, p=1.01),
            losses.Direct(tau, p=20.0),
            losses.Direct(tau, p=1000.0),
            losses.Direct(tau, normalize=False),
            losses.Direct(tau, p=20.0, normalize=False),
            losses.Tsallis(tau, q=-5.0),
            losses.Tsallis(tau, q=0.5),
            losses.Tsallis(tau, q=1.5),
            losses.Tsallis(tau, q=3.0),
        )
    ),
    losses.Inverse(0.5, gamma=6.0),
    losses.ReleasedInverse(0.5, exponent=30.0),
    losses.ReleasedInverse(0.5, exponent=2.0, power=2.0, normalize=True),
    losses.Exact(0.5, kind="all_negatives", distances="augmented"),
    losses.Exact(0.5, mean=True),
]
FAMILIES = [
    *dict.fromkeys(at_tau(family, tau) for family in DEFAULT_FAMILIES for tau in TAUS),
    *(family for margin in (-1e6, 0.0, 1e6) for family in (losses.Triplet(margin), losses.LiftedStructured(margin))),
    *(losses.InfoNCE(tau, eps) for tau in TAUS for eps in (0.0, 1e-10)),
    *(losses.SoftTriplet(tau, margin=1e6) for tau in TAUS),
    *(losses.ModifiedTriplet(c) for c in TAUS),
]
LOSSES = [
    *(PairLoss(rule, check_finite=False) for rule in [*IMPORTANCES, *(own for own, _ in OWN.values())]),
    *(PairLoss(FromFamily(family), check_finite=False) for family in FAMILIES),
    *(FamilyLoss(family, check_finite=False) for family in FAMILIES),
]


def row_of(loss):
    """The oracle of a row."""
    rule = loss.importance
    if isinstance(rule, FromFamily):
        of_family = oracles.FAMILIES_OF_ANY_SIZE[type(rule.family).__name__](**parameters(rule.family))
        return of_family if isinstance(loss, FamilyLoss) else lambda d2_pos, c: (None, of_family(d2_pos, c)[1])
    if isinstance(rule, Regularized):
        _, rule = OWN[rule.name]
    # An oracle that is one formula for numbers of any size has no second one.
    oracle = oracles.IMPORTANCES_OF_ANY_SIZE.get(type(rule).__name__) or oracle_of(rule)
    return lambda d2_pos, c: (None, oracle(c, **parameters(rule)))


def test_every_oracle_is_used():
    assert {type(rule).__name__ for rule in IMPORTANCES} >= set(oracles.IMPORTANCES_OF_ANY_SIZE)
    assert {type(family).__name__ for family in FAMILIES} == set(oracles.FAMILIES_OF_ANY_SIZE)


def make_views(norm):
    """Numbers of float32, so that float32 and float64 have the same exact result."""
    generator = torch.Generator().manual_seed(1)
    views = [torch.randn(N, D, generator=generator) for _ in range(3)]
    views = [(torch.nn.functional.normalize(z, dim=1) * norm).float() for z in views]
    return [z.requires_grad_(i < 2) for i, z in enumerate(views)]


def sizes(expected):
    return expected if isinstance(expected, list) else [expected]


def is_close(found, exact, dtype, norm, scale):
    """Whether value and gradients are those of the oracle, up to rounding. Weights below the dtype's range may be 0."""
    tiny = 2 * N * torch.finfo(dtype).tiny
    return all(
        max(abs(a - e) for a, e in zip(result.flatten().tolist(), sizes(expected), strict=True))
        <= bound(dtype, each, 2 * N * (D + 2)) + tiny * max(1.0, norm**2)
        for result, expected, each in zip(found, exact, scale, strict=True)
    )


def too_large(loss, norm, dtype, exact, alpha):
    """Whether a quantity that the loss has to compute does not fit into the dtype."""
    rule = getattr(loss.importance, "family", loss.importance)
    of_sums = max(abs(exact[0]), alpha * max(norm, norm**2))
    of_logit = norm**2 / getattr(rule, "tau", 1.0)
    steep = getattr(getattr(rule, "tsallis", rule), "q", 1.0) < -2  # here a pair whose distance overflows has a weight
    of_range = of_logit if isinstance(loss, FamilyLoss) or steep else 0.0
    return 16 * N * max(of_sums, of_range) >= torch.finfo(dtype).max


PLACES = [("cpu", torch.float32), ("cpu", torch.float64), ("accelerator", torch.float32)]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{type(loss).__name__}-{label(loss.importance)}")
def test_a_finite_loss_is_right_at_every_norm(loss):
    for norm in NORMS:
        views = make_views(norm)[: 3 if loss.importance.uses_clean_view else 2]
        *exact, alpha = oracles.loss_of_any_size(row_of(loss), *views)
        for place, dtype in PLACES:
            with device.acting_as_accelerator() if place == "accelerator" else contextlib.nullcontext():
                found = value_and_gradients(loss, *(z.to(dtype) for z in views))
            where = f"norm {norm}, {dtype}, {place}"
            if not found[0].isfinite():
                assert too_large(loss, norm, dtype, exact, alpha), where
                continue
            if is_close(found, exact, dtype, norm, [float(max(map(abs, sizes(x)))) for x in exact]):
                continue
            response = scales_of(loss, views)
            assert is_close(found, exact, dtype, norm, response), f"{where}: {found[0]} and not {float(exact[0])}"


WITH_TAU = {type(rule): rule for rule in [*IMPORTANCES, *FAMILIES] if "tau" in parameters(rule)}
test_a_temperature_an_exponent_or_a_slope_beyond_the_range_is_refused = refused(
    *(
        (functools.partial(dataclasses.replace, rule, tau=tau), r"tau must be a number from 1e-30 to 1e\+30")
        for rule in WITH_TAU.values()
        for tau in (1e-40, 1e40)
    ),
    (lambda: losses.Direct(p=1001), r"p=1001: p must be at most 1000"),
    (lambda: losses.ModifiedTriplet(c=1e40), r"c=1e\+40: c must be a number from 1e-30 to 1e\+30"),
)
