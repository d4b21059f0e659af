"""All files of a run folder, read at once: settings, status, metrics, and what is wrong with them.

    reader = Reader()
    for run in reader.runs([Path("runs")]):
        run.name, run.status, run.settings["model.importance.p"], run.last("online/top1"), run.problems

The report reads runs this way. It shows every run: a broken one with its problems. All text in the files is untrusted.

failed    the run ended with an error: its summary.json says so, or the sweep.db of its sweep
broken    files of the run are missing or cannot be read, so its result is not known
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning_ssl.runs.folder import FILES, RunFolder, as_number, find, read_config, read_summary, read_text
from lightning_ssl.runs.labels import Scalar, flatten
from lightning_ssl.runs.metrics import STEPWISE, Curve, Series, read_metrics
from lightning_ssl.untrusted import load_json, printable

BROKEN = "broken"
STATUSES = ("finished", "running", "interrupted", "failed", BROKEN)
STALE_AFTER = 3600.0  # seconds without a write after which a "running" run is reported as possibly killed
STALE = "no write for"
SWEEP = "sweep.db"  # in the folder that contains the trials of a sweep


@dataclass
class RunRecord:
    """The content of one run folder, and what is wrong with its files."""

    folder: Path
    name: str
    status: str = BROKEN
    error: str | None = None
    problems: list[str] = field(default_factory=list)
    config: str = ""  # the text of config.yaml
    settings: dict[str, Scalar] = field(default_factory=dict)  # dotted flags of `lightning-ssl fit` and their values
    summary: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Series] = field(default_factory=dict)
    parameters: dict[str, Scalar] = field(default_factory=dict)  # of a sweep's trial

    @property
    def finished(self) -> bool:
        """Whether its last values are final."""
        return self.status == "finished"

    @property
    def seed(self) -> Scalar:
        """The seed, which tells repetitions of one experiment apart."""
        seed = self.settings.get("seed_everything", self.summary.get("seed"))
        return seed if isinstance(seed, int | str) else None

    def last(self, metric: str) -> float | None:
        """The last logged value. Values of a linear evaluation are in the summary only."""
        if metric in self.metrics:
            return self.metrics[metric].last
        for table in ("last", "linear"):
            value = as_number(as_mapping(self.summary.get(table)).get(metric))
            if value is None and table == "linear" and metric.startswith("linear/"):
                value = as_number(as_mapping(self.summary.get(table)).get(metric.removeprefix("linear/")))
            if value is not None:
                return value
        return None

    def best(self, metric: str) -> float | None:
        """The largest logged value. It is chosen on the images it is measured on, so it is never a result."""
        if metric in self.metrics and len(finite := self.metrics[metric].finite):
            return float(finite.max())
        return as_number(as_mapping(self.summary.get("best")).get(metric))

    def linear(self) -> list[str]:
        """Names of the top-1 accuracies that `lightning-ssl evaluate` added."""
        names = [key for key, value in as_mapping(self.summary.get("linear")).items() if as_number(value) is not None]
        full = [name if name.startswith("linear/") else f"linear/{name}" for name in names]
        return sorted(name for name in full if name.endswith("top1"))

    def curve(self, metric: str) -> Curve | None:
        """The metric by epochs trained, or None where it was never logged."""
        if metric in self.metrics:
            return self.metrics[metric].by_epoch(mean=metric.startswith(STEPWISE))
        return None

    def number(self, key: str) -> float | None:
        """A number of the summary, or None."""
        return as_number(self.summary.get(key))


def read_record(folder: Path) -> RunRecord:
    """Read the three files of a run. Content that cannot be read is listed in `problems`."""
    run = RunRecord(folder, folder.name)
    run.problems += [f"{file} is missing" for file in FILES if not (folder / file).is_file()]
    run.config = read_text(folder / "config.yaml")[0]
    config, problems = read_config(folder / "config.yaml")
    try:
        run.settings = flatten(config)
    except (RecursionError, TypeError, ValueError) as error:  # such as a document that contains itself
        problems = [*problems, f"config.yaml cannot be read: {type(error).__name__}"]
    run.summary, more = read_summary(folder / "summary.json")
    run.metrics, yet_more = read_metrics(folder / "metrics.csv")
    run.problems += [*problems, *more, *yet_more]
    status = run.summary.get("status")
    run.error = None if run.summary.get("error") is None else printable(run.summary["error"])
    if run.error is None and status not in ("finished", "running"):
        run.error = RunFolder(folder).last_line()
    unusable = not run.settings or status not in STATUSES or (status == "finished" and not run.metrics)
    run.status = BROKEN if unusable and status != "failed" else str(status)
    if (folder.parent / SWEEP).is_file():
        run.parameters = read_parameters(folder / "parameters.json")
        apply_trial_status(run)
    return run


def read_parameters(file: Path) -> dict[str, Scalar]:
    """Read the parameters of a sweep's trial; none if the file cannot be read."""
    try:
        return flatten(load_json(read_text(file)[0] or "{}"))
    except (ValueError, TypeError, RecursionError):
        return {}


