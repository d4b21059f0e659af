"""The two protocols of linear evaluation: they reach the optimum and do not train on test images."""

from functools import partial

import numpy as np
import pytest
import scipy.optimize
import torch
from helpers.closeness import close
from torch import nn
from torch.nn import functional as F

from lightning_ssl.evaluation import linear
from lightning_ssl.evaluation.features import LabelledFeatures
from lightning_ssl.evaluation.linear import (
    AdamSettings,
    accuracy,
    adam,
    fit_regressions,
    hold_out,
    lbfgs,
    standardize,
    train_classifiers,
)

# The learning rate of the papers is too small for a few hundred images.
protocols = pytest.mark.parametrize(
    "protocol", [partial(adam, settings=AdamSettings(lr=0.05, epochs=20)), lbfgs], ids=["adam", "lbfgs"]
)


def clusters(images=300, classes=4, features=6, spread=1.0, seed=0):
    """Classes around the corners of a simplex, with Gaussian noise."""
    torch.manual_seed(seed)
    labels = torch.arange(images) % classes
    return LabelledFeatures(3 * F.one_hot(labels, features) + spread * torch.randn(images, features), labels)


def test_standardizing_uses_statistics_of_training_images_only():
    train, test = 5 + 2 * torch.randn(100, 3), torch.randn(50, 3)
    x, y = standardize(train, test)
    # centring multiplies the relative error by mean/std
    rounding = {"terms": len(train), "gain": float((train.mean(0) / train.std(0)).max())}
    close(x.mean(0), torch.zeros(3), scale=1.0, **rounding)
    close(x.square().mean(0), torch.ones(3), **rounding)
    close(y, (test - train.mean(0)) / train.std(0, correction=0), **rounding)


def test_a_constant_feature_is_only_shifted():
    train = torch.cat([torch.randn(10, 1), torch.full((10, 1), 0.1), torch.zeros(10, 1)], 1)
    x, y = standardize(train, train + 1)
    close(x[:, 1:], torch.zeros(10, 2), scale=0.1, terms=len(train))
    close(y[:, 1:], torch.ones(10, 2), terms=len(train))


@protocols
def test_test_images_are_not_standardized_with_their_own_statistics(protocol):
    train = clusters(classes=2, spread=0.5)
    test = LabelledFeatures(*(part[train.labels == 1] for part in train))
    # With their own statistics, half of them would be on the other side of the boundary.
    assert protocol(train, test, 2).top1 == 1


@protocols
def test_separable_classes_are_separated(protocol):
    outcome = protocol(clusters(2000, spread=0.1), clusters(100, spread=0.1, seed=1), 4)
    assert (outcome.top1, outcome.top5) == (1, 1)


@protocols
def test_test_labels_change_only_the_accuracy(protocol):
    train, test = clusters(spread=2.0), clusters(spread=2.0, seed=1)
    one, other = protocol(train, test, 4), protocol(train, LabelledFeatures(test.features, 3 - test.labels), 4)
    assert one.top1 != other.top1
    for outcome in (one, other):
        outcome.details.pop("top1_by_seed", None)
    assert one.details == other.details


@protocols
def test_constant_features_give_chance_accuracy(protocol):
    labels = torch.arange(300) % 4
    same = LabelledFeatures(torch.full((300, 6), 0.7), labels)
    assert protocol(same, same, 4).top1 == 1 / 4


def test_accuracy_counts_labels_among_the_k_largest_logits():
    logits = torch.tensor([[3.0, 2, 1, 0], [0, 1, 2, 3], [0, 3, 2, 1]])
    labels = torch.tensor([0, 2, 0])
    close(accuracy(logits, labels), torch.tensor(1 / 3))
    close(accuracy(logits, labels, 2), torch.tensor(2 / 3))
    assert accuracy(logits, labels, 5) == 1  # k is more than the four classes


# ---------------------------------------------------------------------------------------------------------------------
# Adam


