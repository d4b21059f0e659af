"""The metrics of a run: metrics.jsonl, its only readers and its only writer.

    {"epoch": 0, "step": 9, "train/loss": 0.69, "lr": 0.01}
    {"epoch": 0, "step": 19, "train/loss": null, "lr": 0.01, "nonfinite": {"train/loss": "nan"}}

A line is one event: what was logged at a step or at the end of an epoch. JSON has no NaN and no infinity: such a value
is null, and `nonfinite` has its kind: nan, inf or -inf. `pandas.read_json(file, lines=True)` reads the file.

The reader accepts any content: it keeps what it can read and counts the rest. A folder of an older version has
metrics.csv instead, which programs of the user may write too: it is converted wherever it is read.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from lightning_ssl.app.runs import panels
from lightning_ssl.base.files import write_atomic
from lightning_ssl.base.untrusted import load_json

METRICS, OLD_METRICS = "metrics.jsonl", "metrics.csv"
LOWER_IS_BETTER = re.compile(
    "|".join(["loss", *(re.escape(each.key) for each in panels.METRICS if each.better == "lower")])
)
# Timing metrics: they differ when the same run is repeated.
TIMING_METRICS = ("images_per_second",)
# Metrics that are logged many times an epoch. The value of an epoch is their mean; for other metrics it is the last.
STEPWISE = ("train/", *(each.key for each in panels.METRICS if each.every_step))
PLACE = ("epoch", "step")  # keys of an event that are no metrics

Curve: TypeAlias = "tuple[np.ndarray, np.ndarray]"  # epochs trained (E,), values (E,)
Event: TypeAlias = "dict[str, Any]"  # values by name, as read: numbers, or text that may be one


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

    def by_epoch(self, mean: bool) -> Curve:
        """One value for each epoch: the mean or the last one. Epochs are counted from 1."""
        order = np.argsort(self.epochs, kind="stable")
        sorted_epochs, values = self.epochs[order], self.values[order]
        first = np.flatnonzero(np.diff(sorted_epochs, prepend=-np.inf))  # index of the first value of each epoch
        ends = np.append(first[1:], len(values))
        trained = sorted_epochs[first] + 1
        return trained, np.add.reduceat(values, first) / (ends - first) if mean else values[ends - 1]


def line_of(event: Event) -> str:
    """The line of an event in metrics.jsonl."""
    kinds = {name: str(value) for name, value in event.items() if isinstance(value, float) and not math.isfinite(value)}
    nonfinite = {"nonfinite": kinds} if kinds else {}
    return json.dumps({**event, **dict.fromkeys(kinds), **nonfinite}, allow_nan=False) + "\n"


def event_of(line: str) -> Event | None:
    """The event of a line of metrics.jsonl; None if it is unreadable."""
    try:
        event = load_json(line)
    except ValueError:
        return None
    if not isinstance(event, dict) or not event.keys() & set(PLACE):
        return None
    kinds = event.pop("nonfinite", None)
    return {**event, **kinds} if isinstance(kinds, dict) else event


def events_of(text: str) -> list[Event | None]:
    """The events of metrics.jsonl. An unreadable one is None and keeps its place.

    A last line without a newline is unreadable: it is being written, or its writer was killed.
    """
    *lines, rest = text.split("\n")
    events = [event_of(line) for line in lines]
    return [*events, None] if rest else events


def metrics_of(events: Sequence[Event | None]) -> tuple[dict[str, Series], int]:
    """Every metric of events, and how many events and values are unreadable.

    An event without an epoch or a step has that of the event before it.
    """
    place = dict.fromkeys(PLACE, 0.0)
    rows: dict[str, list[tuple[float, float, float]]] = {}
    bad = events.count(None)
    for event in filter(None, events):
        for name in PLACE:
            number = as_float(event.get(name))
            place[name] = number if number is not None and math.isfinite(number) else place[name]
        for name, value in event.items():
            if name in PLACE or value is None:
                continue
            if (number := as_float(value)) is None:
                bad += 1
            else:
                rows.setdefault(name, []).append((place["epoch"], place["step"], number))
    return {name: Series(*np.array(each).T.copy()) for name, each in rows.items()}, bad


def as_float(value: Any) -> float | None:
    """The number that a value is, or that its text names; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


