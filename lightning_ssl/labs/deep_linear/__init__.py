"""A deep linear network under fixed α is PCA: every layer ends rank one, aligned, at λ_max(X_α).

Source: "Understanding Deep Contrastive Learning via Coordinate-wise Optimization", Lemmas 1, 2, 7 and
10, Theorem 3, Corollaries 2 and 3, Figure 2. Findings and choices that the paper leaves open: docs/labs/deep_linear.md.

The network is z = W x, W = W_L ⋯ W_1. α is fixed, so the max player climbs tr(W X_α Wᵀ) with X_α = C_α[x, x]. Checks,
for every seed:

- Theorem 3: with ‖W_l‖_F = 1 the energy reaches λ_max(X_α) (computed by `torch.linalg.eigh`), W_l = v_l v_{l−1}ᵀ
  (σ₁ → 1, σ₂ → 0; the right singular vector of a layer is the left one of the layer below), v_0 the top eigenvector.
- Corollary 3: with ‖w_lk‖ = 1/√n_l for every filter k below the last layer the same holds, and v_l has entries ±1/√n_l.
- Corollary 2: with WWᵀ = I the energy is the objective of PCA, tr(W X_α Wᵀ) (`pca`).
- Remark after Theorem 3: one layer and a doubled top eigenvalue is a counterexample, a maximum of rank two.
- Lemmas 2 and 10: along the gradient flow ‖W_l‖_F is conserved below an l2-norm or a LayerNorm, ‖w_lk‖ below a
  BatchNorm; without one they are not. Lemma 7: also with ReLU or LeakyReLU between the layers.
- After Lemma 1: the unconstrained flow conserves W_l W_lᵀ − W_{l+1}ᵀ W_{l+1}.

Conventions. X_α is a mean over anchors, and of one view: anchors x1, positives x2, negatives the other x1. The energy
is tr(W X_α Wᵀ), as in the preprint; the camera-ready text has ½ of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor

from lightning_ssl.base.checks import require
from lightning_ssl.labs.deep_linear.ascent import ascend, doubled_eigenvalue, energy, initial
from lightning_ssl.labs.deep_linear.data import fixed_alpha, mean_covariance, views
from lightning_ssl.labs.deep_linear.figures import DRAWN_STEPS, draw
from lightning_ssl.labs.deep_linear.flow import (
    NORMALIZATIONS,
    REVERSIBLE,
    balance,
    gradient_flow,
    norm_drift,
    norm_growth,
)
from lightning_ssl.labs.deep_linear.pca import corollary_2
from lightning_ssl.labs.lab import Claim, Result, laboratory, per_seed, track

TOLERANCE = 1e-4


@laboratory(quick={"steps": 1000, "seeds": 5, "flow_steps": 40}, widths=2, samples=3, augmentation=0)
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
    """Check Theorem 3, Corollaries 2 and 3, Lemmas 1, 2, 7 and 10 for every seed and both constraints in one batch.

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
    require(len(widths) >= 3, "widths", widths, "three widths or more")
    x1, x2 = views(widths[0], samples, augmentation, seeds, first_seed)
    noise = per_seed(lambda g: torch.rand(samples, samples, generator=g).double(), seeds, first_seed, 1)
    fixed = fixed_alpha(x1, alpha, tau, noise)
    x_alpha = mean_covariance(x1, x2, fixed)
    start = initial(widths, seeds, first_seed)
    result = Result("deep_linear", {}, {}, [], draw=draw)
    _ascent(result, start, x_alpha, track(range(steps), "deep linear", progress), lr)
    energy_reached, second = doubled_eigenvalue(seeds, first_seed)
    result.claims += [
        Claim.near("Remark: energy / λ_max, λ_max doubled, L=1", energy_reached, 1.0, tolerance=TOLERANCE),
        Claim.at_least("Remark: σ₂ there (rank two)", second, 1e-3),
    ]
    if min(widths) == widths[-1]:  # otherwise no W(θ) has WWᵀ = I
        result.claims += corollary_2(start, x1, x2, fixed, x_alpha, min(steps, 600))
    moved = _flows(result, start, x1, x2, fixed, flow_steps, flow_ds)
    per_layer, per_filter = (result.arrays["reached"] < 1 - TOLERANCE).sum(1).tolist()
    negative = float((result.arrays["eigenvalues"] < 0).double().sum(1).mean())
    result.notes += [
        f"X_α has {negative:.1f} negative of {widths[0]} eigenvalues on average: directions the augmentation forbids",
        f"runs not within {TOLERANCE:g} of λ_max after {steps} steps: {per_layer} of {seeds} (‖W_l‖), "
        f"{per_filter} of {seeds} (‖w_lk‖)",
        f"the balance is measured while single weights move by up to {moved:.2g}",
    ]
    return result


