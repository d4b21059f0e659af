"""One nonlinear layer has a local optimum for every pattern of the data, where a linear layer has a single one.

Source: "On the Role of Nonlinearity in Training Dynamics of Contrastive Learning on One-layer Network", Lemmas 1-3,
Theorems 1-3, Corollary 2, Appendix B, Figure 1. Findings beyond the paper: docs/labs/one_layer.md.

Claim. With unit filters and a homogeneous activation, h(wᵀx) = wᵀx̃ with x̃ = x·h'(wᵀx), contrastive learning climbs
ẇ = (I − wwᵀ) A(w) w, A(w) = C_α[x̃] (Lemma 3). A locally maximal eigenvector of A(w) is stable when λ_gap > ρ, where ρ
is the local roughness (Theorem 1). A(w) and the dynamics are computed exactly, on the support points of the data.

Checks:
- Eqns 34 and 35: A(u_m) of the latent categorical and the latent summation model, and the threshold q < (3 − √5)/2
  below which u_m is stable, found by perturbing u_m and following the dynamics;
- Lemmas 1 and 2: the features of the Gaussian α, and C_α → Σ_l z_l² V_{p̃_l} as the batch grows;
- Theorem 2 and Corollary 2: the bound on ρ, and r(α_gauss) = z_0 r(α_uniform), on a bounded density in the plane;
- Theorem 3 and Figure 1 (right): power iteration for nearly orthogonal patterns;
- the number of local optima and the sizes of their basins: linear, ReLU with uniform α, ReLU with Gaussian α.

Conventions. C_α has the paper's factor 1/(2N²), so that α ≡ 1 without augmentation gives the plain variance. The
Gaussian α is exp(−(h(wᵀx_i) − h(wᵀx_j))²/2τ) on un-augmented samples, recomputed from the current w and not
differentiated. h'(0) = 0 as in Appendix B.1. Numbers are float64; the leading dimensions are seeds S and filters I.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from lightning_ssl.base.checks import require
from lightning_ssl.labs.lab import Claim, Result, mean_std, require_bounds, track
from lightning_ssl.labs.one_layer import claims
from lightning_ssl.labs.one_layer.figures import draw


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
    """Check Lemmas 1–3, Theorems 1–3, Corollary 2 and Figure 1 of the one-layer paper.

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
    settings = {name: value for name, value in locals().items() if name != "progress"}
    require(2 <= patterns_count <= 12, "patterns_count", patterns_count, "2 to 12 (2^M points are enumerated)")
    require(dimension >= patterns_count, "dimension", dimension, f"at least patterns_count = {patterns_count}")
    require(0 < q < 0.5, "q", q, "a probability in (0, 0.5)")
    require(min(taus, default=0) > 0, "taus", taus, "positive temperatures")
    require(min(skews, default=-1) >= 0, "skews", skews, "non-negative sizes")
    require(samples >= patterns_count, "samples", samples, "at least one per pattern")
    require_bounds(settings, noise=0, filters_count=1, steps=1, seeds=1)
    if quick:
        seeds, samples, filters_count = min(seeds, 2), min(samples, 32), min(filters_count, 24)
        steps, taus = 60, taus[::2]
    M, d = patterns_count, dimension
    parts: list[Callable[[], claims.Findings]] = [
        partial(claims.closed_forms, seeds, M, d, q, bisections=8 if quick else 10),
        partial(claims.theorem_1, seeds, M, d, q),
        partial(claims.theorem_3, seeds, M, d, q, skews, steps=60 if quick else 200),
        claims.lemmas_1_and_2,
        partial(claims.roughness, taus, cells=200 if quick else 400),
        partial(claims.local_optima, seeds, M, samples, noise, filters_count, steps, taus),
    ]
    found: list[Claim] = []
    arrays: dict[str, Tensor] = {}
    for part in track(parts, "one layer", progress):
        part_claims, part_arrays = part()
        found += part_claims
        arrays |= part_arrays
    study = f"local optima of {filters_count} random filters, {M} patterns with noise {noise:g}"
    notes = _notes(study, arrays, taus)
    return Result("one_layer", settings | {"ran_taus": taus}, arrays, found, notes, draw)


def _notes(study: str, arrays: dict[str, Tensor], taus: Sequence[float]) -> list[str]:
    means = [mean_std(count.double())[0] for count in (arrays["linear_optima"], *arrays["optima"])]
    names = ["linear", "uniform α", *(f"Gaussian τ={tau:g}" for tau in taus)]
    cycling, skew_norms = arrays["power_iteration_cycling"], arrays["skew_norm"]
    return [
        f"{study}, mean over seeds: "
        + ", ".join(f"{name} {mean:.1f}" for name, mean in zip(names, means, strict=True)),
        "power iteration ends in a small cycle across a ridge instead of a point for a share of the patterns: "
        + ", ".join(
            f"{float(share.mean()):.2f} at ‖UᵀU − I‖ = {float(norm.mean()):.2f}"
            for share, norm in zip(cycling, skew_norms, strict=True)
        ),
        "Gaussian α widens the range of stable q only because it follows w; held fixed it narrows it "
        "(docs/labs/one_layer.md)",
    ]
