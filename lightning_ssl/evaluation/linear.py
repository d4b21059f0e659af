"""Two protocols of linear evaluation: from frozen features to test accuracies.

    train, test = LabelledFeatures(features, labels), LabelledFeatures(features, labels)
    adam(train, test, classes=10, seeds=[0, 1, 2])      the protocol of the α-CL papers: Adam, 50 epochs
    lbfgs(train, test, classes=10)                      L-BFGS; the penalty is chosen on held-out training images

Both standardize the features with the statistics of the training images. Both report the accuracy after the last step,
not the best one, and use the test images once. Several seeds are trained as one batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl.base.checks import require
from lightning_ssl.base.seeding import generator_of
from lightning_ssl.evaluation.features import LabelledFeatures


class Outcome(NamedTuple):
    """Accuracies between 0 and 1, and the settings and intermediate results as plain values."""

    top1: float
    top5: float
    details: dict[str, Any]


def standardize(train: Tensor, *others: Tensor) -> list[Tensor]:
    """Shift and scale to zero mean and unit variance of `train`. A constant feature is only shifted."""
    variance, mean = torch.var_mean(train, 0, correction=0)  # (F,)
    std = variance.sqrt()
    std = torch.where(std > 1e-6 * mean.abs(), std, 1)  # a smaller standard deviation is rounding error
    return [(x - mean) / std for x in (train, *others)]


def accuracy(logits: Tensor, labels: Tensor, k: int = 1) -> Tensor:
    """Top-k accuracy, with k at most the number of classes: (…, N, C), (N,) → (…)."""
    predicted = logits.topk(min(k, logits.shape[-1])).indices  # (…, N, k)
    return (predicted == labels[:, None]).any(-1).sum(-1).cpu().double() / len(labels)


# ---------------------------------------------------------------------------------------------------------------------
# Adam: the protocol of the α-CL papers


@dataclass(frozen=True)
class AdamSettings:
    """Settings of Adam as in the papers' released code. Weight decay is added to the gradient, also of the biases."""

    lr: float = 3e-4
    weight_decay: float = 1e-3
    batch_size: int = 128
    epochs: int = 50


PAPER = AdamSettings()


