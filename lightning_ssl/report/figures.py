"""The page's figures for a paper: PNG and SVG by matplotlib, the same lines, bands and colours."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lightning_ssl.report.curves import PANELS, Panel, band
from lightning_ssl.report.groups import Group, Grouping, natural, setting_name
from lightning_ssl.report.groups import accuracy as final_accuracy
from lightning_ssl.report.statistics import Row
from lightning_ssl.runs.labels import SYMBOLS, Scalar, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours but the yellow, which white paper swallows, and the black, which a dark page does. A ninth
# line repeats a colour with another stroke.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
STROKES = ("-", "--", "-.", ":")
BASELINE = "#7f7f7f"
SHOWN = 8  # groups drawn, best first; the page lets one choose others


def style(position: int, group: Group) -> tuple[str, str]:
    """Colour and stroke of a group; InfoNCE is grey wherever it stands."""
    if group.infonce:
        return BASELINE, "-"
    return COLOURS[position % len(COLOURS)], STROKES[position // len(COLOURS) % len(STROKES)]


def styles(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Colours are handed out within a data set, for its groups are drawn together."""
    given, position, data = [], 0, None
    for group in groups:
        if group.data != data:
            position, data = 0, group.data
        given.append(style(position, group))
        position += not group.infonce
    return given


def draw(grouping: Grouping, rows: Sequence[Row], folder: Path) -> list[str]:
    """Write every figure that has something to show; returns their names without ending."""
    written = []
    makers: list[tuple[str, Callable[[str], Figure | None]]] = [
        ("final", lambda data: final(grouping, [row for row in rows if row.group.data == data])),
        *((panel.key, lambda data, panel=panel: curves(grouping, panel, data)) for panel in PANELS),
        ("parameters", lambda data: parameters(grouping, data)),
    ]
    for data in grouping.data_sets:
        for name, maker in makers:
            figure = maker(data)
            if figure is None:
                continue
            stem = name if len(grouping.data_sets) == 1 else f"{name}-{safe_stem(data)}"
            save(figure, folder / stem)
            written.append(stem)
    return written


def save(figure: Figure, stem: Path) -> None:
    """PNG and SVG; the layout is found once, and letters stay letters in the SVG."""
    from matplotlib import rc_context

    with warnings.catch_warnings(), rc_context({"svg.fonttype": "none"}):
        warnings.filterwarnings("ignore", message="Glyph")  # a letter that the font lacks is drawn as a box
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        figure.savefig(stem.with_name(stem.name + ".png"), dpi=150)
        figure.savefig(stem.with_name(stem.name + ".svg"), metadata={"Date": None})


def final(grouping: Grouping, rows: Sequence[Row]) -> Figure | None:
    """Every seed's accuracy, with mean and 95 % interval, best on top."""
    rows = [row for row in rows if row.spread is not None][:24]
    if not rows:
        return None
    given = dict(zip(map(id, grouping.groups), styles(grouping.groups), strict=True))
    figure, ax = canvas((7.5, 1.1 + 0.33 * len(rows)))
    for k, row in enumerate(rows):
        assert row.spread is not None
        colour = given[id(row.group)][0]
        if row.spread.low is not None and row.spread.high is not None:
            ax.plot([row.spread.low, row.spread.high], [k, k], color=colour, linewidth=3, alpha=0.35)
        values = list(row.group.results.values())
        ax.plot(values, np.full(len(values), k), "o", color=colour, markersize=3.5, alpha=0.6, linestyle="")
        ax.plot([row.spread.mean], [k], "D", color=colour, markersize=6)
    ax.set_yticks(range(len(rows)), [plain(row.group.title) for row in rows], fontsize=8)
    ax.invert_yaxis()
    ax.set_xlabel(f"final {grouping.metric} (%): mean, 95 % interval, seeds")
    return figure


def curves(grouping: Grouping, panel: Panel, data: str) -> Figure | None:
    """The panel's first two metrics side by side where there are two, as lines with bands."""
    given = styles(grouping.groups)
    groups = [(group, look) for group, look in zip(grouping.groups, given, strict=True) if group.data == data]
    chosen = [pair for k, pair in enumerate(groups) if k < SHOWN or (pair[0].infonce and k < 3 * SHOWN)]
    having = [m for m in panel.metrics if any(band(group, m) is not None for group, _ in chosen)][:2]
    if not having:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(6.0, 5.0 * len(having)), 4.2), layout="constrained")
    for k, metric in enumerate(having):
        ax = plain_axes(figure.add_subplot(1, len(having), k + 1))
        for group, (colour, stroke) in chosen:
            line = band(group, metric)
            if line is None:
                continue
            ax.plot(line.epochs, line.mean, color=colour, linestyle=stroke, linewidth=1.5, label=plain(group.title))
            if line.spread is not None:
                low, high = line.mean - line.spread, line.mean + line.spread
                ax.fill_between(line.epochs, low, high, color=colour, alpha=0.15, linewidth=0)
        ax.set_xlabel("epochs trained")
        ax.set_ylabel(metric.name)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=7, frameon=False)
    return figure


