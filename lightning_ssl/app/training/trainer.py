"""The Trainer of a run: as configured, with what writes the run folder and guards the training."""

from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path
from typing import Any

import torch

from lightning_ssl._lightning import pl
from lightning_ssl.app.config.configuration import Parts
from lightning_ssl.app.launch.ranks import print_once
from lightning_ssl.app.launch.signals import StopAtSignal, StopSignals, replace_lightnings_handlers
from lightning_ssl.app.runs.checkpoints import load_checkpoint
from lightning_ssl.app.runs.folder import RunFolder
from lightning_ssl.app.runs.version import version
from lightning_ssl.app.training.guard import DivergenceGuard
from lightning_ssl.app.training.progress import TrainingBar
from lightning_ssl.app.training.recorder import Recorder, RunLogger
from lightning_ssl.base.checks import require
from lightning_ssl.base.convert import as_list
from lightning_ssl.base.files import write_atomic
from lightning_ssl.callbacks.checkpoints import Checkpoints


def make_trainer(
    parts: Parts,
    run: RunFolder,
    config: dict[str, Any],
    signals: StopSignals | None = None,
    recorder: Recorder | None = None,
) -> pl.Trainer:
    """The Trainer of `lightning-ssl fit`."""
    arguments, signals = dict(parts.trainer), signals or StopSignals()
    loggers = [] if arguments["logger"] in (None, True, False) else as_list(arguments["logger"])
    arguments["logger"] = [RunLogger(run), *loggers, *chosen_logger(config["logger"], run, config, signals)]
    own = as_list(arguments["callbacks"])
    has_bar = any(isinstance(callback, pl.callbacks.ProgressBar) for callback in own)
    if arguments["enable_progress_bar"] is None and not has_bar:
        arguments["enable_progress_bar"] = sys.stdout.isatty()
    bar = [TrainingBar()] if arguments["enable_progress_bar"] and not has_bar else []
    arguments["callbacks"] = [*parts.measuring, *own, *bar]
    # Lightning adds no checkpoint of its own: `attach` adds ours.
    arguments["enable_checkpointing"] = any(isinstance(each, pl.callbacks.Checkpoint) for each in own)
    arguments["default_root_dir"] = arguments["default_root_dir"] or str(run.path)
    trainer = pl.Trainer(**arguments)
    saver = parts.checkpoints.into(run.checkpoints, record_in_checkpoints(config))
    attach(trainer, run, recorder or Recorder(run), saver, StopAtSignal(signals, saver))
    replace_lightnings_handlers(trainer)
    return trainer


def attach(
    trainer: pl.Trainer, run: RunFolder, recorder: Recorder, saver: Checkpoints, stop: StopAtSignal | None = None
) -> None:
    """Add to a Trainer the callbacks that write a run folder, and the guard, which is the first callback.

    The recorder comes after the callbacks that measure, and before those that save.
    """
    callbacks: list[pl.Callback] = getattr(trainer, "callbacks")  # noqa: B009  mypy does not see it
    saving = (k for k, callback in enumerate(callbacks) if isinstance(callback, pl.callbacks.Checkpoint))
    callbacks.insert(next(saving, len(callbacks)), recorder)
    callbacks.insert(0, DivergenceGuard(run))
    callbacks += [saver] if stop is None else [stop, saver]
    trainer.strategy.checkpoint_io = AtomicCheckpointIO()


class AtomicCheckpointIO(pl.plugins.TorchCheckpointIO):
    """Writes checkpoints atomically, and reads them without running code that they contain."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        content = io.BytesIO()
        torch.save(checkpoint, content)
        write_atomic(Path(path), content.getbuffer())

    def load_checkpoint(self, path: Any, map_location: Any = "cpu", weights_only: bool | None = True) -> dict[str, Any]:
        return load_checkpoint(Path(path))


def record_in_checkpoints(config: dict[str, Any]) -> dict[str, Any]:
    """What every checkpoint of a run carries."""
    return {"config": config, "version": version()}


def chosen_logger(kind: str, run: RunFolder, config: dict[str, Any], signals: StopSignals) -> list[pl.loggers.Logger]:
    """The logger of `--logger`, which writes besides metrics.jsonl: to W&B, or into the run folder."""
    if kind == "wandb":
        from lightning_ssl.app.tracking.logger import RunFolderWandbLogger  # late: wandb takes a second to import

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
