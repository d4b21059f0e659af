"""Runs that several tables share are trained once.

InfoNCE and Direct stand in most tables. Before a sweep starts, each of its cells gets the finished run of exactly the
same configuration and seed, from another sweep of RUNS or from the archive, if there is one. `lightning-ssl fit` finds
it under the name of the trial, complete, and trains nothing.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from lightning_ssl.app.config.identity import identity, key_of
from lightning_ssl.app.reproduce.planning import Cell, Planned
from lightning_ssl.app.runs import RunFolder, archive, find
from lightning_ssl.app.runs.small_files import FILES, Files, read_files
from lightning_ssl.app.sweep.engine import preview
from lightning_ssl.base.files import copy_of, write_all, write_atomic

COPIED = (*FILES, "evaluation.json")


def share(planned: Sequence[Planned], sources: Sequence[Path], dry_run: bool = False) -> list[Cell]:
    """Copy finished runs of the same configuration into the folders of sweeps. Returns the cells done.

    A run of the archive of the same sweep is preferred, so that it is known as a run of this archive. A dry run copies
    nothing, and returns the same cells.
    """
    wanted = {key_of(identity(config)) for sweep in planned for config in sweep.configs}
    known: dict[str, dict[Path, Files]] = defaultdict(dict)
    for folder, files in runs_of(sources):
        key = key_of(archive.experiment(files))
        if key in wanted and archive.is_finished(files):
            known[key][folder] = files
    copied = []
    for sweep in planned:
        keys = {
            sweep.plan.identity(c): key_of(identity(x)) for c, x in zip(sweep.plan.cells, sweep.configs, strict=True)
        }
        for trial, _ in preview(sweep.plan, sweep.folder):
            cell, target = sweep.plan.identity(trial.parameters), RunFolder(sweep.folder / trial.id)
            found = known.get(keys.get(cell, ""), {})
            missing = not target.has_files()
            if found and missing and not dry_run:
                source = min(found, key=lambda folder: folder.parent.name != sweep.plan.name)
                copy(source, found[source], target)
            if found and (missing or target.is_finished()):
                copied.append((sweep.plan.name, cell))
    return copied


def runs_of(sources: Sequence[Path]) -> Iterator[tuple[Path, Files]]:
    """The small files of every run in folders and archives, with its folder."""
    for run in find(*(source for source in sources if source.is_dir())):
        yield run.path, read_files(run.path)[0]
    for file in archive.archives_in(sources):
        for name, files in archive.read(file).items():
            yield archive.folder_of(file, name), files


def copy(source: Path, files: Files, target: RunFolder) -> None:
    """Copy a run. Its checkpoints become hard links where the file system has them; an archived run has none.

    summary.json names the run of another sweep as SWEEP/RUN. The small files come last: a run whose copy failed on a
    full disk has no summary, and is copied or trained again.
    """
    for file in RunFolder(source).step_checkpoints():
        link = target.path / "checkpoints" / file.name
        link.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file, link)
        except OSError:
            write_atomic(link, copy_of(file))
    write_all({target.path / name: files[name].encode(errors="replace") for name in COPIED if name in files})
    origin, place = (f"{run.parent.name}/{run.name}" for run in (source, target.path))
    target.update_summary(name=target.path.name, **({} if origin == place else {"copied_from": origin}))
