"""Numbers, names and tables as text: CSV, Markdown and LaTeX, for the report and for reproductions.

Names, labels and errors come from run folders and are untrusted. Every cell is escaped: a CSV cell is never a formula,
a Markdown cell contains no column separator, a LaTeX cell contains no command.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Container, Mapping, Sequence

from lightning_ssl.comparison.estimate import LEVEL, shows_zero

CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
Cell = str | float | int | None


def signed(difference: float) -> str:
    """Return a difference with its sign; zero has none."""
    return "0.00" if shows_zero(difference) else f"{difference:+.2f}"


def p_digits(p: float) -> str:
    """Return p with two digits, "< 0.001", or "< 0.05" for one that would round to it.

    >>> p_digits(0.0123), p_digits(0.0499), p_digits(0.05)
    ('0.012', '< 0.05', '0.05')
    """
    digits = "< 0.001" if p < 0.001 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"
    return "< 0.05" if p < LEVEL and digits == "0.05" else digits


def p_text(p: float, sign: str = "=") -> str:
    """Return "p = …" or "p < 0.001"."""
    digits = p_digits(p)
    return f"p {digits}" if digits.startswith("<") else f"p {sign} {digits}"


def list_names(names: Sequence[str], most: int = 3) -> str:
    """Return "A", "A and B", "A, B and C" or "A, B, C and 2 others"."""
    shown, rest = list(names[:most]), len(names) - most
    if rest > 0:
        shown.append(f"{rest} other{'s' * (rest > 1)}")
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def counted(n: float, noun: str) -> str:
    """Return "1 seed" or "2 seeds"."""
    return f"{n:g} {noun}{'s' * (n != 1)}"


def duration(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def percent(share: float | None) -> float | None:
    """Return a share in percent."""
    return None if share is None else 100 * share


def to_csv(lines: Sequence[Mapping[str, Cell]]) -> str:
    """Return a CSV table. Each line has a cell for each column."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for line in [*lines[:1], *(each.values() for each in lines)]:
        writer.writerow([csv_cell(cell) for cell in line])
    return text.getvalue()


def csv_cell(cell: Cell) -> str:
    """Write a number with all digits. A text that a spreadsheet would run as a formula gets a leading apostrophe."""
    if cell is None:
        return ""
    if not isinstance(cell, str):
        return repr(cell)
    text = CONTROL_CHARACTERS.sub(" ", cell)
    return "'" + text if text.lstrip()[:1] in tuple("=+-@|%") or cell[:1] in ("\t", "\r") else text


def md_table(lines: Sequence[Sequence[str]], text_columns: int, bold: Container[int] = ()) -> str:
    """Return a Markdown table. The first line is the header; the columns after the first ones are right-aligned.

    bold   indices of the lines that are bold
    """
    rule = "|" + "|".join(["---"] * text_columns + ["---:"] * (len(lines[0]) - text_columns)) + "|"
    texts = [[f"**{md_cell(cell)}**" if k in bold else md_cell(cell) for cell in line] for k, line in enumerate(lines)]
    head, *rows = ["| " + " | ".join(line) + " |" for line in texts]
    return "\n".join([head, rule, *rows])


def md_cell(text: str) -> str:
    """Escape every character that Markdown interprets."""
    return re.sub(r"([\\`*_{}\[\]<>|~#!&])", r"\\\1", CONTROL_CHARACTERS.sub(" ", text))


LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "±": r"$\pm$", "−": "$-$", "–": "--", "Δ": r"$\Delta$",
    "·": r"\textperiodcentered{}", "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "ε": r"$\epsilon$",
    "τ": r"$\tau$", "≥": r"$\ge$", "≤": r"$\le$",
}  # fmt: skip


def latex_cell(text: str) -> str:
    """Escape every character that LaTeX interprets; one that the usual fonts lack becomes a question mark."""
    escaped = "".join(LATEX.get(mark, mark) for mark in CONTROL_CHARACTERS.sub(" ", text))
    return "".join(mark if ord(mark) < 0x250 else "?" for mark in escaped)
