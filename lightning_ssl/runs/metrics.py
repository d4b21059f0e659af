"""metrics.csv: the one writer and the one reader.

The first two columns are `epoch` and `step`; every metric has a column. A row is one event. A cell is empty where the
event did not log the metric. The reader accepts any content: it keeps what it can read and lists the problems. It also
reads the files of other programs that have a column `epoch` or `step`.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from lightning_ssl.files import write_atomic

LOWER_IS_BETTER = re.compile(r"loss|alignment|uniformity|zeros")
# Timing metrics: they differ when the same run is repeated.
TIMING_METRICS = ("images_per_second",)
# Metrics that are logged many times an epoch. The value of an epoch is their mean; for other metrics it is the last.
STEPWISE = ("train/", "alpha/")

Curve: TypeAlias = "tuple[np.ndarray, np.ndarray]"  # epochs trained (E,), values (E,)


@dataclass(frozen=True)
class Series:
    """The values of one metric, in the order in which they were logged."""

    epochs: np.ndarray  # (T,)
    steps: np.ndarray  # (T,)
    values: np.ndarray  # (T,)

    @property
    def last(self) -> float | None:
        """The last value. NaN is a result too: that of a loss that diverged."""
        return float(self.values[-1]) if len(self.values) else None

    @property
    def finite(self) -> np.ndarray:
        """The finite values."""
        return self.values[np.isfinite(self.values)]

    def by_epoch(self, mean: bool) -> Curve:
        """One value for each epoch: the mean or the last one. Epochs are counted from 1."""
        order = np.argsort(self.epochs, kind="stable")
        sorted_epochs, values = self.epochs[order], self.values[order]
        first = np.flatnonzero(np.diff(sorted_epochs, prepend=-np.inf))  # index of the first value of each epoch
        ends = np.append(first[1:], len(values))
        trained = sorted_epochs[first] + 1
        return trained, np.add.reduceat(values, first) / (ends - first) if mean else values[ends - 1]


# ---------------------------------------------------------------------------------------------------------------------
# Reading


def read_rows(file: Path) -> tuple[list[str], list[list[str]], list[str]]:
    """Read the header, the rows and a list of problems. An incomplete row is read as an empty one.

    A last line without a newline is incomplete: it is being written, or its writer was killed. It is left out.
    """
    if not file.is_file():
        return [], [], []
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
        end = text.rfind("\n") + 1
        rows = list(csv.reader(io.StringIO(text[:end], newline="")))
    except (OSError, csv.Error) as error:
        return [], [], [f"metrics.csv cannot be read: {' '.join(str(error).split())[:200]}"]
    header = rows[0] if rows else []
    if not {"epoch", "step"} & set(header):
        return [], [], ["metrics.csv does not begin with a line 'epoch,step,…'"]
    blank = [""] * len(header)  # an incomplete row keeps its place: a resumed run counts rows
    complete = [row if len(row) == len(header) else blank for row in rows[1:]]
    incomplete = sum(row is blank for row in complete) + (end < len(text))
    return header, complete, [unreadable(incomplete)] if incomplete else []


def read_metrics(file: Path) -> tuple[dict[str, Series], list[str]]:
    """Read every metric of a metrics.csv, and a list of problems."""
    header, rows, problems = read_rows(file)
    columns = dict(zip(header, zip(*rows, strict=True), strict=True)) if rows else {}
    epochs, steps = (filled(columns.pop(name, [""] * len(rows))) for name in ("epoch", "step"))
    found, bad = {}, 0
    for name, column in columns.items():
        logged = [(k, value) for k, cell in enumerate(column) if cell and (value := as_float(cell)) is not None]
        bad += sum(map(bool, column)) - len(logged)
        if logged:
            at = [k for k, _ in logged]
            found[name] = Series(
                np.array([epochs[k] for k in at]), np.array([steps[k] for k in at]), np.array([v for _, v in logged])
            )
    return found, [*problems, unreadable(bad)] if bad else problems


def filled(column: Sequence[str]) -> list[float]:
    """The numbers of a column. An empty or unreadable cell gets the number before it."""
    numbers, number = [], 0.0
    for cell in column:
        value = as_float(cell)
        number = value if value is not None and math.isfinite(value) else number
        numbers.append(number)
    return numbers


def as_float(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def unreadable(count: int) -> str:
    return f"metrics.csv: {count} incomplete or unreadable {'entry' if count == 1 else 'entries'}"


# ---------------------------------------------------------------------------------------------------------------------
# Writing


class MetricsWriter:
    """Appends rows to a metrics.csv. A metric that was not logged before adds a column.

    rows         how many rows the file has
    last, best   of every metric: its last value, and its best finite one: the lowest for metrics that match
                 LOWER_IS_BETTER, else the highest
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rows = 0
        self.columns: list[str] = []
        self.last: dict[str, float] = {}
        self.best: dict[str, float] = {}

    def open(self, rows: int) -> None:
        """Keep the first `rows` rows. Later rows were written after the checkpoint from which the run resumes."""
        header, table, _ = read_rows(self.file)
        kept = table[:rows]
        used = [k for k, name in enumerate(header) if name in ("epoch", "step") or any(row[k] for row in kept)]
        self.columns = [header[k] for k in used] or ["epoch", "step"]
        self.rows, self.last, self.best = len(kept), {}, {}
        table = [[row[k] for k in used] for row in kept]
        for row in table:
            self._note(zip(self.columns, row, strict=True))
        self._write(table)

    def append(self, row: dict[str, Any]) -> None:
        """Write one event."""
        if new := [name for name in row if name not in self.columns]:
            _, table, _ = read_rows(self.file)
            self.columns += new
            self._write([[*cells, *[""] * len(new)] for cells in table])
        cells = {name: as_cell(value) for name, value in row.items()}
        with self.file.open("a", newline="", encoding="utf-8") as stream:
            csv.writer(stream, lineterminator="\n").writerow([cells.get(name, "") for name in self.columns])
        self._note(cells.items())
        self.rows += 1

    def _note(self, cells: Iterable[tuple[str, str]]) -> None:
        for name, cell in cells:
            value = None if name in ("epoch", "step") or not cell else as_float(cell)
            if value is None:
                continue
            self.last[name] = value
            if math.isfinite(value):
                better = min if LOWER_IS_BETTER.search(name) else max
                self.best[name] = better(self.best.get(name, value), value)

    def _write(self, table: list[list[str]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *table])
        write_atomic(self.file, text.getvalue().encode())


def as_cell(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)
