"""metrics.csv: its reader. The writer, and the format in detail, are in metrics_writer.py.

The first two columns are `epoch` and `step`; every metric has a column. A row is one event. A cell is empty where the
event did not log the metric; empty cells at the end of a row may be missing. The reader accepts any content: it keeps
what it can read and lists the problems. It also reads the files of other programs that have a column `epoch` or `step`.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np

from lightning_ssl.runs.panels import METRICS

LOWER_IS_BETTER = re.compile("|".join(["loss", *(re.escape(each.key) for each in METRICS if each.better == "lower")]))
# Timing metrics: they differ when the same run is repeated.
TIMING_METRICS = ("images_per_second",)
# Metrics that are logged many times an epoch. The value of an epoch is their mean; for other metrics it is the last.
STEPWISE = ("train/", *(each.key for each in METRICS if each.every_step))

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
    """Read the header, the rows and a list of problems. An unreadable row is read as an empty one.

    A last line without a newline is incomplete: it is being written, or its writer was killed. It is left out.
    """
    if not file.is_file():
        return [], [], []
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
        end = text.rfind("\n") + 1
    except OSError as error:
        return [], [], [f"metrics.csv cannot be read: {' '.join(str(error).split())[:200]}"]
    rows = list(parse_rows(text[:end]))
    header = rows[0] if rows else []
    if not {"epoch", "step"} & set(header):
        return [], [], ["metrics.csv does not begin with a line 'epoch,step,…'"]
    blank = [""] * len(header)  # an unreadable row keeps its place: a resumed run counts rows
    complete = [filled_up(row, blank) for row in (rows[2:] if is_room(rows[1:2]) else rows[1:])]
    incomplete = sum(row is blank for row in complete) + (end < len(text))
    return header, complete, [unreadable(incomplete)] if incomplete else []


def parse_rows(text: str) -> Iterator[list[str]]:
    """The rows of a text. One with a field above the limit of `csv`, 131,072 characters, is ["?"]."""
    rows = csv.reader(io.StringIO(text, newline=""))
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except csv.Error:
            yield ["?"]


def is_room(rows: list[list[str]]) -> bool:
    """Whether a row is the line of spaces that keeps room for the header."""
    return len(rows) == 1 and len(rows[0]) <= 1 and not "".join(rows[0]).strip()


def filled_up(row: list[str], blank: list[str]) -> list[str]:
    """A row with the empty cells that are missing at its end; `blank` itself if the row is unreadable."""
    if len(row) == len(blank):
        return row
    return row + blank[len(row) :] if 2 <= len(row) < len(blank) else blank


def parse_header(file: Path) -> tuple[list[str], int]:
    """The columns of a metrics.csv, and the position of its first row; ([], 0) if it has no header."""
    if not file.is_file():
        return [], 0
    with file.open("rb") as stream:
        try:
            header = next(csv.reader(line.decode("utf-8", errors="replace") for line in stream), [])
        except csv.Error:
            return [], 0
        start = stream.tell()
        room = stream.readline()
    return (header, start + len(room) * (not room.strip())) if {"epoch", "step"} & set(header) else ([], 0)


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


class GrowingMetric:
    """The values of one metric of a metrics.csv to which another process appends. A look reads only what is new."""

    def __init__(self, file: Path, metric: str) -> None:
        self.file, self.metric = file, metric
        self.start_over()

    def start_over(self) -> None:
        self.values: list[float] = []
        self.position = 0  # the end of the last row that was read
        self.end = b""  # the bytes before it, and the identity of the file, to notice that it was written again
        self.identity = (0, 0)

    def look(self) -> list[float]:
        """All values so far, in the order in which they were logged."""
        try:
            if not self.file.is_file():  # a pipe would wait for its writer
                raise FileNotFoundError(self.file)
            with self.file.open("rb") as stream:
                self.read_new(stream)
        except OSError:  # it does not exist yet, or it was removed
            self.start_over()
        return self.values

    def read_new(self, stream: BinaryIO) -> None:
        status = os.fstat(stream.fileno())
        stream.seek(self.position - len(self.end))
        if (status.st_dev, status.st_ino) != self.identity or stream.read(len(self.end)) != self.end:
            self.start_over()
            self.identity = status.st_dev, status.st_ino
            self.position = stream.seek(parse_header(self.file)[1])
        new = stream.read()
        new = new[: new.rfind(b"\n") + 1]
        header, _ = parse_header(self.file)  # after the rows: it has the columns of all of them
        if self.metric in header:
            column = header.index(self.metric)
            rows = parse_rows(new.decode("utf-8", errors="replace"))
            cells = [row[column] for row in rows if column < len(row) <= len(header) and row[column]]
            self.values += [value for cell in cells if (value := as_float(cell)) is not None]
        self.position += len(new)
        self.end = (self.end + new)[-64:]


@lru_cache(maxsize=1024)
def growing_metric(file: Path, metric: str) -> GrowingMetric:
    """The metric of a file, with what was read of it before in this process."""
    return GrowingMetric(file, metric)
