"""Operators against the gradients of autograd: Theorems 1 to 3, Lemma 2, Corollary 1 and Eqn. 7."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_ssl.labs.covariance_operator.losses import Loss, Value, exact_loss
from lightning_ssl.labs.covariance_operator.networks import Population, connections, forward, vec
from lightning_ssl.labs.covariance_operator.operators import operator, pair_weights, sample_xi


def tower_gradient(W: list[Tensor], f_other: Tensor, x: Tensor, value: Value) -> list[Tensor]:
    """Autograd's gradient for W of Σ_runs value(f(x; W), f_other), with the other tower fixed."""
    gradient: list[Tensor] = torch.func.grad(lambda leaves: value(forward(leaves, x)[-1], f_other).sum())(W)
    return gradient


def relative_error(ours: Tensor, reference: Tensor) -> Tensor:
    """‖ours − reference‖ / ‖reference‖ of each run, (R,)."""
    return (ours - reference).flatten(1).norm(dim=1) / reference.flatten(1).norm(dim=1)


def gradient_error(population: Population, M: Tensor, value: Value) -> Tensor:
    """Relative error of −OP vec(W) against autograd's gradient of `value`, worst layer, (R,)."""
    W, x = population.W, population.views
    autograd = tower_gradient(W, population.outputs(), x, value)
    errors = [
        relative_error(operator(k, -M) @ vec(w)[..., None], vec(g)[..., None])
        for k, w, g in zip(connections(W, x), W, autograd, strict=True)
    ]
    return torch.stack(errors).amax(0)


def theorem1_error(population: Population) -> Tensor:
    """Relative error of K₁[K₁ᵀ vec(W₁) − K₂ᵀ vec(W₂)], summed over pairs of views, against autograd, worst layer, (R,).

    The two towers have different weights; view v of the first is paired with view V−1−v of the second.
    """
    W1, W2, x1 = population.W, population.other, population.views
    x2 = x1.flip(1)
    f2 = forward(W2, x2)[-1]
    autograd = tower_gradient(W1, f2, x1, lambda f, g: (f - g).square().sum((1, 2)) / 2)
    errors = []
    for K1, K2, w1, w2, g in zip(connections(W1, x1), connections(W2, x2), W1, W2, autograd, strict=True):
        inner = torch.einsum("rvpc,rp->rvc", K1, vec(w1)) - torch.einsum("rvpc,rp->rvc", K2, vec(w2))
        errors.append(relative_error(torch.einsum("rvpc,rvc->rp", K1, inner), vec(g)))
    return torch.stack(errors).amax(0)


def theorem2(loss: Loss, r_pos: Tensor, r_neg: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """∂L/∂r₊ (N,), ∂L/∂r₋ (N, H), and their sum (N,)."""
    pos, neg = torch.func.grad(lambda *r: loss.value(*r).sum(), argnums=(0, 1))(r_pos, r_neg)
    return pos, neg, pos + neg.sum(1)


def exact_error(population: Population, loss: Loss) -> Tensor:
    """Relative error of Theorem 4's operator alone against the gradient of Σ sg(ξ(r)) (r₊ − r₋) (Eqn. 7), (R,)."""
    X, A, xi = population.X, population.A, sample_xi(population, loss)
    return gradient_error(population, pair_weights(xi, A), exact_loss(X, A, xi))
