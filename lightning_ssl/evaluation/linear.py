"""Linear classifiers of frozen features, by two protocols; features in, accuracies out.

    train, test = Split(features, labels), Split(features, labels)
    adam(train, test, classes=10, seeds=[0, 1, 2])      the α-CL papers': Adam, 50 epochs, nothing chosen
    lbfgs(train, test, classes=10)                      L-BFGS, the penalty chosen on images held out of train

Both standardize with the statistics of what they learn from, report the end of training and never its best moment,
and see the test images once. Several seeds, or several penalties, are one batched program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl.checks import require
from lightning_ssl.seeding import generator_of


class Split(NamedTuple):
    """Features (N, F) of labelled images, and their labels (N,)."""

    features: Tensor
    labels: Tensor


class Outcome(NamedTuple):
    """Accuracies as shares between 0 and 1, and how they came about, in plain values."""

    top1: float
    top5: float
    details: dict[str, Any]


def standardize(train: Tensor, *others: Tensor) -> list[Tensor]:
    """Zero mean and unit variance by the statistics of the first alone; a feature that never varies is only centred."""
    variance, mean = torch.var_mean(train, 0, correction=0)  # (F,)
    std = variance.sqrt()
    std = torch.where(std > 1e-6 * mean.abs(), std, 1)  # below, its variance is rounding
    return [(x - mean) / std for x in (train, *others)]


def accuracy(logits: Tensor, labels: Tensor, k: int = 1) -> Tensor:
    """Share of images whose class is among the k likeliest, of all classes where these are fewer: (…, N, C) → (…)."""
    likeliest = logits.topk(min(k, logits.shape[-1])).indices  # (…, N, k)
    return (likeliest == labels[:, None]).any(-1).sum(-1).cpu().double() / len(labels)


# ---------------------------------------------------------------------------------------------------------------------
# Adam: the papers' protocol


@dataclass(frozen=True)
class Adam:
    """The papers' optimization, as their released code has it: the decay is a term of the gradient, biases included."""

    lr: float = 3e-4
    weight_decay: float = 1e-3
    batch_size: int = 128
    epochs: int = 50


PAPER = Adam()


@torch.no_grad()
def adam(
    train: Split,
    test: Split,
    classes: int,
    seeds: Sequence[int] = (0,),
    settings: Adam = PAPER,
    best_test: bool = False,
    tick: Callable[[], None] = lambda: None,
) -> Outcome:
    """Logistic regression by Adam, the mean over seeds of the last epoch's accuracy; S classifiers learn side by side.

    A seed decides the first weights and the order of the images. `best_test` adds to the details what the released code
    reports: the highest of the test accuracies after each epoch, which is chosen on the test images. `tick` is called
    after every epoch.
    """
    x, x_test = standardize(train.features, test.features)
    by_epoch: list[Tensor] = []

    def logits(weight: Tensor, bias: Tensor) -> Tensor:
        return torch.stack([F.linear(x_test, w, b[0]) for w, b in zip(weight, bias, strict=True)])  # (S, N, C)

    def after_epoch(weight: Tensor, bias: Tensor) -> None:
        if best_test:
            by_epoch.append(accuracy(logits(weight, bias), test.labels))
        tick()

    last = logits(*learn(x, train.labels, classes, seeds, settings, after_epoch))
    top1, top5 = accuracy(last, test.labels), accuracy(last, test.labels, 5)  # (S,)
    details = {"optimizer": "Adam", **asdict(settings), "seeds": list(seeds), "top1_by_seed": top1.tolist()}
    if best_test:
        details["best_test_top1_by_seed"] = torch.stack(by_epoch).amax(0).tolist()
    return Outcome(float(top1.mean()), float(top5.mean()), details)


def learn(
    x: Tensor,
    labels: Tensor,
    classes: int,
    seeds: Sequence[int],
    settings: Adam = PAPER,
    after_epoch: Callable[[Tensor, Tensor], None] = lambda weight, bias: None,
) -> tuple[Tensor, Tensor]:
    """S classifiers of the features (N, F), each in an order of its own: weights (S, C, F) and biases (S, 1, C)."""
    generators = [generator_of(seed) for seed in seeds]
    first = [first_weights(classes, x.shape[1], generator) for generator in generators]
    weight, bias = (torch.stack(part).to(x) for part in zip(*first, strict=True))
    optimizer = torch.optim.Adam([weight, bias], lr=settings.lr, weight_decay=settings.weight_decay, fused=True)
    for _ in range(settings.epochs):
        order = torch.stack([torch.randperm(len(x), generator=generator) for generator in generators])  # (S, N)
        for ids in order.to(x.device).split(settings.batch_size, 1):  # (S, B)
            chosen = x.index_select(0, ids.flatten()).view(*ids.shape, -1)  # (S, B, F), three times as fast as x[ids]
            error = torch.baddbmm(bias, chosen, weight.mT).softmax(2)  # (S, B, C)
            error = (error - F.one_hot(labels[ids], classes)) / ids.shape[1]  # ∂loss/∂logits
            weight.grad, bias.grad = error.mT @ chosen, error.sum(1, keepdim=True)
            optimizer.step()
        after_epoch(weight, bias)
    return weight, bias


