"""Projected gradient ascent of tr(W X_α Wᵀ): Lemma 1, Theorem 3, Corollary 3 and the remark's counterexample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from lightning_ssl.labs.lab import normal

Weights = Sequence[Tensor]
"""W_1 … W_L of every run, each (…, n_l, n_{l−1})."""


def initial(widths: Sequence[int], seeds: int, first_seed: int = 0) -> list[Tensor]:
    """Gaussian layers of unit Frobenius norm: W_l (seeds, n_l, n_{l−1})."""
    shapes = [(n_out, n_in) for n_in, n_out in pairwise(widths)]
    drawn = [normal(shape, seeds, first_seed, 10 + layer).double() for layer, shape in enumerate(shapes)]
    return [w / w.norm(dim=(1, 2), keepdim=True) for w in drawn]


def products(weights: Weights) -> list[Tensor]:
    """W_l ⋯ W_1 for l = 1 … L."""
    return list(accumulate(weights, lambda below, w: w @ below))


def gradients(weights: Weights, x_alpha: Tensor) -> list[Tensor]:
    """The ascent direction of every layer (Lemma 1), half the gradient of tr(W X_α Wᵀ).

    G_l = W_{>l}ᵀ W_{>l} W_l C_α[f_{l−1}] = W_{>l}ᵀ W X_α W_{<l}ᵀ.
    """
    *below, whole = products(weights)
    signal = whole @ x_alpha
    found: list[Tensor] = []
    for w, under in zip(reversed(weights[1:]), reversed(below), strict=True):
        found.append(signal @ under.mT)
        signal = w.mT @ signal
    return [signal, *reversed(found)]


def energy(weights: Weights, x_alpha: Tensor) -> Tensor:
    """tr(W X_α Wᵀ), W = W_L ⋯ W_1: (R,)."""
    return objective(products(weights)[-1], x_alpha)


def objective(W: Tensor, x_alpha: Tensor) -> Tensor:
    """tr(W X_α Wᵀ), (R,)."""
    return torch.einsum("rki,rij,rkj->r", W, x_alpha, W)


def project(weights: Weights, per_filter: Tensor) -> list[Tensor]:
    """Project on the constraint set: ‖W_l‖_F = 1, or ‖w_lk‖ = 1/√n_l below the last layer where `per_filter` (…)."""
    *hidden, last = [w / w.norm(dim=(-2, -1), keepdim=True) for w in weights]
    filters = [w / w.norm(dim=-1, keepdim=True) / w.shape[-2] ** 0.5 for w in weights[:-1]]
    chosen = per_filter[..., None, None]
    return [*(torch.where(chosen, f, w) for f, w in zip(filters, hidden, strict=True)), last]


def ascend(
    weights: Weights, x_alpha: Tensor, per_filter: Tensor, steps: Iterable[int], lr: float
) -> Iterator[list[Tensor]]:
    """Projected gradient ascent with normalized steps: W_l ← Π(W_l + lr·G_l / max_k ‖G_k‖_F).

    Yields the weights before every step, and after the last one.
    """
    now = project(weights, per_filter)
    for _ in steps:
        yield now
        g = gradients(now, x_alpha)
        largest = torch.stack([g_l.norm(dim=(-2, -1)) for g_l in g]).amax(0).clamp_min(1e-300)
        rate = (lr / largest)[..., None, None]
        now = project([w + rate * g_l for w, g_l in zip(now, g, strict=True)], per_filter)
    yield now


def doubled_eigenvalue(seeds: int, first_seed: int = 0) -> tuple[Tensor, Tensor]:
    """The remark's counterexample, one layer and the top eigenvalue twice: energy / λ_max (R,) and σ₂ (R,)."""
    basis = torch.linalg.qr(normal((6, 6), seeds, first_seed, 3).double()).Q
    spectrum = torch.linspace(1, -0.5, 5).double()
    x_alpha = basis * torch.cat([spectrum[:1], spectrum]) @ basis.mT  # 1 appears twice
    start = [normal((4, 6), seeds, first_seed, 4).double()]
    *_, end = ascend(start, x_alpha, torch.zeros(seeds, dtype=torch.bool), range(200), lr=0.5)
    return energy(end, x_alpha), torch.linalg.svdvals(end[0])[:, 1]
