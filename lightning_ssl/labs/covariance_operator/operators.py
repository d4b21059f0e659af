"""Covariance operators OP = Σ_uv M_uv K_u K_vᵀ: the weights M (V × V) of every loss, eigenvalues and symmetry."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl.labs.covariance_operator.losses import Loss
from lightning_ssl.labs.covariance_operator.networks import Population, connections, half_distances


def operator(K: Tensor, M: Tensor) -> Tensor:
    """Σ_uv M_uv K_u K_vᵀ: K (R, V, p, c), M (V, V) or (R, V, V) → (R, p, p)."""
    mixed = (M @ K.flatten(2)).unflatten(2, K.shape[2:])
    return torch.einsum("rvpc,rvqc->rpq", K, mixed)


def update(K: Tensor, M: Tensor, f: Tensor) -> Tensor:
    """OP vec(W_l) without forming OP: Σ_uv M_uv K_u f_v, because K_vᵀ vec(W_l) = f_L(x_v) without biases: (R, p)."""
    return torch.einsum("rvpc,rvc->rp", K, M @ f)


def same_sample_weights(X: int, A: int) -> Tensor:
    """1/(X A²) between views of one sample, else 0: the second moment E_x[K̄ K̄ᵀ], (V, V)."""
    return torch.block_diag(*[torch.full((A, A), 1 / (X * A**2), dtype=torch.float64)] * X)


def inter_weights(X: int, A: int) -> Tensor:
    """VE = V_x[E_aug[K]] (Theorem 3; Eqn. 10)."""
    return same_sample_weights(X, A) - 1 / (X * A) ** 2


def intra_weights(X: int, A: int) -> Tensor:
    """EV = E_x[V_aug[K]] (Eqn. 9)."""
    return torch.eye(X * A, dtype=torch.float64) / (X * A) - same_sample_weights(X, A)


def beta_weights(X: int, A: int, beta: float) -> Tensor:
    """−β EV + VE, the weights of (1 + β) r₊ − r₋ (Corollary 1)."""
    return inter_weights(X, A) - beta * intra_weights(X, A)


def triple_weights(f: Tensor, X: int, loss: Loss) -> Tensor:
    """Weights of a loss with one negative, averaged over every anchor, positive and negative view (Lemma 2): (R, V, V).

    E[−∂L/∂r₋ K(x₁)(K(x₊) − K(x₋))ᵀ], for outputs f (R, V, n_L).
    """
    A = f.shape[1] // X
    views = half_distances(f, f).unflatten(1, (X, A)).unflatten(3, (X, A))  # (R, x, a, x', a')
    r_pos = views.diagonal(dim1=1, dim2=3).movedim(-1, 1)  # (R, x, a₁, a₊)
    c = loss.weight(r_pos[..., None, None], views[:, :, :, None]) / (X * A**2 * X * A)  # (R, x, a₁, a₊, x', a₋)
    M = -c.sum(3).flatten(3).flatten(1, 2)
    towards = torch.zeros_like(views)
    towards.diagonal(dim1=1, dim2=3).copy_(c.sum((4, 5)).movedim(1, -1))
    return M + towards.flatten(3).flatten(1, 2)


def pair_weights(xi: Tensor, A: int) -> Tensor:
    """½ V^ξ[K̄(x) − K̄(x')], the Laplacian of ξ between samples (Theorem 4): (R, X, X) → (R, V, V)."""
    X = xi.shape[-1]
    laplacian = torch.diag_embed(xi.sum(-1)) - xi
    return (laplacian / (X * A) ** 2).repeat_interleave(A, 1).repeat_interleave(A, 2)


def sample_xi(population: Population, loss: Loss) -> Tensor:
    """Theorem 4's ξ(r) = −∂L/∂r₋ at r₊ = 0 and r₋ = r between un-augmented samples, (R, X, X)."""
    r = population.clean_distances()
    return loss.weight(torch.zeros_like(r), r)


def theorem4_weights(population: Population, loss: Loss) -> Tensor:
    """The weights of Theorem 4's operator, (R, V, V)."""
    return pair_weights(sample_xi(population, loss), population.A)


def smallest_eigenvalue(population: Population, M: Tensor) -> Tensor:
    """λ_min/λ_max of OP, most negative layer, (R,)."""
    ratios = []
    for K in connections(population.W, population.views):
        eigenvalues = torch.linalg.eigvalsh(operator(K, M))
        ratios.append(eigenvalues[:, 0] / eigenvalues[:, -1])
    return torch.stack(ratios).amin(0)


def normalized_asymmetry(population: Population) -> Tensor:
    """‖OP − OPᵀ‖/‖OP‖ of the simple loss with l2-normalized outputs (Eqn. 56), mean over layers, (R,)."""
    f = population.outputs()
    y = F.normalize(f, dim=-1)
    P = torch.eye(f.shape[-1], dtype=f.dtype) - y[..., :, None] * y[..., None, :]
    M, found = inter_weights(population.X, population.A), []
    for K in connections(population.W, population.views):
        K_n = K / f.norm(dim=-1).clamp_min(1e-12)[..., None, None]  # an output of zero has K = 0
        mixed = (M @ K_n.flatten(2)).unflatten(2, K.shape[2:])
        OP = torch.einsum("rvpc,rvqc->rpq", K_n @ P, mixed)
        found.append((OP - OP.mT).flatten(1).norm(dim=1) / OP.flatten(1).norm(dim=1))
    return torch.stack(found).mean(0)