@torch.no_grad()
def adam(
    train: LabelledFeatures,
    test: LabelledFeatures,
    classes: int,
    seeds: Sequence[int] = (0,),
    settings: AdamSettings = PAPER,
    best_test: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> Outcome:
    """Train one logistic regression per seed with Adam; the mean of their accuracies after the last epoch.

    seeds       each decides the initial weights and the order of the images
    best_test   also record the best test accuracy over the epochs. The released code reports it, but it is chosen on
                the test images
    advance     called after every epoch
    """
    x, x_test = standardize(train.features, test.features)
    by_epoch: list[Tensor] = []
    for weights in train_classifiers(x, train.labels, classes, seeds, settings):
        if best_test:
            by_epoch.append(accuracy(predict(x_test, weights), test.labels))
        advance()
    last = predict(x_test, weights)  # (S, N, C)
    top1, top5 = accuracy(last, test.labels), accuracy(last, test.labels, 5)  # (S,)
    details = {"optimizer": "Adam", **asdict(settings), "seeds": list(seeds), "top1_by_seed": top1.tolist()}
    if best_test:
        details["best_test_top1_by_seed"] = torch.stack(by_epoch).amax(0).tolist()
    return Outcome(float(top1.mean()), float(top5.mean()), details)


def train_classifiers(
    x: Tensor, labels: Tensor, classes: int, seeds: Sequence[int], settings: AdamSettings = PAPER
) -> Iterator[Tensor]:
    """Train S classifiers of features (N, F), one per seed. Yields (S, C, F + 1), the bias last, after every epoch."""
    generators = [generator_of(seed) for seed in seeds]
    initial = [initial_weights(classes, x.shape[1], generator) for generator in generators]
    weight, bias = (torch.stack(part).to(x) for part in zip(*initial, strict=True))
    optimizer = torch.optim.Adam([weight, bias], lr=settings.lr, weight_decay=settings.weight_decay, fused=True)
    for _ in range(settings.epochs):
        permutations = torch.stack([torch.randperm(len(x), generator=generator) for generator in generators])  # (S, N)
        for ids in permutations.to(x.device).split(settings.batch_size, 1):  # (S, B)
            chosen = x.index_select(0, ids.flatten()).view(*ids.shape, -1)  # (S, B, F); three times as fast as x[ids]
            error = torch.baddbmm(bias, chosen, weight.mT).softmax(2)  # (S, B, C)
            error = (error - F.one_hot(labels[ids], classes)) / ids.shape[1]  # ∂loss/∂logits
            weight.grad, bias.grad = error.mT @ chosen, error.sum(1, keepdim=True)
            optimizer.step()
        yield torch.cat([weight, bias.mT], 2)


def initial_weights(classes: int, features: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The initial distribution of `nn.Linear`, uniform in ±1/√F, from a generator: weight (C, F), bias (1, C)."""
    bound = 1 / math.sqrt(features)
    drawn = (torch.rand(classes, features + 1, generator=generator) * 2 - 1) * bound
    return drawn[:, :-1], drawn[:, -1:].T


# ---------------------------------------------------------------------------------------------------------------------
# L-BFGS

PENALTIES = tuple(10 ** (k / 2) for k in range(-10, 1))  # 1e-5 … 1, two per decade
HELD_OUT = 10  # one of so many images of each class is held out


@torch.no_grad()
def lbfgs(
    train: LabelledFeatures,
    test: LabelledFeatures,
    classes: int,
    seed: int = 0,
    penalties: Sequence[float] = PENALTIES,
    advance: Callable[[], None] = lambda: None,
) -> Outcome:
    """Penalized logistic regression, minimized to convergence (Kornblith et al. 2019).

        min_{W, b}  mean_i −log softmax(W x_i + b)_{y_i} + ½ λ ‖W‖²

    λ is the penalty with the best accuracy on held-out training images. The final classifier is fitted to all training
    images. The problem is convex, so the seed only decides which images are held out.

    penalties   the values of λ to choose from
    advance     called after every evaluation of the objective
    """
    require(len(train.labels) > HELD_OUT, "train images", len(train.labels), f"more than {HELD_OUT}, to hold some out")
    kept, held = hold_out(train.labels, seed)
    x, x_held = standardize(train.features[kept], train.features[held])
    searched = fit_regressions(x, train.labels[kept], classes, penalties, advance)
    logits = predict(x_held, searched.weights)  # (G, N, C)
    scores, held_labels = accuracy(logits, train.labels[held]), train.labels[held]
    losses = [float(F.cross_entropy(one, held_labels)) for one in logits]
    # Few images give equal accuracies; then the lower cross-entropy decides.
    chosen = min(range(len(penalties)), key=lambda g: (-float(scores[g]), losses[g]))

    x, x_test = standardize(train.features, test.features)
    final = fit_regressions(x, train.labels, classes, [penalties[chosen]], advance)
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
    """Ids to train on and ids to hold out. One tenth of each class is held out at random."""
    ids = torch.randperm(len(labels), generator=generator_of(seed)).to(labels.device)
    ids = ids[labels[ids].argsort(stable=True)]  # sorted by class, random within a class
    held = torch.arange(len(ids), device=labels.device) % HELD_OUT == 0
    return ids[~held], ids[held]


class Fitted(NamedTuple):
    """Weights (G, C, F + 1) with the bias last, the largest number of iterations, and whether all converged."""

    weights: Tensor
    iterations: int
    converged: bool


MAX_LOGITS = 2**23  # logits in memory at a time


def fit_regressions(
    x: Tensor,
    labels: Tensor,
    classes: int,
    penalties: Sequence[float],
    advance: Callable[[], None] = lambda: None,
    tolerance: float = 1e-4,
    iterations: int = 500,
) -> Fitted:
    """Minimize the penalized regressions of features (N, F) for G penalties.

    The problem is preconditioned. Features are correlated, and without preconditioning L-BFGS needs about a thousand
    iterations. A rotation to the principal axes of the features does not change the penalty. There the Hessian is about
    σ²/C + λ along an axis of variance σ², and weights in units of its inverse square root need a tenth of the
    iterations. The tolerance applies to the gradient in these units, where half its squared norm is about the distance
    to the minimum value.
    """
    covariance = (x.T @ x / len(x)).cpu().double()
    variance, axes = (part.to(x) for part in torch.linalg.eigh(covariance))  # (F,), (F, F)
    x = F.pad(x @ axes, (0, 1), value=1.0)  # the bias is the weight of a constant feature 1
    blocks = list(zip(*(part.split(max(1, MAX_LOGITS // classes)) for part in (x, labels)), strict=True))

    def fit(decay: float) -> tuple[Tensor, int, bool]:
        penalty = decay * F.pad(torch.ones_like(variance), (0, 1))  # (F + 1,); no penalty on the bias
        unit = (F.pad(variance.clamp(min=0), (0, 1), value=1.0) / classes + penalty).rsqrt()
        v = x.new_zeros(classes, x.shape[1], requires_grad=True)

        @torch.enable_grad()
        def objective() -> Tensor:
            v.grad = None
            # Sums are in float64: the error of a long sum in float32 is above the decrease of the last steps.
            value = (penalty * (v * unit).square()).cpu().double().sum() / 2
            value.backward()
            for block, y in blocks:
                loss = F.cross_entropy(block @ (v * unit).T, y, reduction="none").cpu().double().sum() / len(x)
                loss.backward()
                value = value + loss
            advance()
            return value.detach()

        optimizer = torch.optim.LBFGS(
            [v], max_iter=iterations, max_eval=100 * iterations, history_size=10,
            tolerance_grad=tolerance, tolerance_change=0, line_search_fn="strong_wolfe",
        )  # fmt: skip
        optimizer.step(objective)
        objective()  # the line search can have tried another point after the one that it took
        assert v.grad is not None
        w = v.detach() * unit
        rotated_back = torch.cat([w[:, :-1] @ axes.T, w[:, -1:]], 1)
        return rotated_back, optimizer.state[v]["n_iter"], bool(v.grad.abs().max() <= tolerance)

    weights, taken, converged = zip(*map(fit, penalties), strict=True)
    return Fitted(torch.stack(weights), max(taken), all(converged))


def predict(x: Tensor, weights: Tensor) -> Tensor:
    """Logits of G classifiers: (N, F), (G, C, F + 1) → (G, N, C)."""
    return torch.stack([F.linear(x, w[:, :-1], w[:, -1]) for w in weights])
