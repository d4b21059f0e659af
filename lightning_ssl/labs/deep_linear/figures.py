"""The figure: energy, singular values, conserved norms and the entries of the singular vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lightning_ssl.base.palette import marked_line
from lightning_ssl.labs.deep_linear.flow import NORMALIZATIONS
from lightning_ssl.labs.lab import PALETTE, Result, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DRAWN_STEPS = 150


def draw(result: Result) -> Figure:
    """Draw the four panels."""
    figure, (energy, values, conserved, histogram) = panels(2, 2, (11, 8))
    arrays, settings = result.arrays, result.settings
    _draw_energy(energy, arrays["energy_over_lambda"][:, :DRAWN_STEPS], settings["seeds"])
    _draw_singular_values(values, arrays["singular_values"].mean(0))
    _draw_conserved_norms(conserved, arrays["norm_drift"], settings["flow_ds"])
    _draw_entries(histogram, arrays["entries_layer"], arrays["entries_filter"])
    return figure


def _draw_energy(ax: Axes, trajectories: Tensor, seeds: int) -> None:
    for c, label in enumerate(("‖W_l‖ = 1 (Theorem 3)", "‖w_lk‖ = 1/√n (Corollary 3)")):
        lines = ax.plot(trajectories[c * seeds : (c + 1) * seeds].T.numpy(), color=PALETTE[c], alpha=0.5, linewidth=1)
        lines[0].set_label(label)
    ax.axhline(1, color="0.3", linestyle=":", linewidth=1)
    ax.set(title="Energy climbs to the top eigenvalue", xlabel="step", ylabel="tr(W X_α Wᵀ) / λ_max")
    ax.legend(frameon=False)


def _draw_singular_values(ax: Axes, values: Tensor) -> None:
    """Values (T, L, 2)."""
    steps = torch.arange(values.shape[0])
    for layer in range(values.shape[1]):
        ax.plot(steps, values[:, layer, 0], label=f"W{layer + 1}", **marked_line(layer))
        ax.plot(steps, values[:, layer, 1], linestyle="--", **marked_line(layer))
    ax.set(
        title="Every layer becomes rank one\n(solid: σ₁, dashed: σ₂; mean over seeds)",
        xlabel="step",
        ylabel="singular value",
    )
    ax.legend(frameon=False, ncols=2)


def _draw_conserved_norms(ax: Axes, drift: Tensor, ds: float) -> None:
    """Drift (normalizations, T, seeds)."""
    time = torch.arange(drift.shape[1]) * ds
    for n, label in enumerate(NORMALIZATIONS.values()):
        ax.plot(time[1:], drift[n, 1:].amax(1), color=PALETTE[n], label=label)
    ax.set(
        title="Normalization conserves the norms below it",
        xlabel="time of the gradient flow, in units of its first speed",
        ylabel="largest change of a squared norm",
        yscale="log",
    )
    ax.legend(frameon=False)


def _draw_entries(ax: Axes, per_layer: Tensor, per_filter: Tensor) -> None:
    bins = torch.linspace(-0.025, 2.975, 61).tolist()
    for k, (entries, label) in enumerate(((per_layer, "‖W_l‖ = 1"), (per_filter, "‖w_lk‖ = 1/√n"))):
        ax.hist(entries.flatten().numpy(), bins, color=PALETTE[k], alpha=0.7, density=True, label=label)
    ax.set(
        title="Per-filter norms leave only entries ±1/√n",
        xlabel="√n |entry of v_l|, hidden layers",
        ylabel="density",
        yscale="log",
    )
    ax.legend(frameon=False)
