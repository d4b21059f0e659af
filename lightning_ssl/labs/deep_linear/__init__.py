"""A deep linear network under fixed α is PCA: every layer ends rank one, aligned, at λ_max(X_α).

Source: "Understanding Deep Contrastive Learning via Coordinate-wise Optimization", Lemmas 1, 2 and 10,
Theorem 3, Corollary 3, Figure 2. Findings, and choices that the paper leaves open: docs/labs/deep_linear.md.

The network is z = W x, W = W_L ⋯ W_1. α is fixed, so the max player climbs tr(W X_α Wᵀ) with X_α = C_α[x, x]. Checks,
for every seed:

- Theorem 3: with ‖W_l‖_F = 1 the energy reaches λ_max(X_α) (computed by `torch.linalg.eigh`), W_l = v_l v_{l−1}ᵀ
  (σ₁ → 1, σ₂ → 0; the right singular vector of a layer is the left one of the layer below), v_0 the top eigenvector.
- Corollary 3: with ‖w_lk‖ = 1/√n_l for every filter k below the last layer the same holds, and v_l has entries ±1/√n_l.
- Remark after Theorem 3: one layer and a doubled top eigenvalue is a counterexample, a maximum of rank two.
- Lemmas 2 and 10: along the gradient flow ‖W_l‖_F is conserved below an l2-norm or a LayerNorm, ‖w_lk‖ below a
  BatchNorm; without one they are not. After Lemma 1: the unconstrained flow conserves W_l W_lᵀ − W_{l+1}ᵀ W_{l+1}.

Conventions. X_α is a mean over anchors, and of one view: anchors x1, positives x2, negatives the other x1. The energy
is tr(W X_α Wᵀ), as in the preprint; the camera-ready text has ½ of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from lightning_ssl.base.checks import require
from lightning_ssl.labs.deep_linear.ascent import ascend, doubled_eigenvalue, energy, initial
from lightning_ssl.labs.deep_linear.data import fixed_alpha, mean_covariance, views
from lightning_ssl.labs.deep_linear.figures import DRAWN_STEPS, draw
from lightning_ssl.labs.deep_linear.flow import NORMALIZATIONS, balance, gradient_flow, norm_drift
from lightning_ssl.labs.lab import Claim, Result, per_seed, require_bounds

TOLERANCE = 1e-4


def run(
    *,
    widths: tuple[int, ...] = (16, 20, 20, 20, 20, 10),
    samples: int = 64,
    augmentation: float = 0.6,
    alpha: Literal["uniform", "entropy", "random"] = "entropy",
    tau: float = 2.0,
    steps: int = 3000,
    lr: float = 0.1,
    flow_steps: int = 100,
    flow_ds: float = 0.005,
    seeds: int = 20,
    first_seed: int = 0,
    quick: bool = False,
    progress: bool = False,
) -> Result:
    """Check Theorem 3, Corollary 3, Lemmas 1, 2 and 10 for every seed and both constraints in one batch.

    Args:
        widths: n_0 … n_L, the input width first; the depth L is one less than their number
        samples: anchors N from which X_α is made
        augmentation: size of the difference of the two views, relative to the data, in random directions
        alpha: the fixed importance: uniform, entropy (softmax over input distances) or random
        tau: temperature of alpha=entropy
        steps: projected gradient steps
        lr: step over the largest layer gradient of the run
        flow_steps: Runge-Kutta steps along which the conservation laws are measured
        flow_ds: length of a Runge-Kutta step
        seeds: runs per constraint
        first_seed: seed of the first run
        quick: fewer steps and seeds, in seconds
        progress: show a progress bar
    """
    settings = {name: value for name, value in locals().items() if name != "progress"}
    require(len(widths) >= 3 and min(widths) >= 2, "widths", widths, "three or more widths of at least 2")
    require_bounds(settings, "tau", "lr", "flow_ds", samples=3, augmentation=0, steps=1, flow_steps=1, seeds=1)
    require(alpha in ("uniform", "entropy", "random"), "alpha", alpha, "uniform, entropy or random")
    if quick:
        settings |= {"steps": min(steps, 1000), "seeds": min(seeds, 5), "flow_steps": min(flow_steps, 40)}
    seeds, steps = settings["seeds"], settings["steps"]
    x1, x2 = views(widths[0], samples, augmentation, seeds, first_seed)
    noise = per_seed(lambda g: torch.rand(samples, samples, generator=g).double(), seeds, first_seed, 1)
    fixed = fixed_alpha(x1, alpha, tau, noise)
    x_alpha = mean_covariance(x1, x2, fixed)
    start = initial(widths, seeds, first_seed)
    claims, arrays = _ascent(start, x_alpha, steps, lr, progress)
    energy_reached, second = doubled_eigenvalue(seeds, first_seed)
    flow_claims, drift, moved = _flows(start, x1, x2, fixed, settings["flow_steps"], flow_ds)
    claims += [
        Claim.near("Remark: energy / λ_max, λ_max doubled, L=1", energy_reached, 1.0, tolerance=TOLERANCE),
        Claim.at_least("Remark: σ₂ there (rank two)", second, 1e-3),
        *flow_claims,
    ]
    notes = _notes(arrays["eigenvalues"], arrays["reached"], steps, moved)
    return Result("deep_linear", settings, arrays | {"norm_drift": drift}, claims, notes, draw)


def _ascent(
    start: list[Tensor], x_alpha: Tensor, steps: int, lr: float, progress: bool
) -> tuple[list[Claim], dict[str, Tensor]]:
    """Climb to the maximum under both constraints: runs are the seeds with ‖W_l‖_F = 1, then with ‖w_lk‖ = 1/√n_l."""
    seeds, both = len(x_alpha), torch.cat([x_alpha, x_alpha])
    eigenvalues, eigenvectors = torch.linalg.eigh(x_alpha)
    lam, top = eigenvalues[:, -1].repeat(2), eigenvectors[:, :, -1].repeat(2, 1)
    energies: list[Tensor] = []
    singular: list[Tensor] = []  # the two largest of every layer, ‖W_l‖_F = 1

    def record(weights: Sequence[Tensor]) -> None:
        energies.append(energy(weights, both))
        if len(energies) <= DRAWN_STEPS:
            singular.append(torch.stack([torch.linalg.svdvals(w[:seeds])[:, :2] for w in weights], 1))

    per_filter = torch.arange(2 * seeds) >= seeds
    final = ascend([torch.cat([w, w]) for w in start], both, per_filter, range(steps), lr, record, progress)
    record(final)
    reached = energies[-1] / lam
    svd = [torch.linalg.svd(w, full_matrices=False) for w in final]
    left, right = [s.U[:, :, 0] for s in svd], [s.Vh[:, 0] for s in svd]
    sigma1, sigma2 = (torch.stack([s.S[:, k] for s in svd], 1) for k in (0, 1))  # (2 seeds, L)
    # |cos| of the singular vectors of neighbouring layers, (2 seeds, L-1)
    aligned = torch.stack([(a * b).sum(1).abs() for a, b in zip(left[:-1], right[1:], strict=True)], 1)
    first = (right[0] * top).sum(1).abs()
    entries = torch.cat([v.abs() * v.shape[1] ** 0.5 for v in left[:-1]], 1)  # √n_l |v_l|_k of the hidden layers
    layer, filter_ = slice(0, seeds), slice(seeds, None)
    claims = [
        Claim.near("Thm 3: energy / λ_max", reached[layer], 1.0, tolerance=TOLERANCE),
        Claim.near("Thm 3: smallest σ₁ of a layer", sigma1[layer].amin(1), 1.0, tolerance=TOLERANCE),
        Claim.near("Thm 3: largest σ₂ of a layer", sigma2[layer].amax(1), 0.0, tolerance=1e-3),
        Claim.near("Thm 3: |cos(v₀, top eigenvector)|", first[layer], 1.0, tolerance=TOLERANCE),
        Claim.near("Thm 3: smallest alignment of layers", aligned[layer].amin(1), 1.0, tolerance=TOLERANCE),
        Claim.near("Cor 3: energy / λ_max", reached[filter_], 1.0, tolerance=TOLERANCE),
        Claim.near("Cor 3: smallest √n |v_l| entry", entries[filter_].amin(1), 1.0, tolerance=1e-3),
        Claim.near("Cor 3: largest √n |v_l| entry", entries[filter_].amax(1), 1.0, tolerance=1e-3),
    ]
    return claims, {
        "energy_over_lambda": torch.stack(energies, 1) / lam[:, None],
        "singular_values": torch.stack(singular, 1),
        "eigenvalues": eigenvalues,
        "reached": reached.view(2, seeds),
        "sigma1": sigma1,
        "sigma2": sigma2,
        "entries_filter": entries[filter_],
        "entries_layer": entries[layer],
    }


def _flows(
    start: list[Tensor], x1: Tensor, x2: Tensor, alpha: Tensor, steps: int, ds: float
) -> tuple[list[Claim], Tensor, float]:
    """The conservation laws: claims, drift of the norms (normalizations, T, seeds), and the unnormalized movement."""
    # ‖W_l‖²_F = n_l, so that outputs are of the inputs' size and the normalizations are not stiff.
    scaled = [w * w.shape[1] ** 0.5 for w in start]
    paths = {n: gradient_flow(scaled, x1, x2, alpha, n, steps, ds) for n in NORMALIZATIONS}
    drift = torch.stack([norm_drift(path, n) for n, path in paths.items()])
    path = paths["none"]
    moved = max(float((a - b).abs().max()) for a, b in zip(path[0], path[-1], strict=True))
    imbalance = (balance(path[-1]) - balance(path[0])).abs().amax(1)
    claims = [
        Claim.at_least("no normalization: change of ‖W‖²", drift[0, -1], 1e-3),
        Claim.at_most("Lemma 2: change of ‖W‖² below l2", drift[1, -1], 1e-6),
        Claim.at_most("Lemma 2: change of ‖W‖² below LayerNorm", drift[2, -1], 1e-6),
        Claim.at_most("Lemma 10: change of ‖w_k‖² below BatchNorm", drift[3, -1], 1e-6),
        Claim.at_most("Lemma 1: change of the balance of layers", imbalance, 1e-6),
    ]
    return claims, drift, moved


def _notes(eigenvalues: Tensor, reached: Tensor, steps: int, moved: float) -> list[str]:
    seeds, inputs = eigenvalues.shape
    per_layer, per_filter = (int((part < 1 - TOLERANCE).sum()) for part in reached.chunk(2))
    negative = float((eigenvalues < 0).double().sum(1).mean())
    return [
        f"X_α has {negative:.1f} negative of {inputs} eigenvalues on average: directions the augmentation forbids",
        f"runs not within {TOLERANCE:g} of λ_max after {steps} steps: {per_layer} of {seeds} (‖W_l‖), "
        f"{per_filter} of {seeds} (‖w_lk‖)",
        f"the balance is measured while single weights move by up to {moved:.2g}",
    ]
