"""A linear neuron in the semantic subspace: what augmentation scrambles does not train it (Section 5.1).

The input space is a semantic subspace, with projection Q, and its orthogonal complement, the nuisance. Augmentation
multiplies the nuisance by a random Gaussian matrix G: x' = Q x + (1 − Q) G (1 − Q) x. A linear neuron has K(x) = x, so
K̄(x) = Q x, OP = V_x[K̄(x)] = Q V_x[x] Qᵀ, and w ← w + α OP w.

The population is finite: X samples, and G in opposite pairs, whose mean is exactly that of the whole augmentation. The
nuisance of the samples is `NUISANCE` times as large as their semantic part, so it has the largest variance of the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lightning_ssl.labs.lab import Claim, normal

SEMANTIC, INPUTS, SAMPLES, PAIRS = 3, 10, 60, 4
STEPS = 100
MOST_SEEDS = 50  # a seed has 60 samples with 8 matrices each
NUISANCE = 5.0
ROUNDING = 1e-9


@dataclass(frozen=True)
class Inputs:
    """Samples and their views of R seeds, and the projection on the semantic subspace."""

    Q: Tensor  # (R, n, n)
    clean: Tensor  # (R, X, n)
    views: Tensor  # (R, X, A, n)


def inputs(seeds: int, first_seed: int) -> Inputs:
    """Draw a random subspace, samples and augmentations for each seed."""

    def draw(*shape: int, stream: int) -> Tensor:
        return normal(shape, seeds, first_seed, stream, torch.float64)

    n = INPUTS
    basis = torch.linalg.qr(draw(n, n, stream=10)).Q[..., :SEMANTIC]  # (R, n, s)
    Q = basis @ basis.mT
    # Distinct semantic variances: the neuron should find the largest of them.
    latent = draw(SAMPLES, SEMANTIC, stream=11) * torch.linspace(2, 1, SEMANTIC, dtype=torch.float64)
    rest = torch.eye(n, dtype=torch.float64) - Q
    clean = latent @ basis.mT + NUISANCE * draw(SAMPLES, n, stream=12) @ rest  # (R, X, n)
    G = draw(SAMPLES, PAIRS, n, n, stream=13) / n**0.5
    noise = torch.einsum("rnm,rxamk,rxk->rxan", rest, torch.cat([G, -G], 2), clean @ rest)
    return Inputs(Q, clean, (clean @ Q)[:, :, None] + noise)


def covariance(x: Tensor) -> Tensor:
    """V_x[x] over the samples: (R, X, n) → (R, n, n)."""
    centred = x - x.mean(1, keepdim=True)
    return centred.mT @ centred / x.shape[1]


def operator(data: Inputs) -> Tensor:
    """OP = V_x[K̄(x)], K̄(x) the mean of the views of x (Theorem 3): (R, n, n)."""
    return covariance(data.views.mean(2))


def train(w: Tensor, OP: Tensor, alpha: float, steps: int) -> Tensor:
    """Weights along w ← w + α OP w: (steps + 1, R, n)."""
    path = [w]
    for _ in range(steps):
        path.append(path[-1] + alpha * (OP @ path[-1][..., None])[..., 0])
    return torch.stack(path)


def semantic_claims(seeds: int, first_seed: int) -> tuple[list[Claim], Tensor]:
    """The claims, and |cos| of w with the top eigenvector of Q V[x] Qᵀ in training, (steps + 1, R)."""
    seeds = min(seeds, MOST_SEEDS)
    data = inputs(seeds, first_seed)
    OP, expected = operator(data), data.Q @ covariance(data.clean) @ data.Q.mT
    error = torch.linalg.matrix_norm(OP - expected) / torch.linalg.matrix_norm(expected)
    eigenvalues, vectors = torch.linalg.eigh(expected)
    top, largest = vectors[..., -1], eigenvalues[:, -1]
    w = normal((INPUTS,), seeds, first_seed, 14, torch.float64)
    alpha = 1 / largest.mean().item()
    path = train(w, OP, alpha, STEPS)
    moved = path[-1] - w
    nuisance = moved - (data.Q @ moved[..., None])[..., 0]
    along = (path * top).sum(2)  # (steps + 1, R)
    growth = (along[1:] / along[:-1] / (1 + alpha * largest) - 1).abs().amax(0)
    cosine = along.abs() / path.norm(dim=2)
    neuron = "linear neuron, semantic subspace"
    claims = [
        Claim.at_most(f"{neuron}: relative error of Q V[x] Qᵀ", error, ROUNDING),
        Claim.at_most(
            f"{neuron}: nuisance's share of its movement", nuisance.norm(dim=1) / moved.norm(dim=1), ROUNDING
        ),
        Claim.at_most(f"{neuron}: relative error of the factor 1 + αλ of its top direction", growth, ROUNDING),
        Claim.at_least(f"{neuron}: |cos(w, top direction)| at the end", cosine[-1], 0.99),
    ]
    return claims, cosine