def apply_trial_status(run: RunRecord) -> None:
    """Take the status of a trial from its sweep where the run folder does not have it.

    A trial that the sweep calls failed is failed, whatever its files say. A trial that has not yet written its files
    has the status of the sweep.
    """
    status, error = trial_status(run.folder)
    if status == "failed":
        run.status, run.error = status, error or run.error
    elif status in ("running", "interrupted") and not (run.folder / "summary.json").exists():
        run.status = status


def trial_status(folder: Path) -> tuple[str | None, str | None]:
    """Read status and error of a trial from sweep.db (sweep/state.py); (None, None) if it is not there."""
    row = query(folder.parent, "SELECT status, error FROM trials WHERE id = ?", folder.name)
    status, error = row or (None, None)  # any kind of value can be in any column of SQLite
    return status if isinstance(status, str) else None, None if error is None else printable(error)


def sweep_settings(folder: Path) -> dict[str, Any]:
    """Read the settings of a sweep, such as `method` and `metric`, from sweep.db; empty if the folder is no sweep."""
    row = query(folder, "SELECT value FROM metadata WHERE key = ?", "settings")
    try:
        return as_mapping(load_json(row[0])) if row else {}
    except (ValueError, TypeError, RecursionError):
        return {}


def query(sweep: Path, statement: str, key: str) -> Any:
    """Read one row of a sweep.db; None if there is none, or if the file cannot be read."""
    if not (sweep / SWEEP).is_file():
        return None
    try:
        database = sqlite3.connect(f"{(sweep / SWEEP).resolve().as_uri()}?mode=ro", uri=True, timeout=5)
        try:
            return database.execute(statement, (key,)).fetchone()
        finally:
            database.close()
    except sqlite3.Error:
        return None


class Reader:
    """Finds and reads run folders. Called again, it reads only the runs whose files changed."""

    def __init__(self) -> None:
        self.known: dict[Path, tuple[tuple[Any, ...], RunRecord]] = {}

    def runs(self, folders: Iterable[str | Path]) -> list[RunRecord]:
        """Read every run below the folders, sorted by path. A run's name is its path below their common folder."""
        runs = [self.run(run.path) for run in find(*folders)]
        common = Path(os.path.commonpath([run.folder.parent for run in runs])) if runs else Path()
        for run in runs:
            run.name = run.folder.relative_to(common).as_posix()
        return runs

    def run(self, folder: Path) -> RunRecord:
        """Read one run folder if it is new or has changed."""
        stamp = stamps(folder)
        if folder not in self.known or self.known[folder][0] != stamp:
            self.known[folder] = (stamp, read_record(folder))
        run = self.known[folder][1]
        run.problems = [problem for problem in run.problems if not problem.startswith(STALE)]
        idle = time.time() - max((entry[0] for entry in stamp if entry is not None), default=0) / 1e9
        if run.status == "running" and idle > STALE_AFTER:
            run.problems.append(f"{STALE} {idle / 3600:.1f} h: the process may have been killed")
        return run


def stamps(folder: Path) -> tuple[tuple[int, int] | None, ...]:
    """Modification time and size of each of a run's files. They change when a file does.

    Of a trial without a summary, also those of its sweep's state, which alone tells when such a trial has failed.
    SQLite writes to the file with the suffix -wal first.
    """
    files = [folder / file for file in FILES]
    if not files[-1].exists():
        files += [folder.parent / SWEEP, folder.parent / f"{SWEEP}-wal"]
    found: list[tuple[int, int] | None] = []
    for file in files:
        try:
            status = file.stat()
            found.append((status.st_mtime_ns, status.st_size))
        except OSError:
            found.append(None)
    return tuple(found)


def as_mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
