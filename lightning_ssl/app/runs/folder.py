"""The run folder: its layout, its writer, and access to its files.

    RUNS/NAME/
      config.yaml       the complete configuration; `lightning-ssl fit --config RUNS/NAME/config.yaml` repeats the run
      metrics.jsonl     a line for each event: epoch, step and the metrics (metrics.py)
      summary.json      loss, data, settings, status (status.py), command, the last and best value of every metric
      checkpoints/      step-00000000.ckpt …, written atomically (checkpoints.py)
      error.txt         the traceback of a failed run
      evaluation.json   the results of `lightning-ssl evaluate`
      log.txt           the output of a sweep's trial; parameters.json holds its parameters

    run = RunFolder("runs/direct")
    run.summary()["last"]["online/top1"]
    run.metrics()["online/top1"].values

Reading tolerates any content: a missing or unreadable file counts as an empty one. `run_record.py` also lists what
is wrong with the files. Importing this module does not import torch.
"""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from filelock import FileLock, Timeout

from lightning_ssl.app.config.keys import role
from lightning_ssl.app.config.labels import flatten, label_of
from lightning_ssl.app.runs.checkpoints import damage, load_checkpoint
from lightning_ssl.app.runs.metrics import METRICS, MetricsWriter, Series, events_of, growing_metric, metrics_of
from lightning_ssl.app.runs.small_files import FILES, OLD_METRICS, as_mapping, as_number, read_files, read_mapping
from lightning_ssl.app.runs.status import status_of
from lightning_ssl.app.runs.version import version
from lightning_ssl.base import machine
from lightning_ssl.base.checks import UserError, require
from lightning_ssl.base.files import locked, remove_leftovers, special_kind, write_atomic
from lightning_ssl.base.untrusted import printable

LOG_TAIL = 20_000  # bytes at the end of a log in which its last line is looked for
MAX_LINE = 500  # characters kept of a log's last line