def first_weights(classes: int, features: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """As `nn.Linear` begins, from a generator: uniform in ±1/√F; (C, F), (1, C)."""
    bound = 1 / math.sqrt(features)
    drawn = (torch.rand(classes, features + 1, generator=generator) * 2 - 1) * bound
    return drawn[:, :-1], drawn[:, -1:].T


# ---------------------------------------------------------------------------------------------------------------------
# L-BFGS

PENALTIES = tuple(10 ** (k / 2) for k in range(-10, 1))  # 1e-5 … 1, two a decade
HELD_OUT = 10  # one image of so many, of every class alike


@torch.no_grad()
def lbfgs(
    train: Split,
    test: Split,
    classes: int,
    seed: int = 0,
    penalties: Sequence[float] = PENALTIES,
    tick: Callable[[], None] = lambda: None,
) -> Outcome:
    """Penalized logistic regression to its optimum; λ is the best on images held out of train, then all of train fits.

        min_{W, b}  mean_i −log softmax(W x_i + b)_{y_i} + ½ λ ‖W‖²

    Kornblith et al. 2019 evaluate so. The problem is convex, so the seed decides only which images are held out; `tick`
    is called after every iteration.
    """
    require(len(train.labels) > HELD_OUT, "train images", len(train.labels), f"more than {HELD_OUT}, to hold some out")
    kept, held = hold_out(train.labels, seed)
    x, x_held = standardize(train.features[kept], train.features[held])
    decay = torch.tensor(penalties, dtype=x.dtype, device=x.device)
    searched = regression(x, train.labels[kept], classes, decay, tick)
    logits = predict(x_held, searched.weights)  # (G, N, C)
    scores, held_labels = accuracy(logits, train.labels[held]), train.labels[held]
    losses = [float(F.cross_entropy(one, held_labels)) for one in logits]
    # Few images make ties: the likelier labels decide.
    chosen = min(range(len(penalties)), key=lambda g: (-float(scores[g]), losses[g]))

    x, x_test = standardize(train.features, test.features)
    final = regression(x, train.labels, classes, decay[chosen : chosen + 1], tick)
    logits = predict(x_test, final.weights)[0]  # (N, C)
    details = {
        "optimizer": "L-BFGS",
        "penalty": penalties[chosen],
        "penalties": list(penalties),
        "held_out_top1": scores.tolist(),
        "held_out_images": len(held),
        "seed": seed,
        "iterations": final.iterations,
        "converged": final.converged,
    }
    return Outcome(float(accuracy(logits, test.labels)), float(accuracy(logits, test.labels, 5)), details)


def hold_out(labels: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Ids to learn from and ids to choose on, every tenth of each class, drawn from a seed."""
    order = torch.randperm(len(labels), generator=generator_of(seed)).to(labels.device)
    order = order[labels[order].argsort(stable=True)]  # by class, within it as drawn
    held = torch.arange(len(order), device=labels.device) % HELD_OUT == 0
    return order[~held], order[held]


class Fitted(NamedTuple):
    """Weights (G, C, F + 1), the bias last; of the slowest classifier the iterations, and whether all converged."""

    weights: Tensor
    iterations: int
    converged: bool


ROOM = 2**23  # logits held at once


def regression(
    x: Tensor,
    labels: Tensor,
    classes: int,
    decay: Tensor,
    tick: Callable[[], None] = lambda: None,
    tolerance: float = 1e-4,
    iterations: int = 500,
) -> Fitted:
    """The penalized regressions of features (N, F) at G penalties, each to its optimum.

    Features are correlated, and as it stands the problem takes L-BFGS a thousand steps. In the features' principal
    axes, which leave the penalty as it is, the Hessian is near σ²/C + λ along an axis of variance σ²: weights measured
    in units of its inverse root take a tenth of the steps. The tolerance is for the gradient in these units, where half
    its squared norm is about what is left to gain.
    """
    covariance = (x.T @ x / len(x)).cpu().double()
    variance, axes = (part.to(x) for part in torch.linalg.eigh(covariance))  # (F,), (F, F)
    x = F.pad(x @ axes, (0, 1), value=1.0)  # the bias is a weight, of a feature that is 1
    penalty = decay[:, None] * F.pad(torch.ones_like(variance), (0, 1))  # (G, F + 1): none on the bias
    curvature = F.pad(variance.clamp(min=0), (0, 1), value=1.0) / classes + penalty
    unit = curvature.rsqrt()[:, None]  # (G, 1, F + 1)

    def objective(v: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        """Values (g,) and gradients (g, P) of some of the problems; x goes by once for all of them."""
        w = v.view(len(v), classes, -1) * unit[which]  # (g, C, F + 1)
        shrunk = penalty[which, None] * w
        value, gradient = (shrunk * w).sum((1, 2)) / 2, shrunk.flatten(0, 1)
        height = max(1, ROOM // len(gradient))
        for rows, y in zip(x.split(height), labels.split(height), strict=True):
            log_p = (rows @ w.flatten(0, 1).T).view(-1, len(w), classes).log_softmax(2)  # (n, g, C)
            true = y[:, None, None].expand(-1, len(w), 1)
            value -= log_p.gather(2, true).sum((0, 2)) / len(x)
            error = log_p.exp_().scatter_add_(2, true, log_p.new_full((), -1.0).expand(true.shape))
            gradient.addmm_(error.view(len(rows), -1).T, rows, alpha=1 / len(x))
        return value, (gradient.view_as(w) * unit[which]).flatten(1)

    start = x.new_zeros(len(decay), classes * x.shape[1])
    v, taken, converged = minimize(objective, start, tolerance, iterations, tick=tick)
    w = v.view(len(decay), classes, -1) * unit
    return Fitted(torch.cat([w[..., :-1] @ axes.T, w[..., -1:]], 2), taken, converged)


def predict(x: Tensor, weights: Tensor) -> Tensor:
    """Logits of G classifiers: (N, F), (G, C, F + 1) → (G, N, C)."""
    return torch.stack([F.linear(x, w[:, :-1], w[:, -1]) for w in weights])


# ---------------------------------------------------------------------------------------------------------------------
# Many smooth convex problems at once

Objective = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Points (g, P) and which problems they belong to (g,) → values (g,) and gradients (g, P)."""


def minimize(
    objective: Objective,
    start: Tensor,
    tolerance: float,
    iterations: int,
    memory: int = 10,
    tick: Callable[[], None] = lambda: None,
) -> tuple[Tensor, int, bool]:
    """L-BFGS on G problems side by side (Nocedal & Wright 2006, Algorithm 7.5), from points (G, P).

    A step is halved until the value decreases enough. A problem leaves the batch when no entry of its gradient is above
    the tolerance, or when no step decreases it any more, which is the end of its precision. Returns the minimizers, the
    iterations taken, and whether every gradient came below the tolerance.
    """
    found, converged, taken = start.clone(), True, 0
    ids, w = torch.arange(len(start), device=start.device), start
    value, gradient = objective(w, ids)
    pairs: list[tuple[Tensor, Tensor]] = []  # (s, y): how the point and its gradient moved, newest last
    while len(ids) and taken < iterations:
        direction = -inverse_hessian(gradient, pairs)
        if not pairs:
            direction = direction / gradient.norm(dim=1, keepdim=True).clamp(min=1)
        new, new_value, new_gradient = descend(objective, w, value, gradient, direction, ids)
        pairs = [*pairs[-(memory - 1) :], (new - w, new_gradient - gradient)]
        moved = (new != w).any(1)
        w, value, gradient = new, new_value, new_gradient
        found[ids] = w
        taken += 1
        small = gradient.abs().amax(1) <= tolerance
        converged &= bool((small | moved).all())
        if not (left := moved & ~small).all():
            ids, w, value, gradient = ids[left], w[left], value[left], gradient[left]
            pairs = [(s[left], y[left]) for s, y in pairs]
        tick()
    return found, taken, converged and not len(ids)


def inverse_hessian(gradient: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The estimate of H⁻¹ times the gradients (g, P), by two loops over the pairs."""
    q, past = gradient, []
    for s, y in reversed(pairs):
        rho = reciprocal((s * y).sum(1, keepdim=True))  # (g, 1)
        a = rho * (s * q).sum(1, keepdim=True)
        q = q - a * y
        past.append((rho, a, s, y))
    if pairs:
        s, y = pairs[-1]
        q = q * (s * y).sum(1, keepdim=True).clamp(min=0) * reciprocal(y.square().sum(1, keepdim=True))
    for rho, a, s, y in reversed(past):
        q = q + (a - rho * (y * q).sum(1, keepdim=True)) * s
    return q


def reciprocal(x: Tensor) -> Tensor:
    """1/x, and 0 where rounding left nothing above 0: such a pair is passed over."""
    return torch.where(x > 0, 1 / x, 0)


def descend(
    objective: Objective, w: Tensor, value: Tensor, gradient: Tensor, direction: Tensor, ids: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Step along the directions, halved where the value does not decrease enough; in the end, where it was."""
    slope = (gradient * direction).sum(1)  # (g,), below 0
    slack = 4 * torch.finfo(w.dtype).eps * value.abs()  # what rounding may add
    step = torch.ones_like(value)
    new = w + direction
    new_value, new_gradient = objective(new, ids)
    for _ in range(HALVINGS):
        # A value that is no number does not decrease.
        long = (~(new_value <= value + 1e-4 * step * slope + slack)).nonzero()[:, 0]
        if not len(long):
            return new, new_value, new_gradient
        step[long] /= 2
        new[long] = w[long] + step[long, None] * direction[long]
        new_value[long], new_gradient[long] = objective(new[long], ids[long])
    long = ~(new_value <= value + 1e-4 * step * slope + slack)
    new[long], new_value[long], new_gradient[long] = w[long], value[long], gradient[long]
    return new, new_value, new_gradient


HALVINGS = 20
