"""One run: the Trainer with everything that a run folder needs, for `lightning-ssl fit`, a sweep's trial, and Python.

run.py             `train`: a configuration → folder, checks, training, result
choose_folder.py   which folder a run uses, and from which checkpoint it resumes
checks.py          checks of a training with its data, and of the checkpoint that it resumes
trainer.py         the Trainer as configured; `attach` adds what writes the run folder and guards the training
python_runs.py     `record_run`: the same for a Trainer that the user's own program has made
guard.py           the callback that stops a training that diverged
recorder.py        the callback and the logger that write a run folder
progress.py        the progress bar; result.py the table at the end
"""

from __future__ import annotations

from lightning_ssl.app.training.python_runs import record_run

__all__ = ["record_run"]
