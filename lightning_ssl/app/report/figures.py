"""The mean curves of metrics by epoch, and the page's figures as PNG and SVG, drawn with matplotlib.

The colours of the groups are those of the page's figures too (figure_data.py). templates/palette.css has the other
colours of the page.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lightning_ssl.app.config.labels import SYMBOLS, Scalar, format_value
from lightning_ssl.app.report.compared import Compared
from lightning_ssl.app.report.data_sets import unique
from lightning_ssl.app.report.differences import distinct
from lightning_ssl.app.report.groups import Group, Grouping, setting_name
from lightning_ssl.app.report.groups import accuracy as final_accuracy
from lightning_ssl.app.report.verdict import Results, Row
from lightning_ssl.app.runs.metrics import Curve
from lightning_ssl.app.runs.panels import PANELS
from lightning_ssl.base.facts import Metric, Panel
from lightning_ssl.base.files import figure_files
from lightning_ssl.base.palette import panels
from lightning_ssl.comparison.spread import spread_by_epoch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORMAP = "cividis"  # accuracy in the parallel coordinates
PRINT = {"paper": "white", "axis": "0.6"}  # background and axes of the PNG and SVG files

POINTS = 250  # maximum number of points of a curve; a figure cannot show more
GROUPS_DRAWN = 8  # best groups of a data set that are drawn; on the page the reader can choose others


def draw(results: Results, folder: Path) -> dict[Path, bytes]:
    """Every figure that has data, as files of a folder."""
    written: dict[Path, bytes] = {}
    suffixes: list[str] = []
    grouping = results.grouping
    for compared in results.compared:
        data = compared.data
        suffixes.append(unique(safe_stem(data), suffixes))
        figures = {
            "final": final_figure(grouping, compared, [row for row in results.rows if row.group.data == data]),
            **{panel.key: curve_figure(grouping, panel, data) for panel in PANELS},
            "parameters": parameter_figure(grouping, data),
        }
        for name, figure in figures.items():
            if figure is None:
                continue
            if len(grouping.data_sets) > 1:
                name = f"{name}-{suffixes[-1]}"
                figure.suptitle(figure_text(data), fontsize=10)
            written |= files_of(figure, folder / name)
    return written


def files_of(figure: Figure, stem: Path) -> dict[Path, bytes]:
    """A figure as PNG and SVG. The layout is computed once; text in the SVG stays text."""
    from matplotlib import rc_context

    with warnings.catch_warnings(), rc_context({"svg.fonttype": "none"}):
        warnings.filterwarnings("ignore", message="Glyph")  # a character that the font lacks is drawn as a box
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return figure_files(figure, stem)


def final_figure(grouping: Grouping, compared: Compared, rows: Sequence[Row]) -> Figure | None:
    """Draw the accuracy of each seed and the mean; beside it the interval to the best of the other means.

    The diamond of a group that can be the best is full.
    """
    rows = [row for row in rows if row.spread is not None][:24]
    if not rows:
        return None
    figure, (ax, *beside) = panels(1, 1 + any(compared.to_the_best), (8.5, 1.1 + 0.33 * len(rows)))
    for k, row in enumerate(rows):
        assert row.spread is not None
        colour = grouping.styles[row.group.title][0]
        marker: dict[str, Any] = {"marker": "D", "color": colour, "markersize": 6, "linestyle": "none"}
        marker |= {} if row.can_be_best in (None, True) else {"markerfacecolor": PRINT["paper"]}
        values = list(row.group.results.values())
        ax.plot(values, np.full(len(values), k), "o", color=colour, markersize=3.5, alpha=0.6)
        ax.plot(row.spread.mean, k, **marker)
        at = compared.index(row.group)
        interval = None if at is None else compared.to_the_best[at]
        if interval is not None:
            difference, low, high = interval
            beside[0].plot([low, high], [k, k], color=colour, linewidth=3, alpha=0.5, solid_capstyle="butt")
            beside[0].plot(difference, k, **marker)
    ax.set_yticks(range(len(rows)), [figure_text(row.group.title) for row in rows], fontsize=8)
    ax.set_xlabel(f"final {grouping.metric} (%): mean, seeds", fontsize=8)
    for each in (ax, *beside):
        each.set_ylim(len(rows) - 0.5, -0.5)
    for each in beside:
        each.axvline(0, color=PRINT["axis"], linewidth=1)
        each.set_yticks(range(len(rows)), [])
        each.tick_params(axis="y", length=0)
        each.set_xlabel("minus the best of the others (points), 95 %", fontsize=8)
    return figure


@dataclass(frozen=True)
class Band:
    """A mean curve and the standard deviation around it; `spread` is None for a single run."""

    epochs: np.ndarray  # (E,)
    mean: np.ndarray  # (E,)
    spread: np.ndarray | None  # (E,)


def band(group: Group, metric: Metric) -> Band | None:
    """Return mean and standard deviation over the group's finished runs, or over all runs if none has finished."""
    finished = [run for run in group.runs if run.finished]
    return mean_curve([run.curve(metric.key) for run in finished or group.runs], metric)


