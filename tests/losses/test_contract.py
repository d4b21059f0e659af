"""What every importance and every family must do. They are found by inspection, so a new one is tested as well."""

import math

import pytest
import torch
from helpers.closeness import close
from helpers.losses import (
    FAMILIES,
    IMPORTANCES,
    at_tau,
    close_each,
    label,
    make_distances,
    make_views,
    scale_of,
    scales_of,
    terms_of,
    value_and_gradients,
)
from helpers.training import same

from lightning_ssl.losses.energy import FamilyLoss, PairLoss

ROWS, COUNT = 6, 10  # anchors and candidates of make_distances


every_importance = pytest.mark.parametrize("rule", IMPORTANCES, ids=label)
every_dtype = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
every_family = pytest.mark.parametrize("family", FAMILIES, ids=label)


@every_importance
@every_dtype
def test_alpha_is_finite_and_keeps_shape_and_dtype(rule, dtype):
    for tau in (1e-3, 0.5, 1e3) if dtype.itemsize > 2 else (0.5,):
        alpha = at_tau(rule, tau)(*make_distances(dtype))
        assert torch.isfinite(alpha).all()
        assert rule.is_loss or (alpha >= 0).all()
        assert alpha.shape == (ROWS, COUNT)
        assert alpha.dtype == dtype


@every_importance
def test_a_masked_candidate_has_no_weight_and_no_effect(rule):
    d2_pos, d2_neg = make_distances()
    valid = torch.rand(ROWS, COUNT, generator=torch.Generator().manual_seed(2)) > 0.4
    valid[:, 0] = True
    alpha = rule(d2_pos, d2_neg, valid)
    assert (alpha[~valid] == 0).all()
    scale = scale_of(rule, d2_pos, d2_neg)
    close(rule(d2_pos, torch.where(valid, d2_neg, 1.9), valid), alpha, terms=COUNT, scale=scale)
    of_batch = getattr(rule, "needs_batch", False) or rule.for_batch(d2_pos) is not rule
    for i in range(0 if of_batch else ROWS):  # a row of its own is another batch
        alone = rule(d2_pos[i : i + 1], d2_neg[i : i + 1, valid[i]])[0]
        close(alpha[i, valid[i]], alone, terms=COUNT, scale=scale)
    assert (rule(d2_pos, d2_neg, torch.zeros_like(valid)) == 0).all()


@every_importance
def test_a_call_changes_neither_its_arguments_nor_an_earlier_result(rule):
    d2_pos, d2_neg = make_distances()
    before = d2_pos.clone(), d2_neg.clone()
    alpha = rule(d2_pos, d2_neg)
    assert same((d2_pos, d2_neg), before)
    first = alpha.clone()
    rule(d2_pos, 2 * d2_neg)
    assert torch.equal(alpha, first)


LOSSES = [(PairLoss, rule) for rule in IMPORTANCES] + [(FamilyLoss, family) for family in FAMILIES]
every_loss = pytest.mark.parametrize(("kind", "what"), LOSSES, ids=label)
both_anchors = pytest.mark.parametrize("anchors", ["both", "one"])


@every_loss
@both_anchors
def test_the_result_does_not_depend_on_the_tile(kind, what, anchors):
    views = make_views()
    loss = kind(what, anchors=anchors)
    whole, scale = value_and_gradients(loss, *views), scales_of(loss, views)
    for tile in (1, 4, 9, 100):
        close_each(value_and_gradients(kind(what, anchors=anchors, tile=tile), *views), whole, terms_of(views), scale)


@every_loss
@both_anchors
def test_identical_embeddings_give_a_finite_loss_and_no_gradient(kind, what, anchors):
    size = 0.3
    views = [torch.full((5, 3), size, requires_grad=i < 2) for i in range(3)]
    value, *of_views = value_and_gradients(kind(what, anchors=anchors), *views)
    assert math.isfinite(value.item())
    for g in of_views:
        close(g, torch.zeros_like(g), terms=terms_of(views), scale=size)


@every_loss
def test_a_loss_trains_after_it_was_evaluated_in_inference_mode(kind, what):
    views = make_views()
    loss = kind(what)
    extra = [views[2]] if loss.importance.uses_clean_view else []
    with torch.inference_mode():
        evaluated = loss(*(z.detach() for z in views[:2]), *extra).item()
    trained = value_and_gradients(loss, *views)[0].item()
    close(trained, evaluated, terms=terms_of(views), scale=scales_of(loss, views)[0])


@every_family
@every_dtype
def test_a_family_keeps_shape_and_dtype_and_sums_in_float32(family, dtype):
    count = 3000
    d2_pos, d2_neg = make_distances(dtype, count=count)
    value = family.value(d2_pos, d2_neg)
    assert value.shape == (6,)
    assert value.dtype == dtype
    wide = family.value(d2_pos.double(), d2_neg.double())
    # a half-precision value is rounded once, at the end
    close(value, wide, terms=1 if dtype in (torch.float16, torch.bfloat16) else count)
