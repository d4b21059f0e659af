"""Theorem 1 where A(w) changes, ρ > 0, and homogeneous activations other than ReLU: LeakyReLU, |x| and powers.

Theorem 1: a locally maximal eigenvector w_* (the leading eigenvector of its own A(w_*)) is stable if λ_gap(w_*) exceeds
the roughness ρ(w_*). At the patterns of Appendix B.1 no point lies near the plane, so ρ = 0 and the theorem is Eqn. 35.
ρ > 0 needs a mass at the plane, which the noise of `Mixture` gives, or a gate that depends on wᵀx, as a power has.

Ours, at u_m of the summation model, y = y_m:
- ReLU and LeakyReLU change A only through the mean. With Q = ∫_{wᵀx=0} xxᵀ p(x) dx, (dA[u])w = −(1 − slope) E[h] Q u.
  This opposes u where E[h] > 0, so ρ never makes u_m unstable there, and λ_gap > ρ is not necessary.
- LeakyReLU, no noise: λ_gap > 0 while (1 − slope) q² − (3 + slope) q + (1 + slope) > 0. Slope 0 is the paper's
  threshold (3 − √5)/2, slope 1 gives ½.
- h = x²: λ_gap = E[y⁴] − 2 and (dA[u])w = u, so ρ = 1 and λ_gap > ρ is E[y⁴] > 3, a positive excess kurtosis:
  q < (3 − √3)/6. Here (dA[u])w goes along u, and λ_gap > ρ is also necessary; so it is for x³ and x⁴.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from lightning_ssl.labs.lab import Claim, Result
from lightning_ssl.labs.one_layer import dynamics
from lightning_ssl.labs.one_layer.dynamics import Gate
from lightning_ssl.labs.one_layer.smooth import CovarianceOf, Mixture, Top, derivatives, roughness

ACTIVATIONS: dict[str, tuple[Gate, Callable[[Tensor], Tensor], float]] = {
    "ReLU": (dynamics.relu, torch.relu, 1.0),
    "LeakyReLU 0.1": (dynamics.leaky_relu(0.1), partial(leaky_relu, negative_slope=0.1), 1.0),
    "LeakyReLU 0.5": (dynamics.leaky_relu(0.5), partial(leaky_relu, negative_slope=0.5), 1.0),
    "|x|": (dynamics.leaky_relu(-1.0), torch.abs, 1.0),
    "x²": (dynamics.power(2), torch.square, 2.0),
    "x³": (dynamics.power(3), partial(torch.pow, exponent=3), 3.0),
}
"""The gate of an activation, the activation of torch, and h'(a)·a / h(a), the "global constant" of a power."""
POWERS = (2, 3, 4)


def leaky_threshold(slope: float) -> float:
    """The q below which λ_gap(u_m) > 0 under LeakyReLU."""
    b = 3 + slope
    return (b - math.sqrt(b * b - 4 * (1 - slope) * (1 + slope))) / (2 * (1 - slope))


def lemma_3(result: Result, s: dict[str, Any]) -> None:
    """Lemma 3 for every activation: A(w)w is the gradient of ½C_α[h(wᵀx)], by autograd through torch's own h."""
    x = dynamics.noisy_samples(s["seeds"], 4, 12, s["noise"])
    prob = x.new_full((12,), 1 / 12)
    w = dynamics.filters(s["seeds"], 3, 4)
    alpha = dynamics.filter_alpha(w, x, 0.5)
    for name, (gate, h, constant) in ACTIVATIONS.items():
        v = w.clone().requires_grad_()
        with torch.enable_grad():
            energy = dynamics.covariance(h(v @ x.mT)[..., None], prob, alpha).sum() / 2
        (slope,) = torch.autograd.grad(energy, v)
        found = constant * dynamics.ascent_direction(w, x, prob, alpha, gate)
        error = (found - slope).norm(dim=2) / slope.norm(dim=2)
        result.claims.append(Claim.at_most(f"Lemma 3, {name}: A(w)w against autograd, relative", error, 1e-10))


