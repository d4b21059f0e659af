"""All files of a run, read at once: settings, status, metrics, and what is wrong with them.

    reader = Reader()
    for run in reader.runs([Path("runs"), Path("table1-cpu.jsonl.gz")]):  # run folders, and an archive (archive.py)
        run.name, run.status, run.settings["model.importance.p"], run.last("online/top1"), run.problems

The report reads runs this way. It shows every run: a broken one with its problems. All text in the files is untrusted.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from lightning_ssl.app.config.labels import Scalar, flatten
from lightning_ssl.app.runs import archive
from lightning_ssl.app.runs.folder import RunFolder, find
from lightning_ssl.app.runs.metrics import METRICS, STEPWISE, Curve, Series, events_of, metrics_of
from lightning_ssl.app.runs.small_files import FILES, READ, Files, as_mapping, as_number, mapping_of, read_files
from lightning_ssl.app.runs.status import BROKEN, status_of
from lightning_ssl.base.untrusted import printable

STALE_AFTER = 3600.0  # seconds without a write after which a "running" run is reported as possibly killed

TrialReader: TypeAlias = Callable[[Path], Mapping[str, Any]]
"""What the sweep of a run folder knows about it: `status`, `error`, and the `settings` of the sweep."""


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
    sweep: dict[str, Any] = field(default_factory=dict)  # the settings of its sweep, such as `method` and `metric`

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
        values = [self.number(metric, table) for table in ("last", "linear")]
        return next((value for value in values if value is not None), None)

    def best(self, metric: str) -> float | None:
        """The best logged value. It is chosen on the images it is measured on, so it is never a result."""
        return self.number(metric, "best")

    def linear(self) -> list[str]:
        """Names of the top-1 accuracies that `lightning-ssl evaluate` added."""
        names = as_mapping(self.summary.get("linear"))
        return sorted(name for name in names if name.endswith("top1") and self.number(name, "linear") is not None)

    def curve(self, metric: str) -> Curve | None:
        """The metric by epochs trained, or None where it was never logged."""
        if metric in self.metrics:
            return self.metrics[metric].by_epoch(mean=metric.startswith(STEPWISE))
        return None

    def number(self, key: str, table: str | None = None) -> float | None:
        """A number of the summary, or of a table in it; None if there is none."""
        return as_number(as_mapping(self.summary.get(table) if table else self.summary).get(key))


def read_record(folder: Path, read_trial: TrialReader = lambda _: {}) -> RunRecord:
    """Read the small files of a run. Content that cannot be read is listed in `problems`.

    read_trial   needed for the trials of an older version, whose end is in the sweep.db of their sweep only
    """
    files, problems = read_files(folder)
    run = record_of(folder, files, read_trial(folder))
    run.problems += problems
    if run.error is None and run.summary.get("status") not in ("finished", "running"):
        run.error = RunFolder(folder).last_line()
    idle = time.time() - max((modified for _, modified, _ in stamps(folder)), default=0) / 1e9
    if run.status == "running" and idle > STALE_AFTER:
        run.problems.append(f"no write for {idle / 3600:.1f} h: the process may have been killed")
    return run


def record_of(folder: Path, files: Files, trial: Mapping[str, Any]) -> RunRecord:
    """The record of a run from the texts of its small files.

    trial   what the sweep.db of an older version knows about it
    """
    run = RunRecord(folder, folder.name, config=files.get("config.yaml", ""))
    config, wrong_config = mapping_of(files, "config.yaml")
    run.summary, wrong_summary = mapping_of(files, "summary.json")
    run.metrics, bad = metrics_of(events_of(files.get(METRICS, "")))
    run.problems += [f"{name} is missing" for name in FILES if name not in files]
    run.problems += [*wrong_config, *wrong_summary]
    run.problems += [f"{METRICS}: incomplete or unreadable entries: {bad}"] if bad else []
    run.settings, run.parameters = flatten(config), flatten(mapping_of(files, "parameters.json")[0])
    run.sweep = as_mapping(trial.get("settings"))
    is_readable = bool(run.settings) and (bool(run.metrics) or run.summary.get("status") != "finished")
    run.status = status_of(run.summary, trial=trial.get("status"), readable=is_readable)
    reason = run.summary.get("error") if trial.get("error") is None else trial["error"]
    run.error = None if reason is None else printable(reason)
    return run


def archived_runs(file: Path) -> list[RunRecord]:
    """Read the runs of an archive."""
    return [record_of(archive.folder_of(file, name), files, {}) for name, files in archive.read(file).items()]


def files_to_archive(source: Path, read_trial: TrialReader) -> Iterator[tuple[str, Files]]:
    """The name and the small files of every run of a source of `Reader.runs`, for `archive.add`.

    A trial that ended without a summary gets one with its status and error.
    """
    for file in archive.archives_in([source]):
        yield from archive.read(file).items()
    for folder in [] if archive.is_archive(source) else find(source):
        run, files = read_record(folder.path, read_trial), read_files(folder.path)[0]
        if run.summary.get("status") != run.status:
            summary = {**run.summary, "name": run.name, "status": run.status, "error": run.error}
            files["summary.json"] = json.dumps(summary, indent=2, ensure_ascii=False) + "\n"
        yield run.name, files


class Reader:
    """Finds and reads runs. Called again, it reads only the run folders that changed, and archives."""

    def __init__(self, read_trial: TrialReader = lambda _: {}) -> None:
        self.read_trial = read_trial
        self.known: dict[Path, tuple[tuple[Any, ...], RunRecord]] = {}

    def runs(self, sources: Iterable[str | Path]) -> list[RunRecord]:
        """Read every run below folders and in archives, sorted by path. A run's name is its path below the common one.

        The archives in a folder that is given are read too. A run that also has a folder is read from its folder.
        """
        paths = [Path(source) for source in sources]
        found = {run.folder: run for file in archive.archives_in(paths) for run in archived_runs(file)}
        folders = [path for path in paths if not archive.is_archive(path)]
        found |= {run.path: self.run(run.path) for run in find(*folders)}
        runs = [found[folder] for folder in sorted(found)]
        common = Path(os.path.commonpath([run.folder.parent for run in runs])) if runs else Path()
        for run in runs:
            run.name = run.folder.relative_to(common).as_posix()
        return runs

    def run(self, folder: Path) -> RunRecord:
        """Read one run folder if it is new or has changed, or if its process may have been killed since."""
        stamp = stamps(folder)
        before, run = self.known.get(folder, ((), None))
        if run is None or before != stamp or run.status == "running":
            run = read_record(folder, self.read_trial)
            self.known[folder] = (stamp, run)
        return run


def stamps(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, modification time and size of each small file of a run. They change when a file does."""
    found = []
    with suppress(OSError), os.scandir(folder) as entries:  # the folder may be removed now
        for entry in entries:
            if entry.name in READ:
                found.append((entry.name, entry.stat().st_mtime_ns, entry.stat().st_size))
    return tuple(sorted(found))
