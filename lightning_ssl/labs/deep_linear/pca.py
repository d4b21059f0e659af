"""Corollary 2: under WWᵀ = I a linear network's energy is the objective of principal component analysis.

For z = W(θ)x the energy tr C_α[z, z] is tr(W X_α Wᵀ), X_α = C_α[x, x], which PCA maximizes over WWᵀ = I. Its maximum
is the sum of the K largest eigenvalues of X_α, K the number of outputs, and the rows of W span their eigenvectors. The
objective of classical PCA is the case of a uniform α without augmentation: X_α is proportional to the covariance of
the batch. The corollary is about the objective. It does not say that training W(θ) reaches the maximum; `ascend_polar`
measures that for a deep linear W(θ).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_ssl.labs.deep_linear.ascent import objective, products
from lightning_ssl.labs.deep_linear.data import fixed_alpha, mean_covariance
from lightning_ssl.labs.lab import Claim


def orthonormal(weights: Sequence[Tensor]) -> Tensor:
    """W(θ) = (PPᵀ)^−½ P of the product P = W_L ⋯ W_1, so that WWᵀ = I: (R, K, n_0)."""
    whole = products(weights)[-1]
    values, vectors = torch.linalg.eigh(whole @ whole.mT)
    return vectors * values.rsqrt()[:, None] @ vectors.mT @ whole


def ascend_polar(weights: Sequence[Tensor], x_alpha: Tensor, steps: int, lr: float) -> Tensor:
    """Climb tr(W(θ) X_α W(θ)ᵀ) over θ by Adam; the last W(θ), (R, K, n_0)."""
    leaves = [w.clone().requires_grad_() for w in weights]
    optimizer = torch.optim.Adam(leaves, lr)
    # A rate that falls to zero, so that the end is at a maximum.
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.enable_grad():
            loss = -objective(orthonormal(leaves), x_alpha).sum()
        loss.backward()
        optimizer.step()
        schedule.step()
    return orthonormal([w.detach() for w in leaves])


def corollary_2(
    weights: Sequence[Tensor], x1: Tensor, x2: Tensor, alpha: Tensor, x_alpha: Tensor, steps: int
) -> list[Claim]:
    """Check Corollary 2 at random θ, and where the ascent over θ ends."""
    W = orthonormal(weights)
    K, norm = W.shape[1], x_alpha.norm(dim=(1, 2))
    of_outputs = mean_covariance(x1 @ W.mT, x2 @ W.mT, alpha).diagonal(dim1=1, dim2=2).sum(1)
    values, vectors = torch.linalg.eigh(x_alpha)
    best, top = values[:, -K:].sum(1), vectors[..., -K:].mT
    end = ascend_polar(weights, x_alpha, steps, 0.03)
    within = torch.linalg.svdvals(end @ top.mT)[:, -1]  # the smallest cosine of the two spans
    uniform = fixed_alpha(x1, "uniform", 1.0, alpha)
    N, centred = x1.shape[1], x1 - x1.mean(1, keepdim=True)
    classical = mean_covariance(x1, x1, uniform) * (N - 1) / (2 * N) - centred.mT @ centred / N
    short = [(best - objective(each, x_alpha)) / norm for each in (W, top, end)]
    return [
        Claim.at_most(
            "Cor 2: |tr C_α[z, z] − tr(W X_α Wᵀ)|/‖X_α‖", (of_outputs - objective(W, x_alpha)).abs() / norm, 1e-10
        ),
        Claim.at_least("Cor 2: (PCA maximum − energy)/‖X_α‖, random θ", short[0], 0.0),
        Claim.near("Cor 2:   the same at the top K eigenvectors", short[1], 0.0, tolerance=1e-9),
        Claim.at_most("Cor 2: uniform α, no augmentation, |X_α − covariance|", classical.abs().amax((1, 2)), 1e-10),
        Claim.near("ours: (PCA maximum − energy)/‖X_α‖ after ascent of θ", short[2], 0.0, tolerance=1e-3),
        Claim.at_least("ours: smallest cosine of span(W) and the top K", within, 0.99),
    ]
