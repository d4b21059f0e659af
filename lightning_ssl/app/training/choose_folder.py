"""Which folder a run uses, and from which checkpoint it resumes.

--name NAME                RUNS/NAME: resumed if it was stopped, refused if it has another configuration, also if its
                           checkpoints are gone or damaged; refused if only its metrics are left
without --name             the newest stopped run of exactly this configuration; else a new folder.
                           Under `wandb agent`, torchrun and srun: the name that every rank and every restart computes
--resume never             a new run
--resume FOLDER or FILE    that run or checkpoint, whatever its configuration
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lightning_ssl.app.config.configuration import Configuration
from lightning_ssl.app.config.identity import identity
from lightning_ssl.app.config.labels import short_label
from lightning_ssl.app.launch.ranks import is_first_process, launch, launcher_job, print_once
from lightning_ssl.app.runs.checkpoints import damage
from lightning_ssl.app.runs.folder import RunFolder, checkpoint_file
from lightning_ssl.app.runs.small_files import as_mapping
from lightning_ssl.app.runs.status import BROKEN
from lightning_ssl.base.checks import UserError

# Keys that may change when a run is resumed.
LENGTH = ("trainer.max_epochs", "trainer.max_steps", "trainer.max_time", "trainer.enable_progress_bar")
# Environment variable that passes the first process's choice to the processes that Lightning starts.
CHOICE = "LIGHTNING_SSL_RUN"
MISSING = object()  # a key that a configuration does not have


@dataclass(frozen=True)
class Choice:
    """A run folder, and the checkpoint to resume from; None for a new run."""

    run: RunFolder
    checkpoint: Path | None = None
    is_generated: bool = False  # the name of a new folder; another run may have taken it

    def created(self) -> Choice:
        """The choice with its folder on disk, under a name that is unique: several runs may start in one second."""
        path, numbers = self.run.path, itertools.count(2)
        while self.is_generated:
            try:
                path.mkdir(parents=True)
                return Choice(RunFolder(path))
            except FileExistsError:
                path = self.run.path.with_name(f"{self.run.path.name}-{next(numbers)}")
        return self

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Pass the choice to the processes that Lightning starts for other ranks."""
        os.environ[CHOICE] = json.dumps([str(self.run.path), self.checkpoint and str(self.checkpoint)])
        try:
            yield
        finally:
            del os.environ[CHOICE]


def choose(config: Configuration) -> Choice:
    """Choose the run folder and the checkpoint to resume from. `checks.py` checks the checkpoint."""
    if CHOICE in os.environ and not is_first_process():
        path, checkpoint = json.loads(os.environ[CHOICE])
        return Choice(RunFolder(path), checkpoint and Path(checkpoint))
    folder, name, resume = Path(config.values["runs"]), config.values["name"], config.values["resume"]
    if resume not in ("auto", "never"):
        return choose_path(Path(resume))
    if name is None and (shared := shared_identity(config)):
        name = f"{generated_name(config)}-{slug(shared)}"
    if name is not None:
        return choose_named(config, RunFolder(folder / name), resume)
    if resume == "auto" and (stopped := stopped_run(config, folder)):
        return Choice(stopped, stopped.newest_checkpoint())
    name = f"{generated_name(config)}-{time.strftime('%Y%m%d-%H%M%S')}"
    return Choice(RunFolder(folder / name), is_generated=True)


def choose_path(path: Path) -> Choice:
    """`--resume FOLDER` or `--resume CHECKPOINT`."""
    run = RunFolder(path if path.is_dir() else path.parent.parent)
    if not (run.path / "config.yaml").exists():
        raise UserError(f"resume={str(path)!r}: expected auto, never, a run folder or a checkpoint of one")
    return Choice(run, checkpoint_file(path, "resume"))


def choose_named(config: Configuration, run: RunFolder, resume: str) -> Choice:
    """With --name: that folder. A run with another configuration is refused."""
    refused = f"name={run.path.name!r}: {run.path}"
    if resume == "never":
        if run.has_files() and is_first_process():  # other ranks may find the folder that the first one just made
            raise UserError(f"{refused} exists; choose another --name, or --resume auto")
        return Choice(run)
    if run.has_files() and (change := first_change(config, run)):
        can_resume = run.config() and not all(map(damage, run.step_checkpoints()))
        anyway = f", or --resume {run.path} to resume it anyway" if can_resume else ""
        raise UserError(f"{change}, in {run.path}; choose another --name{anyway}")
    checkpoint = run.newest_checkpoint()
    if checkpoint is None and run.is_finished():
        if extends(config, run):
            raise UserError(f"{refused} is finished and has no whole checkpoint; choose another --name")
    elif checkpoint is None:
        if "started" not in run.summary() and run.has_metrics():
            raise UserError(
                f"{refused} has metrics, but neither a summary nor a whole checkpoint; choose another --name"
            )
        if run.step_checkpoints():
            warnings.warn(f"{run.checkpoints} holds no undamaged checkpoint; training starts again", stacklevel=2)
    return Choice(run, checkpoint)


def generated_name(config: Configuration) -> str:
    """Data set, loss and seed: `shapes-alphacl-direct-seed0`."""
    words = f"{config.values['data']['name']}-{short_label(config.stored())}-seed{config.seed}"
    return slug(words.lower())  # a data set can be `hf:owner/name`


def slug(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", text)


def shared_identity(config: Configuration) -> str | None:
    """What follows the generated name where several processes must find one folder, now and after a requeue.

    The run id that W&B's agent gives; else, for ranks that torchrun or srun started, a digest of the configuration and
    the id of the job. None where the first process chooses the folder alone.
    """
    if agent := os.environ.get("WANDB_RUN_ID"):
        return agent
    if not launch().launcher:
        return None
    compared = {key: value for key, value in identity(config.stored()).items() if key not in LENGTH}
    digest = hashlib.sha256(json.dumps(compared, sort_keys=True, default=str).encode()).hexdigest()[:8]
    return "-".join(filter(None, (digest, launcher_job())))


def stopped_run(config: Configuration, folder: Path) -> RunFolder | None:
    """The newest run of exactly this configuration that was stopped before its end."""
    for path in sorted(folder.glob(f"{generated_name(config)}-*"), reverse=True):
        run = RunFolder(path)
        stopped = run.status() not in ("finished", BROKEN) and not run.is_locked()
        if stopped and run.step_checkpoints() and not first_change(config, run, may_change=()):
            print_once(f"resuming {run.path} (--resume never starts a new run)")
            return run
    return None


def first_change(config: Configuration, run: RunFolder, may_change: tuple[str, ...] = LENGTH) -> str | None:
    """Compare a configuration with that of a run folder. Returns the first difference, or None."""
    stored = run.config()
    if not stored:
        return "config.yaml cannot be read"
    before, now = identity(stored), identity(config.stored())
    for key in sorted(before.keys() | now.keys()):
        if key not in may_change and before.get(key, MISSING) != now.get(key, MISSING):
            return f"{key}={now.get(key)!r}: it was {before.get(key)!r} before"
    return None


def extends(config: Configuration, run: RunFolder) -> bool:
    """Whether the configuration asks for more epochs or steps than a finished run, and for fewer of neither."""
    before, now = as_mapping(run.config().get("trainer")), config.values["trainer"]
    changed = [key for key in ("max_epochs", "max_steps") if now[key] != before.get(key)]
    return bool(changed) and all(limit(now[key]) > limit(before.get(key)) for key in changed)


def limit(value: int | None) -> float:
    return math.inf if value is None or value == -1 else value
