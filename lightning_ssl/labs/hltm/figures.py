"""The figure: correlations and operator norms in training, and the cells of Table 6 against ours."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch

from lightning_ssl.base.palette import marked_line, panels
from lightning_ssl.comparison.claims import OUTCOMES
from lightning_ssl.labs.hltm.claims import PAPER_WIDTHS, norms_of_other_depths, paper_cells
from lightning_ssl.labs.hltm.lucky import FIGURE_C, FIGURE_GAMMA, r_hat_limit
from lightning_ssl.labs.lab import PALETTE, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The line style of each (width, δ), by position in the settings.
Styles = dict[tuple[int, int], dict[str, Any]]


def draw(result: Result) -> Figure:
    """Draw correlations above, operator norms and the agreement with Table 6 below."""
    from matplotlib.lines import Line2D

    settings, epochs, norm = result.settings, len(result.arrays["correlation"]) - 1, result.arrays["operator_norm"]
    latents, operators, widths, deltas = (settings[k] for k in ("latents", "operators", "widths", "delta_lower"))
    columns = max(len(latents), len(operators)) + 1
    figure, axes = panels(2, columns, (3.3 * columns, 6.8))
    upper, lower = axes[:columns], axes[columns:]
    order = sorted(range(len(widths)), key=lambda w: -widths[w])
    lines = zip(order, itertools.cycle(("-", (0, (4, 2)), ":", "-.")), strict=False)
    styles: Styles = {
        (w, d): {"linestyle": line, "linewidth": 1.6, **marked_line(d)} for w, line in lines for d in range(len(deltas))
    }
    for n in range(len(latents)):
        _draw_correlation(result, upper[n], n, styles)
    for k in range(len(operators)):
        _draw_operator(result, lower[k], k, styles)
    _draw_lucky(result, upper[len(latents)])
    _draw_agreement(result, lower[len(operators)])
    for ax in [*upper[len(latents) + 1 :], *lower[len(operators) + 1 :]]:
        ax.set_visible(False)
    upper[0].set_ylabel("best |corr(z, f̃)|, mean of the trials")
    lower[0].set_ylabel("‖OP‖, median of the trials")
    handles = [Line2D([], [], **marked_line(d), label=f"ρ ~ U[{delta:g}, 1]") for d, delta in enumerate(deltas)]
    handles += [Line2D([], [], **{**styles[w, 0], "color": "0.2"}, label=f"|N| = {widths[w]}") for w in order]
    for marker, width in zip("os", reversed(PAPER_WIDTHS), strict=True):
        label = f"paper, |N| = {width}"
        handles.append(Line2D([], [], color="0.2", marker=marker, linestyle="", fillstyle="none", label=label))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    trials = f"depth {settings['depth']}, {epochs} epochs, {settings['seeds']} trials; norms: {len(norm[0, 0, 0])}"
    figure.suptitle(f"A tree-shaped ReLU network finds the latents of its data ({trials})")
    return figure


def _draw_correlation(result: Result, ax: Axes, n: int, styles: Styles) -> None:
    settings, corr = result.settings, result.arrays["correlation"]
    name, last = settings["latents"][n], len(corr) - 1
    for (w, d), style in styles.items():
        # Epochs 0 and 1 are columns of the table. They are distinct on an axis that is logarithmic in 1 + epoch.
        ax.plot(torch.arange(last + 1) + 1, corr[:, w, d, :, n].mean(1), **style)
        delta, width = settings["delta_lower"][d], settings["widths"][w]
        cells = paper_cells(name, delta, width) if settings["depth"] == 5 else {}
        if cells:
            marker, mean = "so"[PAPER_WIDTHS.index(width)], [cell[0] for cell in cells.values()]
            ax.plot([1, 2, 51], mean, marker, color=style["color"], fillstyle="none", markersize=7)
    ticks = (0, 1, 5, 20, 50) if last <= 60 else (0, 1, 10, 100, last)
    ax.set(title=f"latent {name}", xlabel="epoch", ylim=(0.2, 1.02), xscale="log")
    ax.set_xticks([k + 1 for k in ticks], [str(k) for k in ticks])
    ax.minorticks_off()


def _draw_operator(result: Result, ax: Axes, k: int, styles: Styles) -> None:
    settings, norm = result.settings, result.arrays["operator_norm"][..., k].median(3).values  # (epochs+1, W, D)
    name, epochs = settings["operators"][k], range(len(norm))
    for (w, d), style in styles.items():
        ax.plot(epochs, norm[:, w, d].where(norm[:, w, d] > 0, torch.nan), **style)
    for depth, line in norms_of_other_depths(name, result.arrays, settings).items():
        ax.plot(epochs, line, color="0.5", linewidth=1)
        ax.annotate(f"L = {depth}", (len(norm) - 1, float(line[-1])), fontsize=8, color="0.3", ha="right", va="bottom")
    ax.set(title=f"operator at {name}", xlabel="epoch", yscale="log")


def _draw_lucky(result: Result, ax: Axes) -> None:
    """Figure 11: log 1/R̂ between its bounds (Eqn. 124), and the curve that it approaches (Eqn. 126)."""
    limit = r_hat_limit(FIGURE_C[:, None], FIGURE_GAMMA)
    for k, gamma in enumerate(FIGURE_GAMMA.tolist()):
        if gamma == 0:
            continue  # the curve of Eqn. 126 is for γ near 1
        colour, (below, above) = PALETTE[k], (result.arrays[name][:, k] for name in ("r_hat_below", "r_hat_above"))
        ax.fill_between(FIGURE_C, -above.log(), -below.log(), color=colour, alpha=0.3, label=f"γ = {gamma:g}")
        ax.plot(FIGURE_C, -limit[:, k].log(), color=colour, linewidth=1)
    ax.set(title="R̂ of Theorem 5 (Figure 11)", xlabel="c", ylabel="log 1/R̂", xscale="log", ylim=(-3, 12))


def _draw_agreement(result: Result, ax: Axes) -> None:
    cells = [claim for claim in result.claims if claim.paper_std is not None]
    for outcome, colour in zip(OUTCOMES, PALETTE, strict=False):
        points = [(claim.paper, claim.ours) for claim in cells if claim.outcome == outcome]
        paper, ours = ([point[k] for point in points] for k in (0, 1))
        ax.plot(paper, ours, "o", color=colour, markersize=4, alpha=0.7, label=f"{outcome}: {len(points)}")
    ax.axline((1, 1), slope=1, color="0.6", linewidth=1)
    ax.set(title="cells of Table 6", xlabel="paper", ylabel="ours", xlim=(0.2, 1.02), ylim=(0.2, 1.02))
