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
    """A contrastive loss of r₊ (…) and r₋ (…, H)."""

    name: str
    value: Callable[[Tensor, Tensor], Tensor]
    weight: Callable[[Tensor, Tensor], Tensor]  # −∂L/∂r₋ for one negative, elementwise
    slope: float  # bound of |∂²L/∂r²|


def simple() -> Loss:
    """L = r₊ − r₋."""
    return Loss(
        "simple", lambda r_pos, r_neg: r_pos - r_neg.mean(-1), lambda r_pos, r_neg: torch.ones_like(r_pos + r_neg), 0.0
    )


def soft_triplet(tau: float, margin: float) -> Loss:
    """L = τ log(1 + e^{(r₊ − r₋ + r_0)/τ}), mean over negatives."""
    return Loss(
        "soft triplet",
        lambda r_pos, r_neg: tau * F.softplus((r_pos[..., None] - r_neg + margin) / tau).mean(-1),
        lambda r_pos, r_neg: torch.sigmoid((r_pos - r_neg + margin) / tau),
        1 / tau,
    )


def infonce(tau: float) -> Loss:
    """L = −log(e^{−r₊/τ} / (e^{−r₊/τ} + Σ_k e^{−r_k₋/τ})) (Eqn. 2)."""

    def value(r_pos: Tensor, r_neg: Tensor) -> Tensor:
        return torch.logsumexp(torch.cat([-r_pos[..., None], -r_neg], -1) / tau, -1) + r_pos / tau

    return Loss("InfoNCE", value, lambda r_pos, r_neg: torch.sigmoid((r_pos - r_neg) / tau) / tau, 1 / tau**2)


def view_distances(f: Tensor, g: Tensor, X: int) -> tuple[Tensor, Tensor]:
    """Distances r₊ of the views of each sample, (R, x, a₁, a₊), and r₋ of all views, (R, x, a₁, x', a₋)."""
    r_neg = half_distances(f, g).unflatten(1, (X, -1)).unflatten(3, (X, -1))
    return r_neg.diagonal(dim1=1, dim2=3).movedim(-1, 1), r_neg


def population_loss(X: int, loss: Loss) -> Value:
    """The expected loss over all anchors, positives and negatives of the population."""

    def value(f: Tensor, g: Tensor) -> Tensor:
        r_pos, r_neg = view_distances(f, g, X)
        r_pos, r_neg = torch.broadcast_tensors(r_pos[..., None, None], r_neg[:, :, :, None])
        return loss.value(r_pos, r_neg[..., None]).flatten(1).mean(1)

    return value


def beta_loss(X: int, beta: float) -> Value:
    """The expectation of (1 + β) r₊ − r₋ over the population."""

    def value(f: Tensor, g: Tensor) -> Tensor:
        r_pos, r_neg = view_distances(f, g, X)
        return (1 + beta) * r_pos.mean((1, 2, 3)) - r_neg.mean((1, 2, 3, 4))

    return value


def exact_loss(xi: Tensor) -> Value:
    """Eqn. 7: the expectation of ξ(x, x')·(r₊ − r₋), with fixed weights ξ (R, x, x')."""

    def value(f: Tensor, g: Tensor) -> Tensor:
        r_pos, r_neg = view_distances(f, g, xi.shape[1])
        return (xi * (r_pos.mean((2, 3))[..., None] - r_neg.mean((2, 4)))).mean((1, 2))

    return value
