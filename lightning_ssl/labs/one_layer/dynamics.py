"""The data of Appendix B.1, A(w) of Lemma 3, and the dynamics ẇ = (I − wwᵀ) A(w) w: local optima and stability."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from lightning_ssl.labs.lab import normal, per_seed

DTYPE = torch.float64
THRESHOLD = (3 - math.sqrt(5)) / 2  # below Eqn. 35
GATE_EPS = 1e-9  # h'(0) = 0 in spite of rounding: a sample on the plane wᵀx = 0 is not active

Gate = Callable[[Tensor], Tensor]
"""A homogeneous activation h(a) = gate(a)·a (Assumption 1), by its gate: h'(a), for a power h'(a) over a constant."""


def relu(a: Tensor) -> Tensor:
    """The gate of max(a, 0)."""
    return (a > GATE_EPS).to(a)


def linear(a: Tensor) -> Tensor:
    """The gate of h(a) = a."""
    return torch.ones_like(a)


def leaky_relu(slope: float) -> Gate:
    """The gate of max(a, 0) + slope·min(a, 0)."""
    return lambda a: torch.ones_like(a).masked_fill(a <= GATE_EPS, slope)


def power(p: int) -> Gate:
    """The gate of aᵖ, h'(a)/p. Without 1/p the activation would be p·aᵖ, "a global constant" times aᵖ."""
    return lambda a: a ** (p - 1)


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


def gated_covariance(w: Tensor, x: Tensor, prob: Tensor, alpha: Tensor | None = None, gate: Gate = relu) -> Tensor:
    """A(w) = C_α[x̃], x̃ = x·gate(wᵀx): (S, I, d, d) of filters w (S, I, d), points x (S, n, d), α (S, I, n, n)."""
    return covariance(gate(w @ x.mT)[..., None] * x[:, None], prob, alpha)


def filter_alpha(w: Tensor, x: Tensor, tau: float | None) -> Tensor | None:
    """The Gaussian α of the ReLU outputs of the filters, (S, I, n, n), or None for uniform α."""
    return None if tau is None else gaussian_alpha((w @ x.mT).relu(), tau)


def ascent_direction(w: Tensor, x: Tensor, prob: Tensor, alpha: Tensor | None = None, gate: Gate = relu) -> Tensor:
    """A(w)w, the gradient of ½C_α[h(wᵀx)] (Lemma 3), without forming A; shapes as in `gated_covariance`."""
    a = w @ x.mT  # (S, I, n)
    g = gate(a)
    h, pg = a * g, prob * g
    if alpha is None:
        return (pg * h) @ x - (pg @ x) * (prob * h).sum(2, keepdim=True)
    inner = (alpha @ (prob * h)[..., None])[..., 0]
    return (pg * ((alpha @ prob) * h - inner)) @ x


def unit(w: Tensor) -> Tensor:
    """w/‖w‖ over the last dimension."""
    return w * (w * w).sum(-1, keepdim=True).clamp_min(1e-300).rsqrt()


def power_iteration(w: Tensor, direction: Callable[[Tensor], Tensor], steps: int) -> Tensor:
    """Eqn. 94, w ← A(w)w / ‖A(w)w‖ with `direction` = A(w)w: the filters at every step, (steps + 1, S, I, d)."""
    path = [w]
    for _ in range(steps):
        path.append(unit(direction(path[-1])))
    return torch.stack(path)


def ascend(w: Tensor, x: Tensor, prob: Tensor, steps: int, tau: float | None = None, gate: Gate = relu) -> Tensor:
    """Projected gradient ascent with normalized steps that shrink like t^−3/2 after the first fifth."""
    for t in range(steps):
        step = ascent_direction(w, x, prob, filter_alpha(w, x, tau), gate)
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


def returns(w: Tensor, direction: Callable[[Tensor], Tensor], step: float = 1.0) -> Tensor:
    """Whether the ascent leads filters w (S, I, d) back after a small random perturbation: (S, I)."""
    v = w + 1e-5 * normal(w.shape[1:], len(w), stream=4, dtype=w.dtype)
    distances = []
    for t in range(300):
        v = unit(v)
        if t in (150, 299):
            distances.append((v - w).norm(dim=2))
        v = v + step * unit(direction(v))
    # Only the second half of the steps is decisive: along the null space of A a perturbation decays at once, also at an
    # unstable w.
    # Far from w the filter has left for another optimum.
    return ((distances[1] < distances[0]) & (distances[0] < 1e-3)) | (distances[1] < 1e-10)


def stable(
    w: Tensor, x: Tensor, prob: Tensor, tau: float | None = None, hold: bool = False, gate: Gate = relu
) -> Tensor:
    """Whether filters w (S, I, d) are stable under the dynamics of support points: (S, I).

    hold: keep α at its value in w instead of recomputing it from the filters.
    """
    held = filter_alpha(w, x, tau)
    return returns(w, lambda v: ascent_direction(v, x, prob, held if hold else filter_alpha(v, x, tau), gate))


def find_threshold(
    U: Tensor,
    tau: float | None = None,
    hold: bool = False,
    bisections: int = 10,
    gate: Gate = relu,
    low: float = 0.3,
) -> float:
    """Bisect the largest q in [low, 0.5] at which every u_m of the summation model is stable under the dynamics."""
    high = 0.5
    for _ in range(bisections):
        q = (low + high) / 2
        x, prob = summation(U, q)
        low, high = (q, high) if bool(stable(U, x, prob, tau, hold, gate).all()) else (low, q)
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
