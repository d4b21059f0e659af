"""The events of metrics.jsonl. `metrics_writer.py` appends them to the file of a run.

    {"epoch": 0, "step": 9, "train/loss": 0.69, "lr": 0.01}
    {"epoch": 0, "step": 19, "train/loss": null, "lr": 0.01, "nonfinite": {"train/loss": "nan"}}

A line is one event: what was logged at a step or at the end of an epoch. JSON has no NaN and no infinity: such a value
is null, and `nonfinite` has its kind: nan, inf or -inf. `pandas.read_json(file, lines=True)` reads the file.

The reader accepts any content: it keeps what it can read and counts the rest. A folder of an older version has
metrics.csv instead (metrics_csv.py).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from lightning_ssl.app.runs import panels
from lightning_ssl.base.untrusted import load_json

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