def mean_curve(runs: Sequence[Curve | None], metric: Metric) -> Band | None:
    """Return mean and standard deviation of the curves of runs; None without a finite value.

    At most `POINTS` evenly spaced points are kept, the first and the last among them.
    """
    curves = [curve for curve in runs if curve is not None]
    if not any(np.isfinite(curve[1]).any() for curve in curves):
        return None
    values = np.concatenate([curve[1] for curve in curves]) * (100 if metric.percent else 1)
    epochs, mean, std = spread_by_epoch(np.concatenate([curve[0] for curve in curves]), values)
    keep = np.linspace(0, len(epochs) - 1, min(len(epochs), POINTS)).round().astype(int)
    return Band(epochs[keep], mean[keep], std[keep] if len(curves) > 1 else None)


def curve_figure(grouping: Grouping, panel: Panel, data: str) -> Figure | None:
    """Draw the first two metrics of the panel that have data, side by side, as mean curves with bands."""
    ranked = enumerate(grouping.by_data[data])
    drawn = [group for k, group in ranked if k < GROUPS_DRAWN or (group.infonce and k < 3 * GROUPS_DRAWN)]
    metrics = [metric for metric in panel.metrics if any(band(group, metric) is not None for group in drawn)][:2]
    if not metrics:
        return None
    figure, axes = panels(1, len(metrics), (max(6.0, 5.0 * len(metrics)), 4.2))
    for ax, metric in zip(axes, metrics, strict=True):
        for group in drawn:
            line = band(group, metric)
            if line is None:
                continue
            colour, style = grouping.styles[group.title]
            label = figure_text(group.title)
            ax.plot(line.epochs, line.mean, color=colour, linestyle=style, linewidth=1.5, label=label)
            if line.spread is not None:
                low, high = line.mean - line.spread, line.mean + line.spread
                ax.fill_between(line.epochs, low, high, color=colour, alpha=0.15, linewidth=0)
        ax.set_xlabel("epochs trained")
        ax.set_ylabel(metric.name)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=7, frameon=False)
    return figure


