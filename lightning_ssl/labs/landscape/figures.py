"""The figure: for every table the max-cosines at the end and in training."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lightning_ssl.base.palette import marked_line, panels, point_style
from lightning_ssl.labs.lab import Result
from lightning_ssl.labs.landscape.tables import Row, published_cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


TITLES = {
    "2": "Table 2", "1": "Table 1", "4": "Table 4", "figures": "Figures", "masks": "Dependent masks",
    "importance": "α in place of NT-Xent",
}  # fmt: skip


def draw(result: Result, rows: list[Row]) -> Figure:
    """Draw two panels for every table in `rows`."""
    arrays = result.arrays
    # The requested values: those of the array are float32 and not keys of the published tables.
    sparsities = list(result.settings["sparsities"][: len(arrays["sparsities"])])
    tables = [table for table in TITLES if any(row.table == table for row in rows)]
    columns = 4 if len(tables) > 3 else 2
    height = -(-2 * len(tables) // columns)
    figure, axes = panels(height, columns, (5.2 * columns, 4.2 * height))
    for k, table in enumerate(tables):
        members = [row for row in rows if row.table == table]
        _draw_final(axes[2 * k], members, arrays, sparsities, not result.settings["quick"])
        _draw_paths(axes[2 * k + 1], members, arrays, sparsities)
    for ax in axes[2 * len(tables) :]:
        ax.set_visible(False)
    return figure


def _draw_final(ax: Axes, rows: list[Row], arrays: dict[str, Tensor], sparsities: list[float], compare: bool) -> None:
    width, title = 0.07 / len(rows), f"{TITLES[rows[0].table]}: mean ± std"
    for k, row in enumerate(rows):
        colour, marker = point_style(k)
        value = arrays[row.key][-1, ..., 2]  # (sparsities, S)
        x = [s + width * (k - (len(rows) - 1) / 2) for s in sparsities]
        std = value.std(1) if value.shape[1] > 1 else torch.zeros(len(sparsities))
        ax.errorbar(x, value.mean(1), std, fmt=marker, color=colour, label=row.name, capsize=2)
        cells = [published_cells(row, [s]) if compare else None for s in sparsities]
        published = [(a, cell[2][0]) for a, cell in zip(x, cells, strict=True) if cell]
        if published:
            ax.plot(*zip(*published, strict=True), "_", color=colour, markersize=14, markeredgewidth=2)
    if compare and rows[0].table in "124":
        title += ", bars the paper's"
    ax.set(title=title, xlabel="sparsity β", ylabel="minimum max-cosine", ylim=(0, 1.2))
    ax.set_xticks(sparsities)
    ax.legend(frameon=False, fontsize=8, loc="upper center", ncols=3)


def _draw_paths(ax: Axes, rows: list[Row], arrays: dict[str, Tensor], sparsities: list[float]) -> None:
    styles = {"solid": "-", "dashed": "--", "dotted": ":", "dash-dotted": "-."}
    epochs = arrays["importance_epochs" if rows[0].importance else "epochs"]
    for k, row in enumerate(rows):
        for j, style in zip(range(len(sparsities)), itertools.cycle(styles.values()), strict=False):
            path = arrays[row.key][:, j, :, 2]  # (T, S)
            label = row.name if j == 0 else None
            ax.plot(epochs, path.mean(1), linestyle=style, label=label, **marked_line(k))
    legend = ", ".join(f"{name} β={s:g}" for name, s in zip(styles, sparsities, strict=False))
    title = f"{TITLES[rows[0].table]}: training"
    ax.set(title=title, xlabel=f"epoch ({legend})", ylabel="minimum max-cosine", ylim=(0, 1))
