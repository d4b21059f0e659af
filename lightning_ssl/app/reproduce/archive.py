"""The archives of a reproduction, one for each sweep: ARCHIVE/SWEEP-SCALE.jsonl.gz (app/runs/archive.py).

A run is evaluated and added when it has finished, so that it can be committed while the study continues.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lightning_ssl.app.reproduce.evaluating import evaluate_all, to_evaluate
from lightning_ssl.app.runs import archive
from lightning_ssl.app.runs.run_record import Reader, files_to_archive
from lightning_ssl.app.sweep.state import recorded
from lightning_ssl.base.untrusted import one_line


def file_of(target: Path, sweep: str) -> Path:
    """The archive of a sweep."""
    return target / f"{sweep}{archive.SUFFIX}"


def keep_finished(file: Path) -> Callable[[Path], None]:
    """A function that evaluates the finished runs at or below a folder, and adds them to an archive.

    A run that could not be evaluated is left out: only its checkpoints allow it, and they can be lost. A failure is one
    line: training continues, and the last step of the reproduction tries again.
    """

    def keep(folder: Path) -> None:
        try:
            evaluate_all(to_evaluate(Reader(recorded).runs([folder])))
            runs = dict(files_to_archive(folder, recorded))
            done = [name for name, files in runs.items() if archive.is_finished(files) and "evaluation.json" in files]
            archive.add(file, [(name, runs[name]) for name in done])
        except Exception as error:
            print(f"{folder.name} is not in {file} yet: {one_line(error)}", flush=True)

    return keep


def add_all(file: Path, folder: Path) -> int:
    """Add every run below a folder, failed ones too, to an archive. Returns how many runs it has."""
    return archive.add(file, files_to_archive(folder, recorded))
