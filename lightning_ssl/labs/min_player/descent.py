"""Gradient descent of every run in one batch, and the differences between paths and between gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lightning_ssl.labs.importances import batched_alpha, sphere_mixture
from lightning_ssl.labs.lab import normal, track
from lightning_ssl.labs.min_player.players import mean_energy, min_player_value, negatives, pair_distances
from lightning_ssl.losses.solved import Tsallis

Weights = list[Tensor]
Objective = Callable[[Tensor, Tensor], Tensor]
"""d2_pos (R, N), d2_neg (R, N, N) → a scalar of each run (R,)."""


@dataclass(frozen=True)
class Problem:
    """Initial weights and two views of every seed, and the settings of the descent."""

    start: Weights
    x1: Tensor  # (S, N, n)
    x2: Tensor  # (S, N, n)
    steps: int
    lr: float
    progress: bool = False

    @property
    def seeds(self) -> int:
        """The number of seeds S."""
        return len(self.x1)

    @property
    def valid(self) -> Tensor:
        """Mask of the negatives of every anchor, (N, N)."""
        return negatives(self.x1.shape[1])

    def energy(self, importance: Callable[..., Tensor]) -> Objective:
        """The max player's objective at the α of an importance."""
        return partial(stopped_energy, partial(batched_alpha, importance, valid=self.valid))

    def repeat(self, groups: int) -> tuple[Weights, Tensor, Tensor]:
        """Weights and views of `groups` × seeds runs."""
        weights = [w.repeat(groups, 1, 1) for w in self.start]
        return weights, self.x1.repeat(groups, 1, 1), self.x2.repeat(groups, 1, 1)

    def descend(
        self, objectives: Sequence[Objective], label: str, rate: float | Tensor | None = None, scale: float = 1.0
    ) -> tuple[Weights, Tensor]:
        """Plain gradient descent of one objective per group of seeds, from the initial weights times `scale`.

        The weights of each layer along the path (T + 1, R, ...), and the objective (R, T).

        rate: one rate for all runs, or one per run as (R, 1, 1); by default `lr`
        """
        start, x1, x2 = self.repeat(len(objectives))
        lr = self.lr if rate is None else rate
        path, values = [[w * scale for w in start]], []
        for _ in track(range(self.steps), label, self.progress):
            g, value = gradient(path[-1], x1, x2, *objectives)
            path.append([w - lr * d for w, d in zip(path[-1], g, strict=True)])
            values.append(value)
        return [torch.stack(layer) for layer in zip(*path, strict=True)], torch.stack(values, 1)


def draw_problem(settings: dict[str, Any], progress: bool = False) -> Problem:
    """Draw views of a mixture of classes, a third of its dimensions signal, and the initial weights, in float64."""
    s = settings
    signal, run = max(1, s["inputs"] // 3), (s["seeds"], s["first_seed"])
    points = sphere_mixture(s["classes"], 1, s["samples"], signal, s["inputs"] - signal, 0.5, 0.5, *run)
    start = initial(s["inputs"], s["hidden"], s["outputs"], *run)
    return Problem(start, points.x1[:, 0].double(), points.x2[:, 0].double(), s["steps"], s["lr"], progress)


def initial(inputs: int, hidden: int, outputs: int, seeds: int, first_seed: int = 0) -> Weights:
    """W_1 (seeds, hidden, inputs) and W_2 (seeds, outputs, hidden), Gaussian with variance 1/fan-in, float64."""
    w1 = normal((hidden, inputs), seeds, first_seed, 20).double()
    w2 = normal((outputs, hidden), seeds, first_seed, 21).double()
    return [w1 / inputs**0.5, w2 / hidden**0.5]


def gradient(weights: Sequence[Tensor], x1: Tensor, x2: Tensor, *objectives: Objective) -> tuple[Weights, Tensor]:
    """The gradient of every run in its own weights, and the objective (R,); one objective per equal group of runs."""
    leaves = [w.detach().requires_grad_(True) for w in weights]
    groups = zip(objectives, *(d2.chunk(len(objectives)) for d2 in pair_distances(x1, x2, leaves)), strict=True)
    value = torch.cat([objective(d2_pos, d2_neg) for objective, d2_pos, d2_neg in groups])
    # Runs share no weight, so the gradient of the sum is each run's own gradient.
    return list(torch.autograd.grad(value.sum(), leaves)), value.detach()


def stopped_energy(solve: Objective, d2_pos: Tensor, d2_neg: Tensor) -> Tensor:
    """−E_{sg(α)}: the max player's objective, at the α that `solve` gives and without its gradient."""
    alpha = solve(d2_pos.detach(), d2_neg.detach())
    return -mean_energy(alpha.detach(), d2_pos, d2_neg)


def path_gaps(ours: Weights, theirs: Weights) -> Tensor:
    """Largest difference of a weight between two paths at every step, (T + 1, R)."""
    return torch.stack([(a - b).abs().amax((2, 3)) for a, b in zip(ours, theirs, strict=True)]).amax(0)


def relative_gap(ours: Weights, theirs: Weights) -> Tensor:
    """‖a − b‖ / ‖b‖ of two gradients, (R,)."""
    a, b = (torch.cat([g.flatten(1) for g in gradients], 1) for gradients in (ours, theirs))
    return (a - b).norm(dim=1) / b.norm(dim=1)


def envelope_gap(weights: Weights, x1: Tensor, x2: Tensor, tau: float, q: float, direction: Weights) -> Tensor:
    """Relative difference of a central difference of L_r and −∇E_{sg(α)} along a direction, (R,)."""
    h = 1e-5

    def value(sign: int) -> Tensor:
        moved = [w + sign * h * d for w, d in zip(weights, direction, strict=True)]
        return min_player_value(tau, q, *pair_distances(x1, x2, moved))

    slope = (value(1) - value(-1)) / (2 * h)
    solve = partial(batched_alpha, Tsallis(tau, q), valid=negatives(x1.shape[1]))
    g, _ = gradient(weights, x1, x2, partial(stopped_energy, solve))
    along = torch.stack([(a * b).sum((1, 2)) for a, b in zip(g, direction, strict=True)]).sum(0)
    size = torch.stack([a.square().sum((1, 2)) for a in g]).sum(0).sqrt()
    return (slope - along).abs() / size
