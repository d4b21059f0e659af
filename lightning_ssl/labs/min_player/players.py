"""The two players: the losses L, the energy E_α, and the min player's α and value. Batched over runs R."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_ssl import losses
from lightning_ssl.labs.importances import batched_alpha
from lightning_ssl.losses.solved import Regularized, Tsallis


def families(tau: float) -> dict[str, losses.Family]:
    """Every loss of the (φ, ψ) table."""
    return {
        "InfoNCE, ε=0": losses.InfoNCE(tau, 0.0),
        "InfoNCE, ε=1": losses.InfoNCE(tau, 1.0),
        "MINE": losses.MINE(),
        "Soft triplet": losses.SoftTriplet(tau, 0.1),
        "N+1 tuplet": losses.NPlusOneTuplet(),
        "Lifted structured": losses.LiftedStructured(),
        "Triplet": losses.Triplet(1.0),
        "Modified triplet": losses.ModifiedTriplet(2.0),
        "Quadratic": losses.Quadratic(),
    }


def embed(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """z = W_2 tanh(W_1 x), on the unit sphere: (S, N, n) → (…, S, N, d)."""
    z = (x @ weights[0].mT).tanh() @ weights[1].mT
    return z / z.norm(dim=-1, keepdim=True)


def pair_distances(x1: Tensor, x2: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """d2_pos (…, N) and d2_neg (…, N, N) with the first view as anchors."""
    z1, z2 = embed(x1, weights), embed(x2, weights)
    return 1 - (z1 * z2).sum(-1), 1 - z1 @ z1.mT


def negatives(samples: int) -> Tensor:
    """Mask of the negatives of anchor i, all j ≠ i: (N, N)."""
    return ~torch.eye(samples, dtype=torch.bool)


def family_loss(family: losses.Family, d2_pos: Tensor, d2_neg: Tensor) -> Tensor:
    """L = mean_i φ(Σ_{j≠i} ψ(d2_pos_i − d2_neg_ij)), (R,)."""
    runs, samples = d2_pos.shape
    value = family.value(d2_pos.flatten(), d2_neg.flatten(0, 1), negatives(samples).repeat(runs, 1))
    return value.view(runs, samples).mean(1)


def mean_energy(alpha: Tensor, d2_pos: Tensor, d2_neg: Tensor) -> Tensor:
    """E_α = mean_i Σ_j α_ij (d2_neg_ij − d2_pos_i), (R,)."""
    return (alpha * (d2_neg - d2_pos[:, :, None])).sum(2).mean(1)


def theorem2_alpha(family: losses.ExponentialFamily, d2_pos: Tensor, d2_neg: Tensor) -> Tensor:
    """argmin_α E_α − R_H(α) over rows of sum b_i = τ⁻¹ ξ_i φ'(ξ_i), solved from r' = −τ(log α + 1) alone.

    With α = b_i a_i the rows a_i are on the simplex, and b_i only multiplies their problem.
    """
    tau, valid = family.tau, negatives(d2_pos.shape[1])
    entropy = Regularized(lambda a: -tau * (a.log() + 1), lambda x: torch.exp(-x / tau - 1))
    xi = family.xi(d2_pos.flatten(), d2_neg.flatten(0, 1), valid.repeat(len(d2_pos), 1))
    b = (xi * family.phi_prime(xi) / tau).view_as(d2_pos)
    return b[:, :, None] * batched_alpha(entropy, d2_pos, d2_neg, valid)


def regularizer(alpha: Tensor, tau: float, q: float, valid: Tensor) -> Tensor:
    """Σ_j r_q(α_ij) of every row, (R, N).

    r_q(α) = −τ (α^q − 1 − q(α − 1)) / (q(q − 1)). This is Tsallis' −τ α^q/(q(q−1)) up to terms that are constant on the
    simplex, so that the limits q → 1, −τ(α log α − α + 1), and q → 0, τ(log α − α + 1), exist.
    """
    a = torch.where(valid, alpha, 1.0)  # r_q(1) = 0: the anchor itself adds nothing
    if q == 1:
        r = -tau * (torch.special.xlogy(a, a) - a + 1)
    elif q == 0:
        r = tau * (a.log() - a + 1)
    else:
        r = -tau * (a.pow(q) - 1 - q * (a - 1)) / (q * (q - 1))
    return r.sum(2)


def min_player_value(tau: float, q: float, d2_pos: Tensor, d2_neg: Tensor) -> Tensor:
    """L_r = mean_i max_α Σ_j [r(α_ij) − α_ij (d2_neg_ij − d2_pos_i)] at the solved α, (R,)."""
    valid = negatives(d2_pos.shape[1])
    alpha = batched_alpha(Tsallis(tau, q), d2_pos, d2_neg, valid)
    return regularizer(alpha, tau, q, valid).mean(1) - mean_energy(alpha, d2_pos, d2_neg)


def closed_form_loss(tau: float, q: float, d2_pos: Tensor, d2_neg: Tensor) -> Tensor:
    """L_r for q = 1 and q = 2 without a solver, differentiable; up to a constant: (R,).

    q = 1: τ log Σ_j e^{(d2_pos_i − d2_neg_ij)/τ}.  q = 2: with s = −d2_neg/τ and the k largest s in the support,
    L = τ/2 · (1 + Σ_{support} (s_j² − t²)) + d2_pos, t = (Σ_{support} s_j − 1)/k.
    """
    itself = ~negatives(d2_pos.shape[1])
    if q == 1:
        return (tau * (-d2_neg / tau).masked_fill(itself, -torch.inf).logsumexp(2) + d2_pos).mean(1)
    s = (-d2_neg / tau).masked_fill(itself, -1e6).sort(2, descending=True).values
    k = torch.arange(1, s.shape[2] + 1, dtype=s.dtype)
    inside = 1 + k * s > s.cumsum(2)
    size = inside.sum(2, keepdim=True)
    t = (torch.where(inside, s, 0.0).sum(2, keepdim=True) - 1) / size
    return (tau / 2 * (1 + torch.where(inside, s.square() - t.square(), 0.0).sum(2)) + d2_pos).mean(1)


def propagated_energy(tau: float, d2_pos: Tensor, d2_neg: Tensor) -> Tensor:
    """−E_α with α = softmax(−d2_neg/τ) that is differentiated too, (R,)."""
    valid = negatives(d2_pos.shape[1])
    alpha = (-d2_neg / tau).masked_fill(~valid, -torch.inf).softmax(2)
    return -mean_energy(alpha, d2_pos, d2_neg)
