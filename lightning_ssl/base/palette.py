"""The colours and the axes of every figure.

The colours are Okabe and Ito's, which remain distinguishable with common colour-vision deficiencies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, VERMILION, GREEN, PURPLE, SKY, ORANGE = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
BLACK = "#000000"

# Black is not visible on a dark page. Their eighth colour, yellow, is not visible on white paper.
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, SKY, ORANGE)
LINE_STYLES = ("-", "--", "-.", ":")  # names of matplotlib
MARKERS = ("o", "s", "^", "D")


def line_style(k: int) -> tuple[str, str]:
    """Colour and line style of the k-th line: a colour repeats with another line style only, for 24 lines.

    >>> line_style(0), line_style(6)
    (('#0072B2', '-'), ('#0072B2', '--'))
    """
    repeat, colour = divmod(k, len(COLOURS))
    return COLOURS[colour], LINE_STYLES[repeat % len(LINE_STYLES)]


def point_style(k: int) -> tuple[str, str]:
    """Colour and marker of the k-th set of points: a colour repeats with another marker only."""
    repeat, colour = divmod(k, len(COLOURS))
    return COLOURS[colour], MARKERS[repeat % len(MARKERS)]


def marked_line(k: int) -> dict[str, Any]:
    """Arguments of `plot` for a line whose style has another meaning: a colour that repeats has markers."""
    colour, marker = point_style(k)
    marks = {"marker": marker, "markevery": 0.1, "markersize": 4} if k >= len(COLOURS) else {}
    return {"color": colour, **marks}


def panels(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """Make a figure of rows × columns axes in the common style; the axes are listed row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = [figure.add_subplot(rows, columns, k + 1) for k in range(rows * columns)]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(True, color="0.92", linewidth=0.8)
        ax.set_axisbelow(True)
    return figure, axes
