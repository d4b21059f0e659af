"""The problem of every augmentation and seed, the ascent of all runs, and the measures of their ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lightning_ssl.labs.deep_linear.data import fixed_alpha, mean_covariance
from lightning_ssl.labs.lab import per_seed, track
from lightning_ssl.labs.relu_two_layer.network import classify, energy, mixture, step, sticky_gradients

# A run whose tangential gradient is below this times ‖X_α‖ is at a fixed point.
SETTLED = 1e-6


@dataclass(frozen=True)
class Problem:
    """Views, the fixed α and X_α of every augmentation × seed, with the eigenpairs of X_α."""

    x1: Tensor  # (A·seeds, N, M)
    x2: Tensor  # (A·seeds, N, M)
    alpha: Tensor  # (A·seeds, N, N)
    x_alpha: Tensor  # (A·seeds, M, M)
    eigenvalues: Tensor  # (A·seeds, M)
    eigenvectors: Tensor  # (A·seeds, M, M)
    shape: tuple[int, int, int]  # augmentations, widths, seeds

    def for_every_width(self, value: Tensor) -> Tensor:
        """Repeat a value of every problem for every width: (A·seeds, ...) → (R, ...)."""
        rest = value.shape[1:]
        return value.view(self.shape[0], 1, self.shape[2], *rest).expand(*self.shape, *rest).reshape(-1, *rest)


def draw_problem(settings: dict[str, Any]) -> Problem:
    """Draw the views and α of every augmentation × seed."""
    s = settings
    seeds, first_seed, samples, strengths = s["seeds"], s["first_seed"], s["samples"], s["augmentation"]
    views = [mixture(s["modes"], samples, strength, seeds, first_seed) for strength in strengths]
    x1, x2 = (torch.cat([view[v] for view in views]) for v in (0, 1))
    noise = per_seed(lambda g: torch.rand(samples, samples, generator=g).double(), seeds, first_seed, 3)
    alpha = fixed_alpha(x1, s["alpha"], s["tau"], noise.repeat(len(strengths), 1, 1))
    x_alpha = mean_covariance(x1, x2, alpha)
    eigenvalues, eigenvectors = torch.linalg.eigh(x_alpha)
    return Problem(x1, x2, alpha, x_alpha, eigenvalues, eigenvectors, (len(strengths), len(s["hidden"]), seeds))


def train(
    w1: Tensor, w2: Tensor, x_alpha: Tensor, steps: int, lr: float, progress: bool
) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
    """Climb the energy under the sticky rule, recording at logarithmic intervals.

    The weights at the end, how often a weight left zero (R,), and energy (R, T) and number of positive weights (R, T)
    at the recorded steps (T,).
    """
    rows: list[tuple[Tensor, Tensor, Tensor]] = []  # energy, positive weights, step
    revived = torch.zeros(len(w1), dtype=torch.int64)
    for t in track(range(steps), "two ReLU layers", progress):
        if t in (0, steps - 1) or math.log(t + 1) >= math.log(int(rows[-1][2]) + 1) + 0.05:
            rows.append((energy(w1, w2, x_alpha), (w1 > 0).sum((1, 2)), torch.tensor(t)))
        at_zero = w1 == 0
        w1, w2 = step(w1, w2, *sticky_gradients(w1, w2, x_alpha), lr)
        revived += (at_zero & (w1 > 0)).sum((1, 2))
    energies, alive, recorded_at = (torch.stack(column, -1) for column in zip(*rows, strict=True))
    return w1, w2, revived, {"energy": energies, "alive": alive, "recorded_at": recorded_at}


@dataclass(frozen=True)
class End:
    """Measures of every run at its end, each (augmentations, widths, seeds)."""

    reached: Tensor  # energy / λ_max
    best_one_hot: Tensor  # largest X_mm / λ_max
    rank: Tensor
    modes_seen: Tensor
    settled: Tensor  # at a fixed point of the constrained ascent
    positive: Tensor  # E > 0, as Theorem 6 assumes; impossible where λ_max < 0
    lam_min: Tensor
    lam_max: Tensor


def measure_end(w1: Tensor, w2: Tensor, problem: Problem) -> End:
    """Measure energy, rank, modes and convergence of every run."""
    x_alpha = problem.for_every_width(problem.x_alpha)
    lam_min, lam_max = (problem.for_every_width(problem.eigenvalues[:, k]) for k in (0, -1))
    end = energy(w1, w2, x_alpha)
    g1, g2 = sticky_gradients(w1, w2, x_alpha)
    # At a fixed point of the constrained ascent each gradient is radial.
    residual = torch.maximum(_tangential(w1, g1), _tangential(w2, g2)) / torch.maximum(lam_max, -lam_min)
    best = x_alpha.diagonal(dim1=1, dim2=2).amax(1) / lam_max
    rank, modes_seen = classify(w1)
    measures = (end / lam_max, best, rank, modes_seen, residual < SETTLED, end > 0, lam_min, lam_max)
    return End(*(value.view(problem.shape) for value in measures))


def _tangential(w: Tensor, g: Tensor) -> Tensor:
    return (g - (g * w).sum((1, 2), keepdim=True) * w).norm(dim=(1, 2))
