"""Theorem 3 under its own condition, ω ≤ γ on B_γ (Eqns. 95 and 96), and Lemmas 4 to 8 on which it stands.

Theorem 3: power iteration (Eqn. 94) from w(0), whose leading eigenvector φ₁(w(0)) is near w(0), c_0 = w(0)ᵀφ₁, ends
at a critical point w_* in B_γ, if ω(w) = μ(w) + ν(w) ≤ γ < 1 on all of B_γ. Lemma 8 adds that c_t rises to 1, that
1 − c_t ≤ γᵗ(1 − c_0), that w_* is the leading eigenvector of A(w_*), and that ‖w(t) − w(0)‖ never exceeds the radius
of B_γ. Lemmas 4, 5 and 7 bound a single step: with d_t = φ₁(t)ᵀw(t+1),
1 − d_t ≤ μ_t(1 − c_t), ‖w(t+1) − w(t)‖ ≤ √(2(1 + μ_t c_t)(1 − c_t)), |d_t − c_{t+1}| ≤ ν_t(1 − c_t).
Lemma 6 is the expansion of an eigenvector, ‖φ₁' − φ₁ − Δφ₁‖ ≤ κ‖δA‖².

L and κ. The paper takes L from the whole sphere and only asks that κ exists. Its proof uses both inside B_γ alone.
Here L is the largest derivative of A found on B_γ, or on the whole sphere, and κ = ½√17/g² with g the least gap
between the two points (`second_order_bound`). Suprema are over sampled points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lightning_ssl.labs.lab import Claim, Result, normal
from lightning_ssl.labs.one_layer.dynamics import DTYPE, patterns, power_iteration, summation, unit
from lightning_ssl.labs.one_layer.smooth import Mixture, Top, lipschitz

GAMMAS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
SMALLEST = 1e-12  # 1 − c_t below this is rounding


def mu(c: Tensor, top: Top) -> Tensor:
    """μ of Eqn. 100, (1 + c)/(2c²) · (λ₂/λ₁)²."""
    return (1 + c) / (2 * c.square()) * (top.second / top.first).square()


def nu(c: Tensor, top: Top, L: Tensor, kappa: Tensor) -> Tensor:
    """ν of Eqn. 111, 2κL²(1 + μc) + 2L √(μ(1 + μc)) / λ_gap; ω = μ + ν is the irregularity (Eqn. 95)."""
    m = mu(c, top)
    return 2 * kappa * L.square() * (1 + m * c) + 2 * L / top.gap * (m * (1 + m * c)).sqrt()


def radius(gamma: Tensor, distance: Tensor) -> Tensor:
    """The radius of B_γ (Eqn. 122), √(2(1 + γ)(1 − c_0)) / (1 − √γ); distance = 1 − c_0."""
    return (2 * (1 + gamma) * distance).sqrt() / (1 - gamma.sqrt())


def second_order_bound(gap: Tensor) -> Tensor:
    """A constant κ for Lemma 6, ½√17/g², with g the least gap λ₁ − λ₂ of A + sδA, 0 ≤ s ≤ 1.

    On this segment φ₁'' has the parts −‖φ₁'‖² along φ₁ and 2R(δA − λ₁')φ₁' across it, with ‖R‖ = 1/g,
    ‖φ₁'‖ ≤ ‖δA‖/g and ‖δA − λ₁'‖ ≤ 2‖δA‖. So ‖φ₁''‖ ≤ √17 ‖δA‖²/g², and the rest of the expansion is half of it.
    """
    return math.sqrt(17) / 2 / gap.square()


def first_order_change(A: Tensor, change: Tensor) -> Tensor:
    """Δφ₁ = Σ_{j>1} φ_jᵀ δA φ₁ / (λ₁ − λ_j) φ_j of Lemma 6, (..., d)."""
    values, vectors = torch.linalg.eigh(A)
    phi, others = vectors[..., -1], vectors[..., :-1]
    weight = (others.mT @ change @ phi[..., None])[..., 0] / (values[..., -1:] - values[..., :-1])
    return (others @ weight[..., None])[..., 0]


def cap(w: Tensor, size: Tensor, points: Tensor) -> Tensor:
    """Unit vectors at chords of 0 to `size` (S, I) from w (S, I, d), the second half at `size`: (S, I, K, d).

    points: normal draws (S, K, d); their tangential part is the direction.
    """
    share = torch.linspace(0, 2, points.shape[1], dtype=w.dtype).clamp_max(1).sqrt()
    angle = 2 * torch.asin((size[..., None] * share / 2).clamp_max(1))[..., None]  # (S, I, K, 1)
    w, points = w[:, :, None], points[:, None]
    tangent = points - (points * w).sum(3, keepdim=True) * w
    return angle.cos() * w + angle.sin() * unit(tangent)


@dataclass(frozen=True)
class Condition:
    """The smallest γ of GAMMAS that meets Eqn. 96, and L and κ there: each (S, I); γ is 1 where none does."""

    gamma: Tensor
    L: Tensor
    kappa: Tensor

    @property
    def holds(self) -> Tensor:
        return self.gamma < 1


def smallest_gamma(mixture: Mixture, w: Tensor, points: Tensor, whole_sphere: bool = False) -> Condition:
    """Find the smallest γ with sup ω ≤ γ over K points of B_γ around w (S, I, d), `points` (S, K, d) of `cap`.

    whole_sphere: take L from the whole sphere, as the paper does, instead of B_γ
    """
    top = Top.of(mixture.covariance(w), w)
    distance = (top.phi - w).square().sum(2) / 2
    found = Condition(torch.ones_like(distance), *torch.full((2, *distance.shape), torch.nan, dtype=DTYPE))
    # An arc is at most π/2 times its chord.
    everywhere = math.pi / 2 * lipschitz(mixture.covariance, unit(points)).amax(1, keepdim=True).expand_as(distance)
    for gamma in torch.tensor(GAMMAS, dtype=DTYPE).flip(0):
        size = radius(gamma, distance).clamp_max(2)
        v = cap(w, size, points)  # (S, I, K, d)
        flat = v.flatten(1, 2)
        here = Top.of(mixture.covariance(flat).unflatten(1, v.shape[1:3]), v)
        L = everywhere
        if not whole_sphere:
            longest_arc = torch.asin(size / 2) / (size / 2)  # over its chord
            L = longest_arc * lipschitz(mixture.covariance, flat).unflatten(1, v.shape[1:3]).amax(2)
        # Along δA = A(w(t+1)) − A(w(t)) the gap falls by at most 2‖δA‖, and by Lemma 5 the first step is the longest.
        least = here.gap.amin(2) - 2 * L * (2 * (1 + gamma) * distance).sqrt()
        kappa = second_order_bound(least.clamp_min(1e-30))
        c = (here.phi * v).sum(3)
        omega = (mu(c, here) + nu(c, here, L[..., None], kappa[..., None])).amax(2)
        meets = (omega <= gamma) & (here.least.amin(2) > 0) & (least > 0)
        better = gamma.expand_as(distance), L, kappa
        old = found.gamma, found.L, found.kappa
        found = Condition(*(torch.where(meets, a, b) for a, b in zip(better, old, strict=True)))
    return found


def step_ratios(mixture: Mixture, path: Tensor, condition: Condition) -> dict[str, Tensor]:
    """Each side of Lemmas 4, 5, 7 and 8 over the other along a path (T + 1, S, I, d): largest of all steps, (S, I).

    lemma4, lemma5  of every pattern
    lemma7, rate    of the L, κ and γ of the condition; NaN where it is not met
    fall            the largest fall of c_t
    distance        the largest ‖w(t) − w(0)‖ over the radius of B_γ
    away, bound     1 − c_t and γᵗ(1 − c_0) at every step, (T + 1, S, I)
    """
    top = Top.of(torch.stack([mixture.covariance(w) for w in path]), path)
    away = (top.phi - path).square().sum(-1) / 2  # 1 − c_t, without cancellation
    c, now = 1 - away, away[:-1] > SMALLEST
    here = Top(*(each[:-1] for each in (top.phi, top.first, top.second, top.least)))
    m, n = mu(c[:-1], here), nu(c[:-1], here, condition.L, condition.kappa)
    d_away = (top.phi[:-1] - path[1:]).square().sum(-1) / 2
    moved = path.diff(dim=0).norm(dim=-1)
    turned = ((top.phi[:-1] - top.phi[1:]) * path[1:]).sum(-1).abs()
    time = torch.arange(len(path), dtype=DTYPE)[:, None, None]
    size = radius(condition.gamma, away[0])

    def largest(ratio: Tensor, where: Tensor) -> Tensor:
        return torch.where(where, ratio, 0.0).amax(0)

    return {
        "lemma4": largest(d_away / (m * away[:-1]), now),
        "lemma5": largest(moved / (2 * (1 + m * c[:-1]) * away[:-1]).sqrt(), now),
        "lemma7": largest(turned / (n * away[:-1]), now & (n * away[:-1] > SMALLEST)),
        "rate": largest((away / (condition.gamma**time * away[0]))[1:], away[1:] > SMALLEST),
        "fall": away.diff(dim=0).clamp_min(0).amax(0),
        "distance": (path - path[0]).norm(dim=-1).amax(0) / size,
        "last": away[-1],
        "away": away,
        "bound": condition.gamma**time * away[0],
    }


def lemma_6(count: int = 100, d: int = 5) -> list[Claim]:
    """Lemma 6 on random symmetric matrices and changes of size 0.002 to 0.2 of λ_gap."""
    A, E = normal((2, count, d, d), 1, stream=7, dtype=DTYPE)[0]
    A, E = A + A.mT, E + E.mT
    values, vectors = torch.linalg.eigh(A)
    gap = values[:, -1] - values[:, -2]
    E = E / torch.linalg.eigvalsh(E).abs().amax(-1)[:, None, None]
    sizes = torch.tensor([0.002, 0.01, 0.05, 0.2], dtype=DTYPE)
    errors, ratios = [], []
    for size in sizes:
        change = (size * gap)[:, None, None] * E
        new = Top.of(A + change, vectors[..., -1]).phi
        error = (new - vectors[..., -1] - first_order_change(A, change)).norm(dim=-1)
        errors.append(error.log().mean())
        ratios.append(error / (second_order_bound(gap - 2 * size * gap) * (size * gap).square()))
    slope = torch.stack(errors).diff()[0] / sizes.log().diff()[0]
    return [
        Claim.at_most("Lemma 6: ‖φ₁' − φ₁ − Δφ₁‖ / (κ‖δA‖²)", torch.stack(ratios), 1.0),
        Claim.near("Lemma 6: error ∝ ‖δA‖^slope", slope, 2.0, tolerance=0.05),
    ]


def theorem_3(result: Result, s: dict[str, Any]) -> None:
    """Theorem 3 and Lemmas 4 to 8, from the patterns of the summation model with noise."""
    S, points, steps = s["seeds"], normal((32, 3), s["seeds"], stream=6, dtype=DTYPE), 60
    cases, paths = [], []
    for skew in (0.02, 0.05):
        U = patterns(S, 3, 3, skew)
        norm = torch.linalg.matrix_norm(U @ U.mT - torch.eye(3, dtype=DTYPE), 2).mean()
        mixture = Mixture(*summation(U, 0.2), 0.1)
        name = f"ReLU {skew:g}"
        result.notes.append(f"Theorem 3, {name}: ‖UᵀU − I‖ = {float(norm):.3f}; L of B_γ, not of the whole sphere")
        cases.append((name, mixture, U, smallest_gamma(mixture, U, points)))
    U = patterns(S, 3, 3, 0.1) * torch.tensor([2.0, 1.0, 0.5], dtype=DTYPE)[:, None]
    mixture, start = Mixture(*summation(U, 0.3), 0.5, slope=0.98), unit(U[:, :1])
    cases.append(("LeakyReLU 0.98", mixture, start, smallest_gamma(mixture, start, points, True)))
    result.claims += lemma_6()
    single: dict[str, list[Tensor]] = {"lemma4": [], "lemma5": [], "lemma7": []}
    for name, mixture, start, condition in cases:
        path = power_iteration(start, mixture.direction, steps)
        ratios, holds = step_ratios(mixture, path, condition), condition.holds
        share = holds.double().mean()
        slowest = torch.where(holds, ratios["away"], 0.0).flatten(1).amax(1)
        bound = torch.where(holds, ratios["bound"], 0.0).flatten(1).amax(1)
        paths.append(torch.stack([slowest, bound]))
        result.claims.append(
            Claim.at_least(f"Theorem 3, {name}: share of w(0) with ω ≤ γ", share, 0.01, "at least one")
        )
        if not bool(holds.any()):
            continue
        end, force = path[-1], mixture.direction(path[-1])
        residual = (force - (force * end).sum(-1, keepdim=True) * end).norm(dim=-1) / force.norm(dim=-1)
        result.claims += [
            Claim.at_most(f"Theorem 3, {name}: ‖(I − w_*w_*ᵀ)A(w_*)w_*‖ / ‖A(w_*)w_*‖", residual[holds], 1e-9),
            Claim.at_most(f"Lemma 8, {name}: 1 − c_t over γᵗ(1 − c_0)", ratios["rate"][holds], 1.0),
            Claim.at_most(f"Lemma 8, {name}: largest fall of c_t", ratios["fall"][holds], SMALLEST),
            Claim.at_most(f"Lemma 8, {name}: 1 − c at the end", ratios["last"][holds], SMALLEST),
            Claim.at_most(f"Theorem 3, {name}: ‖w(t) − w(0)‖ over the radius of B_γ", ratios["distance"][holds], 1.0),
        ]
        for lemma, found in single.items():
            found.append(ratios[lemma][holds if lemma == "lemma7" else torch.ones_like(holds)])
        gamma = condition.gamma[holds]
        result.notes.append(
            f"Theorem 3, {name}: {float(share):.0%} of the w(0) meet ω ≤ γ, at γ of {float(gamma.min()):g} to "
            f"{float(gamma.max()):g}; {len(points[0])} points of each B_γ"
        )
    result.arrays["theorem_3_away"] = torch.stack(paths)  # (cases, 1 − c_t and its bound, steps + 1)
    bounds = {"lemma4": "1 − d_t over its bound", "lemma5": "‖w(t+1) − w(t)‖ over its bound"}
    bounds["lemma7"] = "|d_t − c_{t+1}| over its bound"
    for lemma, found in single.items():
        if found:
            name = f"Lemma {lemma[-1]}: {bounds[lemma]}, all steps"
            result.claims.append(Claim.at_most(name, torch.cat(found), 1.0))
