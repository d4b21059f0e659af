"""The figure of a reproduction: the accuracy during training, and the difference of each claim with its interval."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lightning_ssl.app.report.figures import mean_curve
from lightning_ssl.app.reproduce.results import PROBE, Table
from lightning_ssl.app.reproduce.verdicts import Judgement
from lightning_ssl.app.runs.panels import RESULTS
from lightning_ssl.base.palette import BLACK, BLUE, VERMILION, line_style, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"holds": BLUE, "contradicted": VERMILION, "not decided": "0.55"}
LABEL_WIDTH = 52  # characters of a line of a claim
LINEAR = 2.0  # differences up to this many points are on a linear scale, larger ones on a logarithmic one


def draw(table: Table) -> bytes:
    """The figure as PNG."""
    height = max(3.6, 0.36 * len(table.judgements) + 1.2)
    figure, (curves, claims) = panels(1, 2, (13, height))
    draw_curves(curves, table)
    draw_claims(claims, table.judgements, several=len(table.work.data) > 1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Glyph.*missing from.*")
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=150)
    return content.getvalue()


def draw_curves(axes: Axes, table: Table) -> None:
    """The online probe by share of the training: mean and standard deviation over seeds."""
    data = next((name for name in table.work.data if any(each.data == name for each in table.measured)), "")
    for k, row in enumerate(table.reproduction.rows.values()):
        runs = [each.run for each in table.measured if each.row is row and each.data == data and each.run.finished]
        curve = mean_curve([run.curve(PROBE) for run in runs], RESULTS["probe"])
        if curve is None:
            continue
        colour, style = line_style(k)
        share = 100 * curve.epochs / curve.epochs[-1]
        axes.plot(share, curve.mean, color=colour, linestyle=style, marker="o", markersize=3, label=row.title)
        if curve.spread is not None:
            low, high = curve.mean - curve.spread, curve.mean + curve.spread
            axes.fill_between(share, low, high, color=colour, alpha=0.12, linewidth=0)
    axes.set_xlabel("share of the training (%)")
    axes.set_ylabel(f"{PROBE} (%)")
    axes.set_title(f"{data}: mean and standard deviation over seeds", fontsize=10)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(handlelength=3, fontsize=7, frameon=False, loc="lower right")


def draw_claims(axes: Axes, judgements: Sequence[Judgement], several: bool) -> None:
    """One line per claim: our difference with its interval, the published difference, and the margin."""
    titles, colours = [], []
    shown: list[float] = []  # the differences and the ends of their intervals
    for k, j in enumerate(judgements):
        y = len(judgements) - 1 - k
        colours.append(COLOURS[j.verdict])
        where = f" ({j.data})" if several else ""
        titles.append("\n".join(textwrap.wrap(f"{j.claim.text}{where}, {j.claim.at}", LABEL_WIDTH)))
        m = j.claim.margin
        ranges = {"above": (m, 1e3), "below": (-1e3, -m), "equal": (-m, m), "not below": (-m, 1e3)}
        left, right = ranges[j.claim.relation]
        axes.fill_betweenx([y - 0.38, y + 0.38], left, right, color="0.93", linewidth=0, zorder=0)
        if j.difference is not None:
            half = 0.0 if j.decision.high is None else j.decision.high - j.difference
            shown += [j.difference - half, j.difference + half]
            face = colours[-1] if j.kind == "primary" else "white"
            axes.errorbar(
                j.difference, y, xerr=half, fmt="o", color=colours[-1], markerfacecolor=face, markersize=6, elinewidth=2
            )
        if j.published is not None:
            published = j.published[0] - j.published[1]
            axes.plot(published, y, "D", color=BLACK, markerfacecolor="none", markersize=6, zorder=4)
            shown.append(published)
    axes.axvline(0, color="0.6", linewidth=0.8)
    axes.set_xscale("symlog", linthresh=LINEAR, linscale=0.8)
    limit = max([LINEAR, *map(abs, shown)]) * 1.3
    axes.set_xlim(-limit, limit)
    ticks = [t for t in (1, 2, 5, 20, 50) if t <= limit]
    axes.set_xticks([-t for t in reversed(ticks)] + [0, *ticks])
    axes.set_xticklabels([f"−{t}" for t in reversed(ticks)] + ["0", *(f"+{t}" for t in ticks)], fontsize=8)
    axes.minorticks_off()
    axes.set_ylim(-0.6, len(judgements) - 0.4)
    axes.set_yticks(range(len(judgements)), titles[::-1], fontsize=7.5)
    for label, colour in zip(axes.get_yticklabels(), colours[::-1], strict=True):
        label.set_color(colour if colour != COLOURS["not decided"] else "0.35")
    axes.set_xlabel("difference in points (grey area: claimed)\n● primary, ○ secondary, ◇ published", fontsize=9)
    axes.set_title("blue: holds, red: contradicted, grey: not decided", fontsize=10)
