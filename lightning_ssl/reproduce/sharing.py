"""Runs that several tables share are trained once.

InfoNCE and Direct stand in most tables. Before a sweep starts, each of its cells gets the finished run of exactly the
same configuration and seed, from another sweep of RUNS or from the archive, if there is one. `lightning-ssl fit` finds
it under the name of the trial, complete, and trains nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lightning_ssl.files import copy_of, write_all, write_atomic
from lightning_ssl.reproduce.planning import Cell, Planned
from lightning_ssl.runs import RunFolder
from lightning_ssl.runs.folder import FILES, find
from lightning_ssl.runs.identity import identity
from lightning_ssl.runs.metrics import OLD_METRICS
from lightning_ssl.sweep.engine import preview

COPIED = (*FILES, OLD_METRICS, "evaluation.json")


def share(planned: Sequence[Planned], sources: Sequence[Path]) -> list[Cell]:
    """Copy finished runs of the same configuration into the folders of sweeps. Returns the cells done."""
    known = {repr(sorted(identity(run.config()).items())): run for run in finished_runs(sources)}
    copied = []
    for sweep in planned:
        cells = zip(sweep.plan.cells, sweep.configs, strict=True)
        configs = {sweep.plan.identity(cell): config for cell, config in cells}
        for trial, _ in preview(sweep.plan, sweep.folder):
            cell, target = sweep.plan.identity(trial.parameters), RunFolder(sweep.folder / trial.id)
            source = known.get(repr(sorted(identity(configs.get(cell, {})).items())))
            if source is None:
                continue
            if not target.has_files():
                copy(source, target)
            if target.is_finished():
                copied.append((sweep.plan.name, cell))
    return copied


def finished_runs(folders: Sequence[Path]) -> list[RunFolder]:
    """The finished runs below folders. One whose files are damaged is left out."""
    found = []
    for run in find(*(folder for folder in folders if folder.is_dir())):
        try:
            if run.is_finished() and run.config():
                found.append(run)
        except ValueError:
            continue
    return found


def copy(source: RunFolder, target: RunFolder) -> None:
    """Copy a run. Its checkpoints become hard links where the file system has them.

    summary.json names the run of another sweep as SWEEP/RUN. The small files come last: a run whose copy failed on a
    full disk has no summary, and is copied or trained again.
    """
    for file in source.step_checkpoints():
        link = target.path / "checkpoints" / file.name
        link.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file, link)
        except OSError:
            write_atomic(link, copy_of(file))
    kept = [name for name in COPIED if (source.path / name).is_file()]
    write_all({target.path / name: copy_of(source.path / name) for name in kept})
    origin, place = (f"{run.path.parent.name}/{run.path.name}" for run in (source, target))
    target.update_summary(name=target.path.name, **({} if origin == place else {"copied_from": origin}))