class RunFolder:
    """One run folder, given by its path.

    >>> run = RunFolder("runs/direct")
    >>> run.is_finished(), run.newest_checkpoint()  # nothing is there yet
    (False, None)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    # -- reading ------------------------------------------------------------------------------------------------------

    def config(self) -> dict[str, Any]:
        """The complete configuration; empty where config.yaml is missing or unreadable."""
        return read_mapping(self.path / "config.yaml")[0]

    def summary(self) -> dict[str, Any]:
        """The content of summary.json; empty where it is missing or unreadable."""
        return read_mapping(self.path / "summary.json")[0]

    def has_files(self) -> bool:
        """Whether a run was begun here, even if its files cannot be read now.

        A summary without `started` is that of a sweep's trial whose run has not begun.
        """
        summary, problems = read_mapping(self.path / "summary.json")
        begun = bool(problems) or "started" in summary or (self.path / "config.yaml").exists()
        return begun or self.has_metrics() or bool(self.step_checkpoints())

    def has_metrics(self) -> bool:
        files = [self.path / name for name in (METRICS, OLD_METRICS)]
        return any(file.is_file() and file.stat().st_size > 0 for file in files)

    def status(self) -> str:
        """The status in summary.json (status.py). `run_record.py` also checks the other files."""
        return status_of(self.summary())

    def is_finished(self) -> bool:
        return self.status() == "finished"

    def check_files(self) -> None:
        """Refuse a folder in which a file of a run is a pipe, a device or a folder. It cannot be written."""
        for name in (*FILES, OLD_METRICS, "error.txt", ".lock"):
            if kind := special_kind(self.path / name):
                raise UserError(f"{self.path / name}: it is {kind}, not a regular file")
        if self.checkpoints.exists() and not self.checkpoints.is_dir():
            raise UserError(f"{self.checkpoints}: it is not a folder")

    def events(self) -> list[dict[str, Any] | None]:
        """The lines of metrics.jsonl; None for an unreadable one."""
        return events_of(read_files(self.path)[0].get(METRICS, ""))

    def metrics(self) -> dict[str, Series]:
        """Every metric that was logged."""
        return metrics_of(self.events())[0]

    def history(self, metric: str | None) -> list[float]:
        """The finite values of a metric, in the order in which they were logged."""
        return [value for value in self.logged(metric) if math.isfinite(value)]

    def last_value(self, metric: str | None) -> float | None:
        """The last logged value of a metric, from its metrics or else from summary.json. None if it is not finite."""
        logged = self.logged(metric)
        value = logged[-1] if logged else as_number(as_mapping(self.summary().get("last")).get(metric or ""))
        return value if value is not None and math.isfinite(value) else None

    def logged(self, metric: str | None) -> list[float]:
        """All values of a metric. Of metrics.jsonl only the lines that are new to this process are read."""
        if (self.path / METRICS).exists():
            return growing_metric((self.path / METRICS).absolute(), metric or "").look()
        series = self.metrics().get(metric or "")
        return [] if series is None else [float(value) for value in series.values]

    def logged_metrics(self) -> list[str]:
        """The names of all metrics, logged or in summary.json."""
        return sorted({*self.metrics(), *as_mapping(self.summary().get("last"))})

    def error_line(self, exit_code: int) -> str:
        """Why a trial failed: the error of its summary, or else the last line of its log."""
        error = self.summary().get("error")
        if isinstance(error, str) and error.strip():
            return " ".join(printable(error).split())
        line = self.last_line()
        if exit_code >= 0:
            return line or f"exit code {exit_code}"
        return f"ended by signal {-exit_code}" + (f"; its last line: {line}" if line else "")

    def last_line(self) -> str | None:
        """The last line of log.txt that is not empty."""
        log = self.path / "log.txt"
        if not log.is_file():  # a pipe would wait for its writer
            return None
        with log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - LOG_TAIL))
            text = stream.read().decode("utf-8", errors="replace")
        lines = [line.strip() for line in printable(text.replace("\r", "\n")).splitlines() if line.strip()]
        return lines[-1][:MAX_LINE] if lines else None

    # -- writing ------------------------------------------------------------------------------------------------------

    @cached_property
    def metrics_writer(self) -> MetricsWriter:
        """The writer of metrics.jsonl."""
        return MetricsWriter(self.path)

    def begin(self, config: dict[str, Any], command: list[str], checkpoint: Path | None = None) -> str:
        """Write config.yaml and the first summary.json of a run, or of a resumed one. Returns the label of the loss."""
        before = self.summary() if checkpoint is not None else {}
        if checkpoint is not None:
            self.abandon_newer(checkpoint)
        flat = flatten(config)
        label = label_of(flat)
        roles = {"loss": "loss", "data": "data", "settings": "setting"}
        self.write_config(config)  # first: a folder with a summary and without a configuration would be refused later
        self.update_summary(
            name=self.path.name,
            status="running",
            error=None,
            label=label,
            # What the run is: the report and other programs need no list of keys to know it.
            **{name: {k: v for k, v in flat.items() if role(k) == kind} for name, kind in roles.items()},
            command=command,
            started=before.get("started") or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            seed=config.get("seed_everything"),
            group=config.get("group"),
            tags=config.get("tags") or [],
            version=version(),
            machine=machine.describe(),
            last=before.get("last", {}),
            best=before.get("best", {}),
            linear={},  # an evaluation of other weights
        )
        return label

    def update_summary(self, **fields: Any) -> None:
        """Replace some fields of summary.json atomically."""
        text = json.dumps({**self.summary(), **fields}, indent=2, ensure_ascii=False, default=str)
        write_atomic(self.path / "summary.json", (text + "\n").encode())
        if fields.get("status") == "finished":
            (self.path / "error.txt").unlink(missing_ok=True)  # of an earlier attempt

    def write_config(self, config: dict[str, Any]) -> None:
        """Write config.yaml atomically."""
        text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
        write_atomic(self.path / "config.yaml", text.encode())

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def step_checkpoints(self) -> list[Path]:
        """The checkpoints to resume from, newest first."""
        return sorted(self.checkpoints.glob("step-*.ckpt"), reverse=True)

    def newest_checkpoint(self) -> Path | None:
        """The newest undamaged checkpoint. A warning names the damaged ones that are newer than it."""
        damaged = []
        for path in self.step_checkpoints():
            if reason := damage(path):
                damaged.append(f"{path} is damaged ({reason}); the checkpoint before it is used")
                continue
            for warning in damaged:
                warnings.warn(warning, stacklevel=2)
            return path
        return None

    def abandon_newer(self, checkpoint: Path) -> None:
        """Rename the checkpoints that are newer than the one from which training resumes."""
        for newer in self.step_checkpoints():
            if newer.name > checkpoint.name and checkpoint.name.startswith("step-"):
                newer.replace(newer.with_name(f"abandoned-{newer.name}"))

    # -- lock ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder while this process writes to it. A second process is refused.

        Temporary files of killed processes are removed.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path / ".lock", f"name={self.path.name!r}: another process is training in {self.path}"):
            for folder in (self.path, self.checkpoints):
                remove_leftovers(folder)
            yield

    def is_locked(self) -> bool:
        """Whether a living process trains in this folder."""
        if not (self.path / ".lock").exists():
            return False
        with suppress(Timeout), FileLock(self.path / ".lock").acquire(timeout=0):
            return False
        return True


def find(*folders: str | Path) -> list[RunFolder]:
    """Find every run folder at or below these folders, sorted by path.

    A folder is a run when it holds one of a run's files, or checkpoints/, or the log of a sweep's trial that failed
    before it wrote any of them. Runs are not searched for inside a run, in hidden folders, or in W&B's own folders.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as top:
    ...     RunFolder(f"{top}/direct").update_summary(status="finished")
    ...     [run.path.name for run in find(top)]
    ['direct']
    """
    found = set()
    for top in map(Path, folders):
        require(top.is_dir(), "folder", str(top), "a folder that holds runs")
        for path, names, files in os.walk(top):
            trial = "log.txt" in files and (Path(path).parent / "sweep.db").exists()
            if {*FILES, OLD_METRICS} & set(files) or "checkpoints" in names or trial:
                found.add(Path(path).resolve())
                names.clear()
            names[:] = sorted(name for name in names if not name.startswith(".") and name != "wandb")
    return [RunFolder(path) for path in sorted(found)]


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Load a checkpoint: a file, or the newest undamaged one of a run folder.

    >>> import tempfile
    >>> read_checkpoint(tempfile.mkdtemp())
    Traceback (most recent call last):
    lightning_ssl.base.checks.UserError: checkpoint=...: ... holds no undamaged checkpoint
    """
    return load_checkpoint(checkpoint_file(Path(path)))


def checkpoint_file(path: Path, key: str = "checkpoint") -> Path:
    """A checkpoint, or the newest undamaged one of a run folder. `key` is the option that names it, for the error."""
    newest = RunFolder(path).newest_checkpoint() if path.is_dir() else path
    if newest is None:
        raise UserError(f"{key}={str(path)!r}: {path / 'checkpoints'} holds no undamaged checkpoint")
    return newest