def plain_loop(x, labels, classes, seed, settings):
    """One classifier, trained by torch's layer, loss and optimizer."""
    generator = linear.generator_of(seed)
    layer = nn.Linear(x.shape[1], classes, dtype=x.dtype)
    weight, bias = linear.initial_weights(classes, x.shape[1], generator)
    layer.load_state_dict({"weight": weight, "bias": bias[0]})
    optimizer = torch.optim.Adam(layer.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
    for _ in range(settings.epochs):
        for ids in torch.randperm(len(x), generator=generator).split(settings.batch_size):
            optimizer.zero_grad()
            F.cross_entropy(layer(x[ids]), labels[ids]).backward()
            optimizer.step()
    return layer


def test_classifiers_trained_together_equal_those_trained_alone():
    x, labels = clusters(images=70)  # the last batch is shorter
    x, settings = x.double(), AdamSettings(lr=0.01, weight_decay=0.1, batch_size=16, epochs=4)
    *_, weights = train_classifiers(x, labels, 4, (0, 7), settings)
    for s, seed in enumerate((0, 7)):
        layer = plain_loop(x, labels, 4, seed, settings)
        steps = settings.epochs * -(-len(x) // settings.batch_size)
        terms = steps * (settings.batch_size + x.shape[1])
        close(weights[s, :, :-1], layer.weight, terms=terms)
        close(weights[s, :, -1], layer.bias, terms=terms)


def test_initial_weights_are_distributed_as_those_of_a_linear_layer():
    weight, bias = linear.initial_weights(500, 64, torch.Generator().manual_seed(0))
    layer = nn.Linear(64, 500)
    for ours, theirs in ((weight, layer.weight), (bias[0], layer.bias)):
        assert ours.shape == theirs.shape
        assert ours.abs().max() <= 1 / 8
        assert ours.std().item() == pytest.approx(theirs.std().item(), rel=0.1)  # two finite samples


def test_the_default_settings_are_those_of_the_papers():
    assert (linear.PAPER.lr, linear.PAPER.weight_decay) == (3e-4, 1e-3)
    assert (linear.PAPER.batch_size, linear.PAPER.epochs) == (128, 50)


def test_top1_is_the_accuracy_of_the_last_epoch():
    train, test = clusters(spread=3.0), clusters(spread=3.0, seed=1)
    unstable = AdamSettings(lr=1.0, epochs=20)
    last, best = (adam(train, test, 4, (0, 1), unstable, best_test=flag) for flag in (False, True))
    assert "best_test_top1_by_seed" not in last.details
    assert last.top1 == best.top1
    close(best.top1, float(np.mean(best.details["top1_by_seed"])), terms=2)
    assert np.mean(best.details["best_test_top1_by_seed"]) > best.top1


# ---------------------------------------------------------------------------------------------------------------------
# L-BFGS


def optimum(x, labels, classes, decay):
    """The lowest penalized cross-entropy, by scipy and plain numpy."""
    x, labels = x.numpy(), labels.numpy()

    def value(flat):
        w = flat.reshape(classes, -1)
        logits = x @ w[:, :-1].T + w[:, -1]
        log_p = logits - np.logaddexp.reduce(logits, 1, keepdims=True)
        error = np.exp(log_p)
        error[np.arange(len(x)), labels] -= 1
        gradient = np.concatenate([error.T @ x, error.sum(0)[:, None]], 1) / len(x)
        gradient[:, :-1] += decay * w[:, :-1]
        loss = -log_p[np.arange(len(x)), labels].mean() + decay / 2 * (w[:, :-1] ** 2).sum()
        return loss, gradient.ravel()

    start = np.zeros(classes * (x.shape[1] + 1))
    found = scipy.optimize.minimize(value, start, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 5000})
    return found.fun, found.x.reshape(classes, -1), value


def test_the_regressions_reach_the_optimum_of_scipy():
    x, labels = clusters(spread=2.0)
    (x,) = standardize(x.double() @ torch.randn(6, 6, dtype=torch.double))  # correlated
    penalties = [1e-3, 1e-2, 1.0]
    # Ours stops at a gradient of 1e-7: it is within (1e-7)²/λ of the lowest loss and 1e-7/λ of its weights.
    fitted = fit_regressions(x, labels, 4, penalties, tolerance=1e-7, iterations=1000)
    assert fitted.converged
    for decay, w in zip(penalties, fitted.weights, strict=True):
        lowest, theirs, value = optimum(x, labels, 4, decay)
        assert value(w.numpy().ravel())[0] == pytest.approx(lowest, abs=1e-11)
        # A constant added to all biases changes no probability: compare without it.
        ours = w.numpy()
        np.testing.assert_allclose(ours[:, :-1], theirs[:, :-1], atol=1e-4)
        np.testing.assert_allclose(ours[:, -1] - ours[:, -1].mean(), theirs[:, -1] - theirs[:, -1].mean(), atol=1e-4)


def test_the_default_tolerance_in_float32_is_near_the_optimum():
    x, labels = clusters(spread=2.0)
    (x,) = standardize(x)
    fitted = fit_regressions(x, labels, 4, [1e-4, 1e-2])
    for decay, w in zip((1e-4, 1e-2), fitted.weights, strict=True):
        lowest, _, value = optimum(x.double(), labels, 4, decay)
        assert value(w.double().numpy().ravel())[0] == pytest.approx(lowest, abs=1e-6)  # it stops at 1e-4


def test_blocks_of_images_do_not_change_the_regression(monkeypatch):
    x, labels = clusters()
    penalties = [0.01, 0.1]
    whole = fit_regressions(x.double(), labels, 4, penalties)
    monkeypatch.setattr(linear, "MAX_LOGITS", 7 * 8)
    parts = fit_regressions(x.double(), labels, 4, penalties)
    assert whole.iterations == parts.iterations
    # the weights that a gradient leads to have its error over the least curvature
    close(parts.weights, whole.weights, terms=len(x) * whole.iterations, gain=1 / min(penalties))


def test_too_few_iterations_are_reported():
    x, labels = clusters(spread=2.0)
    assert not fit_regressions(x, labels, 4, [1e-3], iterations=2).converged


def test_the_penalty_is_the_best_on_held_out_images():
    outcome = lbfgs(clusters(spread=4.0), clusters(spread=4.0, seed=1), 4, penalties=(1e-4, 0.1, 100.0))
    scores = outcome.details["held_out_top1"]
    assert scores[outcome.details["penalties"].index(outcome.details["penalty"])] == max(scores)
    assert outcome.details["held_out_images"] == 30


def test_a_tenth_of_every_class_is_held_out():
    labels = torch.arange(1000) % 5
    kept, held = hold_out(labels, seed=0)
    assert torch.cat([kept, held]).sort().values.tolist() == list(range(1000))
    assert labels[held].bincount().tolist() == [20] * 5
    assert not torch.equal(held, hold_out(labels, seed=1)[1])


def test_too_few_images_to_hold_out_are_rejected():
    few = clusters(images=8)
    with pytest.raises(ValueError, match="train images=8"):
        lbfgs(few, few, 4)
