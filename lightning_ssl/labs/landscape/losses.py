"""The losses of every run at once, each with its gradient, and the suite's importances by name."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lightning_ssl.losses.families import InfoNCE, Quadratic
from lightning_ssl.losses.importance import Direct, Entropy, FromFamily, Gaussian, Importance
from lightning_ssl.losses.solved import Inverse, Square, Tsallis


def normalize(y: Tensor) -> tuple[Tensor, Tensor]:
    """Compute z = y/‖y‖ over the units (second last dimension), and 1/‖y‖."""
    inv = (y * y).sum(-2, keepdim=True).clamp_min_(1e-24).rsqrt_()
    return y * inv, inv


def negative_cosine(y: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """−cos(y, sg(target)), mean over views and samples, per run, and its gradient; both (V, R, m, N)."""
    z, inv = normalize(y)
    t, _ = normalize(target)
    cosine = (z * t).sum(-2, keepdim=True)
    V, _, _, N = y.shape
    return -cosine.mean((0, 2, 3)), torch.addcmul(t, z, cosine, value=-1.0).mul_(inv / (-V * N))


def squared_distance(y: Tensor, target: Tensor, normalized: bool) -> tuple[Tensor, Tensor]:
    """Eqn. 4: ‖y − sg(target)‖², mean over samples, of unit vectors if `normalized`, per run, and its gradient."""
    if normalized:
        loss, g = negative_cosine(y, target)
        return 2 + 2 * loss, g.mul_(2)
    difference = y - target
    return difference.square().sum(2).mean((0, 2)), difference.mul_(2 / y.shape[3])


def nt_xent(y: Tensor, tau: float, tile: int = 256) -> tuple[Tensor, Tensor]:
    """NT-Xent of both views, mean over the 2N anchors, per run, and its gradient; y (2, R, m, N).

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
    loss, grad = y.new_empty(R), torch.empty_like(y)
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
        loss[r] = (s.log_().sum() + (M + (z * dz).sum() / 2) / tau) / M
        for a, E in zip(starts, strips, strict=True):
            E *= torch.add(share[a : a + tile, None], share[a:], out=scratch[: E.numel()].view(E.shape))
            dz[:, a:].addmm_(z[:, a : a + tile], E)
            dz[:, a : a + tile].addmm_(z[:, a + tile :], E[:, tile:].T)
        dz.addcmul_(z, (z * dz).sum(0), value=-1.0).mul_(inv / (tau * M))
        grad[0, r], grad[1, r] = dz[:, :N], dz[:, N:]
    return loss, grad


def weighted_pairs(
    y: Tensor, importance: Importance, scale: float, clean: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """−E_{sg(α)}·scale of an importance α, mean over the 2N anchors, per run, and its gradient; y (2, R, m, N).

    It replaces NT-Xent by any importance of `lightning_ssl.losses`. α ∝ softmax with `scale` 1/τ is NT-Xent without its
    positive. `clean` (R, m, N) are the outputs of un-augmented samples, for importances that weigh their distances.
    """
    _, R, _, N = y.shape
    M = 2 * N
    z, inv = normalize(torch.cat([y[0], y[1]], 2))
    d2 = 1 - torch.bmm(z.transpose(1, 2), z)  # (R, M, M)
    anchor = torch.arange(M)
    partner = (anchor + N) % M
    d2_pos = d2[:, anchor, partner]  # (R, M)
    valid = torch.ones(M, M, dtype=torch.bool)
    valid[anchor, anchor] = valid[anchor, partner] = False
    d2_neg = d2
    if importance.uses_clean_view and clean is not None:
        z_clean, _ = normalize(clean)
        d2_neg = (1 - torch.bmm(z_clean.transpose(1, 2), z_clean)).repeat(1, 2, 2)
    rows = valid.expand(R, M, M).reshape(R * M, M)
    alpha = importance(d2_pos.reshape(R * M), d2_neg.clamp_min(0).reshape(R * M, M), rows).view(R, M, M)
    row_sum = alpha.sum(2)
    loss = scale * ((row_sum * d2_pos).sum(1) - (alpha * d2).sum((1, 2))) / M
    alpha[:, anchor, partner] = -row_sum  # now ∂(−E)/∂(z_iᵀz_j)
    g = torch.bmm(z, alpha + alpha.transpose(1, 2)).mul_(scale / M)
    dy = torch.addcmul(g, z, (g * z).sum(-2, keepdim=True), value=-1.0).mul_(inv)
    return loss, torch.stack(dy.chunk(2, dim=2))


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
