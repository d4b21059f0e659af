"""Copies the small files of runs, so that a table can be made again without the checkpoints.

    ARCHIVE/SWEEP/RUN/config.yaml, metrics.csv, summary.json, evaluation.json, parameters.json

`lightning-ssl report ARCHIVE/SWEEP` gives the table of the original runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from lightning_ssl.files import copy_of, write_all, write_atomic
from lightning_ssl.runs.folder import FILES
from lightning_ssl.runs.metrics import OLD_METRICS
from lightning_ssl.runs.record import RunRecord

KEPT = (*FILES, OLD_METRICS, "evaluation.json", "parameters.json")


def archive(runs: Sequence[RunRecord], target: Path) -> Path:
    """Copy the small files of the runs. A run that failed before it wrote a summary gets one with its error."""
    for run in runs:
        folder = target / run.folder.parent.name / run.folder.name
        kept = [name for name in KEPT if (run.folder / name).is_file()]
        if run.folder.resolve() != folder.resolve():
            write_all({folder / name: copy_of(run.folder / name) for name in kept})
        if not (folder / "summary.json").exists() or run.summary.get("status") != run.status:
            status = {**run.summary, "name": run.folder.name, "status": run.status, "error": run.error}
            write_atomic(folder / "summary.json", (json.dumps(status, indent=2, ensure_ascii=False) + "\n").encode())
    return target
