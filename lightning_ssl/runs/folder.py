"""A run is a folder; this file knows its layout and nothing of how it came to be.

    RUNS/NAME/
      config.yaml       everything that decides the run; `lightning-ssl fit --config RUNS/NAME/config.yaml` repeats it
      metrics.csv       epoch, step and one column per metric; a row per event, empty where a metric was not logged
      summary.json      what it was, how it went, the last and the best value of every metric
      checkpoints/      step-00000000.ckpt …; whole or absent, for they are written beside their place and renamed

    run = runs.Run("runs/direct")
    run.summary()["last"]["online/top1"]
    runs.read_checkpoint(run.newest_checkpoint())["lightning_ssl"]["config"]      see build.py for its method

Readers (report, sweeps) want to start quickly, so importing this imports no torch.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import math
import os
import re
import subprocess
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from filelock import FileLock, Timeout

import lightning_ssl

LOWER_IS_BETTER = re.compile(r"loss|alignment|uniformity|zeros")
# What a run measures of its clock, and not of its loss: it differs when the same run is repeated.
CLOCK = ("images_per_second",)


class Run:
    """One run folder, by its path."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.metrics = Metrics(self.path / "metrics.csv")

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def config(self) -> dict[str, Any]:
        """The complete configuration."""
        found: dict[str, Any] = yaml.safe_load((self.path / "config.yaml").read_text(encoding="utf-8"))
        return found

    def summary(self) -> dict[str, Any]:
        """What is known of the run so far; empty before it began."""
        file = self.path / "summary.json"
        if not file.exists():
            return {}
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found

    def update_summary(self, **fields: Any) -> None:
        """Replace some fields; readers see the old summary or the new one."""
        text = json.dumps({**self.summary(), **fields}, indent=2, ensure_ascii=False, default=str)
        write_whole(self.path / "summary.json", (text + "\n").encode())

    def write_config(self, text: str) -> None:
        write_whole(self.path / "config.yaml", text.encode())

    def step_checkpoints(self) -> list[Path]:
        """The checkpoints to resume from, newest first."""
        return sorted(self.checkpoints.glob("step-*.ckpt"), reverse=True)

    def leave_behind(self, checkpoint: Path) -> None:
        """Put aside the checkpoints newer than one that training goes on from: they belong to another course of it."""
        for newer in self.step_checkpoints():
            if newer.name > checkpoint.name and checkpoint.name.startswith("step-"):
                newer.replace(newer.with_name(f"abandoned-{newer.name}"))
        for requeued in self.path.glob("hpc_ckpt_*.ckpt"):  # Lightning's, under SLURM; it would take them first
            if requeued.stat().st_mtime < checkpoint.stat().st_mtime:
                requeued.unlink()

    def newest_checkpoint(self) -> Path | None:
        """The newest checkpoint that is whole; a damaged one is passed over with a warning."""
        for path in self.step_checkpoints():
            if damage := damage_of(path):
                warnings.warn(f"{path} is damaged ({damage}); going back to the one before it", stacklevel=2)
            else:
                return path
        return None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder while a process writes to it; another one is refused."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ValueError(f"name={self.path.name!r}: another process is training in {self.path}") from None
        try:
            yield
        finally:
            lock.release()

    def is_held(self) -> bool:
        """Whether a living process trains here."""
        if not (self.path / ".lock").exists():
            return False
        try:
            with FileLock(self.path / ".lock").acquire(timeout=0):
                return False
        except Timeout:
            return True


def find(*folders: str | Path) -> list[Run]:
    """Every run folder at or below these folders, in the order of their paths; W&B's own files in them are none."""
    found = set()
    for folder in map(Path, folders):
        files = [file for name in ("summary.json", "config.yaml") for file in folder.rglob(name)]
        found |= {file.parent for file in files if "wandb" not in file.relative_to(folder).parts[:-1]}
    return [Run(path) for path in sorted(found)]


# ---------------------------------------------------------------------------------------------------------------------
# metrics.csv