def parameter_figure(grouping: Grouping, data: str) -> Figure | None:
    """Draw parallel coordinates: one line per run with a result, coloured by accuracy, over the swept parameters."""
    axes, accuracy = parallel_coordinates(grouping, data)
    if len(axes) < 2:
        return None
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    figure, (ax,) = panels(1, 1, (1.6 * len(axes) + 2, 4))
    scale = Normalize(accuracy.min(), max(accuracy.max(), accuracy.min() + 1e-9))
    for *places, result in zip(*(axis.places for axis in axes), accuracy, strict=True):
        ax.plot(range(len(axes)), places, color=colormaps[COLORMAP](scale(result)), alpha=0.6, linewidth=1)
    box = {"boxstyle": "square,pad=0.1", "facecolor": PRINT["paper"], "edgecolor": "none", "alpha": 0.8}
    for k, (_, ticks, texts, _) in enumerate(axes):
        ax.axvline(k, color=PRINT["axis"], linewidth=0.8)
        if k == 0:  # the first axis has space for its labels on the left
            ax.set_yticks(ticks, [figure_text(text) for text in texts], fontsize=7)
            continue
        for at, text in zip(ticks, texts, strict=True):
            label = figure_text(text)
            ax.annotate(label, (k, at), (4, 0), textcoords="offset points", fontsize=7, va="center", bbox=box)
    ax.set_xticks(range(len(axes)), [figure_text(axis.title) for axis in axes], fontsize=8)
    ax.set_xlim(0, len(axes) - 1)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(length=0)
    ax.grid(False)
    figure.colorbar(ScalarMappable(scale, colormaps[COLORMAP]), ax=ax, label=f"final {grouping.metric} (%)")
    return figure


class Axis(NamedTuple):
    """An axis of the parallel coordinates."""

    title: str
    ticks: list[float]  # 0 … 1
    texts: list[str]  # of the ticks
    places: list[float]  # of each run


def parallel_coordinates(grouping: Grouping, data: str) -> tuple[list[Axis], np.ndarray]:
    """Return the axes and the accuracy of each run (R,).

    The axes are the loss, the parameters that were swept and the accuracy. A parameter with one value has no axis.
    """
    runs = [(group, final_accuracy(run, grouping.metric)) for group in grouping.by_data[data] for run in group.runs]
    runs = [(group, result) for group, result in runs if result is not None]
    axes: list[Axis] = []
    for title, values in swept_values(grouping, [group for group, _ in runs]):
        ticks = distinct(values)
        if len(ticks) > 1:
            at = {repr(value): k / (len(ticks) - 1) for k, value in enumerate(ticks)}
            labelled = ticks[:: max(1, len(ticks) // 12)]  # more labels would overlap
            texts = [format_value(value) for value in labelled]
            axes.append(Axis(title, [at[repr(v)] for v in labelled], texts, [at[repr(v)] for v in values]))
    accuracy = np.array([result for _, result in runs])
    if runs:
        low, high = accuracy.min(), max(accuracy.max(), accuracy.min() + 1e-9)
        texts = [f"{low:.1f}", f"{high:.1f}"]
        axes.append(Axis("accuracy (%)", [0.0, 1.0], texts, ((accuracy - low) / (high - low)).tolist()))
    return axes, accuracy


def swept_values(grouping: Grouping, groups: Sequence[Group]) -> list[tuple[str, list[Scalar]]]:
    """Return (title, value of each group) for the loss, for each number among the losses' parameters, and for each
    other swept parameter. Parameters of different losses with the same name, such as τ, share one axis."""
    numbers: list[dict[str, Scalar]] = []
    for group in groups:
        pairs = ((key.rpartition(".")[2], value) for key, value in group.loss)
        numbers.append({name: v for name, v in pairs if isinstance(v, int | float) and not isinstance(v, bool)})
    found: list[tuple[str, list[Scalar]]] = [("loss", [group.label for group in groups])]
    for name in sorted({name for row in numbers for name in row}):
        values = [row.get(name) for row in numbers]
        if len({value for value in values if value is not None}) > 1:
            found.append((SYMBOLS.get(name, name), values))
    return found + [(setting_name(key), [group.settings[key] for group in groups]) for key in grouping.swept]


def figure_text(text: str) -> str:
    """Shorten to 48 characters and escape the dollar sign, which starts a formula in matplotlib."""
    short = text if len(text) <= 48 else text[:47] + "…"
    return short.replace("$", r"\$")


def safe_stem(text: str) -> str:
    """Replace characters other than letters, digits and _ by hyphens; keep at most 40 characters."""
    return re.sub(r"[^\w]+", "-", text).strip("-")[:40]
