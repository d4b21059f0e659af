"""metrics.csv, in which older versions and programs of the user write metrics: converted wherever it is read.

The first line names the columns, among them `epoch` or `step`; every metric has a column. A row is one event. A cell is
empty where the event did not log the metric; empty cells at the end of a row may be missing. A line of spaces, which
kept room for the header, may follow it.
"""

from __future__ import annotations

import csv

from lightning_ssl.app.runs.metrics import PLACE, Event, as_float, line_of


def converted(text: str) -> str:
    """The events of a metrics.csv as metrics.jsonl. An unreadable row keeps its place, as resuming counts."""
    *lines, rest = text.split("\n")
    header, *rows = [cells_of(line) for line in lines] or [[]]
    if rows and not "".join(rows[0]).strip():
        rows = rows[1:]
    if rest:  # it is being written, or its writer was killed
        rows.append([])
    return "".join(line_of(event_of_cells(header, row)) for row in rows)


def cells_of(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:  # a cell above the limit of `csv`
        return ["?"]


def event_of_cells(header: list[str], row: list[str]) -> Event:
    """The event of a row; an empty one, which the reader of metrics.jsonl counts as unreadable, for another row."""
    event: Event = {}
    if 2 <= len(row) <= len(header):
        for name, cell in zip(header, row, strict=False):
            number = as_float(cell)
            if cell:
                event[name] = cell if number is None else int(number) if is_whole(name, number) else number
    return event


def is_whole(name: str, number: float) -> bool:
    return name in PLACE and number.is_integer()