class Metrics:
    """A table that grows: rows are appended; a metric that was never seen before adds a column."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self.columns: list[str] = []

    def open(self, rows: int) -> None:
        """Go on after the first `rows` rows: what a killed run wrote after its checkpoint is forgotten."""
        self.columns, kept = ["epoch", "step"], []
        if rows and self.path.exists():
            table = read_metrics(self.path)[:rows]
            self.columns += [name for name in columns_of(table) if name not in self.columns]
            kept = table
        self.rows = len(kept)
        self._write(kept)

    def append(self, row: dict[str, Any]) -> None:
        """One event."""
        new = [name for name in row if name not in self.columns]
        if new:
            table = read_metrics(self.path)
            self.columns += new
            self._write(table)
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerow([number(row.get(name)) for name in self.columns])
        self.rows += 1

    def _write(self, table: list[dict[str, str]]) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
        write_whole(self.path, text.getvalue().encode())

    def series(self, name: str) -> list[tuple[int, int, float]]:
        """(epoch, step, value) of every event that logged a metric."""
        found = []
        for row in read_metrics(self.path):
            if row.get(name):
                found.append((int(float(row["epoch"] or 0)), int(float(row["step"] or 0)), float(row[name])))
        return found

    def last_and_best(self) -> tuple[dict[str, float], dict[str, float]]:
        """Of every metric its last value, and its best: lowest for losses and the like, highest otherwise."""
        last: dict[str, float] = {}
        best: dict[str, float] = {}
        for row in read_metrics(self.path):
            for name, text in row.items():
                if name in ("epoch", "step") or not text:
                    continue
                value = last[name] = float(text)
                better = min if LOWER_IS_BETTER.search(name) else max
                if math.isfinite(value):
                    best[name] = better(best.get(name, value), value)
        return last, best


def read_metrics(path: str | Path) -> list[dict[str, str]]:
    """The rows of a metrics.csv; a last line that was cut off by a crash is left out."""
    path = Path(path)
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    return list(csv.DictReader(io.StringIO(whole)))


def columns_of(table: list[dict[str, str]]) -> list[str]:
    """The columns that have a value, in their order of first use."""
    return list(dict.fromkeys(name for row in table for name, text in row.items() if text))


def number(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


# ---------------------------------------------------------------------------------------------------------------------
# Files that are whole or absent


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Write beside the place, then rename: neither a crash nor a full disk leaves half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}; what was there before is untouched") from error
    finally:
        beside.unlink(missing_ok=True)


def damage_of(path: Path) -> str | None:
    """What is wrong with a checkpoint file, if anything: every byte of it is under a checksum of the archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        return None if broken is None else f"bad checksum of {broken}"
    except (OSError, zipfile.BadZipFile) as error:
        return str(error)


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """A checkpoint of ours as a dictionary of plain values and tensors, on the CPU."""
    import torch

    path = Path(path)
    if path.is_dir():
        newest = Run(path).newest_checkpoint()
        if newest is None:
            raise ValueError(f"checkpoint={str(path)!r}: there is no whole checkpoint in {path / 'checkpoints'}")
        path = newest
    if not path.exists():
        raise ValueError(f"checkpoint={str(path)!r}: no such file; expected a checkpoint or a run folder")
    if damage := damage_of(path):
        raise ValueError(f"checkpoint={str(path)!r}: not a readable checkpoint ({damage})")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # an unpickler may raise anything
        reason = str(error).partition("\n")[0]
        raise ValueError(f"checkpoint={str(path)!r}: not a readable checkpoint ({reason})") from error
    if not isinstance(found, dict) or "config" not in found.get("lightning_ssl", {}):
        raise ValueError(
            f"checkpoint={str(path)!r}: expected one written by `lightning-ssl fit` or `lightning-ssl import-bolts`"
        )
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Words about a run


def label_of(config: dict[str, Any]) -> str:
    """A loss in a few words, `AlphaCL Direct`: the method, and its importance or family."""
    model = config.get("model") or {}
    words = [model.get("class_path", "?").rpartition(".")[2]]
    part = model.get("init_args", {}).get("importance")
    while isinstance(part, dict) and "class_path" in part:
        words.append(part["class_path"].rpartition(".")[2])
        part = part.get("init_args", {}).get("family")
    return " ".join(word for word in words if word != "FromFamily")


@functools.cache
def version() -> str:
    """The package's version, and the commit where it runs from a checkout."""
    here = Path(lightning_ssl.__file__).parent.parent
    try:
        commit = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty", "--exclude", "*"],
            capture_output=True, text=True, timeout=5, check=True,
        ).stdout.strip()  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        commit = ""
    is_checkout = (here / ".git").exists()
    return lightning_ssl.__version__ + (f"+g{commit}" if commit and is_checkout else "")
