"""The figure: energy, singular values, conserved norms and the entries of the singular vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lightning_ssl.base.palette import marked_line, panels
from lightning_ssl.labs.deep_linear.flow import NORMALIZATIONS
from lightning_ssl.labs.lab import PALETTE, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN_STEPS = 150
CONSTRAINTS = {"‖W_l‖ = 1": "Theorem 3", "‖w_lk‖ = 1/√n": "Corollary 3"}


def draw(result: Result) -> Figure:
    """Draw the four panels."""
    figure, (energy, values, conserved, histogram) = panels(2, 2, (11, 8))
    arrays, ds = result.arrays, result.settings["flow_ds"]
    paths = arrays["energy_over_lambda"][:, :DRAWN_STEPS].chunk(2)
    entries = arrays["entries_layer"], arrays["entries_filter"]
    bins = torch.linspace(-0.025, 2.975, 61).tolist()
    for c, (constraint, source) in enumerate(CONSTRAINTS.items()):
        lines = energy.plot(paths[c].T.numpy(), color=PALETTE[c], alpha=0.5, linewidth=1)
        lines[0].set_label(f"{constraint} ({source})")
        histogram.hist(entries[c].flatten().numpy(), bins, color=PALETTE[c], alpha=0.7, density=True, label=constraint)
    energy.axhline(1, color="0.3", linestyle=":", linewidth=1)
    energy.set(title="Energy climbs to the top eigenvalue", xlabel="step", ylabel="tr(W X_α Wᵀ) / λ_max")
    histogram.set(title="Per-filter norms leave only entries ±1/√n", yscale="log")
    histogram.set(xlabel="√n |entry of v_l|, hidden layers", ylabel="density")

    singular = arrays["singular_values"].mean(0)  # (T, L, 2)
    for layer in range(singular.shape[1]):
        values.plot(range(len(singular)), singular[:, layer, 0], label=f"W{layer + 1}", **marked_line(layer))
        values.plot(range(len(singular)), singular[:, layer, 1], linestyle="--", **marked_line(layer))
    values.set(title="Every layer becomes rank one\n(solid: σ₁, dashed: σ₂; mean over seeds)")
    values.set(xlabel="step", ylabel="singular value")

    drift = arrays["norm_drift"]  # (normalizations, T, seeds)
    time = torch.arange(drift.shape[1]) * ds
    for n, label in enumerate(NORMALIZATIONS.values()):
        conserved.plot(time[1:], drift[n, 1:].amax(1), color=PALETTE[n], label=label)
    conserved.set(title="Normalization conserves the norms below it", yscale="log")
    conserved.set(xlabel="time of the gradient flow, in units of its first speed")
    conserved.set(ylabel="largest change of a squared norm")
    values.legend(frameon=False, ncols=2)
    return figure
