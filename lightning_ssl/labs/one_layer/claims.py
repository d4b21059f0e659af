"""The steps of the lab. Each checks a part of the paper and returns its claims and arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from lightning_ssl.labs.lab import Claim
from lightning_ssl.labs.one_layer import data, dynamics
from lightning_ssl.labs.one_layer.kernels import batch_covariance_error, gaussian_features, roughness_in_the_plane

Findings = tuple[list[Claim], dict[str, Tensor]]


def closed_forms(seeds: int, M: int, d: int, q: float, bisections: int) -> Findings:
    """Eqns 34 and 35, the threshold of q, and our closed form and thresholds for the Gaussian α."""
    U = data.patterns(seeds, M, d)
    outer = U[..., :, None] * U[..., None, :]  # (S, M, d, d)
    x, prob = data.categorical(U)
    error = (dynamics.gated_covariance(U, x, prob) - (1 / M) * (1 - 1 / M) * outer).abs().amax((1, 2, 3))
    stable_share = dynamics.stable(U, x, prob).double().mean(1)
    claims = [
        Claim.at_most("Eqn 34, categorical: |A(u_m) − p(1−p)u_m u_mᵀ|", error, 1e-4),
        Claim.at_least("  share of its u_m that are stable, though ρ = ∞", stable_share, 1.0),
    ]
    x, prob = data.summation(U, q)
    form = (1 - q) ** 2 * outer + q * (U.mT @ U)[:, None] - q * outer
    error = (dynamics.gated_covariance(U, x, prob) - form).abs().amax((1, 2, 3))
    claims.append(Claim.at_most("Eqn 35, summation: |A(u_m) − closed form| on span(U)", error, 1e-4))
    few = data.patterns(1, 3, 3)
    found = dynamics.find_threshold(few, bisections=bisections)
    claims.append(
        Claim.near("stability threshold of q, uniform α (dynamics)", found, dynamics.THRESHOLD, tolerance=2e-3)
    )
    gauss = dynamics.gated_covariance(U, x, prob, dynamics.filter_alpha(U, x, 1.0))
    kappa = math.exp(-(1 - q) / (2 * q))
    form = kappa * (1 - q) ** 2 * outer + (q**2 + kappa * q * (1 - q)) * ((U.mT @ U)[:, None] - outer)
    claims.append(Claim.at_most("ours: Gaussian α, |A(u_m) − closed form|", (gauss - form).abs().amax((1, 2, 3)), 1e-4))
    for tau, hold in ((10.0, True), (10.0, False), (2.0, False)):
        found, mode = dynamics.find_threshold(few, tau, hold, bisections), "held" if hold else "following w"
        name = f"ours: threshold of q, Gaussian α {mode}, τ = {tau:g}"
        claims.append(Claim.near(name, found, dynamics.gaussian_threshold(tau, hold), tolerance=2e-3))
    return claims, {"q": torch.linspace(0.02, 0.5, 49, dtype=data.DTYPE)}


def theorem_1(seeds: int, M: int, d: int, q: float) -> Findings:
    """Theorem 1 on the summation model: u_m is stable where λ_gap > ρ."""
    U = data.patterns(seeds, M, d)
    x, prob = data.summation(U, q)
    eigenvalues = torch.linalg.eigvalsh(dynamics.gated_covariance(U, x, prob))
    holds = (eigenvalues[..., -1] - eigenvalues[..., -2]) > 0  # ρ = 0: no point lies on the plane at u_m
    fraction = dynamics.stable(U, x, prob).double()[holds].mean() if bool(holds.any()) else torch.zeros(())
    return [Claim.at_least("Theorem 1: share of u_m with λ_gap > ρ that are stable", fraction, 1.0)], {}


def theorem_3(seeds: int, M: int, d: int, q: float, skews: Sequence[float], steps: int) -> Findings:
    """Theorem 3 and Figure 1, right: power iteration from patterns that are nearly orthogonal."""
    rows = []
    for skew in skews:
        U = data.patterns(seeds, M, d, skew)
        x, prob = data.summation(U, q)
        w, moved = dynamics.power_iteration(U, x, prob, steps)
        rows.append(
            {
                "power_iteration": moved.flatten(1).median(1).values,  # (steps,)
                "skew_norm": torch.linalg.matrix_norm(U @ U.mT - torch.eye(M, dtype=data.DTYPE), 2),  # (S,)
                "power_iteration_cosine": (w * U).sum(2).amin(1),  # (S,)
                "power_iteration_cycling": (moved[-1] > 1e-6).double().mean(1),  # (S,)
            }
        )
    arrays: dict[str, Tensor] = default_collate(rows)  # (skews, ...)
    claims = []
    for k, skew in enumerate(skews):
        if skew <= 0.1:
            norm = f"‖UᵀU − I‖ = {float(arrays['skew_norm'][k].mean()):.2f}"
            cosine, last = arrays["power_iteration_cosine"][k], arrays["power_iteration"][k, -1]
            claims.append(Claim.at_least(f"Theorem 3: min_m cos(w*, u_m), {norm}", cosine, 0.9))
            claims.append(Claim.at_most(f"  median last ‖w(t+1) − w(t)‖, {norm}", last, 1e-6))
    return claims, arrays


def lemmas_1_and_2(sizes: tuple[int, ...] = (32, 128, 512)) -> Findings:
    """Lemmas 1 and 2: the features of the Gaussian α, and C_α of a batch of growing size."""
    h = torch.linspace(0, 2, 50, dtype=data.DTYPE)
    phi = gaussian_features(h, 0.5, 80)
    feature_error = (phi.T @ phi - dynamics.gaussian_alpha(h, 0.5)).abs().max()
    errors = batch_covariance_error(32, sizes, 0.5)
    slope = float(np.polyfit(np.log(sizes), errors.mean(1).log(), 1)[0])
    claims = [
        Claim.at_most("Lemma 1: |α − Σ_l φ_l φ_l|, 80 terms", feature_error, 1e-6),
        Claim.near("Lemma 2: error ∝ N^slope", slope, -0.5, tolerance=0.2),
    ]
    return claims, {"batch_sizes": torch.tensor(sizes), "lemma2_error": errors}


def roughness(taus: tuple[float, ...], cells: int) -> Findings:
    """Theorem 2 and Corollary 2 on a bounded density in the plane."""
    rough = roughness_in_the_plane(taus, cells)
    claims = [Claim.at_most("Theorem 2: ρ / bound", rough["rho"] / rough["bound"], 1.0)]
    for k, tau in enumerate(taus, 1):
        r_ratio, rho_ratio = rough["r"][k] / rough["r"][0], rough["rho"][k] / rough["rho"][0]
        name = f"Corollary 2: r(Gaussian)/r(uniform), τ = {tau:g}"
        claims.append(Claim.near(name, r_ratio, float(rough["z0"][k]), tolerance=1e-4))
        name = f"ours: ρ(Gaussian)/ρ(uniform), τ = {tau:g}"
        claims.append(Claim.near(name, rho_ratio, float(rough["exact"][k]), tolerance=0.02))
    return claims, {f"plane_{name}": value for name, value in rough.items()}


def local_optima(
    seeds: int, M: int, samples: int, noise: float, filters_count: int, steps: int, taus: Sequence[float]
) -> Findings:
    """Count the local optima and the sizes of their basins, on noisy samples."""
    x = data.noisy_samples(seeds, M, samples, noise)
    prob = x.new_full((samples,), 1 / samples)
    w0 = data.filters(seeds, filters_count, M)
    # A linear layer is a power iteration: the smaller the gap of its two leading eigenvalues, the more steps it needs.
    linear, _ = dynamics.distinct(dynamics.ascend(w0, x, prob, 20 * steps, linear=True), signed=False)
    found = [dynamics.distinct(dynamics.ascend(w0, x, prob, steps, tau)) for tau in (None, *taus)]
    counts, basins = (torch.stack(each) for each in zip(*found, strict=True))  # (1 + taus, S), (1 + taus, S, I)
    more = counts[-1].double() / counts[0]
    claims = [
        Claim.near("linear layer: number of optima up to sign", linear.double(), 1.0, tolerance=0.0),
        Claim.at_least("ReLU, uniform α: number of local optima", counts[0].double(), 2.0),
        Claim.at_least(f"Gaussian α (τ = {taus[-1]:g}) / uniform α: number of optima", more, 1.0),
    ]
    return claims, {"linear_optima": linear, "optima": counts, "basins": basins}
