"""The data of Appendix B.1: support points of the latent models, noisy samples, and random filters."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from lightning_ssl.labs.lab import normal, per_seed

DTYPE = torch.float64


def categorical(U: Tensor) -> tuple[Tensor, Tensor]:
    """The latent categorical model, x = u_m with equal probabilities: points (S, M, d), probabilities (M,)."""
    return U, U.new_full((U.shape[1],), 1 / U.shape[1])


def summation(U: Tensor, q: float) -> tuple[Tensor, Tensor]:
    """The latent summation model: all its points (S, 2^M, d) and their probabilities (2^M,).

    x = Σ_m y_m u_m with y_m = √((1 − q)/q) with probability q, −√(q/(1 − q)) otherwise, U (S, M, d).
    """
    M = U.shape[1]
    on = torch.tensor(list(itertools.product((False, True), repeat=M)))  # (2^M, M)
    on_, off = on.to(U), (~on).to(U)
    y = math.sqrt((1 - q) / q) * on_ - math.sqrt(q / (1 - q)) * off
    return y @ U, (q * on_ + (1 - q) * off).prod(1)


def patterns(seeds: int, M: int, d: int, skew: float = 0.0) -> Tensor:
    """Draw M unit patterns per seed, orthonormal up to a Gaussian perturbation of size `skew`: (S, M, d)."""

    def draw(generator: torch.Generator) -> Tensor:
        U = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=DTYPE))[0][:M]
        U = U + skew * torch.randn(M, d, generator=generator, dtype=DTYPE) / math.sqrt(d)
        return U / U.norm(dim=1, keepdim=True)

    return per_seed(draw, seeds, stream=1)


def noisy_samples(seeds: int, M: int, n: int, noise: float, first_seed: int = 0) -> Tensor:
    """Draw n samples of a balanced categorical model with Gaussian noise, centred: (S, n, M)."""

    def draw(generator: torch.Generator) -> Tensor:
        U = torch.linalg.qr(torch.randn(M, M, generator=generator, dtype=DTYPE))[0]
        x = U[torch.arange(n) % M] + noise * torch.randn(n, M, generator=generator, dtype=DTYPE)
        return x - x.mean(0)

    return per_seed(draw, seeds, first_seed, stream=2)


def filters(seeds: int, count: int, d: int, first_seed: int = 0) -> Tensor:
    """Draw `count` random unit filters per seed: (S, count, d)."""
    w = normal((count, d), seeds, first_seed, 3, DTYPE)
    return w / w.norm(dim=2, keepdim=True)
