"""A deep linear network under fixed α is PCA: every layer ends rank one, aligned, at λ_max(X_α).

Source: "Understanding Deep Contrastive Learning via Coordinate-wise Optimization", Lemmas 1, 2 and 10,
Theorem 3, Corollary 3, Figure 2. The network is z = W x, W = W_L ⋯ W_1, and α is held fixed, so that the max player
climbs tr(W X_α Wᵀ) with X_α = C_α[x, x]. What is checked, for every seed:

- Theorem 3: with ‖W_l‖_F = 1 the energy reaches λ_max(X_α) (`torch.linalg.eigh` is the judge), W_l = v_l v_{l−1}ᵀ
  (σ₁ → 1, σ₂ → 0; the right singular vector of a layer is the left one of the layer below), v_0 the top eigenvector.
- Corollary 3: with ‖w_lk‖ = 1/√n_l for every filter k below the last layer the same holds, and v_l has entries ±1/√n_l.
- Remark after Theorem 3: one layer and a doubled top eigenvalue is a counterexample, a maximum of rank two.
- Lemmas 2 and 10: along the gradient flow ‖W_l‖_F is conserved below an l2-norm or a LayerNorm, ‖w_lk‖ below a
  BatchNorm; without one they are not. After Lemma 1: the unconstrained flow conserves W_l W_lᵀ − W_{l+1}ᵀ W_{l+1}.

Conventions. X_α is a mean over anchors, and of one view: anchors x1, positives x2, negatives the other x1. The energy
is tr(W X_α Wᵀ), as in the preprint; the camera-ready text has ½ of it.

What the paper leaves open, and what was taken. Figure 2 gives no widths, data, α or step size. At a random start with
‖W_l‖_F = 1 the gradient of a product of five layers is tiny, so plain steps wait long on a plateau. Here each run
divides its step by its largest ‖∂E/∂W_l‖_F: the path of the gradient flow with another clock. α is a knob.

Found. Every one of the paper's statements holds for every seed and all three α. The layers become rank one and aligned
within about a hundred steps of lr 0.1; v_0 arrives last, at the speed of power iteration, so a small gap between the
two top eigenvalues of X_α decides how many steps a seed needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from lightning_ssl.checks import require, require_positive
from lightning_ssl.labs.lab import PALETTE, Claim, Result, panels, per_seed, track
from lightning_ssl.losses.energy import contrastive_covariance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONSTRAINTS = ("layer", "filter")
DRAWN_STEPS = 150
NORMALIZATIONS = ("none", "l2", "layer", "batch")


def mean_covariance(x1: Tensor, x2: Tensor, alpha: Tensor) -> Tensor:
    """X_α = C_α[x, x] / N for every run: x1, x2 (R, N, n), alpha (R, N, N) → (R, n, n)."""
    return contrastive_covariance(x1, x1, alpha, x2, x2) / x1.shape[1]


def fixed_alpha(x1: Tensor, kind: str, tau: float, noise: Tensor) -> Tensor:
    """A fixed importance with rows of sum 1 and zero diagonal: (R, N, n) → (R, N, N).

    uniform: 1/(N−1); entropy: softmax_j(−½‖x_i − x_j‖²/τ) of the inputs; random: `noise` over its row sums.
    """
    n_anchors = x1.shape[1]
    itself = torch.eye(n_anchors, dtype=torch.bool)
    if kind == "entropy":
        d2 = torch.cdist(x1, x1).square() / 2
        return (-d2 / tau).masked_fill(itself, -torch.inf).softmax(2)
    weight = (torch.ones_like(noise) if kind == "uniform" else noise).masked_fill(itself, 0)
    return weight / weight.sum(2, keepdim=True)


def gradients(weights: Sequence[Tensor], x_alpha: Tensor) -> list[Tensor]:
    """The ascent direction of every layer (Lemma 1), half the gradient of tr(W X_α Wᵀ).

    G_l = W_{>l}ᵀ W_{>l} W_l C_α[f_{l−1}] = W_{>l}ᵀ W X_α W_{<l}ᵀ.
    """
    below = [torch.eye(x_alpha.shape[-1], dtype=x_alpha.dtype).expand_as(x_alpha)]
    for w in weights:
        below.append(w @ below[-1])  # W_l ⋯ W_1
    signal = below[-1] @ x_alpha  # W X_α
    out: list[Tensor] = []
    for layer in range(len(weights) - 1, -1, -1):
        out.insert(0, signal @ below[layer].mT)
        signal = weights[layer].mT @ signal
    return out


def project(weights: Sequence[Tensor], per_filter: Tensor) -> list[Tensor]:
    """Back onto the constraint set: ‖W_l‖_F = 1, or ‖w_lk‖ = 1/√n_l below the last layer where `per_filter` (R,)."""
    out = []
    for layer, w in enumerate(weights):
        whole = w / w.norm(dim=(1, 2), keepdim=True)
        if layer < len(weights) - 1:
            filters = w / w.norm(dim=2, keepdim=True) / w.shape[1] ** 0.5
            whole = torch.where(per_filter[:, None, None], filters, whole)
        out.append(whole)
    return out


def ascend(
    weights: Sequence[Tensor],
    x_alpha: Tensor,
    per_filter: Tensor,
    steps: Sequence[int] | range,
    lr: float,
    record: Callable[[Sequence[Tensor]], None] | None = None,
    progress: bool = False,
) -> list[Tensor]:
    """Projected gradient ascent of tr(W X_α Wᵀ) with a per-run clock: W_l ← Π(W_l + lr·G_l / max_k ‖G_k‖_F)."""
    weights = project(weights, per_filter)
    for _ in track(steps, "deep linear", progress):
        if record is not None:
            record(weights)
        g = gradients(weights, x_alpha)
        clock = torch.stack([g_l.norm(dim=(1, 2)) for g_l in g]).amax(0).clamp_min(1e-300)  # (R,)
        rate = (lr / clock)[:, None, None]
        weights = project([w + rate * g_l for w, g_l in zip(weights, g, strict=True)], per_filter)
    return weights


def forward(x: Tensor, weights: Sequence[Tensor], normalization: str) -> Tensor:
    """The network with a normalization at its end (l2, layer) or after every layer (batch).

    (R, N, n_0) → (R, N, n_L).
    """
    f = x
    for w in weights:
        f = f @ w.mT
        if normalization == "batch":
            f = f - f.mean(1, keepdim=True)
            f = f / f.square().mean(1, keepdim=True).sqrt()
    if normalization == "l2":
        f = f / f.norm(dim=2, keepdim=True)
    if normalization == "layer":
        f = f - f.mean(2, keepdim=True)
        f = f / f.square().mean(2, keepdim=True).sqrt()
    return f


def flow_direction(
    weights: Sequence[Tensor], x1: Tensor, x2: Tensor, alpha: Tensor, normalization: str
) -> list[Tensor]:
    """The gradient of E_α of the normalized network with respect to every layer, for every run at once.

    E_α = ½ tr C_α[z, z] of the normalized outputs z.
    """
    leaves = [w.detach().requires_grad_(True) for w in weights]
    # Both views pass together: BatchNorm then uses one set of statistics, as a network that gets one batch would.
    z1, z2 = forward(torch.cat([x1, x2], 1), leaves, normalization).chunk(2, 1)
    energy = mean_covariance(z1, z2, alpha).diagonal(dim1=1, dim2=2).sum() / 2
    return list(torch.autograd.grad(energy, leaves))


def flow(
    weights: Sequence[Tensor], x1: Tensor, x2: Tensor, alpha: Tensor, normalization: str, steps: int, ds: float
) -> list[list[Tensor]]:
    """The gradient flow of the normalized network by fourth-order Runge–Kutta steps of `ds`; the weights at every step.

    dW_l/ds = G_l / v. Gradients below different normalizations differ in size by orders, so v is the run's first
    speed (Σ_k ‖G_k‖²)^½. Without normalization the flow leaves for infinity in finite time, so there v is the
    present speed and s is arc length.
    """

    def slope(at: Sequence[Tensor]) -> list[Tensor]:
        g = flow_direction(at, x1, x2, alpha, normalization)
        v = speed(g) if normalization == "none" else first_speed
        return [g_l / v for g_l in g]

    def speed(g: Sequence[Tensor]) -> Tensor:
        return torch.stack([g_l.square().sum((1, 2)) for g_l in g]).sum(0).sqrt()[:, None, None]

    def moved(by: Sequence[Tensor], h: float) -> list[Tensor]:
        return [w + h * k for w, k in zip(path[-1], by, strict=True)]

    first_speed = speed(flow_direction(weights, x1, x2, alpha, normalization))
    path = [list(weights)]
    for _ in range(steps):
        k1 = slope(path[-1])
        k2 = slope(moved(k1, ds / 2))
        k3 = slope(moved(k2, ds / 2))
        k4 = slope(moved(k3, ds))
        path.append(moved([(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True)], ds))
    return path


def doubled_eigenvalue(
    seeds: int, first_seed: int = 0, inputs: int = 6, steps: int = 200, lr: float = 0.5
) -> tuple[Tensor, Tensor]:
    """The remark's counterexample, one layer and the top eigenvalue twice: energy / λ_max (R,) and σ₂ (R,)."""
    basis = torch.linalg.qr(
        per_seed(lambda g: torch.randn(inputs, inputs, generator=g).double(), seeds, first_seed, 3)
    ).Q
    spectrum = torch.linspace(1, -0.5, inputs - 1).double()
    spectrum = torch.cat([spectrum[:1], spectrum])  # 1 appears twice
    x_alpha = basis * spectrum @ basis.mT
    start = [per_seed(lambda g: torch.randn(4, inputs, generator=g).double(), seeds, first_seed, 4)]
    (w,) = ascend(start, x_alpha, torch.zeros(seeds, dtype=torch.bool), range(steps), lr)
    return torch.einsum("rki,rij,rkj->r", w, x_alpha, w), torch.linalg.svdvals(w)[:, 1]


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
    """Theorem 3, Corollary 3, Lemmas 1, 2 and 10 for every seed and both constraints in one batch.

    widths: n_0 … n_L, the input width first; the depth L is one less than their number
    samples: anchors N from which X_α is made
    augmentation: size of the difference of the two views, relative to the data, in random directions
    alpha: the fixed importance: uniform, entropy (softmax over input distances) or random
    tau: temperature of alpha=entropy
    steps: projected gradient steps
    lr: step over the largest layer gradient of the run
    flow_steps: Runge-Kutta steps along which the conservation laws are measured
    flow_ds: their length
    seeds: runs per constraint
    first_seed: seed of the first run
    quick: seconds instead of minutes
    progress: show a progress bar
    """
    require(len(widths) >= 3 and min(widths) >= 2, "widths", widths, "three or more widths of at least 2")
    require(samples >= 3, "samples", samples, "3 or more")
    require(augmentation >= 0, "augmentation", augmentation, "0 or more")
    require(alpha in ("uniform", "entropy", "random"), "alpha", alpha, "uniform, entropy or random")
    for knob, size in (("tau", tau), ("lr", lr), ("flow_ds", flow_ds)):
        require_positive(knob, size)
    for knob, count in (("steps", steps), ("flow_steps", flow_steps), ("seeds", seeds)):
        require(count >= 1, knob, count, "1 or more")
    if quick:
        steps, seeds, flow_steps = min(steps, 1000), min(seeds, 5), min(flow_steps, 40)
    settings = {
        "widths": widths, "samples": samples, "augmentation": augmentation, "alpha": alpha, "tau": tau,
        "steps": steps, "lr": lr, "flow_steps": flow_steps, "flow_ds": flow_ds,
        "seeds": seeds, "first_seed": first_seed, "quick": quick,
    }  # fmt: skip
    x1, x2 = views(widths[0], samples, augmentation, seeds, first_seed)
    noise = per_seed(lambda g: torch.rand(samples, samples, generator=g).double(), seeds, first_seed, 1)
    fixed = fixed_alpha(x1, alpha, tau, noise)
    x_alpha = mean_covariance(x1, x2, fixed)
    eigenvalues, eigenvectors = torch.linalg.eigh(x_alpha)
    lam, u = eigenvalues[:, -1], eigenvectors[:, :, -1]
    start = initial(widths, seeds, first_seed)

    # Both constraints stand one after the other in the run dimension.
    twice = [torch.cat([w, w]) for w in start]
    per_filter = torch.arange(2 * seeds) >= seeds
    energies: list[Tensor] = []
    singular: list[Tensor] = []

    def record(weights: Sequence[Tensor]) -> None:
        product = torch.eye(widths[0], dtype=torch.float64).expand(2 * seeds, -1, -1)
        for w in weights:
            product = w @ product
        energies.append(torch.einsum("rki,rij,rkj->r", product, torch.cat([x_alpha, x_alpha]), product))
        if len(energies) <= DRAWN_STEPS:
            singular.append(torch.stack([torch.linalg.svdvals(w[:seeds])[:, :2] for w in weights], 1))

    final = ascend(twice, torch.cat([x_alpha, x_alpha]), per_filter, range(steps), lr, record, progress)
    record(final)
    reached = energies[-1] / torch.cat([lam, lam])  # (2 seeds,)
    svd = [torch.linalg.svd(w, full_matrices=False) for w in final]
    sigma1 = torch.stack([s.S[:, 0] for s in svd], 1)  # (2 seeds, L)
    sigma2 = torch.stack([s.S[:, 1] for s in svd], 1)
    left = [s.U[:, :, 0] for s in svd]
    right = [s.Vh[:, 0] for s in svd]
    aligned = torch.stack(
        [(a * b).sum(1).abs() for a, b in zip(left[:-1], right[1:], strict=True)], 1
    )  # (2 seeds, L-1)
    first = (right[0] * torch.cat([u, u])).sum(1).abs()
    entries = torch.cat([v[seeds:].abs() * v.shape[1] ** 0.5 for v in left[:-1]], 1)  # √n_l |v_l|_k
    free_entries = torch.cat([v[:seeds].abs() * v.shape[1] ** 0.5 for v in left[:-1]], 1)

    # ‖W_l‖²_F = n_l, so that outputs are of the inputs' size and the normalizations are not stiff.
    wide = [w * w.shape[1] ** 0.5 for w in start]
    paths = {n: flow(wide, x1, x2, fixed, n, flow_steps, flow_ds) for n in NORMALIZATIONS}
    drift = torch.stack([norm_drift(path, n) for n, path in paths.items()])  # (4, T, seeds)
    path = paths["none"]
    moved = max(float((a - b).abs().max()) for a, b in zip(path[0], path[-1], strict=True))
    imbalance = (balance(path[-1]) - balance(path[0])).abs().amax(1)  # (seeds,)
    doubled_energy, doubled_second = doubled_eigenvalue(seeds, first_seed)

    per, whole = slice(seeds, None), slice(0, seeds)
    tolerance = 1e-4
    claims = [
        Claim.near("Thm 3: energy / λ_max", reached[whole], 1.0, tolerance=tolerance),
        Claim.near("Thm 3: smallest σ₁ of a layer", sigma1[whole].amin(1), 1.0, tolerance=tolerance),
        Claim.near("Thm 3: largest σ₂ of a layer", sigma2[whole].amax(1), 0.0, tolerance=1e-3),
        Claim.near("Thm 3: |cos(v₀, top eigenvector)|", first[whole], 1.0, tolerance=tolerance),
        Claim.near("Thm 3: smallest alignment of layers", aligned[whole].amin(1), 1.0, tolerance=tolerance),
        Claim.near("Cor 3: energy / λ_max", reached[per], 1.0, tolerance=tolerance),
        Claim.near("Cor 3: smallest √n |v_l| entry", entries.amin(1), 1.0, tolerance=1e-3),
        Claim.near("Cor 3: largest √n |v_l| entry", entries.amax(1), 1.0, tolerance=1e-3),
        Claim.near("Remark: energy / λ_max, λ_max doubled, L=1", doubled_energy, 1.0, tolerance=tolerance),
        Claim.at_least("Remark: σ₂ there (rank two)", doubled_second, 1e-3),
        Claim.at_least("no normalization: change of ‖W‖²", drift[0, -1], 1e-3),
        Claim.at_most("Lemma 2: change of ‖W‖² below l2", drift[1, -1], 1e-6),
        Claim.at_most("Lemma 2: change of ‖W‖² below LayerNorm", drift[2, -1], 1e-6),
        Claim.at_most("Lemma 10: change of ‖w_k‖² below BatchNorm", drift[3, -1], 1e-6),
        Claim.at_most("Lemma 1: change of the balance of layers", imbalance, 1e-6),
    ]
    stuck = int((reached[whole] < 1 - tolerance).sum()), int((reached[per] < 1 - tolerance).sum())
    negative = float((eigenvalues < 0).double().sum(1).mean())
    notes = [
        f"X_α has {negative:.1f} negative of {widths[0]} eigenvalues on average: directions the augmentation forbids",
        f"runs not within {tolerance:g} of λ_max after {steps} steps: {stuck[0]} of {seeds} (‖W_l‖), "
        f"{stuck[1]} of {seeds} (‖w_lk‖)",
        f"the balance is measured while single weights move by up to {moved:.2g}",
    ]
    arrays = {
        "energy_over_lambda": torch.stack(energies, 1) / torch.cat([lam, lam])[:, None],  # (2 seeds, T)
        "singular_values": torch.stack(singular, 1),  # (seeds, T', L, 2), ‖W_l‖_F = 1
        "eigenvalues": eigenvalues, "reached": reached.view(2, seeds), "sigma1": sigma1, "sigma2": sigma2,
        "entries_filter": entries, "entries_layer": free_entries, "norm_drift": drift,
    }  # fmt: skip
    return Result("deep_linear", settings, arrays, claims, notes, _draw)


