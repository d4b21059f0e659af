"""Projected gradient ascent of tr(W X_α Wᵀ): Lemma 1, Theorem 3, Corollary 3 and the remark's counterexample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from lightning_ssl.labs.lab import normal, track


def initial(widths: Sequence[int], seeds: int, first_seed: int = 0) -> list[Tensor]:
    """Gaussian layers of unit Frobenius norm: W_l (seeds, n_l, n_{l−1})."""
    layers = []
    for layer, (n_in, n_out) in enumerate(pairwise(widths)):
        w = normal((n_out, n_in), seeds, first_seed, 10 + layer).double()
        layers.append(w / w.norm(dim=(1, 2), keepdim=True))
    return layers


def gradients(weights: Sequence[Tensor], x_alpha: Tensor) -> list[Tensor]:
    """The ascent direction of every layer (Lemma 1), half the gradient of tr(W X_α Wᵀ).

    G_l = W_{>l}ᵀ W_{>l} W_l C_α[f_{l−1}] = W_{>l}ᵀ W X_α W_{<l}ᵀ.
    """
    below = [torch.eye(x_alpha.shape[-1], dtype=x_alpha.dtype).expand_as(x_alpha)]
    for w in weights:
        below.append(w @ below[-1])  # W_l ⋯ W_1
    signal = below[-1] @ x_alpha  # W X_α
    out: list[Tensor] = []
    for layer in range(len(weights) - 1, -1, -1):
        out.insert(0, signal @ below[layer].mT)
        signal = weights[layer].mT @ signal
    return out


def energy(weights: Sequence[Tensor], x_alpha: Tensor) -> Tensor:
    """tr(W X_α Wᵀ), W = W_L ⋯ W_1, (R,)."""
    product = torch.eye(x_alpha.shape[-1], dtype=torch.float64).expand(len(x_alpha), -1, -1)
    for w in weights:
        product = w @ product
    return torch.einsum("rki,rij,rkj->r", product, x_alpha, product)


def project(weights: Sequence[Tensor], per_filter: Tensor) -> list[Tensor]:
    """Project on the constraint set: ‖W_l‖_F = 1, or ‖w_lk‖ = 1/√n_l below the last layer where `per_filter` (R,)."""
    out = []
    for layer, w in enumerate(weights):
        whole = w / w.norm(dim=(1, 2), keepdim=True)
        if layer < len(weights) - 1:
            filters = w / w.norm(dim=2, keepdim=True) / w.shape[1] ** 0.5
            whole = torch.where(per_filter[:, None, None], filters, whole)
        out.append(whole)
    return out


def ascend(
    weights: Sequence[Tensor],
    x_alpha: Tensor,
    per_filter: Tensor,
    steps: Sequence[int] | range,
    lr: float,
    record: Callable[[Sequence[Tensor]], None] | None = None,
    progress: bool = False,
) -> list[Tensor]:
    """Projected gradient ascent with normalized steps: W_l ← Π(W_l + lr·G_l / max_k ‖G_k‖_F).

    `record` is called with the weights before every step.
    """
    weights = project(weights, per_filter)
    for _ in track(steps, "deep linear", progress):
        if record is not None:
            record(weights)
        g = gradients(weights, x_alpha)
        largest = torch.stack([g_l.norm(dim=(1, 2)) for g_l in g]).amax(0).clamp_min(1e-300)  # (R,)
        rate = (lr / largest)[:, None, None]
        weights = project([w + rate * g_l for w, g_l in zip(weights, g, strict=True)], per_filter)
    return weights


def doubled_eigenvalue(seeds: int, first_seed: int = 0) -> tuple[Tensor, Tensor]:
    """The remark's counterexample, one layer and the top eigenvalue twice: energy / λ_max (R,) and σ₂ (R,)."""
    basis = torch.linalg.qr(normal((6, 6), seeds, first_seed, 3).double()).Q
    spectrum = torch.linspace(1, -0.5, 5).double()
    spectrum = torch.cat([spectrum[:1], spectrum])  # 1 appears twice
    x_alpha = basis * spectrum @ basis.mT
    start = [normal((4, 6), seeds, first_seed, 4).double()]
    (w,) = ascend(start, x_alpha, torch.zeros(seeds, dtype=torch.bool), range(200), lr=0.5)
    return energy([w], x_alpha), torch.linalg.svdvals(w)[:, 1]
