"""Statistics of α against a slow loop and known values; they are those of the α in the loss."""

import math

import pytest
import torch
from helpers.closeness import close
from helpers.losses import FAMILIES, IMPORTANCES, label, make_views
from helpers.training import METHODS, SMALL, fit, seeded
from helpers.watching import watch
from torch.nn import functional as F

from lightning_ssl.callbacks import ImportanceMonitor
from lightning_ssl.callbacks.importance import row_statistics
from lightning_ssl.losses.energy import FamilyLoss, PairLoss
from lightning_ssl.losses.importance import Entropy, Exact
from lightning_ssl.losses.pairwise import Sigmoid
from lightning_ssl.methods import AlphaCL

NAMES = ("entropy", "effective_negatives", "zeros", "top1", "negative")
LOSSES = [PairLoss(rule, anchors=anchors) for rule in IMPORTANCES for anchors in ("both", "one")]
LOSSES += [FamilyLoss(family) for family in FAMILIES]


def tau_of(loss):
    """τ of a loss, or of its family, or 1/γ of Circle; 1 where it has none."""
    rule = loss.importance
    return min(
        getattr(rule, "tau", 1.0), getattr(getattr(rule, "family", None), "tau", 1.0), 1 / getattr(rule, "gamma", 1)
    )


def slow_statistics(loss, z1, z2, clean):
    """Row by row, over the negatives only."""
    points = torch.cat([z1, z2]) if loss.anchors == "both" else z1
    weighed = points
    if clean is not None:
        weighed = torch.cat([clean, clean]) if loss.anchors == "both" else clean
    n, found = len(z1), []
    d2_pos_of_batch = 0.5 * (z1 - z2).square().sum(1)
    for i in range(len(points)):
        others = [j for j in range(len(points)) if j % n != i % n]
        d2_pos = 0.5 * (z1[i % n] - z2[i % n]).square().sum()[None]
        d2_neg = torch.stack([0.5 * (weighed[i] - weighed[j]).square().sum() for j in others])[None]
        signed = loss.rule(d2_pos_of_batch)(d2_pos, d2_neg)[0].tolist()
        alpha = [abs(a) for a in signed]
        total = sum(alpha)
        shares = [a / total for a in alpha] if total else alpha
        entropy = -sum(a * math.log(a) for a in shares if a)
        effective = math.exp(entropy) if total else 0.0
        negative = sum(a < 0 for a in signed) / len(signed)
        found.append([entropy / math.log(len(alpha)), effective, alpha.count(0.0) / len(alpha), max(shares), negative])
    return torch.tensor(found, dtype=torch.float64).mean(0)


@pytest.mark.parametrize("loss", LOSSES, ids=label)
def test_statistics_equal_a_slow_loop_over_rows(loss):
    z1, z2, clean = (z.detach() for z in make_views(7))
    views = (z1, z2, clean) if getattr(loss.importance, "uses_clean_view", False) else (z1, z2)
    found = ImportanceMonitor(rows=1000).statistics(loss, views)
    expected = slow_statistics(loss, z1, z2, views[2] if len(views) == 3 else None)
    # e^H has the relative error of H ≤ log K
    rounding = {"terms": z1.shape[1] + 2 * len(z1), "gain": math.log(2 * len(z1)) / tau_of(loss)}
    close(list(found), list(expected), **rounding)


def test_rows_of_known_weights():
    alpha = torch.tensor([[1.0, 1, 1, 1], [0, 3, 3, 0], [0, 7, 0, 0], [0, 0, 0, 0], [-2, 2, 0, 0]])
    entropy, effective, zeros, top1, negative = row_statistics(alpha, torch.ones(5, 4, dtype=torch.bool))
    close(entropy, torch.tensor([1.0, 0.5, 0, 0, 0.5]), terms=4)
    close(effective, torch.tensor([4.0, 2, 1, 0, 2]), terms=4)
    assert torch.equal(zeros, torch.tensor([0.0, 0.5, 0.75, 1, 0.5]))
    close(top1, torch.tensor([0.25, 0.5, 1, 0, 0.5]), terms=4)
    assert torch.equal(negative, torch.tensor([0, 0, 0, 0, 0.25]))


def test_a_few_rows_come_from_both_views():
    z1, z2, _ = (z.detach() for z in make_views(8))
    collapsed = z2[:1].expand(8, -1)  # equal distances, unlike those of the first view
    loss = PairLoss(Entropy(tau=1e-3))
    effective = ImportanceMonitor(rows=4).statistics(loss, (z1, collapsed))[1]
    assert 2 < effective < 7


def statistics_of(model, **trainer):
    metrics = fit(model, [ImportanceMonitor(1)], limit_val_batches=0, **trainer).callback_metrics
    return [metrics[f"alpha/{name}"] for name in NAMES]


@pytest.mark.parametrize("make", [METHODS["SimCLR"], lambda: AlphaCL(Exact(), **SMALL)], ids=["SimCLR", "Exact"])
def test_statistics_are_of_the_embeddings_in_the_loss(make):
    model, seen = seeded(make), []
    model.loss.register_forward_pre_hook(lambda _, views: seen.append([z.detach() for z in views]))
    found = statistics_of(model)
    views = seen[-1]
    for z in views:
        close(F.normalize(z, dim=1), z, terms=z.shape[1])
    expected = slow_statistics(model.loss, *(z.double() for z in views[:2]), views[2].double() if views[2:] else None)
    close(found, list(expected), terms=z.shape[1], gain=1 / tau_of(model.loss))


@pytest.mark.parametrize("name", ["SimSiam", "BYOL"])
def test_a_method_without_pair_importance_logs_nothing(name):
    metrics = fit(METHODS[name](), [ImportanceMonitor(1)], limit_val_batches=0).callback_metrics
    assert not any(key.startswith("alpha") for key in metrics)


def test_the_learned_values_of_a_loss_are_logged():
    model = AlphaCL(Sigmoid(), **SMALL)
    metrics = fit(model, [ImportanceMonitor(1)], limit_val_batches=0).callback_metrics
    learned = {name: x.item() for name, x in model.loss.learned_values().items()}
    assert learned["tau"] != pytest.approx(0.1)
    assert {name: metrics[f"alpha/{name}"].item() for name in learned} == pytest.approx(learned)


def test_it_measures_at_least_once_an_epoch():
    callback = ImportanceMonitor(every_n_steps=50)
    measured = watch(callback, "statistics", lambda loss, _: loss)
    fit(METHODS["SimCLR"](), [callback], max_steps=-1, max_epochs=3, limit_val_batches=0)
    assert len(measured) == 3  # epochs of 4 steps


def test_it_measures_every_n_steps_and_removes_its_hook():
    for accumulate in (1, 2):
        callback, model = ImportanceMonitor(2), METHODS["SimCLR"]()
        steps = watch(callback, "statistics", lambda *_, model=model: model.trainer.global_step)
        fit(model, [callback], max_steps=5, accumulate_grad_batches=accumulate, limit_val_batches=0)
        assert steps == [2, 4]
        assert not model.loss._forward_pre_hooks
