"""Run folders as they are on disk: whatever is missing or broken is said, and nothing is dropped.

    reader = Reader()
    for run in reader.runs([Path("runs")]):
        run.name, run.status, run.settings["model.importance.p"], run.last("online/top1"), run.problems

A folder is a run when it holds one of a run's own files (`config.yaml`, `metrics.csv`, `summary.json`, `checkpoints/`),
or the `log.txt` of a sweep's trial that came no further; folders are searched at any depth, so `runs` and `runs/sweep`
both do. A reader remembers files that did not change, so
that asking again while a sweep runs reads what is new. What is read was written by others: text, never trusted.
"""

from __future__ import annotations

import csv
import json
import math
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import yaml  # type: ignore[import-untyped]

from lightning_ssl.checks import require
from lightning_ssl.runs.labels import Scalar, flatten

FILES = ("config.yaml", "metrics.csv", "summary.json")
BROKEN = "broken"
STATUSES = ("finished", "running", "interrupted", "failed", BROKEN)
SILENCE = 3600.0  # seconds without a word after which a "running" run is called silent
STEPWISE = ("train/", "alpha/")  # logged many times an epoch, so an epoch's value is their mean; others: the last

Curve: TypeAlias = "tuple[np.ndarray, np.ndarray]"  # epochs trained (E,), values (E,)


@dataclass
class Run:
    """One run folder: what its files say, and what is wrong with them."""

    folder: Path
    name: str
    status: str = BROKEN
    error: str | None = None
    problems: list[str] = field(default_factory=list)
    config: str = ""  # config.yaml as it stands
    settings: dict[str, Scalar] = field(default_factory=dict)  # dotted flags of `lightning-ssl fit` and their values
    summary: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Series] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether its last values are final ones."""
        return self.status == "finished"

    @property
    def seed(self) -> Scalar:
        """What tells repetitions of one experiment apart."""
        seed = self.settings.get("seed_everything", self.summary.get("seed"))
        return seed if isinstance(seed, int | str) else None

    def last(self, metric: str) -> float | None:
        """The last value that was logged; a linear evaluation stands in the summary alone."""
        if metric in self.metrics:
            return self.metrics[metric].last
        for table in ("last", "linear"):
            value = number(mapping(self.summary.get(table)).get(metric))
            if value is None and table == "linear" and metric.startswith("linear/"):
                value = number(mapping(self.summary.get(table)).get(metric.removeprefix("linear/")))
            if value is not None:
                return value
        return None

    def best(self, metric: str) -> float | None:
        """The largest value on the way: of test images, so never a result."""
        series = self.metrics.get(metric)
        finite = series.values[np.isfinite(series.values)] if series is not None else np.empty(0)
        return float(finite.max()) if len(finite) else number(mapping(self.summary.get("best")).get(metric))

    def linear(self) -> list[str]:
        """Names of the top-1 accuracies that `lightning-ssl evaluate` added."""
        names = [key for key, value in mapping(self.summary.get("linear")).items() if number(value) is not None]
        full = [name if name.startswith("linear/") else f"linear/{name}" for name in names]
        return sorted(name for name in full if name.endswith("top1"))

    def curve(self, metric: str) -> Curve | None:
        """The metric by epochs trained, or None where it was never logged."""
        if metric in self.metrics:
            return self.metrics[metric].by_epoch(mean=metric.startswith(STEPWISE))
        return None

    def number(self, key: str) -> float | None:
        """A number of the summary, or None."""
        return number(self.summary.get(key))


@dataclass(frozen=True)
class Series:
    """What a metric was, in the order in which it was logged."""

    epochs: np.ndarray  # (T,)
    values: np.ndarray  # (T,)

    @property
    def last(self) -> float | None:
        """The last value; one that is not a number is a result too, of a loss that diverged."""
        return float(self.values[-1]) if len(self.values) else None

    def by_epoch(self, mean: bool) -> Curve:
        """One value an epoch, at the number of epochs trained by then."""
        order = np.argsort(self.epochs, kind="stable")
        sorted_epochs, values = self.epochs[order], self.values[order]
        first = np.flatnonzero(np.diff(sorted_epochs, prepend=-np.inf))  # where an epoch begins
        ends = np.append(first[1:], len(values))
        trained = sorted_epochs[first] + 1
        return trained, np.add.reduceat(values, first) / (ends - first) if mean else values[ends - 1]


class Reader:
    """Finds and reads run folders; asked again, it reads only those whose files changed."""

    def __init__(self) -> None:
        self.known: dict[Path, tuple[tuple[Any, ...], Run]] = {}

    def runs(self, folders: Iterable[str | Path]) -> list[Run]:
        """Every run below the folders, by path; names of runs in different folders are told apart."""
        found = sorted({path for folder in folders for path in run_folders(Path(folder))})
        runs = [self.run(path) for path in found]
        common = Path(os.path.commonpath([run.folder.parent for run in runs])) if runs else Path()
        for run in runs:
            run.name = run.folder.relative_to(common).as_posix()
        return runs

    def run(self, folder: Path) -> Run:
        """One run folder, read when it is new or has changed."""
        stamp = tuple(stamp_of(folder / file) for file in FILES)
        if folder not in self.known or self.known[folder][0] != stamp:
            self.known[folder] = (stamp, read_run(folder))
        run = self.known[folder][1]
        newest = max((s[0] for s in stamp if s is not None), default=0)
        run.problems = [p for p in run.problems if not p.startswith("no word")]
        silent = time.time() - newest / 1e9
        if run.status == "running" and silent > SILENCE:
            run.problems.append(f"no word for {silent / 3600:.1f} h: it may have been killed")
        return run


def stamp_of(file: Path) -> tuple[int, int] | None:
    """What changes when a file does."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def run_folders(top: Path) -> list[Path]:
    """The run folders at or below `top`; a run is not searched for runs inside it."""
    require(top.is_dir(), "folder", str(top), "a folder that holds runs")
    found = []
    for path, folders, files in os.walk(top):
        trial = "log.txt" in files and (Path(path).parent / "sweep.db").exists()
        if set(FILES) & set(files) or "checkpoints" in folders or trial:
            found.append(Path(path).resolve())
            folders.clear()
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "wandb")
    return found


