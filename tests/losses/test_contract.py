"""What every importance and every family must do, present and future: they are found, not named."""

import dataclasses
import inspect
import math

import pytest
import torch
from helpers.losses import FAMILIES, IMPORTANCES, label, make_views

from lightning_ssl.energy import FamilyLoss, PairLoss
from lightning_ssl.families import Family, LiftedStructured


def at_tau(instance, tau):
    """The same at another τ, wherever it has one."""
    if isinstance(getattr(instance, "family", None), Family):
        return dataclasses.replace(instance, family=at_tau(instance.family, tau))
    if "tau" in inspect.signature(type(instance)).parameters:
        return dataclasses.replace(instance, tau=tau)
    return instance


def make_distances(dtype=torch.float64, rows=6, count=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    d2_pos = torch.rand(rows, dtype=torch.float64, generator=generator)
    d2_neg = 2 * torch.rand(rows, count, dtype=torch.float64, generator=generator)
    return d2_pos.to(dtype), d2_neg.to(dtype)


def test_the_suite_finds_them_all():
    """The names of the contract are among those found."""
    found = {type(x).__name__ for x in FAMILIES + IMPORTANCES}
    assert {"InfoNCE", "MINE", "Triplet", "SoftTriplet", "NPlusOneTuplet", "LiftedStructured"} <= found
    assert {"ModifiedTriplet", "Quadratic", "Entropy", "Inverse", "Square", "Tsallis", "Direct"} <= found
    assert {"Uniform", "Gaussian", "Exact", "FromFamily", "Regularized"} <= found


every_importance = pytest.mark.parametrize("rule", IMPORTANCES, ids=label)
every_family = pytest.mark.parametrize("family", FAMILIES, ids=label)


@every_importance
@pytest.mark.parametrize("tau", [1e-3, 0.5, 1e3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_alpha_is_finite_and_never_negative(rule, tau, dtype):
    alpha = at_tau(rule, tau)(*make_distances(dtype))
    assert torch.isfinite(alpha).all()
    assert (alpha >= 0).all()


@every_importance
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_alpha_keeps_shape_and_dtype(rule, dtype):
    alpha = rule(*make_distances(dtype))
    assert alpha.shape == (6, 10)
    assert alpha.dtype == dtype


@every_importance
def test_alpha_follows_a_permutation_of_the_candidates_and_of_the_rows(rule):
    d2_pos, d2_neg = make_distances()
    alpha = rule(d2_pos, d2_neg)
    columns, rows = torch.randperm(10), torch.randperm(6)
    torch.testing.assert_close(rule(d2_pos, d2_neg[:, columns]), alpha[:, columns])
    torch.testing.assert_close(rule(d2_pos[rows], d2_neg[rows]), alpha[rows])


@every_importance
def test_a_masked_candidate_weighs_nothing_and_changes_nothing(rule):
    d2_pos, d2_neg = make_distances()
    valid = torch.rand(6, 10, generator=torch.Generator().manual_seed(2)) > 0.4
    valid[:, 0] = True
    alpha = rule(d2_pos, d2_neg, valid)
    assert (alpha[~valid] == 0).all()
    for i in range(6):
        torch.testing.assert_close(alpha[i, valid[i]], rule(d2_pos[i : i + 1], d2_neg[i : i + 1, valid[i]])[0])
    nothing = rule(d2_pos, d2_neg, torch.zeros_like(valid))
    assert (nothing == 0).all()


@every_importance
def test_alpha_does_not_touch_its_arguments(rule):
    d2_pos, d2_neg = make_distances()
    before = d2_pos.clone(), d2_neg.clone()
    rule(d2_pos, d2_neg)
    assert torch.equal(d2_pos, before[0])
    assert torch.equal(d2_neg, before[1])


LOSSES = [(PairLoss, rule) for rule in IMPORTANCES] + [(FamilyLoss, family) for family in FAMILIES]
every_loss = pytest.mark.parametrize(("kind", "what"), LOSSES, ids=label)
both_anchors = pytest.mark.parametrize("anchors", ["both", "one"])


def gradients(loss, views):
    extra = [views[2]] if loss.importance.weighs_clean else []
    value = loss(views[0], views[1], *extra)
    return value, *torch.autograd.grad(value, views[:2])


@every_loss
@both_anchors
def test_the_tile_does_not_matter(kind, what, anchors):
    views = make_views()
    whole = gradients(kind(what, anchors=anchors), views)
    for tile in (1, 4, 9, 100):
        for a, b in zip(gradients(kind(what, anchors=anchors, tile=tile), views), whole, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


@every_loss
@both_anchors
@pytest.mark.parametrize("tau", [1e-3, 1e3])
def test_a_loss_is_finite_at_extreme_tau(kind, what, anchors, tau):
    for x in gradients(kind(at_tau(what, tau), anchors=anchors), make_views(dtype=torch.float32)):
        assert torch.isfinite(x).all()


@every_loss
@both_anchors
def test_a_loss_follows_a_permutation_of_the_samples(kind, what, anchors):
    views = make_views()
    order = torch.randperm(13, generator=torch.Generator().manual_seed(0))
    loss = kind(what, anchors=anchors)
    value, g1, g2 = gradients(loss, views)
    shuffled = [z.detach()[order].requires_grad_(i < 2) for i, z in enumerate(views)]
    for a, b in zip(gradients(loss, shuffled), (value, g1[order], g2[order]), strict=True):
        torch.testing.assert_close(a, b)


@every_loss
@both_anchors
def test_identical_embeddings_give_a_finite_loss_and_no_force(kind, what, anchors):
    views = [torch.full((5, 3), 0.3, requires_grad=i < 2) for i in range(3)]
    value, *forces = gradients(kind(what, anchors=anchors), views)
    assert math.isfinite(value.item())
    for g in forces:
        torch.testing.assert_close(g, torch.zeros_like(g), rtol=0, atol=1e-5)


@every_loss
def test_huge_and_far_embeddings_give_a_finite_loss(kind, what):
    views = [(z.detach() * 1e10).requires_grad_(i < 2) for i, z in enumerate(make_views(dtype=torch.float32))]
    if isinstance(getattr(what, "family", what), LiftedStructured):  # its loss is a square of distances, 1e40 here
        views = [(z.detach() * 1e-4).requires_grad_(i < 2) for i, z in enumerate(views)]
    for x in gradients(kind(what), views):
        assert torch.isfinite(x).all()


@every_loss
def test_a_loss_trains_after_it_was_evaluated_in_inference_mode(kind, what):
    views = make_views()
    loss = kind(what)
    extra = [views[2]] if loss.importance.weighs_clean else []
    with torch.inference_mode():
        evaluated = loss(*(z.detach() for z in views[:2]), *extra).item()
    assert math.isclose(gradients(loss, views)[0].item(), evaluated, rel_tol=1e-9, abs_tol=1e-12)


@every_family
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_family_keeps_shape_and_dtype_and_sums_in_float32(family, dtype):
    d2_pos, d2_neg = make_distances(dtype, count=3000)
    value = family.value(d2_pos, d2_neg)
    assert value.shape == (6,)
    assert value.dtype == dtype
    wide = family.value(d2_pos.double(), d2_neg.double())
    torch.testing.assert_close(value.double(), wide, rtol=4 * torch.finfo(dtype).eps + 1e-6, atol=1e-3)


@every_family
@pytest.mark.parametrize("anchors", ["both", "one"])
def test_a_family_loss_is_the_mean_of_its_values(family, anchors):
    z1, z2, _ = make_views()
    z = torch.cat([z1, z2]) if anchors == "both" else z1
    d2_neg = torch.cdist(z, z).square() / 2
    d2_pos = (z1 - z2).square().sum(1) / 2
    valid = ~torch.eye(len(z), dtype=torch.bool)
    if anchors == "both":
        d2_pos = d2_pos.repeat(2)
        valid &= valid.roll(13, 0)
    expected = family.value(d2_pos, d2_neg, valid).mean()
    torch.testing.assert_close(FamilyLoss(family, anchors=anchors)(z1, z2), expected)
