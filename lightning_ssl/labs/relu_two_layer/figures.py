"""The figure: sticky weights, the kept mode, ranks, the border of the augmentation, and one example."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lightning_ssl.base.palette import BLACK, line_style, panels
from lightning_ssl.labs.lab import PALETTE, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(result: Result) -> Figure:
    """Draw the six panels."""
    figure, (sticky, kept, ranks, border, lower, upper) = panels(2, 3, (14, 8))
    arrays, hidden, modes = result.arrays, result.settings["hidden"], result.settings["modes"]
    strengths, rank = result.settings["augmentation"], arrays["rank"]
    highest, width = int(rank.max()), 0.8 / len(hidden)
    for k, nodes in enumerate(hidden):
        colour, line = line_style(k)
        alive = arrays["alive"][:, k].double().mean((0, 1)) / (nodes * modes)
        sticky.plot(arrays["recorded_at"] + 1, alive, line, color=colour, label=f"K = {nodes}")
        share = torch.bincount(rank[-1, k], minlength=highest + 1).double()[1:] / rank.shape[2]
        place = torch.arange(1, highest + 1) + (k - (len(hidden) - 1) / 2) * width
        bars = ranks.bar(place.tolist(), share.tolist(), width, color=colour, label=f"K = {nodes}")
        if line != "-":  # a repeated colour has an edge
            for bar in bars:
                bar.set(edgecolor=BLACK, linestyle=line)
        several = (rank[:, k] > 1).double().mean(1)
        border.plot(strengths, several, "o" + line, color=colour, label=f"rank > 1, K = {nodes}")
    border.plot(strengths, (arrays["lam_min"] < 0).double().mean(1), "k:", label="λ_min(X_α) < 0")
    sticky.set(title="Weights that reach zero stay there (Thm 4)", xlabel="step", ylabel="share of W₁ above zero")
    sticky.set(xscale="log", ylim=(0, 1.02))
    ranks.set(title=f"Ranks at the end (Thm 6), augmentation {strengths[-1]:g}", xlabel="rank of W₁")
    ranks.set(ylabel="share of seeds")
    ranks.set_xticks(range(1, highest + 1))
    border.set(title="Several modes need strong augmentation", xlabel="augmentation (log-scale jitter)")
    border.set(ylabel="share of seeds", ylim=(-0.03, 1.03))

    places = arrays["kept_place"][:, 0].flatten()
    counts = torch.bincount(places, minlength=modes).double() / len(places)
    kept.bar(range(1, modes + 1), counts.tolist(), color=PALETTE[0])
    kept.set(title=f"The mode that K = {hidden[0]} keeps (Thm 5)", ylabel="share of runs")
    kept.set(xlabel="place of the kept mode by X_mm, 1 = largest")
    for ax, name, title, label in (
        (lower, "example_w1", "One end: W₁", "mode"),
        (upper, "example_w2_gram", "The same end: W₂ᵀW₂", "hidden node"),
    ):
        limit = float(arrays[name].abs().max())
        image = ax.imshow(arrays[name].numpy(), cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto")
        figure.colorbar(image, ax=ax)
        ax.grid(False)
        ax.locator_params(integer=True)
        ax.set(title=title, ylabel="hidden node", xlabel=label)
    return figure