def views(inputs: int, samples: int, augmentation: float, seeds: int, first_seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two views of Gaussian data; directions differ in their spread and in how far the augmentation moves them.

    Both (seeds, samples, inputs), float64.
    """

    def draw(g: torch.Generator) -> Tensor:
        spread = 0.3 + torch.rand(inputs, generator=g).double() * 1.2
        shake = augmentation * torch.rand(inputs, generator=g).double() * 2.5
        turn = torch.linalg.qr(torch.randn(inputs, inputs, generator=g).double()).Q
        x = torch.randn(samples, inputs, generator=g).double() * spread
        e1, e2 = torch.randn(2, samples, inputs, generator=g).double() * shake
        return torch.stack([(x + e1) @ turn, (x + e2) @ turn])

    both = per_seed(draw, seeds, first_seed, 0)
    return both[:, 0], both[:, 1]


def initial(widths: Sequence[int], seeds: int, first_seed: int = 0) -> list[Tensor]:
    """Gaussian layers of unit Frobenius norm: W_l (seeds, n_l, n_{l−1})."""
    layers = []
    for layer, (n_in, n_out) in enumerate(pairwise(widths)):
        shape = (n_out, n_in)
        w = per_seed(lambda g, shape=shape: torch.randn(shape, generator=g).double(), seeds, first_seed, 10 + layer)  # type: ignore[misc]
        layers.append(w / w.norm(dim=(1, 2), keepdim=True))
    return layers


def norm_drift(path: Sequence[Sequence[Tensor]], normalization: str) -> Tensor:
    """Largest change since the start of a ‖W_l‖²_F, or of a ‖w_lk‖² below BatchNorm: (T, R)."""

    def norms(weights: Sequence[Tensor]) -> Tensor:
        if normalization == "batch":
            return torch.cat([w.square().sum(2) for w in weights], 1)
        return torch.stack([w.square().sum((1, 2)) for w in weights], 1)

    start = norms(path[0])
    return torch.stack([(norms(weights) - start).abs().amax(1) for weights in path])


def balance(weights: Sequence[Tensor]) -> Tensor:
    """W_l W_lᵀ − W_{l+1}ᵀ W_{l+1} for every pair of layers, flattened: (R, ·)."""
    return torch.cat([(low @ low.mT - high.mT @ high).flatten(1) for low, high in pairwise(weights)], 1)


def _draw(result: Result) -> Figure:
    fig, (energy, values, conserved, histogram) = panels(2, 2, (11, 8))
    a, seeds = result.arrays, result.settings["seeds"]
    trajectories = a["energy_over_lambda"][:, :DRAWN_STEPS]
    for c, name in enumerate(CONSTRAINTS):
        lines = energy.plot(
            trajectories[c * seeds : (c + 1) * seeds].T.numpy(), color=PALETTE[c], alpha=0.5, linewidth=1
        )
        lines[0].set_label({"layer": "‖W_l‖ = 1 (Theorem 3)", "filter": "‖w_lk‖ = 1/√n (Corollary 3)"}[name])
    energy.axhline(1, color="0.3", linestyle=":", linewidth=1)
    energy.set(title="Energy climbs to the top eigenvalue", xlabel="step", ylabel="tr(W X_α Wᵀ) / λ_max")
    energy.legend(frameon=False)

    s = a["singular_values"].mean(0)  # (T', L, 2)
    at = torch.arange(s.shape[0])
    for layer in range(s.shape[1]):
        values.plot(at, s[:, layer, 0], color=PALETTE[layer % 6], label=f"W{layer + 1}")
        values.plot(at, s[:, layer, 1], color=PALETTE[layer % 6], linestyle="--")
    values.set(
        title="Every layer becomes rank one\n(solid: σ₁, dashed: σ₂; mean over seeds)",
        xlabel="step",
        ylabel="singular value",
    )
    values.legend(frameon=False, ncols=2)

    names = {
        "none": "no normalization",
        "l2": "l2-norm (Lemma 2)",
        "layer": "LayerNorm (Lemma 2)",
        "batch": "BatchNorm, per filter (Lemma 10)",
    }
    time = torch.arange(a["norm_drift"].shape[1]) * result.settings["flow_ds"]
    for n, name in enumerate(NORMALIZATIONS):
        conserved.plot(time[1:], a["norm_drift"][n, 1:].amax(1), color=PALETTE[n], label=names[name])
    conserved.set(
        title="Normalization conserves the norms below it",
        xlabel="time of the gradient flow, in units of its first speed",
        ylabel="largest change of a squared norm",
        yscale="log",
    )
    conserved.legend(frameon=False)

    bins = torch.linspace(-0.025, 2.975, 61).tolist()
    histogram.hist(
        a["entries_layer"].flatten().numpy(), bins, color=PALETTE[0], alpha=0.7, density=True, label="‖W_l‖ = 1"
    )
    histogram.hist(
        a["entries_filter"].flatten().numpy(), bins, color=PALETTE[1], alpha=0.7, density=True, label="‖w_lk‖ = 1/√n"
    )
    histogram.set(
        title="Per-filter norms leave only entries ±1/√n",
        xlabel="√n |entry of v_l|, hidden layers",
        ylabel="density",
        yscale="log",
    )
    histogram.legend(frameon=False)
    return fig
