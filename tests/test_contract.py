"""What every importance and every family must do, present and future: they are found, not named."""

import dataclasses
import inspect
import math
import typing

import pytest
import torch

from lightning_ssl import families, importance
from lightning_ssl.energy import FamilyLoss, PairLoss
from lightning_ssl.families import Family
from lightning_ssl.importance import Importance


def concrete(base, module):
    return [
        c for _, c in inspect.getmembers(module, inspect.isclass) if issubclass(c, base) and not inspect.isabstract(c)
    ]


def examples(cls, known):
    """Instances made from defaults, with required arguments filled by their type."""
    hints = typing.get_type_hints(cls.__init__)
    required = [p for p in list(inspect.signature(cls).parameters.values()) if p.default is p.empty]
    if not required:
        return [cls()]
    if len(required) == 1 and hints.get(required[0].name) is Family:
        return [cls(family) for family in known]
    # functions of a tensor: r' and its inverse of ½ log α
    return [cls(*[lambda a: 0.5 / a] * len(required))]


FAMILIES = [example for cls in concrete(Family, families) for example in examples(cls, [])]
IMPORTANCES = [example for cls in concrete(Importance, importance) for example in examples(cls, FAMILIES)]


def at_tau(instance, tau):
    """The same at another τ, wherever it has one."""
    if any(f.name == "tau" for f in dataclasses.fields(instance)):
        return dataclasses.replace(instance, tau=tau)
    if isinstance(getattr(instance, "family", None), Family):
        return dataclasses.replace(instance, family=at_tau(instance.family, tau))
    return instance


def make_distances(dtype=torch.float64, rows=6, count=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    d2_pos = torch.rand(rows, dtype=torch.float64, generator=generator)
    d2_neg = 2 * torch.rand(rows, count, dtype=torch.float64, generator=generator)
    return d2_pos.to(dtype), d2_neg.to(dtype)


def make_views(n=13, d=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    views = [torch.randn(n, d, dtype=torch.float64, generator=generator) for _ in range(3)]
    return [torch.nn.functional.normalize(z, dim=1).to(dtype).requires_grad_(i < 2) for i, z in enumerate(views)]


def test_the_suite_finds_them_all():
    """The names of the contract are among those found."""
    found = {type(x).__name__ for x in FAMILIES + IMPORTANCES}
    assert {"InfoNCE", "MINE", "Triplet", "SoftTriplet", "NPlusOneTuplet", "LiftedStructured"} <= found
    assert {"ModifiedTriplet", "Quadratic", "Entropy", "Inverse", "Square", "Tsallis", "Direct"} <= found
    assert {"Uniform", "Gaussian", "Exact", "FromFamily", "Regularized"} <= found


every_importance = pytest.mark.parametrize("rule", IMPORTANCES, ids=str)
every_family = pytest.mark.parametrize("family", FAMILIES, ids=str)


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


def gradients(loss, views):
    extra = [views[2]] if loss.importance.weighs_clean else []
    value = loss(views[0], views[1], *extra)
    return value, *torch.autograd.grad(value, views[:2])


@every_importance
@pytest.mark.parametrize("anchors", ["both", "one"])
def test_the_tile_does_not_matter(rule, anchors):
    views = make_views()
    whole = gradients(PairLoss(rule, anchors=anchors), views)
    for tile in (1, 4, 9, 100):
        for a, b in zip(gradients(PairLoss(rule, anchors=anchors, tile=tile), views), whole, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


@every_importance
@pytest.mark.parametrize("anchors", ["both", "one"])
@pytest.mark.parametrize("tau", [1e-3, 1e3])
def test_a_loss_is_finite_at_extreme_tau(rule, anchors, tau):
    for x in gradients(PairLoss(at_tau(rule, tau), anchors=anchors), make_views(dtype=torch.float32)):
        assert torch.isfinite(x).all()


@every_importance
@pytest.mark.parametrize("anchors", ["both", "one"])
def test_a_loss_follows_a_permutation_of_the_samples(rule, anchors):
    views = make_views()
    order = torch.randperm(13, generator=torch.Generator().manual_seed(0))
    loss = PairLoss(rule, anchors=anchors)
    value, g1, g2 = gradients(loss, views)
    shuffled = [z.detach()[order].requires_grad_(i < 2) for i, z in enumerate(views)]
    for a, b in zip(gradients(loss, shuffled), (value, g1[order], g2[order]), strict=True):
        torch.testing.assert_close(a, b)


@every_importance
@pytest.mark.parametrize("anchors", ["both", "one"])
def test_identical_embeddings_give_a_finite_loss_and_no_force(rule, anchors):
    views = [torch.full((5, 3), 0.3, requires_grad=i < 2) for i in range(3)]
    value, *forces = gradients(PairLoss(rule, anchors=anchors), views)
    assert math.isfinite(value.item())
    for g in forces:
        torch.testing.assert_close(g, torch.zeros_like(g), rtol=0, atol=1e-5)


@every_family
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_family_keeps_shape_and_dtype(family, dtype):
    value = family.value(*make_distances(dtype))
    assert value.shape == (6,)
    assert value.dtype == dtype


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
