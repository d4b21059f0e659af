"""The data of Appendix B.1, A(w) of Lemma 3, and the dynamics ẇ = (I − wwᵀ) A(w) w: local optima and stability."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from lightning_ssl.labs.lab import normal, per_seed

DTYPE = torch.float64
THRESHOLD = (3 - math.sqrt(5)) / 2  # below Eqn. 35
GATE_EPS = 1e-9  # h'(0) = 0 in spite of rounding: a sample on the plane wᵀx = 0 is not active


def categorical(U: Tensor) -> tuple[Tensor, Tensor]:
    """The latent categorical model, x = u_m with equal probabilities: points (S, M, d), probabilities (M,)."""
    return U, U.new_full((U.shape[1],), 1 / U.shape[1])


def summation(U: Tensor, q: float) -> tuple[Tensor, Tensor]:
    """The latent summation model: all its points (S, 2^M, d) and their probabilities (2^M,).

    x = Σ_m y_m u_m with y_m = √((1 − q)/q) with probability q, −√(q/(1 − q)) otherwise, U (S, M, d).
    """
    M = U.shape[1]
    on = torch.tensor(list(itertools.product((False, True), repeat=M)))  # (2^M, M)
    on_, off = on.to(U), (~on).to(U)
    y = math.sqrt((1 - q) / q) * on_ - math.sqrt(q / (1 - q)) * off
    return y @ U, (q * on_ + (1 - q) * off).prod(1)


def patterns(seeds: int, M: int, d: int, skew: float = 0.0) -> Tensor:
    """Draw M unit patterns per seed, orthonormal up to a Gaussian perturbation of size `skew`: (S, M, d)."""

    def draw(generator: torch.Generator) -> Tensor:
        U = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=DTYPE))[0][:M]
        U = U + skew * torch.randn(M, d, generator=generator, dtype=DTYPE) / math.sqrt(d)
        return U / U.norm(dim=1, keepdim=True)

    return per_seed(draw, seeds, stream=1)


def noisy_samples(seeds: int, M: int, n: int, noise: float, first_seed: int = 0) -> Tensor:
    """Draw n samples of a balanced categorical model with Gaussian noise, centred: (S, n, M)."""

    def draw(generator: torch.Generator) -> Tensor:
        U = torch.linalg.qr(torch.randn(M, M, generator=generator, dtype=DTYPE))[0]
        x = U[torch.arange(n) % M] + noise * torch.randn(n, M, generator=generator, dtype=DTYPE)
        return x - x.mean(0)

    return per_seed(draw, seeds, first_seed, stream=2)


def filters(seeds: int, count: int, d: int, first_seed: int = 0) -> Tensor:
    """Draw `count` random unit filters per seed: (S, count, d)."""
    w = normal((count, d), seeds, first_seed, 3, DTYPE)
    return w / w.norm(dim=2, keepdim=True)


def gaussian_alpha(h: Tensor, tau: float) -> Tensor:
    """α_ij = exp(−(h_i − h_j)²/2τ) of outputs h (..., n): (..., n, n)."""
    return torch.exp((h[..., :, None] - h[..., None, :]).square() / (-2 * tau))


def covariance(g: Tensor, prob: Tensor, alpha: Tensor | None = None) -> Tensor:
    """C_α[g] over support points, without augmentation: (..., d, d) of g (..., n, d). None is α ≡ 1.

    C_α[g] = ½ Σ_ij p_i p_j α_ij (g_i − g_j)(g_i − g_j)ᵀ
    """
    weighted = prob[:, None] * g
    if alpha is None:
        mean = weighted.sum(-2)
        return weighted.mT @ g - mean[..., :, None] * mean[..., None, :]
    return weighted.mT @ ((alpha @ prob)[..., None] * g) - weighted.mT @ alpha @ weighted


def gated_covariance(w: Tensor, x: Tensor, prob: Tensor, alpha: Tensor | None = None) -> Tensor:
    """A(w) = C_α[x̃], x̃ = x·1[wᵀx > 0]: (S, I, d, d) of filters w (S, I, d), points x (S, n, d), α (S, I, n, n)."""
    active = (w @ x.mT) > GATE_EPS  # (S, I, n)
    return covariance(active[..., None] * x[:, None], prob, alpha)


def filter_alpha(w: Tensor, x: Tensor, tau: float | None) -> Tensor | None:
    """The Gaussian α of the filters' own outputs, (S, I, n, n), or None for uniform α."""
    return None if tau is None else gaussian_alpha((w @ x.mT).relu(), tau)


