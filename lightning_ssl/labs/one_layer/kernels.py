"""Lemmas 1 and 2, Theorem 2 and Corollary 2: the features of the Gaussian α, and the roughness of A(w)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.utils.data import default_collate

from lightning_ssl.labs.lab import per_seed
from lightning_ssl.labs.one_layer.dynamics import DTYPE, covariance, gaussian_alpha, summation


def gaussian_features(h: Tensor, tau: float, terms: int) -> Tensor:
    """Lemma 1 for a scalar h ≥ 0: the features φ_l of the Gaussian α, (terms, ..., n) of h (..., n).

    φ_l(h) = e^{−h²/2τ} (h/√τ)^l/√l!, so that α_ij = Σ_l φ_l(h_i) φ_l(h_j)
    """
    order = torch.arange(terms, dtype=h.dtype).view(-1, *[1] * h.dim())
    log_h = (h / math.sqrt(tau)).clamp_min(1e-300).log()
    return torch.exp(order * log_h - torch.lgamma(order + 1) / 2 - h.square() / (2 * tau))


def kernel_covariance(g: Tensor, prob: Tensor, phi: Tensor) -> Tensor:
    """Lemma 2 without augmentation: (d, d) of g (n, d) and phi (L, n).

    Σ_l z_l² V_{p̃_l}[g] = Σ_l (z_l E[φ_l ggᵀ] − E[φ_l g] E[φ_l g]ᵀ)
    """
    weight = prob * phi  # (L, n)
    z = weight.sum(1)  # (L,)
    mean = weight @ g  # (L, d)
    return g.T @ ((z @ weight)[:, None] * g) - mean.T @ mean


def batch_covariance_error(seeds: int, sizes: tuple[int, ...], tau: float) -> Tensor:
    """Relative error of C_α of a batch with augmentation against the limit of Lemma 2, g(x) = x̃: (sizes, S).

    Samples come from the latent summation model (M = 3, q = 0.3); a view adds Gaussian noise. The limit averages x̃
    over the noise.
    """
    d, sigma, q = 3, 0.3, 0.3
    x, prob = summation(torch.eye(d, dtype=DTYPE)[None], q)
    x0, w = x[0], torch.tensor([1.0, 0.5, -0.25], dtype=DTYPE)
    w = w / w.norm()
    # E[x̃ | x0] of x = x0 + σε: with s = σ (|w| = 1), a = wᵀx0/σ, E = x0 Φ(a) + σ w φ(a)
    a = x0 @ w / sigma
    normal = torch.distributions.Normal(torch.zeros((), dtype=DTYPE), torch.ones((), dtype=DTYPE))
    mean_view = x0 * normal.cdf(a)[:, None] + sigma * normal.log_prob(a).exp()[:, None] * w
    phi = gaussian_features((x0 @ w).relu(), tau, 60)
    limit = kernel_covariance(mean_view, prob, phi)

    errors = []
    for size in sizes:

        def draw(generator: torch.Generator, size: int = size) -> Tensor:
            y0 = x0[torch.multinomial(prob, size, replacement=True, generator=generator)]
            views = y0 + sigma * torch.randn(2, size, d, generator=generator, dtype=DTYPE)
            return torch.cat([y0[None], views])

        drawn = per_seed(draw, seeds, stream=5)  # (S, 3, n, d)
        gated = ((drawn[:, 1:] @ w) > 0)[..., None] * drawn[:, 1:]  # (S, 2, n, d)
        alpha = gaussian_alpha((drawn[:, 0] @ w).relu(), tau)
        difference = gated[:, 0] - gated[:, 1]
        even = x0.new_full((size,), 1 / size)
        within = difference.mT @ ((alpha @ even)[..., None] * difference) / (2 * size)
        found = covariance(gated[:, 0], even, alpha) - within
        errors.append((found - limit).flatten(1).norm(dim=1) / limit.norm())
    return torch.stack(errors)


def roughness_in_the_plane(taus: tuple[float, ...], cells: int = 400) -> dict[str, Tensor]:
    """Compute Theorem 2 and Corollary 2 on a smooth density over the unit disc, by quadrature.

    The density is ∝ 1 + 0.9·x_1 (C_0 = 1), w = (1, 0). For uniform α (first entry) and each Gaussian τ: ρ by a finite
    rotation of w, the bound C_0³ vol(C_0) r/π, r, z_0, and the exact ratio ρ_gauss/ρ_uniform = E[φ_0 h]/E[h], which
    follows from the only first-order term of the proof.
    """
    radius = (torch.arange(cells, dtype=DTYPE) + 0.5) / cells
    angle = (torch.arange(4 * cells, dtype=DTYPE) + 0.5) / (4 * cells) * 2 * math.pi
    x = torch.stack([radius[:, None] * angle.cos(), radius[:, None] * angle.sin()], 2).reshape(-1, 2)
    density = (1 + 0.9 * x[:, 0]) / math.pi
    prob = density * radius[:, None].expand(cells, 4 * cells).reshape(-1)
    prob = prob / prob.sum()
    w = torch.tensor([1.0, 0.0], dtype=DTYPE)
    h = (x @ w).relu()
    # The rotation is a whole number of angular cells, so that the quadrature has no error at the edge of the gate.
    turn = 2 * math.pi * 8 / (4 * cells)
    v = torch.tensor([math.cos(turn), math.sin(turn)], dtype=DTYPE)
    rows = []
    for tau in (None, *taus):
        phi = torch.ones(1, len(x), dtype=DTYPE) if tau is None else gaussian_features(h, tau, 40)
        change = [kernel_covariance(((x @ u) > 0)[:, None] * x, prob, phi) for u in (v, w)]
        z = (prob * phi).sum(1)
        # Σ_l z_l² max p̃_l = Σ_l z_l max φ_l p on the plane wᵀx = 0, where h = 0, only φ_0 is not zero, and p is 1/π
        phi_plane = torch.ones(1) if tau is None else gaussian_features(torch.zeros(1, dtype=DTYPE), tau, 40)[:, 0]
        rows.append(
            {
                "rho": ((change[0] - change[1]) @ w).norm() / (v - w).norm(),
                "r": (z * phi_plane).sum() * (1 / math.pi),
                "z0": z[0],
                "exact": (prob * phi[0] * h).sum() / (prob * h).sum(),
            }
        )
    found: dict[str, Tensor] = default_collate(rows)
    return found | {"bound": found["r"] * math.pi / math.pi}  # C_0 = 1, vol = π
