"""Gradient descent of every run in one batch, and the differences between paths and between gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from lightning_ssl.labs.importances import batched_alpha
from lightning_ssl.labs.lab import normal, track
from lightning_ssl.labs.min_player.players import mean_energy, min_player_value, negatives, pair_distances
from lightning_ssl.losses.importance import Importance
from lightning_ssl.losses.solved import Tsallis

Weights = list[Tensor]
Objective = Callable[[Tensor, Tensor], Tensor]
"""d2_pos (S, N), d2_neg (S, N, N) → a scalar of each seed (S,)."""


@dataclass(frozen=True)
class Problem:
    """Initial weights and two views of every seed, and the settings of the descent."""

    start: Weights
    x1: Tensor  # (S, N, n)
    x2: Tensor  # (S, N, n)
    steps: int
    lr: float
    progress: bool = False

    def descend(
        self, objectives: Sequence[Objective], label: str, rate: float | Tensor | None = None, scale: float = 1.0
    ) -> tuple[Weights, Tensor]:
        """Plain gradient descent of G objectives from the initial weights times `scale`.

        The weights of each layer along the path (T + 1, G, S, ...), and the objectives (T, G, S).

        rate: one rate for all runs, or one per run as (G, S, 1, 1); by default `lr`
        """
        lr = self.lr if rate is None else rate
        path, values = [[w.repeat(len(objectives), 1, 1, 1) * scale for w in self.start]], []
        for _ in track(range(self.steps), label, self.progress):
            g, value = self.gradient(path[-1], *objectives)
            path.append([w - lr * d for w, d in zip(path[-1], g, strict=True)])
            values.append(value)
        return [torch.stack(layer) for layer in zip(*path, strict=True)], torch.stack(values)

    def gradient(self, weights: Sequence[Tensor], *objectives: Objective) -> tuple[Weights, Tensor]:
        """The gradient of every run in its own weights (G, S, ...), and the G objectives (G, S)."""
        shape = (len(objectives), len(self.x1), -1, -1)
        leaves = [w.detach().expand(shape).contiguous().requires_grad_(True) for w in weights]
        distances = zip(*pair_distances(self.x1, self.x2, leaves), strict=True)
        value = torch.stack([objective(*d2) for objective, d2 in zip(objectives, distances, strict=True)])
        # Runs share no weight, so the gradient of the sum is each run's own gradient.
        return list(torch.autograd.grad(value.sum(), leaves)), value.detach()

    def envelope_gap(self, tau: float, q: float, direction: Weights) -> Tensor:
        """Relative difference of a central difference of L_r and −∇E_{sg(α)} along a direction, (S,)."""
        h = 1e-5

        def value(sign: int) -> Tensor:
            moved = [w + sign * h * d for w, d in zip(self.start, direction, strict=True)]
            return min_player_value(tau, q, *pair_distances(self.x1, self.x2, moved))

        slope = (value(1) - value(-1)) / (2 * h)
        g = [layer[0] for layer in self.gradient(self.start, energy_of(Tsallis(tau, q)))[0]]
        along = torch.stack([(a * b).sum((1, 2)) for a, b in zip(g, direction, strict=True)]).sum(0)
        size = torch.stack([a.square().sum((1, 2)) for a in g]).sum(0).sqrt()
        return (slope - along).abs() / size


def initial(inputs: int, hidden: int, outputs: int, seeds: int, first_seed: int = 0) -> Weights:
    """W_1 (seeds, hidden, inputs) and W_2 (seeds, outputs, hidden), Gaussian with variance 1/fan-in, float64."""
    w1 = normal((hidden, inputs), seeds, first_seed, 20).double()
    w2 = normal((outputs, hidden), seeds, first_seed, 21).double()
    return [w1 / inputs**0.5, w2 / hidden**0.5]


def stopped_energy(solve: Objective, d2_pos: Tensor, d2_neg: Tensor) -> Tensor:
    """−E_{sg(α)}: the max player's objective, at the α that `solve` gives and without its gradient."""
    alpha = solve(d2_pos.detach(), d2_neg.detach())
    return -mean_energy(alpha.detach(), d2_pos, d2_neg)


def alpha_of(importance: Importance) -> Objective:
    """The α of an importance, as a function of distances."""
    return lambda d2_pos, d2_neg: batched_alpha(importance, d2_pos, d2_neg, negatives(d2_pos.shape[1]))


def energy_of(importance: Importance) -> Objective:
    """The max player's objective at the α of an importance."""
    return partial(stopped_energy, alpha_of(importance))


def path_gaps(ours: Weights, theirs: Weights) -> Tensor:
    """Largest difference of a weight between two paths at every step, (T + 1, G, S)."""
    return torch.stack([(a - b).abs().amax((-2, -1)) for a, b in zip(ours, theirs, strict=True)]).amax(0)


def relative_gap(ours: Weights, theirs: Weights) -> Tensor:
    """‖a − b‖ / ‖b‖ of two gradients, (G, S)."""
    a, b = (torch.cat([g.flatten(2) for g in gradients], 2) for gradients in (ours, theirs))
    return (a - b).norm(dim=2) / b.norm(dim=2)
