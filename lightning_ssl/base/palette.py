"""The colours of every figure: Okabe and Ito's, which remain distinguishable with common colour-vision deficiencies."""

from typing import Any

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
