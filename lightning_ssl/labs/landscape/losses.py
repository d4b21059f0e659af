"""The gradients of the losses of every run at once, and the suite's importances by name."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lightning_ssl.labs.importances import batched_alpha, negatives
from lightning_ssl.losses.families import InfoNCE, Quadratic
from lightning_ssl.losses.importance import Direct, Entropy, FromFamily, Gaussian, Importance
from lightning_ssl.losses.solved import Inverse, Square, Tsallis


def normalize(y: Tensor) -> tuple[Tensor, Tensor]:
    """Compute z = y/‖y‖ over the units (second last dimension), and 1/‖y‖."""
    inv = (y * y).sum(-2, keepdim=True).clamp_min_(1e-24).rsqrt_()
    return y * inv, inv


def negative_cosine(y: Tensor, target: Tensor) -> Tensor:
    """The gradient of −cos(y, sg(target)), mean over views and samples, per run; both (V, R, m, N)."""
    z, inv = normalize(y)
    t, _ = normalize(target)
    cosine = (z * t).sum(-2, keepdim=True)
    V, _, _, N = y.shape
    return torch.addcmul(t, z, cosine, value=-1.0).mul_(inv / (-V * N))


def squared_distance(y: Tensor, target: Tensor, normalized: bool) -> Tensor:
    """The gradient of ‖y − sg(target)‖² (Eqn. 4), mean over samples, of unit vectors if `normalized`, per run."""
    return negative_cosine(y, target).mul_(2) if normalized else (y - target).mul_(2 / y.shape[3])


def nt_xent(y: Tensor, tau: float, tile: int = 256) -> Tensor:
    """The gradient of NT-Xent of both views, mean over the 2N anchors, per run; y (2, R, m, N).

    With E_ij = e^{(z_iᵀz_j − 1)/τ}, s_i = Σ_{j≠i} E_ij: ∂L/∂z_i = (Σ_j E_ij (1/s_i + 1/s_j) z_j − 2 z_i')/(τ·2N). E is
    symmetric: only strips of `tile` rows to the right of the diagonal are computed, and each is used twice.
    """
    _, R, m, N = y.shape
    M = 2 * N
    starts = range(0, M, tile)
    strips = [y.new_empty(min(tile, M - a), M - a) for a in starts]
    scratch = y.new_empty(min(tile, M) * M)
    # One more coordinate subtracts 1/τ inside the product: exp cannot overflow, and no extra pass over E is needed.
    left, right = y.new_full((m + 1, M), -1 / tau), y.new_ones(m + 1, M)
    z, dz, s = right[:m], y.new_empty(m, M), y.new_empty(M)
    grad = torch.empty_like(y)
    # One run after the other: the working memory of one run (5 MB at N = 512) fits into the cache and is reused.
    for r in range(R):
        z[:, :N], z[:, N:] = y[0, r], y[1, r]
        inv = torch.mul(z, z, out=dz).sum(0).clamp_min_(1e-24).rsqrt_()
        torch.div(z.mul_(inv), tau, out=left[:m])
        s.zero_()
        for a, E in zip(starts, strips, strict=True):
            torch.mm(left[:, a : a + tile].T, right[:, a:], out=E).exp_()
            E.diagonal().zero_()
            s[a:] += E.sum(0)
            s[a : a + tile] += E[:, tile:].sum(1)
        share = s.reciprocal()
        dz[:, :N], dz[:, N:] = -2 * z[:, N:], -2 * z[:, :N]
        for a, E in zip(starts, strips, strict=True):
            E *= torch.add(share[a : a + tile, None], share[a:], out=scratch[: E.numel()].view(E.shape))
            dz[:, a:].addmm_(z[:, a : a + tile], E)
            dz[:, a : a + tile].addmm_(z[:, a + tile :], E[:, tile:].T)
        dz.addcmul_(z, (z * dz).sum(0), value=-1.0).mul_(inv / (tau * M))
        grad[0, r], grad[1, r] = dz[:, :N], dz[:, N:]
    return grad


def weighted_pairs(y: Tensor, importance: Importance, scale: float, clean: Tensor | None = None) -> Tensor:
    """The gradient of −E_{sg(α)}·scale of an importance α, mean over the 2N anchors, per run; y (2, R, m, N).

    It replaces NT-Xent by any importance of `lightning_ssl.losses`. α ∝ softmax with `scale` 1/τ is NT-Xent without its
    positive. `clean` (R, m, N) are the outputs of un-augmented samples, for importances that weigh their distances.
    """
    N = y.shape[3]
    M = 2 * N
    z, inv = normalize(torch.cat([y[0], y[1]], 2))
    d2 = 1 - z.mT @ z  # (R, M, M)
    anchor = torch.arange(M)
    partner = (anchor + N) % M
    d2_neg = d2
    if importance.uses_clean_view and clean is not None:
        z_clean, _ = normalize(clean)
        d2_neg = (1 - z_clean.mT @ z_clean).repeat(1, 2, 2)
    alpha = batched_alpha(importance, d2[:, anchor, partner], d2_neg, negatives(N))
    alpha[:, anchor, partner] = -alpha.sum(2)  # now ∂(−E)/∂(z_iᵀz_j)
    g = (z @ (alpha + alpha.mT)).mul_(scale / M)
    dy = torch.addcmul(g, z, (g * z).sum(-2, keepdim=True), value=-1.0).mul_(inv)
    return torch.stack(dy.chunk(2, dim=2))


IMPORTANCES: dict[str, Callable[[float], Importance]] = {
    "infonce": lambda tau: FromFamily(InfoNCE(tau=tau, eps=1.0)),
    "entropy": lambda tau: Entropy(tau=tau),
    "inverse": lambda tau: Inverse(tau=tau, gamma=2.0),
    "square": lambda tau: Square(tau=5.0),
    "tsallis": lambda tau: Tsallis(tau=tau, q=1.5),
    "direct": lambda tau: Direct(tau=tau, p=4.0),
    "uniform": lambda tau: FromFamily(Quadratic()),
    "gaussian": lambda tau: Gaussian(tau=tau),
}
"""Importances of the suite by name, with the temperature of NT-Xent where they have one."""
