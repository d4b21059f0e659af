"""The figure: the gap between the two paths, and both players along the q axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lightning_ssl.base.palette import line_style, panels
from lightning_ssl.labs.lab import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(result: Result) -> Figure:
    """Draw the gap of the paths, and energy, entropy, zeros, distances and loss along the q axis."""
    import matplotlib

    fig, (gap, energy, entropy, zeros, nearest, loss) = panels(2, 3, (15, 8.4))
    a, q = result.arrays, result.settings["q"]
    steps = torch.arange(1, a["gap_path"].shape[1])
    for k, name in enumerate(result.settings["losses"]):
        colour, line = line_style(k)
        gap.plot(steps, a["gap_path"][k, 1:].clamp_min(1e-17), line, color=colour, label=name)
    gap.plot(steps, a["propagated_path"][0, 1:], "k--", label="propagating through α")
    gap.axhline(1e-6, color="0.5", linestyle=":")
    gap.set(title="Coordinate-wise steps against descent on the loss", xlabel="step", ylabel="largest gap of a weight")
    gap.set_yscale("log")
    gap.legend(frameon=False, fontsize=8, loc=(0.55, 0.2))
    colours = matplotlib.colormaps["cividis"](torch.linspace(0, 0.95, len(q)).numpy())
    axes = [
        (energy, "energy", "The max player's energy E_α", "E_α"),
        (entropy, "entropy", "The min player's choice: entropy of α", "row entropy / log K"),
        (zeros, "zeros", "Pairs the min player ignores", "share of zero weights"),
        (nearest, "nearest", "Distance to the nearest negative", "mean nearest d²"),
        (loss, "loss", "The loss that is descended, from its start", "L_r(θ_t) − L_r(θ_0)"),
    ]
    time = torch.arange(a["energy"].shape[2])
    for ax, name, title, label in axes:
        for k, e in enumerate(q):
            value = a[name][k].mean(0)
            value = value - value[0] if name == "loss" else value
            ax.plot(time, value, color=colours[k], label=f"q = {e:g}")
        ax.set(title=title, xlabel="step", ylabel=label)
    energy.legend(frameon=False, ncols=2, fontsize=8)
    return fig