def read_run(folder: Path) -> Run:
    """Read the three files of a run, keeping what can be read."""
    run = Run(folder, folder.name)
    for file in FILES:
        if not (folder / file).is_file():
            run.problems.append(f"{file} is missing")
    run.config = text_of(folder / "config.yaml", run)
    if run.config:
        try:
            run.settings = flatten(yaml.load(run.config, Loader=YAML))
        # A document nested deeper than Python's stack is as unreadable as one with a wrong sign.
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            run.problems.append(f"config.yaml cannot be read: {one_line(error)}")
    summary = text_of(folder / "summary.json", run)
    if summary:
        try:
            run.summary = mapping(json.loads(summary))
        except (ValueError, RecursionError) as error:
            run.problems.append(f"summary.json cannot be read: {one_line(error)}")
    run.metrics = read_metrics(folder / "metrics.csv", run.problems)
    told = run.summary.get("status")
    run.error = None if run.summary.get("error") is None else str(run.summary["error"])
    if run.error is None and told not in ("finished", "running"):
        run.error = last_line(folder / "log.txt")
    unusable = not run.settings or told not in STATUSES or (told == "finished" and not run.metrics)
    run.status = BROKEN if unusable else str(told)
    return run


# The loader written in C is ten times faster, and not everywhere.
YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def text_of(file: Path, run: Run) -> str:
    if not file.is_file():
        return ""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        run.problems.append(f"{file.name} cannot be read: {one_line(error)}")
        return ""


def last_line(log: Path) -> str | None:
    """What a trial said last."""
    try:
        tail = log.read_bytes()[-10_000:].decode("utf-8", errors="replace")
    except OSError:
        return None
    lines = [line for line in tail.splitlines() if line.strip()]
    return lines[-1].strip()[:500] if lines else None


def read_metrics(file: Path, problems: list[str]) -> dict[str, Series]:
    """metrics.csv by column; a line that was cut short when the run was killed is left out, and said."""
    if not file.is_file():
        return {}
    try:
        with file.open(encoding="utf-8", errors="replace", newline="") as stream:
            rows = list(csv.reader(stream))
    except (OSError, csv.Error) as error:
        problems.append(f"metrics.csv cannot be read: {one_line(error)}")
        return {}
    header = rows[0] if rows else []
    if header[:2] != ["epoch", "step"]:
        problems.append("metrics.csv does not begin with a line 'epoch,step,…'")
        return {}
    whole = [row for row in rows[1:] if len(row) == len(header)]
    bad = len(rows) - 1 - len(whole)
    columns = list(zip(*whole, strict=True)) or [()] * len(header)
    epochs, epoch = [], 0.0
    for cell in columns[0]:
        told = float_of(cell)
        # What is logged between epochs belongs to the one before.
        epoch = told if told is not None and math.isfinite(told) else epoch
        epochs.append(epoch)
    found = {}
    for name, column in zip(header[2:], columns[2:], strict=True):
        logged = [(at, cell) for at, cell in zip(epochs, column, strict=True) if cell]
        try:
            values = [float(cell) for _, cell in logged]
        except ValueError:
            readable = [(at, cell) for at, cell in logged if float_of(cell) is not None]
            bad += len(logged) - len(readable)
            logged, values = readable, [float(cell) for _, cell in readable]
        if values:
            found[name] = Series(np.array([at for at, _ in logged]), np.array(values))
    if bad:
        problems.append(f"metrics.csv: {bad} incomplete or unreadable {'entry' if bad == 1 else 'entries'}")
    return found


def float_of(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def number(value: Any) -> float | None:
    """A finite or infinite number, or None for whatever else stands there."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if isinstance(value, float) and math.isnan(value) else float(value)


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
