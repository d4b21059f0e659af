"""The figure: sticky weights, the kept mode, ranks, the border of the augmentation, and one example."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lightning_ssl.base.palette import BLACK, line_style
from lightning_ssl.labs.lab import PALETTE, Result, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(result: Result) -> Figure:
    """Draw the six panels."""
    figure, (sticky, kept, ranks, border, lower, upper) = panels(2, 3, (14, 8))
    arrays, hidden, modes = result.arrays, result.settings["hidden"], result.settings["modes"]
    strengths = result.settings["augmentation"]
    _draw_sticky(sticky, arrays, hidden, modes)
    _draw_kept_mode(kept, arrays["kept_place"][:, 0].flatten(), hidden[0], modes)
    _draw_ranks(ranks, arrays["rank"][-1], hidden, strengths[-1], highest=int(arrays["rank"].max()))
    _draw_border(border, arrays, hidden, strengths)
    for ax, name, title in (
        (lower, "example_w1", "One end: W₁"),
        (upper, "example_w2_gram", "The same end: W₂ᵀW₂"),
    ):
        values = arrays[name]
        limit = float(values.abs().max())
        image = ax.imshow(values.numpy(), cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto")
        figure.colorbar(image, ax=ax)
        ax.grid(False)
        ax.locator_params(integer=True)
        ax.set(title=title, ylabel="hidden node", xlabel="mode" if name == "example_w1" else "hidden node")
    return figure


def _draw_sticky(ax: Axes, arrays: dict[str, Tensor], hidden: tuple[int, ...], modes: int) -> None:
    for k, nodes in enumerate(hidden):
        share = arrays["alive"][:, k].double().mean((0, 1)) / (nodes * modes)
        colour, line = line_style(k)
        ax.plot(arrays["recorded_at"] + 1, share, line, color=colour, label=f"K = {nodes}")
    ax.set(title="Weights that reach zero stay there (Thm 4)", xlabel="step", ylabel="share of W₁ above zero")
    ax.set(xscale="log", ylim=(0, 1.02))
    ax.legend(frameon=False)


def _draw_kept_mode(ax: Axes, places: Tensor, nodes: int, modes: int) -> None:
    counts = torch.bincount(places, minlength=modes).double() / len(places)
    ax.bar(range(1, modes + 1), counts.tolist(), color=PALETTE[0])
    ax.set(title=f"The mode that K = {nodes} keeps (Thm 5)", ylabel="share of runs")
    ax.set(xlabel="place of the kept mode by X_mm, 1 = largest")


def _draw_ranks(ax: Axes, rank: Tensor, hidden: tuple[int, ...], strength: float, highest: int) -> None:
    width = 0.8 / len(hidden)
    for k, nodes in enumerate(hidden):
        share = torch.bincount(rank[k], minlength=highest + 1).double()[1:] / rank.shape[1]
        place = torch.arange(1, highest + 1) + (k - (len(hidden) - 1) / 2) * width
        colour, line = line_style(k)
        bars = ax.bar(place.tolist(), share.tolist(), width, color=colour, label=f"K = {nodes}")
        if line != "-":  # a repeated colour has an edge
            for bar in bars:
                bar.set(edgecolor=BLACK, linestyle=line)
    ax.set(title=f"Ranks at the end (Thm 6), augmentation {strength:g}", xlabel="rank of W₁")
    ax.set(ylabel="share of seeds")
    ax.set_xticks(range(1, highest + 1))
    ax.legend(frameon=False)


def _draw_border(ax: Axes, arrays: dict[str, Tensor], hidden: tuple[int, ...], strengths: tuple[float, ...]) -> None:
    for k, nodes in enumerate(hidden):
        share = (arrays["rank"][:, k] > 1).double().mean(1)
        colour, line = line_style(k)
        ax.plot(strengths, share, "o" + line, color=colour, label=f"rank > 1, K = {nodes}")
    ax.plot(strengths, (arrays["lam_min"] < 0).double().mean(1), "k:", label="λ_min(X_α) < 0")
    ax.set(title="Several modes need strong augmentation", xlabel="augmentation (log-scale jitter)")
    ax.set(ylabel="share of seeds", ylim=(-0.03, 1.03))
    ax.legend(frameon=False)
