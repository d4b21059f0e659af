"""One training: configuration → objects → checks → run folder → Trainer → result."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from lightning_ssl.app.config.configuration import Configuration, Parts
from lightning_ssl.app.launch import devices, ranks
from lightning_ssl.app.launch.noted_signals import NotedSignals
from lightning_ssl.app.launch.ranks import is_first_process, print_once
from lightning_ssl.app.launch.signals import Stopped, StopSignals
from lightning_ssl.app.training import choose_folder
from lightning_ssl.app.training.checks import check_training, require_resumable
from lightning_ssl.app.training.recorder import Recorder
from lightning_ssl.app.training.result import print_result
from lightning_ssl.app.training.trainer import check_logger, make_trainer, warn_of_local_batch_norm
from lightning_ssl.base.checks import RunFailed, UserError
from lightning_ssl.base.untrusted import one_line

SILENCED = (
    ".*does not have many workers.*",
    ".*GPU available but not used.*",
    ".*Checkpoint directory .* exists and is not empty.*",
    ".*number of training batches .* is smaller than the logging interval.*",
    ".*lr_scheduler.step.*",
    ".*isinstance.treespec, LeafSpec.*",
    ".*litlogger.*",
    ".*callbacks used to create the checkpoint need to be provided.*",  # `--trainer.max_time` may change
    ".*It is recommended to use .*sync_dist.*",  # our values are those of all ranks already
    ".*`srun` command is available.*",
)


def train(config: Configuration, argv: list[str], early: NotedSignals | None = None) -> int:
    """Choose the run folder, check everything, train, print the result. Returns the exit code.

    argv   the flags of `lightning-ssl fit`, as they are stored in summary.json
    early  has noted the signals before this call
    """
    ranks.forget_unused_tasks()
    with quiet():  # before there is a run folder: a refused argument leaves none
        parts = config.build()
        arguments, number_of_ranks = devices.for_launched_ranks(parts.trainer)
        parts.trainer.update(arguments)
    check_logger(config.values["logger"])
    choice = choose_folder.choose(config)
    run = choice.run
    run.check_files()
    if run.is_finished() and not choose_folder.extends(config, run):
        print_once(f"{run.path} is finished already; --resume never starts a new run")
        return 0
    signals = StopSignals(early)
    # A trial of W&B that is preempted during a download still starts, so that it can be marked as preempted.
    with quiet(), signals if config.values["logger"] == "wandb" else nullcontext():
        if is_first_process():
            batches = check_training(parts, number_of_ranks)
            if choice.checkpoint is not None:
                require_resumable(choice.checkpoint, parts, batches)
    choice = choice.created()
    with choice.run.lock() if is_first_process() else nullcontext(), choice.shared(), signals:
        return train_in_folder(config, parts, choice, argv, signals)


def train_in_folder(
    config: Configuration, parts: Parts, choice: choose_folder.Choice, argv: list[str], signals: StopSignals
) -> int:
    """Train; the recorder writes how it ends. Returns the exit code."""
    run, stored = choice.run, config.stored()

    def start(*_: object) -> None:
        if is_first_process():
            label = run.begin(stored, ["lightning-ssl", "fit", *argv], choice.checkpoint)
            resumed = "" if choice.checkpoint is None else f", resumed from {choice.checkpoint.name}"
            print_once(f"{label} on {stored['data']['name']} in {run.path}{resumed}")

    recorder = Recorder(run, start)
    try:
        with quiet():
            trainer = make_trainer(parts, run, stored, signals, recorder)
            # Before the first step there is nothing to save. A run of W&B takes it, to be marked as preempted.
            signals.raises = trainer.world_size == 1 and config.values["logger"] != "wandb"
            warn_of_local_batch_norm(trainer, parts)
            if choice.checkpoint is None:
                recorder.open(trainer, parts.method)
            trainer.fit(parts.method, parts.data, ckpt_path=choice.checkpoint, weights_only=True)
    except Stopped as stop:
        print_once(f"stopped; the same command resumes {run.path}")
        signals.leave_together(is_first_process())
        # Lightning kills the process that started this rank if it ends with an error.
        return 0 if ranks.is_started_by_lightning() else 128 + stop.number
    except SystemExit:  # Lightning's, after a second Ctrl-C
        if run.status() != "interrupted":
            raise
        print_once(f"stopped; the same command resumes {run.path}")
        return 130
    except Exception as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        if choice.checkpoint is not None and not recorder.is_open and is_first_process():
            where = f"{choice.checkpoint.name} was not resumed, its run folder is unchanged"
            raise RunFailed(f"{where}: {reason}") from error
        if isinstance(error, (UserError, OSError)):
            raise
        written = f"; {run.path / 'error.txt'} has the traceback" if recorder.is_open and is_first_process() else ""
        raise RunFailed(f"{reason}{written}") from error
    if trainer.is_global_zero:
        print_result(run)
    return 0


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Lightning's info messages, and its warnings that do not apply here."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        for logger in loggers:
            logger.setLevel(logging.WARNING)
        for message in SILENCED:
            warnings.filterwarnings("ignore", message)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
