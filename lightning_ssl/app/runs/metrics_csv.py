"""metrics.csv, in which older versions and programs of the user write metrics: its only reader.

The first two columns are `epoch` and `step`; every metric has a column. A row is one event. A cell is empty where the
event did not log the metric; empty cells at the end of a row may be missing. A line of spaces may follow the header.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator


def events_of(text: str) -> list[dict[str, str] | None] | None:
    """The cells of every row by column, and None for an unreadable row; None alone for a text without a header."""
    rows = list(rows_of(text))
    header = rows[0] if rows else []
    if not {"epoch", "step"} & set(header):
        return None
    rest = rows[2:] if is_blank(rows[1:2]) else rows[1:]
    return [
        {name: cell for name, cell in zip(header, row, strict=False) if cell} if is_whole(row, header) else None
        for row in rest
    ]


def rows_of(text: str) -> Iterator[list[str]]:
    """The rows of a text. One with a field above the limit of `csv`, 131,072 characters, is ["?"]."""
    rows = csv.reader(io.StringIO(text, newline=""))
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except csv.Error:
            yield ["?"]


def is_blank(rows: list[list[str]]) -> bool:
    """Whether a row is the line of spaces that keeps room for the header."""
    return len(rows) == 1 and len(rows[0]) <= 1 and not "".join(rows[0]).strip()


def is_whole(row: list[str], header: list[str]) -> bool:
    return len(row) == len(header) or 2 <= len(row) < len(header)
