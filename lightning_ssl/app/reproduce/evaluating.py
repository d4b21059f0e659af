"""Linear evaluation of finished runs by the protocol of the papers: Adam, 50 epochs, accuracy after the last one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from lightning_ssl.app.reproduce.results import EVALUATION
from lightning_ssl.app.runs import RunFolder
from lightning_ssl.app.runs.run_record import RunRecord


def to_evaluate(runs: Sequence[RunRecord]) -> list[Path]:
    """The folders of the finished runs that have a checkpoint and no evaluation."""
    return [
        run.folder
        for run in runs
        if run.finished and run.last(EVALUATION) is None and RunFolder(run.folder).step_checkpoints()
    ]


def evaluate_all(folders: Sequence[Path], device: str = "auto") -> None:
    """Evaluate run folders, with a line for each. One that cannot be evaluated is named and left out."""
    # Late: torch takes seconds to import, and a reproduction that is complete needs none of it.
    from lightning_ssl.app.runs.evaluations import evaluate_checkpoint, save_record
    from lightning_ssl.app.runs.restore import evaluation_data, restore_method

    for number, folder in enumerate(folders, 1):
        start = time.perf_counter()
        try:
            trained = restore_method(folder)
            # One classifier for each run, as in the papers: the spread is that of the training seeds.
            record = evaluate_checkpoint(
                trained, evaluation_data(trained.config), protocols=("adam",), seeds=(0,), device=device
            )
            save_record(trained, record)
            outcome = f"{EVALUATION}={record['metrics'][EVALUATION]:.4f}"
        except (ValueError, OSError) as error:
            outcome = f"not evaluated: {error}"
        seconds = time.perf_counter() - start
        print(f"[{number}/{len(folders)}] {folder.name} {outcome} after {seconds:.0f} s", flush=True)
