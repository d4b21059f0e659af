"""Linear evaluation of finished runs by the protocol of the papers: Adam, 50 epochs, accuracy after the last one.

A run is evaluated and added to the archive of its sweep, ARCHIVE/SWEEP-SCALE.jsonl.gz, when it has finished, so that it
can be committed while the study continues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lightning_ssl.app.reproduce.results import EVALUATION
from lightning_ssl.app.runs import RunFolder, archive
from lightning_ssl.app.runs.run_record import Reader, RunRecord, files_to_archive
from lightning_ssl.app.sweep.state import recorded
from lightning_ssl.base.untrusted import one_line


def evaluate_all(runs: Sequence[RunRecord]) -> None:
    """Evaluate the finished runs that have a checkpoint and no evaluation, with a line for each.

    A run that cannot be evaluated is named and left out.
    """
    finished = [run.folder for run in runs if run.finished and run.last(EVALUATION) is None]
    folders = [folder for folder in finished if RunFolder(folder).step_checkpoints()]
    if folders:
        # Late: torch takes seconds to import, and a reproduction that is complete needs none of it.
        from lightning_ssl.app.runs.evaluations import evaluate_checkpoint, save_record
        from lightning_ssl.app.runs.restore import evaluation_data, restore_method
    for number, folder in enumerate(folders, 1):
        start = time.perf_counter()
        try:
            trained = restore_method(folder)
            # One classifier for each run, as in the papers: the spread is that of the training seeds.
            data = evaluation_data(trained.config)
            record = evaluate_checkpoint(trained, data, protocols=("adam",), seeds=(0,), device="auto")
            save_record(trained, record)
            outcome = f"{EVALUATION}={record['metrics'][EVALUATION]:.4f}"
        except (ValueError, OSError) as error:
            outcome = f"not evaluated: {error}"
        seconds = time.perf_counter() - start
        print(f"[{number}/{len(folders)}] {folder.name} {outcome} after {seconds:.0f} s", flush=True)


def keep_finished(file: Path) -> Callable[[Path], None]:
    """A function that evaluates the finished runs at or below a folder, and adds them to an archive.

    A run that could not be evaluated is left out: only its checkpoints allow it, and they can be lost. A failure is one
    line: training continues, and the last step of the reproduction tries again.
    """

    def keep(folder: Path) -> None:
        try:
            evaluate_all(Reader(recorded).runs([folder]))
            runs = dict(files_to_archive(folder, recorded))
            done = [name for name, files in runs.items() if archive.is_finished(files) and "evaluation.json" in files]
            archive.add(file, [(name, runs[name]) for name in done])
        except Exception as error:
            print(f"{folder.name} is not in {file} yet: {one_line(error)}", flush=True)

    return keep
