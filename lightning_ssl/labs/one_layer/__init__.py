"""One nonlinear layer has a local optimum for every pattern of the data, where a linear layer has a single one.

Source: "On the Role of Nonlinearity in Training Dynamics of Contrastive Learning on One-layer Network", Lemmas 1-8,
Theorems 1-3, Corollary 2, Appendix B, Figure 1. Findings beyond the paper: docs/labs/one_layer.md.

Claim. With unit filters and a homogeneous activation, h(wᵀx) = wᵀx̃ with x̃ = x·h'(wᵀx), contrastive learning climbs
ẇ = (I − wwᵀ) A(w) w, A(w) = C_α[x̃] (Lemma 3). A locally maximal eigenvector of A(w) is stable when λ_gap > ρ, where ρ
is the local roughness (Theorem 1). A(w) and the dynamics are computed exactly, on the support points of the data.

Checks:
- Eqns 34 and 35: A(u_m) of the latent categorical and the latent summation model, and the threshold q < (3 − √5)/2
  below which u_m is stable, found by perturbing u_m and following the dynamics;
- Lemmas 1 and 2: the features of the Gaussian α, and C_α → Σ_l z_l² V_{p̃_l} as the batch grows;
- Theorem 2 and Corollary 2: the bound on ρ, and r(α_gauss) = z_0 r(α_uniform), on a bounded density in the plane;
- Figure 1 (right): power iteration for nearly orthogonal patterns;
- `stability`: Theorem 1 at ρ > 0, and Lemma 3, thresholds and local optima of other homogeneous activations;
- `irregularity`: Theorem 3 under its condition ω ≤ γ (Eqns. 95 and 96), and Lemmas 4 to 8;
- the number of local optima and the sizes of their basins: linear, ReLU with uniform α, ReLU with Gaussian α.

Conventions. C_α has the paper's factor 1/(2N²), so that α ≡ 1 without augmentation gives the plain variance. The
Gaussian α is exp(−(h(wᵀx_i) − h(wᵀx_j))²/2τ) on un-augmented samples, recomputed from the current w and not
differentiated. h'(0) = 0 as in Appendix B.1. Numbers are float64; the leading dimensions are seeds S and filters I.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from lightning_ssl.base.checks import require
from lightning_ssl.labs.lab import Claim, Result, laboratory, track
from lightning_ssl.labs.one_layer import dynamics, irregularity, stability
from lightning_ssl.labs.one_layer.figures import draw
from lightning_ssl.labs.one_layer.kernels import batch_covariance_error, gaussian_features, roughness_in_the_plane

QUICK = {"seeds": 2, "samples": 32, "filters_count": 24, "steps": 60}


@laboratory(quick=QUICK, skews=-math.inf, noise=0)
def run(
    *,
    patterns_count: int = 6,
    dimension: int = 10,
    skews: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2, 0.4),
    taus: tuple[float, ...] = (1.0, 0.3, 0.1, 0.03),
    noise: float = 0.3,
    samples: int = 64,
    filters_count: int = 64,
    steps: int = 200,
    q: float = 0.2,
    seeds: int = 5,
    quick: bool = False,
    progress: bool = False,
) -> Result:
    """Check Lemmas 1–8, Theorems 1–3, Corollary 2 and Figure 1 of the one-layer paper.

    Args:
        patterns_count: M, the number of patterns u_m
        dimension: d, the dimension of the input
        skews: sizes of the perturbation that makes the patterns less than orthogonal
        taus: temperatures of the Gaussian α
        noise: standard deviation of the noise in the study of local optima
        samples: number of samples in the study of local optima
        filters_count: random filters per seed in the study of local optima
        steps: steps of ascent in the study of local optima
        q: probability of y_m > 0 in the power iteration of the summation model
        seeds: sets of patterns, samples and filters
        quick: two seeds and fewer steps, in seconds
        progress: show a progress bar
    """
    settings = dict(locals())
    require(2 <= patterns_count <= 12, "patterns_count", patterns_count, "2 to 12 (2^M points are enumerated)")
    require(dimension >= patterns_count, "dimension", dimension, f"at least patterns_count = {patterns_count}")
    require(0 < q < 0.5, "q", q, "a probability in (0, 0.5)")
    require(min(skews) >= 0, "skews", skews, "non-negative sizes")
    require(samples >= patterns_count, "samples", samples, "at least one per pattern")
    settings["ran_taus"] = taus[::2] if quick else taus
    result = Result("one_layer", settings, {}, [], draw=draw)
    parts = (
        closed_forms,
        stability.lemma_3,
        stability.theorem_1,
        stability.thresholds,
        figure_1,
        irregularity.theorem_3,
        lemmas_1_and_2,
        roughness,
        local_optima,
    )
    for part in track(parts, "one layer", progress):
        part(result, settings)
    result.notes += _notes(settings, result.arrays)
    return result


def _notes(s: dict[str, Any], arrays: dict[str, Tensor]) -> list[str]:
    names = ["linear", "uniform α", *(f"Gaussian τ={tau:g}" for tau in s["ran_taus"])]
    optima = zip(names, (arrays["linear_optima"], *arrays["optima"]), strict=True)
    cycling = zip(arrays["power_iteration_cycling"], arrays["skew_norm"], strict=True)
    return [
        f"local optima of {s['filters_count']} random filters, {s['patterns_count']} patterns with noise "
        f"{s['noise']:g}, mean over seeds: "
        + ", ".join(f"{name} {float(count.double().mean()):.1f}" for name, count in optima),
        "power iteration ends in a small cycle across a ridge instead of a point for a share of the patterns: "
        + ", ".join(f"{float(c.mean()):.2f} at ‖UᵀU − I‖ = {float(norm.mean()):.2f}" for c, norm in cycling),
        "Gaussian α widens the range of stable q only because it follows w; held fixed it narrows it "
        "(docs/labs/one_layer.md)",
    ]


def closed_forms(result: Result, s: dict[str, Any]) -> None:
    """Eqns 34 and 35, the threshold of q, our closed form and thresholds for the Gaussian α, and Theorem 1."""
    M, q, claims = s["patterns_count"], s["q"], result.claims
    U = dynamics.patterns(s["seeds"], M, s["dimension"])
    outer = U[..., :, None] * U[..., None, :]  # (S, M, d, d)
    across = (U.mT @ U)[:, None]  # the projection on span(U)

    def compare(name: str, A: Tensor, form: Tensor) -> None:
        claims.append(Claim.at_most(name, (A - form).abs().amax((1, 2, 3)), 1e-4))

    x, prob = dynamics.categorical(U)
    A = dynamics.gated_covariance(U, x, prob)
    compare("Eqn 34, categorical: |A(u_m) − p(1−p)u_m u_mᵀ|", A, (1 / M) * (1 - 1 / M) * outer)
    share = dynamics.stable(U, x, prob).double().mean(1)
    claims.append(Claim.at_least("  share of its u_m that are stable, though ρ = ∞", share, 1.0))
    x, prob = dynamics.summation(U, q)
    A = dynamics.gated_covariance(U, x, prob)
    form = (1 - q) ** 2 * outer + q * across - q * outer
    compare("Eqn 35, summation: |A(u_m) − closed form| on span(U)", A, form)
    few, bisections = dynamics.patterns(1, 3, 3), 8 if s["quick"] else 10
    found = dynamics.find_threshold(few, bisections=bisections)
    name = "stability threshold of q, uniform α (dynamics)"
    claims.append(Claim.near(name, found, dynamics.THRESHOLD, tolerance=2e-3))
    gauss = dynamics.gated_covariance(U, x, prob, dynamics.filter_alpha(U, x, 1.0))
    kappa = math.exp(-(1 - q) / (2 * q))
    form = kappa * (1 - q) ** 2 * outer + (q**2 + kappa * q * (1 - q)) * (across - outer)
    compare("ours: Gaussian α, |A(u_m) − closed form|", gauss, form)
    for tau, hold in ((10.0, True), (10.0, False), (2.0, False)):
        found, mode = dynamics.find_threshold(few, tau, hold, bisections), "held" if hold else "following w"
        name = f"ours: threshold of q, Gaussian α {mode}, τ = {tau:g}"
        claims.append(Claim.near(name, found, dynamics.gaussian_threshold(tau, hold), tolerance=2e-3))
    eigenvalues = torch.linalg.eigvalsh(A)
    holds = (eigenvalues[..., -1] - eigenvalues[..., -2]) > 0  # ρ = 0: no point lies on the plane at u_m
    fraction = dynamics.stable(U, x, prob).double()[holds].mean() if bool(holds.any()) else torch.zeros(())
    claims.append(Claim.at_least("Theorem 1: share of u_m with λ_gap > ρ that are stable", fraction, 1.0))
    result.arrays["q"] = torch.linspace(0.02, 0.5, 49, dtype=dynamics.DTYPE)


def figure_1(result: Result, s: dict[str, Any]) -> None:
    """Figure 1, right: power iteration from patterns that are nearly orthogonal, on support points.

    Theorem 3 needs a Lipschitz constant, which these points do not have; see `irregularity`.
    """
    M, skews = s["patterns_count"], s["skews"]
    rows = []
    for skew in skews:
        U = dynamics.patterns(s["seeds"], M, s["dimension"], skew)
        x, prob = dynamics.summation(U, s["q"])
        direction = partial(dynamics.ascent_direction, x=x, prob=prob)
        path = dynamics.power_iteration(U, direction, 60 if s["quick"] else 200)
        w, moved = path[-1], path.diff(dim=0).norm(dim=3)
        rows.append(
            {
                "power_iteration": moved.flatten(1).median(1).values,  # (steps,)
                "skew_norm": torch.linalg.matrix_norm(U @ U.mT - torch.eye(M, dtype=dynamics.DTYPE), 2),  # (S,)
                "power_iteration_cosine": (w * U).sum(2).amin(1),  # (S,)
                "power_iteration_cycling": (moved[-1] > 1e-6).double().mean(1),  # (S,)
            }
        )
    arrays: dict[str, Tensor] = default_collate(rows)  # (skews, ...)
    result.arrays |= arrays
    for k, skew in enumerate(skews):
        if skew <= 0.1:
            norm = f"‖UᵀU − I‖ = {float(arrays['skew_norm'][k].mean()):.2f}"
            cosine, last = arrays["power_iteration_cosine"][k], arrays["power_iteration"][k, -1]
            result.claims.append(Claim.at_least(f"Theorem 3: min_m cos(w*, u_m), {norm}", cosine, 0.9))
            result.claims.append(Claim.at_most(f"  median last ‖w(t+1) − w(t)‖, {norm}", last, 1e-6))


def lemmas_1_and_2(result: Result, s: dict[str, Any]) -> None:
    """Lemmas 1 and 2: the features of the Gaussian α, and C_α of a batch of growing size."""
    sizes = (32, 128, 512)
    h = torch.linspace(0, 2, 50, dtype=dynamics.DTYPE)
    phi = gaussian_features(h, 0.5, 80)
    feature_error = (phi.T @ phi - dynamics.gaussian_alpha(h, 0.5)).abs().max()
    errors = batch_covariance_error(32, sizes, 0.5)
    slope = float(np.polyfit(np.log(sizes), errors.mean(1).log(), 1)[0])
    result.claims += [
        Claim.at_most("Lemma 1: |α − Σ_l φ_l φ_l|, 80 terms", feature_error, 1e-6),
        Claim.near("Lemma 2: error ∝ N^slope", slope, -0.5, tolerance=0.2),
    ]
    result.arrays |= {"batch_sizes": torch.tensor(sizes), "lemma2_error": errors}


def roughness(result: Result, s: dict[str, Any]) -> None:
    """Theorem 2 and Corollary 2 on a bounded density in the plane."""
    taus = s["ran_taus"]
    rough = roughness_in_the_plane(taus, 200 if s["quick"] else 400)
    result.arrays |= {f"plane_{name}": value for name, value in rough.items()}
    result.claims.append(Claim.at_most("Theorem 2: ρ / bound", rough["rho"] / rough["bound"], 1.0))
    for k, tau in enumerate(taus, 1):
        r_ratio, rho_ratio = rough["r"][k] / rough["r"][0], rough["rho"][k] / rough["rho"][0]
        name = f"Corollary 2: r(Gaussian)/r(uniform), τ = {tau:g}"
        result.claims.append(Claim.near(name, r_ratio, float(rough["z0"][k]), tolerance=1e-4))
        name = f"ours: ρ(Gaussian)/ρ(uniform), τ = {tau:g}"
        result.claims.append(Claim.near(name, rho_ratio, float(rough["exact"][k]), tolerance=0.02))


def local_optima(result: Result, s: dict[str, Any]) -> None:
    """Count the local optima and the sizes of their basins, on noisy samples."""
    M, samples, steps, taus = s["patterns_count"], s["samples"], s["steps"], s["ran_taus"]
    x = dynamics.noisy_samples(s["seeds"], M, samples, s["noise"])
    prob = x.new_full((samples,), 1 / samples)
    w0 = dynamics.filters(s["seeds"], s["filters_count"], M)
    # A linear layer is a power iteration: the smaller the gap of its two leading eigenvalues, the more steps it needs.
    linear, _ = dynamics.distinct(dynamics.ascend(w0, x, prob, 20 * steps, gate=dynamics.linear), signed=False)
    found = [dynamics.distinct(dynamics.ascend(w0, x, prob, steps, tau)) for tau in (None, *taus)]
    counts, basins = (torch.stack(each) for each in zip(*found, strict=True))  # (1 + taus, S), (1 + taus, S, I)
    stability.activation_optima(result, s, x, w0)
    more = counts[-1].double() / counts[0]
    result.claims += [
        Claim.near("linear layer: number of optima up to sign", linear.double(), 1.0, tolerance=0.0),
        Claim.at_least("ReLU, uniform α: number of local optima", counts[0].double(), 2.0),
        Claim.at_least(f"Gaussian α (τ = {taus[-1]:g}) / uniform α: number of optima", more, 1.0),
    ]
    result.arrays |= {"linear_optima": linear, "optima": counts, "basins": basins}