class GrowingMetric:
    """The values of one metric of a metrics.jsonl to which another process appends. A look reads only what is new."""

    def __init__(self, file: Path, metric: str) -> None:
        self.file, self.metric = file, metric
        self.start_over()

    def start_over(self) -> None:
        self.values: list[float] = []
        self.position = 0  # the end of the last line that was read
        self.end = b""  # the bytes before it, to notice that the file was written again

    def look(self) -> list[float]:
        """All values so far, in the order in which they were logged."""
        if not self.file.is_file():  # it does not exist yet, or it was removed; a pipe would wait for its writer
            self.start_over()
            return self.values
        with self.file.open("rb") as stream:
            stream.seek(self.position - len(self.end))
            if stream.read(len(self.end)) != self.end:
                self.start_over()
                stream.seek(0)
            new = stream.read()
        new = new[: new.rfind(b"\n") + 1]
        for event in filter(None, events_of(new.decode("utf-8", errors="replace"))):
            value = as_float(event.get(self.metric))
            self.values += [] if value is None else [value]
        self.position += len(new)
        self.end = (self.end + new)[-64:]
        return self.values


@lru_cache(maxsize=1024)
def growing_metric(file: Path, metric: str) -> GrowingMetric:
    """The metric of a file, with what was read of it before in this process."""
    return GrowingMetric(file, metric)


# ---------------------------------------------------------------------------------------------------------------------
# metrics.csv


def converted(text: str) -> str:
    """The events of a metrics.csv as metrics.jsonl. An unreadable row keeps its place, as resuming counts.

    The first line names the columns, among them `epoch` or `step`; every metric has a column. A row is one event. A
    cell is empty where the event did not log the metric; empty cells at the end of a row may be missing. A line of
    spaces, which kept room for the header, may follow it.
    """
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
                is_place = name in PLACE and number is not None and number.is_integer()
                event[name] = cell if number is None else int(number) if is_place else number
    return event


# ---------------------------------------------------------------------------------------------------------------------
# Writing


class MetricsWriter:
    """Appends events to the metrics.jsonl of a run folder. The cost of an event does not depend on the file's length.

    A resumed run drops the events after its checkpoint, so it ends with the file of an undisturbed run. A killed writer
    leaves all its events, and at most an incomplete last line, which the next writer removes.

    rows         how many events the file has
    last, best   of every metric: its last value, and its best finite one: the lowest for metrics that match
                 LOWER_IS_BETTER, else the highest
    """

    def __init__(self, folder: Path) -> None:
        self.file, self.old = folder / METRICS, folder / OLD_METRICS
        self.rows = 0
        self.last: dict[str, float] = {}
        self.best: dict[str, float] = {}

    def open(self, rows: int) -> None:
        """Keep the first `rows` events. Later ones were written after the checkpoint from which the run resumes.

        A metrics.csv of an older version is converted.
        """
        self.rows, self.last, self.best = 0, {}, {}
        if not self.file.exists():
            old = self.old.read_text(encoding="utf-8", errors="replace") if self.old.is_file() else ""
            write_atomic(self.file, converted(old).encode())
        kept = 0  # bytes
        with self.file.open("r+b") as stream:
            for line in islice(stream, rows):
                if not line.endswith(b"\n"):
                    break
                self.note(event_of(line.decode("utf-8", errors="replace")) or {})
                self.rows += 1
                kept += len(line)
            stream.truncate(kept)
        self.old.unlink(missing_ok=True)

    def append(self, event: Event) -> None:
        """Write one event."""
        with self.file.open("ab") as stream:
            stream.write(line_of(event).encode())
        self.note(event)
        self.rows += 1

    def note(self, event: Event) -> None:
        for name, logged in event.items():
            value = None if name in PLACE else as_float(logged)
            if value is None:
                continue
            self.last[name] = value
            if math.isfinite(value):
                better = min if LOWER_IS_BETTER.search(name) else max
                self.best[name] = better(self.best.get(name, value), value)