def _ascent(result: Result, start: list[Tensor], x_alpha: Tensor, steps: Iterable[int], lr: float) -> None:
    """Climb to the maximum of every seed with ‖W_l‖_F = 1, and with ‖w_lk‖ = 1/√n_l: runs (2, seeds)."""
    eigenvalues, eigenvectors = torch.linalg.eigh(x_alpha)
    energies: list[Tensor] = []
    singular: list[Tensor] = []  # the two largest of every layer, ‖W_l‖_F = 1
    per_filter = torch.tensor([[False], [True]])
    for weights in ascend([torch.stack([w, w]) for w in start], x_alpha, per_filter, steps, lr):
        energies.append(torch.stack([energy(layers, x_alpha) for layers in zip(*weights, strict=True)]))
        if len(energies) <= DRAWN_STEPS:
            singular.append(torch.stack([torch.linalg.svdvals(w[0])[:, :2] for w in weights], 1))
    path = torch.stack(energies, 2) / eigenvalues[:, -1:]  # (2, S, T)
    svd = [torch.linalg.svd(w, full_matrices=False) for w in weights]
    left, right = [s.U[..., 0] for s in svd], [s.Vh[..., 0, :] for s in svd]
    sigma1, sigma2 = (torch.stack([s.S[..., k] for s in svd], 2) for k in (0, 1))  # (2, S, L)
    # |cos| of the singular vectors of neighbouring layers
    aligned = torch.stack([(a * b).sum(-1).abs() for a, b in zip(left[:-1], right[1:], strict=True)], 2)
    first = (right[0] * eigenvectors[..., -1]).sum(-1).abs()
    entries = torch.cat([v.abs() * v.shape[-1] ** 0.5 for v in left[:-1]], 2)  # √n_l |v_l|_k of the hidden layers
    expected = [
        ("Thm 3: energy / λ_max", path[0, :, -1], 1.0, TOLERANCE),
        ("Thm 3: smallest σ₁ of a layer", sigma1[0].amin(1), 1.0, TOLERANCE),
        ("Thm 3: largest σ₂ of a layer", sigma2[0].amax(1), 0.0, 1e-3),
        ("Thm 3: |cos(v₀, top eigenvector)|", first[0], 1.0, TOLERANCE),
        ("Thm 3: smallest alignment of layers", aligned[0].amin(1), 1.0, TOLERANCE),
        ("Cor 3: energy / λ_max", path[1, :, -1], 1.0, TOLERANCE),
        ("Cor 3: smallest √n |v_l| entry", entries[1].amin(1), 1.0, 1e-3),
        ("Cor 3: largest √n |v_l| entry", entries[1].amax(1), 1.0, 1e-3),
    ]
    result.claims += [Claim.near(name, values, paper, tolerance=within) for name, values, paper, within in expected]
    result.arrays = {
        "energy_over_lambda": path.flatten(0, 1),
        "singular_values": torch.stack(singular, 1),
        "eigenvalues": eigenvalues,
        "reached": path[..., -1],
        "sigma1": sigma1.flatten(0, 1),
        "sigma2": sigma2.flatten(0, 1),
        "entries_filter": entries[1],
        "entries_layer": entries[0],
    }


def _flows(result: Result, start: list[Tensor], x1: Tensor, x2: Tensor, alpha: Tensor, steps: int, ds: float) -> float:
    """The conservation laws. Returns the largest movement of a weight without normalization."""
    # ‖W_l‖²_F = n_l, so that outputs are of the inputs' size and the normalizations are not stiff.
    scaled = [w * w.shape[1] ** 0.5 for w in start]
    paths = {n: gradient_flow(scaled, x1, x2, alpha, n, steps, ds) for n in NORMALIZATIONS}
    drift = torch.stack([norm_drift(path, n) for n, path in paths.items()])  # (normalizations, T, seeds)
    path = paths["none"]
    imbalance = (balance(path[-1]) - balance(path[0])).abs().amax(1)
    result.arrays["norm_drift"] = drift
    result.claims += [
        Claim.at_least("no normalization: change of ‖W‖²", drift[0, -1], 1e-3),
        Claim.at_most("Lemma 2: change of ‖W‖² below l2", drift[1, -1], 1e-6),
        Claim.at_most("Lemma 2: change of ‖W‖² below LayerNorm", drift[2, -1], 1e-6),
        Claim.at_most("Lemma 10: change of ‖w_k‖² below BatchNorm", drift[3, -1], 1e-6),
        Claim.at_most("Lemma 1: change of the balance of layers", imbalance, 1e-6),
    ]
    below = {"l2": "Lemma 7: l2", "layer": "Lemma 7: LayerNorm", "batch": "Lemma 10: BatchNorm"}
    for activation, h in REVERSIBLE.items():
        for normalization, label in below.items():
            name = f"{label} and {activation}, relative d/dt of squared norms"
            growth = norm_growth(scaled, x1, x2, alpha, normalization, h)
            # A narrow ReLU network can map a sample to zero, where l2-norm and LayerNorm are not defined.
            defined = growth[growth.isfinite()]
            if len(defined) < len(growth):
                result.notes.append(f"{name}: {len(growth) - len(defined)} seeds left out, a sample has no output")
            if len(defined):
                result.claims.append(Claim.at_most(name, defined, 1e-10))
    growth = norm_growth(scaled, x1, x2, alpha, "none", torch.relu).mean()
    result.claims.append(Claim.at_least("no normalization, ReLU: the same, mean", growth, 1e-3))
    return max(float((a - b).abs().max()) for a, b in zip(path[0], path[-1], strict=True))
