"""Run folders for trainings that are started from Python.

    trainer = pl.Trainer(max_epochs=10, callbacks=[OnlineProbe()])
    run = record_run(trainer, "runs/direct")
    trainer.fit(AlphaCL(Direct(p=4)), DataModule("shapes"))

`runs/direct` then holds what `lightning-ssl fit` writes, and `lightning-ssl evaluate`, `export` and `report` read it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning_ssl
from lightning_ssl._lightning import pl
from lightning_ssl.app.runs.folder import RunFolder
from lightning_ssl.app.training.recorder import Recorder, RunLogger
from lightning_ssl.app.training.trainer import attach, record_in_checkpoints
from lightning_ssl.base.checks import UserError
from lightning_ssl.base.tree import import_path, to_tree
from lightning_ssl.callbacks.checkpoints import Checkpoints
from lightning_ssl.data import DataModule

RECORDED = ("max_epochs", "max_steps", "accumulate_grad_batches", "gradient_clip_val", "precision", "num_nodes")
OUR_CALLBACKS = tuple(getattr(lightning_ssl, name) for name in lightning_ssl.PUBLIC_NAMES["callbacks"])


def record_run(
    trainer: pl.Trainer,
    folder: str | Path,
    *,
    resume: bool = False,
    group: str | None = None,
    tags: Sequence[str] = (),
    checkpoints: Checkpoints | None = None,
) -> RunFolder:
    """Let a Trainer write a run folder: call this before `trainer.fit`.

    folder       the run folder
    resume       the folder may exist: its run is resumed by `trainer.fit(…, ckpt_path=run.newest_checkpoint())`
    group, tags  words to find the run by
    checkpoints  when to save; by default at the end of every epoch, keeping two

    >>> trainer = pl.Trainer(accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False)
    >>> record_run(trainer, "runs/mine", tags=["first"])
    RunFolder('runs/mine')
    """
    run, saver = RunFolder(folder), checkpoints or Checkpoints()
    if run.has_files() and not resume:
        raise UserError(f"folder={str(folder)!r}: there is a run already; choose another folder, or resume=True")

    def start(trainer: pl.Trainer, module: pl.LightningModule) -> None:
        config = {**configuration_of(trainer, module), "group": group, "tags": list(tags)}
        saver.into(run.checkpoints, record_in_checkpoints(config))
        if trainer.is_global_zero:
            command = [Path(sys.argv[0]).name, *sys.argv[1:]]
            run.begin(config, command, Path(trainer.ckpt_path) if trainer.ckpt_path else None)

    attach(trainer, run, Recorder(run, start), saver)
    trainer.loggers = [*trainer.loggers, RunLogger(run)]  # `trainer.logger` stays the first one of the user
    return run


def configuration_of(trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, Any]:
    """The configuration of a training from Python, in the form of config.yaml."""
    data = getattr(trainer, "datamodule", None)
    callbacks = [callback for callback in getattr(trainer, "callbacks", []) if isinstance(callback, OUR_CALLBACKS)]
    settings = {name: to_tree(getattr(trainer, name, None)) for name in RECORDED}
    seed = os.environ.get("PL_GLOBAL_SEED")  # of pl.seed_everything
    configuration: Any = getattr(module, "configuration", lambda: own_module(module))
    return {
        "seed_everything": int(seed) if seed is not None else getattr(module, "seed", None),
        "trainer": {**settings, "devices": trainer.num_devices, "callbacks": to_tree(callbacks)},
        "model": configuration(),
        "data": data.configuration() if isinstance(data, DataModule) else {"name": type(data).__name__},
    }


def own_module(module: pl.LightningModule) -> dict[str, Any]:
    """The class of a module of the user's, and its arguments, which are its hparams."""
    return {"class_path": import_path(type(module)), "init_args": to_tree(dict(module.hparams))}
