"""Covariance operators OP = Σ_uv M_uv K_u K_vᵀ: the weights M (V × V) of every loss, and all that is measured of them.

Eigenvalues and symmetry; the difference from the gradients of autograd (Theorems 1 to 3, Lemma 2, Corollary 1, Eqn. 7);
the residue θ of Theorem 4: its share of the update, its bound (Eqn. 79), and its course in training.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl.labs.covariance_operator.losses import Loss, Value, exact_loss, view_distances
from lightning_ssl.labs.covariance_operator.networks import Population, connections, forward, vec
from lightning_ssl.labs.lab import track


def operator(K: Tensor, M: Tensor, left: Tensor | None = None) -> Tensor:
    """Σ_uv M_uv L_u K_vᵀ, L = K unless given: K (R, V, p, c), M (V, V) or (R, V, V) → (R, p, p)."""
    mixed = (M @ K.flatten(2)).unflatten(2, K.shape[2:])
    return torch.einsum("rvpc,rvqc->rpq", K if left is None else left, mixed)


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
    r_pos, r_neg = view_distances(f, f, X)
    A = r_pos.shape[2]
    c = loss.weight(r_pos[..., None, None], r_neg[:, :, :, None]) / (X * A**2 * X * A)  # (R, x, a₁, a₊, x', a₋)
    towards = torch.zeros_like(r_neg)
    towards.diagonal(dim1=1, dim2=3).copy_(c.sum((4, 5)).movedim(1, -1))
    return (towards - c.sum(3)).flatten(3).flatten(1, 2)


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
    connected = connections(population.W, population.views)
    eigenvalues = torch.stack([torch.linalg.eigvalsh(operator(K, M))[:, [0, -1]] for K in connected])  # (L, R, 2)
    return (eigenvalues[..., 0] / eigenvalues[..., 1]).amin(0)


def normalized_asymmetry(population: Population) -> Tensor:
    """‖OP − OPᵀ‖/‖OP‖ of the simple loss with l2-normalized outputs (Eqn. 56), mean over layers, (R,)."""
    f = population.outputs()
    y = F.normalize(f, dim=-1)
    P = torch.eye(f.shape[-1], dtype=f.dtype) - y[..., :, None] * y[..., None, :]
    M, found = inter_weights(population.X, population.A), []
    for K in connections(population.W, population.views):
        K_n = K / f.norm(dim=-1).clamp_min(1e-12)[..., None, None]  # an output of zero has K = 0
        OP = operator(K_n, M, left=K_n @ P)
        found.append((OP - OP.mT).flatten(1).norm(dim=1) / OP.flatten(1).norm(dim=1))
    return torch.stack(found).mean(0)


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
    xi = sample_xi(population, loss)
    return gradient_error(population, pair_weights(xi, population.A), exact_loss(xi))


def residue_bound(population: Population, loss: Loss) -> tuple[Tensor, Tensor]:
    """‖θ‖ (largest singular value, worst layer) and its bound by Eqn. 79, each (R,).

    M_K of the bound is the spectral norm of K.
    """
    X, A = population.X, population.A
    f, f_clean = population.outputs(), forward(population.W, population.clean)[-1]
    f_views = f.unflatten(1, (X, A))
    variance = f_views.var(2, correction=0).sum(2)  # tr V_aug[f | x], (R, X)
    shift = (f_clean - f_views.mean(2)).norm(dim=2)  # c_0(x)
    distance = (2 * population.clean_distances()).sqrt()
    spread = 2 * (distance * (variance.sqrt() + shift)[:, :, None]).mean((1, 2)) + 3 * variance.mean(1)
    theta = triple_weights(f, X, loss) - theorem4_weights(population, loss)
    connected = connections(population.W, population.views)
    norms = torch.stack([torch.linalg.matrix_norm(operator(K, theta), ord=2) for K in connected])
    largest = torch.stack([torch.linalg.matrix_norm(K, ord=2).amax(1) ** 2 for K in connected])
    bounds = 2 * loss.slope * largest * spread
    worst = (norms / bounds).argmax(0, keepdim=True)
    return norms.gather(0, worst)[0], bounds.gather(0, worst)[0]


def train(population: Population, loss: Loss, lr: float, steps: int, progress: bool = False) -> Tensor:
    """Descend the loss over the whole population, in place; ‖θ vec(W)‖ / ‖OP vec(W)‖ at every step, (steps + 1, R)."""
    shares: list[Tensor] = []
    for _ in track(range(steps + 1), "residue in training", progress):
        f = population.outputs()
        M = triple_weights(f, population.X, loss)
        K = connections(population.W, population.views)
        paper = theorem4_weights(population, loss)
        theta, main = (torch.cat([update(k, weights, f) for k in K], 1) for weights in (M - paper, paper))
        shares.append(theta.norm(dim=1) / main.norm(dim=1))
        for W, k in zip(population.W, K, strict=True):
            moved = update(k, M, f).unflatten(1, (W.shape[2], W.shape[1])).mT
            W.add_(moved, alpha=2 * lr)  # both towers
    return torch.stack(shares)
