"""The metrics of a run: metrics.jsonl, read by this module and appended by metrics_writer.py.

    {"epoch": 0, "step": 9, "train/loss": 0.69, "lr": 0.01}
    {"epoch": 0, "step": 19, "train/loss": null, "lr": 0.01, "nonfinite": {"train/loss": "nan"}}

A line is one event: what was logged at a step or at the end of an epoch. JSON has no NaN and no infinity: such a value
is null, and `nonfinite` has its kind: nan, inf or -inf. `pandas.read_json(file, lines=True)` reads the file.

The reader accepts any content: it keeps what it can read and lists the problems. A folder of an older version has
metrics.csv instead (metrics_csv.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from lightning_ssl.app.runs import metrics_csv, panels
from lightning_ssl.app.runs.small_files import METRICS, OLD_METRICS, metrics_file, read_text
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


# ---------------------------------------------------------------------------------------------------------------------
# Reading


def read_events(folder: Path) -> tuple[list[Event | None], list[str]]:
    """The events of a run folder, and a list of problems. An unreadable event is None and keeps its place.

    A last line without a newline is incomplete: it is being written, or its writer was killed. It is left out.
    """
    file = metrics_file(folder)
    text, problems = read_text(file)
    return parse_events(text, file.name) if text else ([], problems)


def parse_events(text: str, name: str = METRICS) -> tuple[list[Event | None], list[str]]:
    """The events of the text of a metrics file, and a list of problems. The name tells its form."""
    end = text.rfind("\n") + 1
    if name == OLD_METRICS:
        events = metrics_csv.events_of(text[:end])
        if events is None:
            return [], ["metrics.csv does not begin with a line 'epoch,step,…'"]
    else:
        events = [event_of(line) for line in text[:end].split("\n")[:-1]]
    incomplete = sum(event is None for event in events) + (end < len(text))
    return events, [unreadable(name, incomplete)] if incomplete else []


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


def read_metrics(folder: Path) -> tuple[dict[str, Series], list[str]]:
    """Every metric of a run folder, and a list of problems."""
    return metrics_of(*read_events(folder), metrics_file(folder).name)


def metrics_of(events: Sequence[Event | None], problems: list[str], name: str) -> tuple[dict[str, Series], list[str]]:
    """Every metric of the events of a file, and a list of problems. `problems` are those of reading the events."""
    found, bad = series_of(events)
    return found, [*problems, unreadable(name, bad)] if bad else problems


def series_of(events: Sequence[Event | None]) -> tuple[dict[str, Series], int]:
    """The metrics of events, and the number of values that are no numbers.

    An event without an epoch or a step has that of the event before it.
    """
    place = dict.fromkeys(PLACE, 0.0)
    rows: dict[str, list[tuple[float, float, float]]] = {}
    bad = 0
    for event in events:
        for name in PLACE:
            number = as_float((event or {}).get(name))
            place[name] = number if number is not None and math.isfinite(number) else place[name]
        for name, value in (event or {}).items():
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


def unreadable(name: str, count: int) -> str:
    return f"{name}: {count} incomplete or unreadable {'entry' if count == 1 else 'entries'}"


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
        try:
            if not self.file.is_file():  # a pipe would wait for its writer
                raise FileNotFoundError(self.file)
            with self.file.open("rb") as stream:
                self.read_new(stream)
        except OSError:  # it does not exist yet, or it was removed
            self.start_over()
        return self.values

    def read_new(self, stream: BinaryIO) -> None:
        stream.seek(self.position - len(self.end))
        if stream.read(len(self.end)) != self.end:
            self.start_over()
            stream.seek(0)
        new = stream.read()
        new = new[: new.rfind(b"\n") + 1]
        events = map(event_of, new.decode("utf-8", errors="replace").split("\n"))
        found = (as_float(event.get(self.metric)) for event in events if event is not None)
        self.values += [value for value in found if value is not None]
        self.position += len(new)
        self.end = (self.end + new)[-64:]


@lru_cache(maxsize=1024)
def growing_metric(file: Path, metric: str) -> GrowingMetric:
    """The metric of a file, with what was read of it before in this process."""
    return GrowingMetric(file, metric)
