"""The figure of a reproduction: the accuracy during training, and the difference of each claim with its interval."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lightning_ssl.app.reproduce.results import PROBE, Measured, Table
from lightning_ssl.app.reproduce.verdicts import Judgement
from lightning_ssl.base.palette import BLACK, BLUE, VERMILION, line_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"holds": BLUE, "does not hold": VERMILION, "not decided": "0.55"}
LABEL_WIDTH = 52  # characters of a line of a claim
LINEAR = 2.0  # differences up to this many points are on a linear scale, larger ones on a logarithmic one


def draw(table: Table) -> bytes:
    """The figure as PNG."""
    from matplotlib.figure import Figure

    height = max(3.6, 0.36 * len(table.judgements) + 1.2)
    figure = Figure(figsize=(13, height), layout="constrained")
    curves, claims = figure.subplots(1, 2, width_ratios=(1, 1.15))
    draw_curves(curves, table)
    draw_claims(claims, table.judgements, several=len(table.work.data) > 1)
    for axes in (curves, claims):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Glyph.*missing from.*")
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=150)
    return content.getvalue()


def draw_curves(axes: Axes, table: Table) -> None:
    """The mean of the online probe over seeds by share of the training, with the range of the seeds."""
    data = next((name for name in table.work.data if any(each.data == name for each in table.measured)), "")
    for k, row in enumerate(table.reproduction.rows.values()):
        runs = [each for each in table.measured if each.row is row and each.data == data and each.run.finished]
        curve = mean_curve(runs)
        if curve is None:
            continue
        colour, style = line_style(k)
        share, low, mean, high = curve
        axes.plot(share, mean, color=colour, linestyle=style, marker="o", markersize=3, label=row.title)
        axes.fill_between(share, low, high, color=colour, alpha=0.12, linewidth=0)
    axes.set_xlabel("share of the training (%)")
    axes.set_ylabel(f"{PROBE} (%)")
    axes.set_title(f"{data}: mean and range over seeds", fontsize=10)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(handlelength=3, fontsize=7, frameon=False, loc="lower right")


def mean_curve(runs: Sequence[Measured]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """Share of the training in percent, then lowest, mean and highest accuracy of the runs with the same epochs."""
    found = [(each.run.curve(PROBE), each.run.settings.get("trainer.max_epochs")) for each in runs]
    curves = [(curve, int(epochs)) for curve, epochs in found if curve is not None and isinstance(epochs, int)]
    same = [curve for curve, _ in curves if np.array_equal(curve[0], curves[0][0][0])]
    if not same:
        return None
    values = 100 * np.stack([curve[1] for curve in same])
    return 100 * same[0][0] / curves[0][1], values.min(0), values.mean(0), values.max(0)


def draw_claims(axes: Axes, judgements: Sequence[Judgement], several: bool) -> None:
    """One line per claim: our difference with its interval, the published difference, and the margin."""
    titles, colours = [], []
    for k, j in enumerate(judgements):
        y = len(judgements) - 1 - k
        colours.append(COLOURS[j.verdict])
        where = f" ({j.data})" if several else ""
        titles.append("\n".join(textwrap.wrap(f"{j.claim.text}{where}, {j.claim.at}", LABEL_WIDTH)))
        m = j.claim.margin
        left, right = {"above": (m, 1e3), "below": (-1e3, -m), "equal": (-m, m)}[j.claim.relation]
        axes.fill_betweenx([y - 0.38, y + 0.38], left, right, color="0.93", linewidth=0, zorder=0)
        c = j.comparison
        if c is not None:
            axes.plot(c.difference, y, "o", color=colours[-1], markersize=6, zorder=3)
            if c.low is not None and c.high is not None:
                axes.plot([c.low, c.high], [y, y], color=colours[-1], linewidth=2, zorder=2)
        if j.published is not None:
            axes.plot(j.published, y, "D", color=BLACK, markerfacecolor="none", markersize=6, zorder=4)
    axes.axvline(0, color="0.6", linewidth=0.8)
    axes.set_xscale("symlog", linthresh=LINEAR, linscale=0.8)
    limit = max([LINEAR, *(abs(x) for j in judgements for x in extent(j))]) * 1.3
    axes.set_xlim(-limit, limit)
    ticks = [t for t in (1, 2, 5, 20, 50) if t <= limit]
    axes.set_xticks([-t for t in reversed(ticks)] + [0, *ticks])
    axes.set_xticklabels([f"−{t}" for t in reversed(ticks)] + ["0", *(f"+{t}" for t in ticks)], fontsize=8)
    axes.minorticks_off()
    axes.set_ylim(-0.6, len(judgements) - 0.4)
    axes.set_yticks(range(len(judgements)), titles[::-1], fontsize=7.5)
    for label, colour in zip(axes.get_yticklabels(), colours[::-1], strict=True):
        label.set_color(colour if colour != COLOURS["not decided"] else "0.35")
    axes.set_xlabel("difference in points (◇ published, grey area: claimed)", fontsize=9)
    axes.set_title("blue: holds, red: does not hold, grey: not decided", fontsize=10)


def extent(judgement: Judgement) -> list[float]:
    c = judgement.comparison
    found = [judgement.published, *((c.difference, c.low, c.high) if c is not None else ())]
    return [x for x in found if x is not None]
