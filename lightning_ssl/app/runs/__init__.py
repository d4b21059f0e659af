"""Run folders: one reader, one writer, one function that decides a run's status. Imports no torch.

folder.py         the run folder: layout, reading, writing, lock
small_files.py    the texts and mappings of its small files
metrics.py        reads and writes metrics.jsonl, and converts metrics.csv of older versions
panels.py         the metrics by panel, for the report and W&B
status.py         the status of a run
checkpoints.py    checkpoint files
restore.py        a method with the weights of a checkpoint; evaluations.py writes the files of its evaluation
run_record.py     a whole run with its problems, for the report
archive.py        the small files of a sweep's runs in one file
looks.py          looks.json: at which seeds a sweep was looked at, and what was decided
version.py        the version that a run records
"""

from __future__ import annotations

from lightning_ssl.app.runs.folder import RunFolder, find, read_checkpoint

__all__ = ["RunFolder", "find", "read_checkpoint"]
