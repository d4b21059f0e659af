"""The data, the fixed α and the covariance X_α = C_α[x, x] under it."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_ssl.labs.lab import per_seed
from lightning_ssl.losses.energy import contrastive_covariance


def views(inputs: int, samples: int, augmentation: float, seeds: int, first_seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw two views of Gaussian data; directions differ in their spread and in the size of their augmentation.

    Both (seeds, samples, inputs), float64.
    """

    def draw(g: torch.Generator) -> Tensor:
        spread = 0.3 + torch.rand(inputs, generator=g).double() * 1.2
        noise = augmentation * torch.rand(inputs, generator=g).double() * 2.5
        rotation = torch.linalg.qr(torch.randn(inputs, inputs, generator=g).double()).Q
        x = torch.randn(samples, inputs, generator=g).double() * spread
        e1, e2 = torch.randn(2, samples, inputs, generator=g).double() * noise
        return torch.stack([(x + e1) @ rotation, (x + e2) @ rotation])

    both = per_seed(draw, seeds, first_seed, 0)
    return both[:, 0], both[:, 1]


def fixed_alpha(x1: Tensor, kind: str, tau: float, noise: Tensor) -> Tensor:
    """A fixed importance with rows of sum 1 and zero diagonal: (…, N, n) → (…, N, N).

    uniform: 1/(N−1); entropy: softmax_j(−½‖x_i − x_j‖²/τ) of the inputs; random: `noise` over its row sums.
    """
    itself = torch.eye(x1.shape[-2], dtype=torch.bool)
    if kind == "entropy":
        d2 = torch.cdist(x1, x1).square() / 2
        return (-d2 / tau).masked_fill(itself, -torch.inf).softmax(-1)
    weight = (torch.ones_like(noise) if kind == "uniform" else noise).masked_fill(itself, 0)
    return weight / weight.sum(-1, keepdim=True)


def mean_covariance(x1: Tensor, x2: Tensor, alpha: Tensor) -> Tensor:
    """X_α = C_α[x, x] / N for every run: x1, x2 (…, N, n), alpha (…, N, N) → (…, n, n)."""
    return contrastive_covariance(x1, x1, alpha, x2, x2) / x1.shape[-2]
