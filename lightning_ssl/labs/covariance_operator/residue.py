"""The residue θ of Theorem 4: its share of the update, its bound (Eqn. 79), and its course in training."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_ssl.labs.covariance_operator.losses import Loss
from lightning_ssl.labs.covariance_operator.networks import Population, connections, forward
from lightning_ssl.labs.covariance_operator.operators import operator, theorem4_weights, triple_weights, update
from lightning_ssl.labs.lab import track


def residue_share(population: Population, loss: Loss, K: list[Tensor], f: Tensor, M: Tensor) -> Tensor:
    """‖θ vec(W)‖ / ‖OP vec(W)‖ over all layers together, (R,). M are the weights of the loss itself."""
    paper = theorem4_weights(population, loss)
    theta, main = (torch.cat([update(k, weights, f) for k in K], 1) for weights in (M - paper, paper))
    return theta.norm(dim=1) / main.norm(dim=1)


def residue_bound(population: Population, loss: Loss, slope: float) -> tuple[Tensor, Tensor]:
    """‖θ‖ (largest singular value, worst layer) and its bound by Eqn. 79, each (R,).

    slope: a bound of |∂²L/∂r²|, 1/τ² for InfoNCE and 1/τ for the soft triplet; M_K is the spectral norm of K.
    """
    X, A = population.X, population.A
    f, f_clean = population.outputs(), forward(population.W, population.clean)[-1]
    f_views = f.unflatten(1, (X, A))
    variance = f_views.var(2, correction=0).sum(2)  # tr V_aug[f | x], (R, X)
    shift = (f_clean - f_views.mean(2)).norm(dim=2)  # c_0(x)
    distance = (2 * population.clean_distances()).sqrt()
    spread = 2 * (distance * (variance.sqrt() + shift)[:, :, None]).mean((1, 2)) + 3 * variance.mean(1)
    theta = triple_weights(f, X, loss) - theorem4_weights(population, loss)
    norms, bounds = [], []
    for K in connections(population.W, population.views):
        norms.append(torch.linalg.matrix_norm(operator(K, theta), ord=2))
        bounds.append(2 * slope * torch.linalg.matrix_norm(K, ord=2).amax(1) ** 2 * spread)
    ratio = torch.stack(norms) / torch.stack(bounds)
    worst = ratio.argmax(0, keepdim=True)
    return torch.stack(norms).gather(0, worst)[0], torch.stack(bounds).gather(0, worst)[0]


def train(population: Population, loss: Loss, lr: float, steps: int, progress: bool = False) -> Tensor:
    """Descend the loss over the whole population, in place; the residue share at every step, (steps + 1, R)."""
    shares: list[Tensor] = []
    for _ in track(range(steps + 1), "residue in training", progress):
        f = population.outputs()
        M = triple_weights(f, population.X, loss)
        K = connections(population.W, population.views)
        shares.append(residue_share(population, loss, K, f, M))
        for W, k in zip(population.W, K, strict=True):
            moved = update(k, M, f).unflatten(1, (W.shape[2], W.shape[1])).mT
            W.add_(moved, alpha=2 * lr)  # both towers
    return torch.stack(shares)