def theorem_1(result: Result, s: dict[str, Any]) -> None:
    """Theorem 1 at ρ > 0: with noise for ReLU and LeakyReLU, without it for powers; stability by the dynamics."""
    U = dynamics.patterns(min(s["seeds"], 2), 3, 3)
    noisy = [
        Mixture(*dynamics.summation(U, q), sigma, slope)
        for slope in (0.0, 0.3)
        for sigma in (0.15, 0.3, 0.5)
        for q in ((0.1, 0.35) if s["quick"] else (0.1, 0.2, 0.3, 0.35))
    ]
    measured = torch.stack([_measure(U, each.covariance, each.direction, 0.1) for each in noisy])
    _judge(result, "ReLU and LeakyReLU, noise", measured, otherwise=1.0)
    change = torch.stack([_change(each.covariance, U) for each in noisy])
    result.claims.append(
        Claim.at_most(
            "ours: ReLU and LeakyReLU, largest eigenvalue of u ↦ (dA[u])w",
            torch.linalg.eigvalsh(change).amax(-1),
            1e-12,
        )
    )
    w = dynamics.filters(len(U), 8, 3)
    along = torch.stack([torch.einsum("siju,sij->siu", _change(each.covariance, w), w) for each in noisy])
    result.claims.append(Claim.at_most("Appendix B.3: |wᵀ(dA)w|, ReLU and LeakyReLU", along.abs(), 1e-12))
    result.arrays["theorem_1_noise"] = measured
    for p in POWERS:
        rows = []
        for q in torch.linspace(0.03, 0.4, 6 if s["quick"] else 20).tolist():
            x, prob = dynamics.summation(U, q)
            covariance, direction = (
                partial(each, x=x, prob=prob, gate=dynamics.power(p))
                for each in (dynamics.gated_covariance, dynamics.ascent_direction)
            )
            rows.append(_measure(U, covariance, direction, 0.5))
        measured = torch.stack(rows)  # (q, 4, S, M)
        _judge(result, f"x^{p}", measured, otherwise=0.0)
        result.arrays[f"theorem_1_power_{p}"] = measured


def thresholds(result: Result, s: dict[str, Any]) -> None:
    """Our thresholds of q for LeakyReLU and x², by the dynamics."""
    U, bisections = dynamics.patterns(1, 3, 3), 8 if s["quick"] else 10
    found = dynamics.find_threshold(U, bisections=bisections, gate=dynamics.power(2), low=0.05)
    name = "ours: threshold of q, x² (dynamics), where λ_gap = ρ"
    result.claims.append(Claim.near(name, found, (3 - math.sqrt(3)) / 6, tolerance=2e-3))
    for slope in (0.1, 0.5):
        found = dynamics.find_threshold(U, bisections=bisections, gate=dynamics.leaky_relu(slope))
        name = f"ours: threshold of q, LeakyReLU {slope:g} (dynamics)"
        result.claims.append(Claim.near(name, found, leaky_threshold(slope), tolerance=2e-3))


def activation_optima(result: Result, s: dict[str, Any], x: Tensor, w0: Tensor) -> None:
    """Count the local optima of every activation under uniform α; those of an even or odd h up to sign."""
    prob = x.new_full((x.shape[1],), 1 / x.shape[1])
    counts = [
        dynamics.distinct(dynamics.ascend(w0, x, prob, s["steps"], gate=gate), "LU" in name)[0]
        for name, (gate, _, _) in ACTIVATIONS.items()
    ]
    result.arrays["activation_optima"] = found = torch.stack(counts)  # (activations, S)
    result.claims.append(Claim.at_least("ours: number of local optima, every activation", found.double(), 2.0))
    means = ", ".join(f"{name} {float(n.double().mean()):.1f}" for name, n in zip(ACTIVATIONS, found, strict=True))
    result.notes.append(f"local optima by activation, uniform α, mean over seeds: {means}")


def _change(covariance: CovarianceOf, w: Tensor) -> Tensor:
    """The matrix of u ↦ (dA[u])w, (S, I, d, d)."""
    return torch.einsum("sijku,sik->siju", derivatives(covariance, w), w)


def _measure(w: Tensor, covariance: CovarianceOf, direction: Callable[[Tensor], Tensor], step: float) -> Tensor:
    """λ_gap, ρ, whether w is a locally maximal eigenvector, and whether it is stable: (4, S, I)."""
    top = Top.of(covariance(w), w)
    maximal = ((top.phi * w).sum(2) > 1 - 1e-9) & (top.gap > 1e-9)
    back = dynamics.returns(w, direction, step)
    return torch.stack([top.gap, roughness(covariance, w), maximal.double(), back.double()])


def _judge(result: Result, name: str, measured: Tensor, otherwise: float) -> None:
    """The shares of stable patterns with λ_gap > ρ (the theorem) and, ours, with λ_gap ≤ ρ; measured (n, 4, S, I)."""
    gap, rho, maximal, stable = measured.unbind(1)
    rough = (maximal > 0) & (rho > 1e-9)
    assured, others = stable[rough & (gap > rho)], stable[rough & (gap <= rho)]
    if len(assured):
        label = f"Theorem 1, {name}: share of LMEs with λ_gap > ρ > 0 that are stable"
        result.claims.append(Claim.at_least(label, assured.mean(), 1.0))
    if len(others):
        label = f"ours: {name}, share of LMEs with λ_gap ≤ ρ that are stable"
        result.claims.append(Claim.near(label, others.mean(), otherwise, tolerance=0))
    result.notes.append(f"Theorem 1, {name}: {len(assured)} LMEs with λ_gap > ρ > 0, {len(others)} with 0 < λ_gap ≤ ρ")