def ascent_direction(w: Tensor, x: Tensor, prob: Tensor, alpha: Tensor | None = None, linear: bool = False) -> Tensor:
    """A(w)w, the gradient of ½C_α[h(wᵀx)] (Lemma 3), without forming A; shapes as in `gated_covariance`."""
    a = w @ x.mT  # (S, I, n)
    gate = torch.ones_like(a) if linear else (a > GATE_EPS).to(a)
    h = a * gate
    ph = prob * h
    if alpha is None:
        return ph @ x - ((prob * gate) @ x) * ph.sum(2, keepdim=True)
    inner = (alpha @ ph[..., None])[..., 0]
    return (prob * ((alpha @ prob) * h - gate * inner)) @ x


def unit(w: Tensor) -> Tensor:
    """w/‖w‖ over the last dimension."""
    return w * (w * w).sum(-1, keepdim=True).clamp_min(1e-300).rsqrt()


def power_iteration(w: Tensor, x: Tensor, prob: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Eqn. 94: the last filters, and ‖w(t+1) − w(t)‖ of every step (steps, S, I)."""
    moved = []
    for _ in range(steps):
        new = unit(ascent_direction(w, x, prob))
        moved.append((new - w).norm(dim=2))
        w = new
    return w, torch.stack(moved)


def ascend(w: Tensor, x: Tensor, prob: Tensor, steps: int, tau: float | None = None, linear: bool = False) -> Tensor:
    """Projected gradient ascent with normalized steps that shrink like t^−3/2 after the first fifth."""
    for t in range(steps):
        step = ascent_direction(w, x, prob, filter_alpha(w, x, tau), linear)
        size = 2.0 * min(1.0, (steps / 5 / (t + 1)) ** 1.5)
        w = unit(w + size * unit(step))
    return w


def distinct(w: Tensor, signed: bool = True) -> tuple[Tensor, Tensor]:
    """Group equal filters: the number of groups of each seed, (S,), and their sizes, largest first, (S, I)."""
    similar = w @ w.mT
    near = (similar if signed else similar.abs()) > 0.97  # (S, I, I)
    # A filter represents its group when no earlier one is near it.
    first = near.to(torch.uint8).argmax(2)  # (S, I)
    represents = first == torch.arange(w.shape[1])
    sizes = torch.zeros(first.shape, dtype=torch.long).scatter_add_(1, first, torch.ones_like(first))
    return represents.sum(1), (sizes * represents).sort(1, descending=True).values


def stable(w: Tensor, x: Tensor, prob: Tensor, tau: float | None = None, hold: bool = False) -> Tensor:
    """Whether filters w (S, I, d) return after a small random perturbation: (S, I).

    hold: keep α at its value in w instead of recomputing it from the filters.
    """
    held = filter_alpha(w, x, tau)
    v = w + 1e-5 * normal(w.shape[1:], len(w), stream=4, dtype=w.dtype)
    distances = []
    for t in range(300):
        v = unit(v)
        if t in (150, 299):
            distances.append((v - w).norm(dim=2))
        v = v + unit(ascent_direction(v, x, prob, held if hold else filter_alpha(v, x, tau)))
    # Only the second half of the steps is decisive: along the null space of A a perturbation decays at once, also at an
    # unstable w.
    return (distances[1] < distances[0]) | (distances[1] < 1e-10)


def find_threshold(U: Tensor, tau: float | None = None, hold: bool = False, bisections: int = 10) -> float:
    """Bisect the largest q at which every u_m of the summation model is stable under the dynamics."""
    low, high = 0.3, 0.5
    for _ in range(bisections):
        q = (low + high) / 2
        x, prob = summation(U, q)
        low, high = (q, high) if bool(stable(U, x, prob, tau, hold).all()) else (low, q)
    return (low + high) / 2


def gaussian_threshold(tau: float, hold: bool) -> float:
    """The largest q at which u_m is stable under Gaussian α, in closed form, with κ = exp(−(1 − q)/(2τq)).

    κ(1 − q)² > q² + κq(1 − q) with α held at u_m; κ(1 − q)²(1 + 1/τ) > q² + κq(1 − q) with α following w.
    """
    q = torch.linspace(1e-3, 0.5, 200_001, dtype=DTYPE)
    kappa = torch.exp(-(1 - q) / (2 * tau * q))
    along = kappa * (1 - q).square() * (1 if hold else 1 + 1 / tau)
    holds = along > q.square() + kappa * q * (1 - q)
    return float(q[holds][-1]) if bool(holds.any()) else 0.0
