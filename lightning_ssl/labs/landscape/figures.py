"""The figure: for every table the max-cosines at the end and in training, and those of every importance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lightning_ssl.base.palette import marked_line, point_style
from lightning_ssl.labs.lab import Result, panels
from lightning_ssl.labs.landscape.tables import Row, published_cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(result: Result, rows: list[Row]) -> Figure:
    """Draw two panels for every table in `rows`, and one for the importances if there are any."""
    arrays = result.arrays
    # The requested values: those of the array are float32 and not keys of the published tables.
    sparsities = list(result.settings["sparsities"][: len(arrays["sparsities"])])
    tables = [t for t in ("2", "1", "4", "figures") if any(row.table == t for row in rows)]
    importances = {name.partition(" ")[2]: array for name, array in arrays.items() if name.startswith("importance ")}
    count = 2 * len(tables) + bool(importances)
    columns = min(max(count, 1), 4 if count > 6 else 2)
    figure, axes = panels(-(-max(count, 1) // columns), columns, (5.2 * columns, 4.2 * -(-max(count, 1) // columns)))
    for k, table in enumerate(tables):
        members = [row for row in rows if row.table == table]
        _draw_final(axes[2 * k], members, arrays, sparsities, table, not result.settings["quick"])
        _draw_paths(axes[2 * k + 1], members, arrays, sparsities, table)
    if importances:
        _draw_importances(axes[2 * len(tables)], importances, sparsities)
    for ax in axes[count:]:
        ax.set_visible(False)
    return figure


def _draw_importances(ax: Axes, paths: dict[str, Tensor], sparsities: list[float]) -> None:
    for j, sparsity in enumerate(sparsities):
        last = torch.stack([path[-1, j, :, 2] for path in paths.values()])  # (names, S)
        x = torch.arange(len(paths)) + 0.2 * (j - (len(sparsities) - 1) / 2)
        std = last.std(1) if last.shape[1] > 1 else None
        colour, marker = point_style(j)
        ax.errorbar(x, last.mean(1), std, fmt=marker, color=colour, capsize=2, label=f"β={sparsity:g}")
    ax.set_xticks(range(len(paths)), list(paths), rotation=30)
    ax.set(title="Every α in place of NT-Xent", ylabel="minimum max-cosine", ylim=(0, 1))
    ax.legend(frameon=False, fontsize=8)


def _draw_final(
    ax: Axes, rows: list[Row], arrays: dict[str, Tensor], sparsities: list[float], table: str, compare: bool
) -> None:
    width = 0.07 / max(len(rows), 1)
    for k, row in enumerate(rows):
        colour, marker = point_style(k)
        value = arrays[row.key][-1, ..., 2]  # (sparsities, S)
        x = [s + width * (k - (len(rows) - 1) / 2) for s in sparsities]
        std = value.std(1) if value.shape[1] > 1 else torch.zeros(len(sparsities))
        ax.errorbar(x, value.mean(1), std, fmt=marker, color=colour, label=row.name, capsize=2)
        cells = [published_cells(row, s) if compare else None for s in sparsities]
        published = [(a, cell[2][0]) for a, cell in zip(x, cells, strict=True) if cell]
        if published:
            ax.plot(*zip(*published, strict=True), "_", color=colour, markersize=14, markeredgewidth=2)
    title = "Figures: mean ± std" if table == "figures" else f"Table {table}: mean ± std"
    ax.set(
        title=title + (", bars the paper's" if compare and table != "figures" else ""),
        xlabel="sparsity β",
        ylabel="minimum max-cosine",
        ylim=(0, 1.2),
    )
    ax.set_xticks(sparsities)
    ax.legend(frameon=False, fontsize=8, loc="upper center", ncols=3)


def _draw_paths(ax: Axes, rows: list[Row], arrays: dict[str, Tensor], sparsities: list[float], table: str) -> None:
    styles = ("-", "--", ":", "-.")
    for k, row in enumerate(rows):
        for j in range(len(sparsities)):
            path = arrays[row.key][:, j, :, 2]  # (T, S)
            label = row.name if j == 0 else None
            ax.plot(arrays["epochs"], path.mean(1), linestyle=styles[j % 4], label=label, **marked_line(k))
    names = ("solid", "dashed", "dotted", "dash-dotted")
    legend = ", ".join(f"{style} β={s:g}" for style, s in zip(names, sparsities, strict=False))
    title = "Figures" if table == "figures" else f"Table {table}"
    ax.set(title=f"{title}: training", xlabel=f"epoch ({legend})", ylabel="minimum max-cosine", ylim=(0, 1))
    ax.legend(frameon=False, fontsize=8)
