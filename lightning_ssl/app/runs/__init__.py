"""Run folders: one reader, one writer, one label for a loss. Importing this package does not import torch.

folder.py         the run folder: layout, reading, writing, lock
metrics.py        reads metrics.jsonl; metrics_writer.py writes it; metrics_csv.py reads metrics.csv of older versions
status.py         the status of a run
identity.py       when two configurations are the same
checkpoints.py    checkpoint files
record.py         a whole run with its problems, for the report
archive.py        the small files of a sweep's runs in one file
keys.py           which keys of a configuration belong to the loss
labels.py         the name of a loss
resume.py         which folder a run uses, and from which checkpoint it resumes
guard.py          the callback that stops a training that diverged
recorder.py       the callbacks and the logger that write a run folder
"""

from __future__ import annotations

from lightning_ssl.app.runs.folder import RunFolder, find, read_checkpoint
from lightning_ssl.app.runs.metrics import LOWER_IS_BETTER, TIMING_METRICS

__all__ = ["LOWER_IS_BETTER", "TIMING_METRICS", "RunFolder", "find", "read_checkpoint"]
