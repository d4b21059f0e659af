"""Covariance operators OP = Σ_uv M_uv L_u K_vᵀ: the weights M (V × V) of every loss, and all that is measured of them.

L = K, unless outputs are normalized (`Population.connections`).

Eigenvalues and symmetry; the difference from the gradients of autograd (Theorems 1 to 3, Lemma 2, Corollary 1, Eqn. 7);
the residue θ of Theorem 4: its share of the update, its bound (Eqn. 79), and its course in training.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from lightning_ssl.labs.covariance_operator.losses import Loss, Value, exact_loss, view_distances
from lightning_ssl.labs.covariance_operator.networks import Population, connections, forward, vec
from lightning_ssl.labs.lab import track


def operator(L: Tensor, K: Tensor, M: Tensor) -> Tensor:
    """Σ_uv M_uv L_u K_vᵀ: L and K (R, V, p, c), M (V, V) or (R, V, V) → (R, p, p)."""
    mixed = (M @ K.flatten(2)).unflatten(2, K.shape[2:])
    return torch.einsum("rvpc,rvqc->rpq", L, mixed)


def update(L: Tensor, M: Tensor, y: Tensor) -> Tensor:
    """OP vec(W_l) without forming OP: Σ_uv M_uv L_u y_v, because K_vᵀ vec(W_l) = y_v without biases: (R, p)."""
    return torch.einsum("rvpc,rvc->rp", L, M @ y)


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
    eigenvalues = torch.stack([torch.linalg.eigvalsh(operator(K, K, M))[:, [0, -1]] for K in connected])  # (L, R, 2)
    return (eigenvalues[..., 0] / eigenvalues[..., 1]).amin(0)


def asymmetry(population: Population) -> Tensor:
    """‖OP − OPᵀ‖/‖OP‖ of the simple loss, mean over layers, (R,)."""
    M = inter_weights(population.X, population.A)
    operators = [operator(L, K, M) for L, K in population.connections()]
    return torch.stack([relative_error(OP.mT, OP) for OP in operators]).mean(0)


def tower_gradient(
    W: list[Tensor], outputs: Callable[[list[Tensor]], Tensor], other: Tensor, value: Value
) -> list[Tensor]:
    """Autograd's gradient for W of Σ_runs value(outputs(W), other), with the outputs of the other tower fixed."""
    gradient: list[Tensor] = torch.func.grad(lambda leaves: value(outputs(leaves), other).sum())(W)
    return gradient


def relative_error(ours: Tensor, reference: Tensor) -> Tensor:
    """‖ours − reference‖ / ‖reference‖ of each run, (R,)."""
    return (ours - reference).flatten(1).norm(dim=1) / reference.flatten(1).norm(dim=1)


def gradient_error(population: Population, M: Tensor, value: Value) -> Tensor:
    """Relative error of −OP vec(W) against autograd's gradient of `value`, worst layer, (R,)."""
    W, outputs = population.W, partial(population.embed, x=population.views)
    autograd = tower_gradient(W, outputs, population.outputs(), value)
    errors = [
        relative_error(operator(L, K, -M) @ vec(w)[..., None], vec(g)[..., None])
        for (L, K), w, g in zip(population.connections(), W, autograd, strict=True)
    ]
    return torch.stack(errors).amax(0)


def theorem1_error(population: Population) -> Tensor:
    """Relative error of K₁[K₁ᵀ vec(W₁) − K₂ᵀ vec(W₂)], summed over pairs of views, against autograd, worst layer, (R,).

    The two towers have different weights; view v of the first is paired with view V−1−v of the second.
    """
    W1, W2, x1 = population.W, population.other, population.views
    x2 = x1.flip(1)
    f2 = forward(W2, x2)[-1]
    autograd = tower_gradient(W1, lambda W: forward(W, x1)[-1], f2, lambda f, g: (f - g).square().sum((1, 2)) / 2)
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
    norms = torch.stack([torch.linalg.matrix_norm(operator(K, K, theta), ord=2) for K in connected])
    largest = torch.stack([torch.linalg.matrix_norm(K, ord=2).amax(1) ** 2 for K in connected])
    bounds = 2 * loss.slope * largest * spread
    worst = (norms / bounds).argmax(0, keepdim=True)
    return norms.gather(0, worst)[0], bounds.gather(0, worst)[0]


def residue(population: Population, loss: Loss) -> tuple[Tensor, Tensor]:
    """‖θ vec(W)‖/‖½V^ξ vec(W)‖ of all layers together, and ‖θ‖_F/‖½V^ξ‖_F of the operators: each (R,)."""
    y, main = population.outputs(), theorem4_weights(population, loss)
    theta, connected = triple_weights(y, population.X, loss) - main, population.connections()
    sizes = []
    for M in (theta, main):
        update_norm = torch.cat([update(L, M, y) for L, _ in connected], 1).norm(dim=1)
        operator_norm = torch.cat([operator(L, K, M).flatten(1) for L, K in connected], 1).norm(dim=1)
        sizes.append((update_norm, operator_norm))
    return sizes[0][0] / sizes[1][0], sizes[0][1] / sizes[1][1]


def train(population: Population, loss: Loss, lr: float, steps: int, progress: bool = False) -> tuple[Tensor, Tensor]:
    """Descend the loss over the whole population, in place; `residue` at every step, each (steps + 1, R)."""
    sizes = [residue(population, loss)]
    for _ in track(range(steps), "residue in training", progress):
        y = population.outputs()
        M = triple_weights(y, population.X, loss)
        for W, (L, _) in zip(population.W, population.connections(), strict=True):
            moved = update(L, M, y).unflatten(1, (W.shape[2], W.shape[1])).mT
            W.add_(moved, alpha=2 * lr)  # both towers
        sizes.append(residue(population, loss))
    shares, relative = zip(*sizes, strict=True)
    return torch.stack(shares), torch.stack(relative)
