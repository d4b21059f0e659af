"""`lightning-ssl fit`: train one model in one run folder. `fit_help.py` has its --help."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import torch

from lightning_ssl._lightning import pl
from lightning_ssl.checks import RunFailed, UserError, require
from lightning_ssl.commands.fit_flags import with_suggestion
from lightning_ssl.commands.progress import TrainingBar
from lightning_ssl.commands.result import print_result
from lightning_ssl.noted_signals import NotedSignals
from lightning_ssl.runs import devices, ranks, resume
from lightning_ssl.runs.begin import begin
from lightning_ssl.runs.checkpointing import AtomicCheckpointIO
from lightning_ssl.runs.configuration import Configuration, Parts
from lightning_ssl.runs.devices import as_list
from lightning_ssl.runs.errors import with_full_key
from lightning_ssl.runs.folder import RunFolder
from lightning_ssl.runs.guard import DivergenceGuard
from lightning_ssl.runs.preflight import check_training
from lightning_ssl.runs.ranks import is_first_process, print_once
from lightning_ssl.runs.recorder import Recorder, RunLogger
from lightning_ssl.runs.resumable import require_resumable
from lightning_ssl.runs.signals import StopAtSignal, Stopped, StopSignals, replace_lightnings_handlers
from lightning_ssl.tracking.agent import sweep_flags

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


def main(argv: list[str], early: NotedSignals | None = None) -> int:
    """Parse, choose the run folder, train, print the result. `early` has noted the signals before this call."""
    sys.path.insert(0, os.getcwd())  # for the user's own classes, given by their path
    ranks.forget_unused_tasks()
    argv = sweep_flags(argv)
    try:
        with quiet():
            config = Configuration.parse(argv)
    except UserError as error:
        raise with_suggestion(with_full_key(error)) from error
    try:
        with quiet():  # before there is a run folder: a refused argument leaves none
            parts = config.build()
            arguments, number_of_ranks = devices.for_launched_ranks(parts.trainer)
            parts.trainer.update(arguments)
    except UserError as error:
        raise with_full_key(error, config.stored()) from error
    check_logger(config.values.logger)
    choice = resume.choose(config)
    run = choice.run
    run.check_files()
    if run.is_finished() and not resume.extends(config, run):
        print_once(f"{run.path} is finished already; --resume never starts a new run")
        return 0
    signals = StopSignals(early)
    try:
        # A trial of W&B that is preempted during a download still starts, so that it can be marked as preempted.
        with quiet(), signals if config.values.logger == "wandb" else nullcontext():
            if is_first_process():
                batches = check_training(parts, number_of_ranks)
                if choice.checkpoint is not None:
                    require_resumable(choice.checkpoint, parts, batches)
    except UserError as error:
        raise with_full_key(error, config.stored()) from error
    choice = choice.created()
    run = choice.run
    with run.lock() if is_first_process() else nullcontext(), choice.shared(), signals:
        return train(config, parts, choice, argv, signals)


def train(config: Configuration, parts: Parts, choice: resume.Choice, argv: list[str], signals: StopSignals) -> int:
    """Train, and record how it ended. Returns the exit code."""
    run, stored = choice.run, config.stored()
    if is_first_process():
        label = begin(run, stored, ["lightning-ssl", "fit", *argv], choice.checkpoint)
        resumed = "" if choice.checkpoint is None else f", resumed from {choice.checkpoint.name}"
        print_once(f"{label} on {stored['data']['name']} in {run.path}{resumed}")
    try:
        with quiet():
            trainer = make_trainer(parts, run, stored, signals)
            # Before the first step there is nothing to save. A run of W&B takes it, to be marked as preempted.
            signals.raises = trainer.world_size == 1 and config.values.logger != "wandb"
            warn_of_local_batch_norm(trainer, parts)
            trainer.fit(parts.method, parts.data, ckpt_path=choice.checkpoint, weights_only=True)
    except Stopped as reason:
        if is_first_process():
            run.update_summary(status="interrupted")
        print_once(f"stopped; the same command resumes {run.path}")
        signals.leave_together(is_first_process())
        # Lightning kills the process that started this rank if it ends with an error.
        return 0 if ranks.is_started_by_lightning() else 128 + reason.number
    except SystemExit as end:  # Lightning's, after a second Ctrl-C
        if run.status() == "interrupted":
            print_once(f"stopped; the same command resumes {run.path}")
            return 130
        raise end
    except Exception as error:
        if isinstance(error, UserError):
            error = with_full_key(error, stored)
        line = record_failure(run, error)
        if isinstance(error, (UserError, OSError)):
            raise error
        written = f"; {run.path / 'error.txt'} has the traceback" if is_first_process() else ""
        raise RunFailed(f"{type(error).__name__}: {line}{written}") from error
    if trainer.is_global_zero:
        print_result(run)
    return 0


def make_trainer(
    parts: Parts, run: RunFolder, config: dict[str, Any], signals: StopSignals | None = None
) -> pl.Trainer:
    """The Trainer as configured, with our callbacks, loggers and checkpoints in the right order."""
    arguments, signals = dict(parts.trainer), signals or StopSignals()
    loggers: list[pl.loggers.Logger] = [RunLogger(run)]
    if arguments["logger"] not in (None, True, False):
        loggers += as_list(arguments["logger"])
    arguments["logger"] = [*loggers, *chosen_logger(config["logger"], run, config, signals)]
    own = as_list(arguments["callbacks"])
    has_bar = any(isinstance(callback, pl.callbacks.ProgressBar) for callback in own)
    if arguments["enable_progress_bar"] is None and not has_bar:
        arguments["enable_progress_bar"] = sys.stdout.isatty()
    bar = [TrainingBar()] if arguments["enable_progress_bar"] and not has_bar else []
    recorder = Recorder(run, parts.data.batch_size)
    checkpoints = parts.checkpoints.into(run, config)
    stop = StopAtSignal(signals, checkpoints)
    arguments["callbacks"] = [DivergenceGuard(run), *parts.measuring, *own, recorder, *bar, stop, checkpoints]
    arguments["default_root_dir"] = arguments["default_root_dir"] or str(run.path)
    arguments["plugins"] = [*as_list(arguments["plugins"]), AtomicCheckpointIO()]
    trainer = pl.Trainer(**arguments)
    replace_lightnings_handlers(trainer)
    return trainer


def chosen_logger(kind: str, run: RunFolder, config: dict[str, Any], signals: StopSignals) -> list[pl.loggers.Logger]:
    """The logger of `--logger`, which writes besides metrics.jsonl: to W&B, or into the run folder."""
    if kind == "wandb":
        from lightning_ssl.tracking.logger import RunFolderWandbLogger  # late: wandb takes a second to import

        return [RunFolderWandbLogger(run, config, signals)]
    if kind == "tensorboard":
        return [pl.loggers.TensorBoardLogger(run.path, name="", version="tensorboard")]
    # Each process of a resumed run has its own version_N: Lightning's CSV logger empties an existing folder.
    return [pl.loggers.CSVLogger(run.path, name="csv")] if kind == "csv" else []


def check_logger(kind: str) -> None:
    """Refuse a logger whose package is missing, before there is a run folder."""
    installed = kind != "tensorboard" or importlib.util.find_spec("tensorboard") is not None
    require(installed, "logger", kind, "none, csv or wandb while tensorboard is missing (pip install tensorboard)")


def warn_of_local_batch_norm(trainer: pl.Trainer, parts: Parts) -> None:
    """Print one line where batch norm uses the statistics of each rank instead of the global batch."""
    norms = any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in parts.method.modules())
    if trainer.world_size > 1 and norms and not parts.trainer["sync_batchnorm"]:
        why = "" if torch.cuda.is_available() else " (torch synchronizes it on GPUs only)"
        print_once(f"batch norm uses the statistics of each rank's own images{why}")


def record_failure(run: RunFolder, error: Exception) -> str:
    """Write the error to summary.json and the traceback to error.txt. Returns the error's first line."""
    line = str(error).strip().partition("\n")[0] or type(error).__name__
    if is_first_process():
        with suppress(ValueError, OSError):  # the disk may be full
            run.update_summary(status="failed", error=line)
            (run.path / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
    return line


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
