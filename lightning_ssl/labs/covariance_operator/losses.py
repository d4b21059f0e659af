"""Contrastive losses of r₊ and r₋, and their expectation over the population."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl.labs.covariance_operator.networks import half_distances

Value = Callable[[Tensor, Tensor], Tensor]
"""Outputs of the anchors (R, V, c), and of the positives and negatives (R, V, c) → the loss of every run (R,)."""


@dataclass(frozen=True)
class Loss:
    """A contrastive loss: `value` of r₊ (…) and r₋ (…, H), and `weight` = −∂L/∂r₋ for one negative, elementwise."""

    value: Callable[[Tensor, Tensor], Tensor]
    weight: Callable[[Tensor, Tensor], Tensor]


def simple() -> Loss:
    """L = r₊ − r₋."""
    return Loss(lambda r_pos, r_neg: r_pos - r_neg.mean(-1), lambda r_pos, r_neg: torch.ones_like(r_pos + r_neg))


def soft_triplet(tau: float, margin: float) -> Loss:
    """L = τ log(1 + e^{(r₊ − r₋ + r_0)/τ}), mean over negatives."""
    return Loss(
        lambda r_pos, r_neg: tau * F.softplus((r_pos[..., None] - r_neg + margin) / tau).mean(-1),
        lambda r_pos, r_neg: torch.sigmoid((r_pos - r_neg + margin) / tau),
    )


def infonce(tau: float) -> Loss:
    """L = −log(e^{−r₊/τ} / (e^{−r₊/τ} + Σ_k e^{−r_k₋/τ})) (Eqn. 2)."""

    def value(r_pos: Tensor, r_neg: Tensor) -> Tensor:
        return torch.logsumexp(torch.cat([-r_pos[..., None], -r_neg], -1) / tau, -1) + r_pos / tau

    return Loss(value, lambda r_pos, r_neg: torch.sigmoid((r_pos - r_neg) / tau) / tau)


def population_loss(X: int, loss: Loss) -> Value:
    """The expected loss over all anchors, positives and negatives of the population."""

    def value(f: Tensor, g: Tensor) -> Tensor:
        A = f.shape[1] // X
        views = half_distances(f, g).unflatten(1, (X, A)).unflatten(3, (X, A))
        r_pos = views.diagonal(dim1=1, dim2=3).movedim(-1, 1)  # (R, x, a₁, a₊)
        r_pos, r_neg = torch.broadcast_tensors(r_pos[..., None, None], views[:, :, :, None])
        return loss.value(r_pos, r_neg[..., None]).flatten(1).mean(1)

    return value


def beta_loss(X: int, beta: float) -> Value:
    """The expectation of (1 + β) r₊ − r₋ over the population."""

    def value(f: Tensor, g: Tensor) -> Tensor:
        views = half_distances(f, g).unflatten(1, (X, -1)).unflatten(3, (X, -1))
        return (1 + beta) * views.diagonal(dim1=1, dim2=3).mean((1, 2, 3)) - views.mean((1, 2, 3, 4))

    return value


def exact_loss(X: int, A: int, xi: Tensor) -> Value:
    """Eqn. 7: the expectation of ξ(x, x')·(r₊ − r₋), with fixed weights ξ (R, x, x')."""

    def value(f: Tensor, g: Tensor) -> Tensor:
        views = half_distances(f, g).unflatten(1, (X, A)).unflatten(3, (X, A))
        positive = views.diagonal(dim1=1, dim2=3).mean((1, 2))  # E[r₊ | x], (R, x)
        negative = views.mean((2, 4))  # E[r₋ | x, x'], (R, x, x')
        return (xi * (positive[:, :, None] - negative)).mean((1, 2))

    return value
