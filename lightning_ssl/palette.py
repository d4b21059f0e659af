"""The colours of every figure: Okabe and Ito's, which remain distinguishable with common colour-vision deficiencies."""

BLUE, VERMILION, GREEN, PURPLE, SKY, ORANGE = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"
BLACK, YELLOW = "#000000", "#F0E442"

# Black is not visible on a dark page, yellow not on white paper.
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, SKY, ORANGE)
LINE_STYLES = ("-", "--", "-.", ":")  # names of matplotlib


def line_style(k: int) -> tuple[str, str]:
    """Colour and line style of the k-th line: a colour repeats with another line style only, for 24 lines.

    >>> line_style(0), line_style(6)
    (('#0072B2', '-'), ('#0072B2', '--'))
    """
    repeat, colour = divmod(k, len(COLOURS))
    return COLOURS[colour], LINE_STYLES[repeat % len(LINE_STYLES)]