def parameters(grouping: Grouping, data: str) -> Figure | None:
    """Parallel coordinates: a line per run with a result, over what was swept, coloured by accuracy."""
    axes, table, colour = coordinates(grouping, data)
    if len(axes) < 2 or not len(colour):
        return None
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    figure, ax = canvas((1.6 * len(axes) + 2, 4))
    scale = Normalize(colour.min(), max(colour.max(), colour.min() + 1e-9))
    for values, shade in zip(table, colour, strict=True):
        ax.plot(range(len(axes)), values, color=colormaps["cividis"](scale(shade)), alpha=0.6, linewidth=1)
    paper = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
    for k, (_, ticks, texts) in enumerate(axes):
        ax.axvline(k, color="0.6", linewidth=0.8)
        if k == 0:  # it has room to its left
            ax.set_yticks(ticks, [plain(text) for text in texts], fontsize=7)
            continue
        for at, text in zip(ticks, texts, strict=True):
            ax.annotate(plain(text), (k, at), (4, 0), textcoords="offset points", fontsize=7, va="center", bbox=paper)
    ax.set_xticks(range(len(axes)), [plain(axis[0]) for axis in axes], fontsize=8)
    ax.set_xlim(0, len(axes) - 1)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(length=0)
    ax.grid(False)
    figure.colorbar(ScalarMappable(scale, colormaps["cividis"]), ax=ax, label=f"final {grouping.metric} (%)")
    return figure


Axis = tuple[str, list[float], list[str]]  # title, where its ticks are (0 … 1), what they say


def coordinates(grouping: Grouping, data: str) -> tuple[list[Axis], np.ndarray, np.ndarray]:
    """Axes, the place of every run on them (R, A) and its accuracy (R,): the loss, what was swept, the accuracy."""
    runs = [
        (group, run.settings, result)
        for group in grouping.groups
        if group.data == data
        for run in group.runs
        if (result := final_accuracy(run, grouping.metric)) is not None
    ]
    accuracy = np.array([result for _, _, result in runs])
    axes: list[Axis] = []
    columns: list[np.ndarray] = []
    for title, values in swept_values(grouping, [(group, settings) for group, settings, _ in runs]):
        distinct = sorted({repr(v): v for v in values}.values(), key=natural)
        if len(distinct) < 2:
            continue
        at = {repr(value): k / (len(distinct) - 1) for k, value in enumerate(distinct)}
        columns.append(np.array([at[repr(value)] for value in values]))
        every = max(1, len(distinct) // 12)  # names of a long axis would lie upon each other
        axes.append((title, [at[repr(v)] for v in distinct[::every]], [shown(v) for v in distinct[::every]]))
    if len(accuracy):
        low, high = accuracy.min(), max(accuracy.max(), accuracy.min() + 1e-9)
        columns.append((accuracy - low) / (high - low))
        axes.append(("accuracy (%)", [0.0, 1.0], [f"{low:.1f}", f"{high:.1f}"]))
    table = np.stack(columns, 1) if columns else np.empty((0, 0))
    return axes, table, accuracy


def swept_values(grouping: Grouping, runs: Sequence[tuple[Group, dict[str, Scalar]]]) -> list[tuple[str, list[Scalar]]]:
    """For each axis its title and every run's value: the loss, the numbers in losses, what else was swept."""
    numbers: list[dict[str, Scalar]] = []  # a name such as τ is one axis, whichever loss it stands in
    for group, _ in runs:
        pairs = ((key.rpartition(".")[2], value) for key, value in group.loss)
        numbers.append({name: v for name, v in pairs if isinstance(v, int | float) and not isinstance(v, bool)})
    found: list[tuple[str, list[Scalar]]] = [("loss", [group.label for group, _ in runs])]
    for name in sorted({name for row in numbers for name in row}):
        values = [row.get(name) for row in numbers]
        if len({value for value in values if value is not None}) > 1:
            found.append((SYMBOLS.get(name, name), values))
    return found + [(setting_name(key), [settings.get(key) for _, settings in runs]) for key in grouping.swept]


def canvas(size: tuple[float, float]) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, plain_axes(figure.add_subplot())


def plain_axes(ax: Axes) -> Axes:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, color="0.92", linewidth=0.8)
    ax.set_axisbelow(True)
    return ax


def plain(text: str) -> str:
    """At most 48 letters, so that there is room for the figure; a dollar sign would begin a formula."""
    short = text if len(text) <= 48 else text[:47] + "…"
    return short.replace("$", r"\$")


def safe_stem(text: str) -> str:
    return "".join(mark if mark.isalnum() or mark in "-_" else "-" for mark in text)[:40]
