"""Checks of the arguments of Lightning's Trainer, before there is a run folder.

Lightning checks most of them when a Trainer is built, and its error is passed on. The others are checked here:
Lightning accepts them, and they fail, or do nothing, later. `log_every_n_steps=0` logs no step.
"""

from __future__ import annotations

import math
import re
from typing import Any

from lightning_ssl._lightning import pl
from lightning_ssl.base.checks import UserError, require, shown
from lightning_ssl.base.convert import as_list

LOWEST = {"accumulate_grad_batches": 1, "check_val_every_n_epoch": 1, "gradient_clip_val": 0, "log_every_n_steps": 1}
NOT_ZERO = ("max_epochs", "max_steps", "limit_train_batches", "val_check_interval")
# Callbacks that change a setting during the run, by the key of that setting.
TUNERS = {pl.callbacks.LearningRateFinder: "model.optimization.lr", pl.callbacks.BatchSizeFinder: "data.batch_size"}


def checked_trainer(arguments: dict[str, Any]) -> pl.Trainer:
    """Build a Trainer that does not train. It has a logger and checkpoints, as every run."""
    for key, lowest in LOWEST.items():
        value = arguments.get(key)
        require(value is None or value >= lowest, f"trainer.{key}", value, f"at least {lowest}")
    for key in NOT_ZERO:
        require(arguments.get(key) != 0, f"trainer.{key}", 0, "another number: 0 trains nothing")
    for least, most in (("min_epochs", "max_epochs"), ("min_steps", "max_steps")):
        low, high = arguments.get(least) or 0, arguments.get(most)
        require(not low or high in (None, -1) or low <= high, f"trainer.{least}", low, f"at most {most}, {high}")
    callbacks = as_list(arguments.get("callbacks"))
    for kind, key in TUNERS.items():
        if any(isinstance(callback, kind) for callback in callbacks):
            reason = f"remove it and set {key}: config.yaml must record the value"
            raise UserError(f"trainer.callbacks={kind.__name__}: {reason}")
    try:
        time = pl.callbacks.Timer(arguments.get("max_time")).time_remaining()
    except Exception as error:  # it does not name the argument
        raise UserError(f"trainer.max_time={shown(arguments['max_time'])}: {error}") from error
    require(time is None or time > 0, "trainer.max_time", arguments.get("max_time"), "above 0")
    own = {"logger": [pl.loggers.logger.DummyLogger()], "callbacks": [*callbacks, pl.callbacks.ModelCheckpoint()]}
    try:
        return pl.Trainer(**{**arguments, **own})
    except Exception as error:  # Lightning raises ValueError, TypeError, ImportError and its own classes
        names = "|".join(arguments)  # the error has `devices=0`, the word alone, or a value alone
        found = re.search(rf"\b({names})=", str(error)) or re.search(rf"\b({names})\b", str(error))
        words = [key for key, value in arguments.items() if isinstance(value, str) and value in str(error).lower()]
        blamed = [found[1]] if found else words[:1]
        where = "".join(f".{name}={shown(arguments[name])}" for name in blamed)
        raise UserError(f"trainer{where}: {error}") from error


def check_batches(arguments: dict[str, Any], training: int, validation: int) -> None:
    """Refuse arguments that do not fit the numbers of batches of a training epoch and of a validation.

    Lightning checks them when it has the loaders, in the run folder.
    """
    if arguments["fast_dev_run"]:  # it replaces these arguments
        return
    used = {}
    for kind, batches in (("train", training), ("val", validation)):
        key = "overfit_batches" if arguments["overfit_batches"] else f"limit_{kind}_batches"
        limit = 1.0 if arguments[key] is None else arguments[key]
        used[kind] = int(batches * limit) if isinstance(limit, float) else min(batches, limit)
        allowed = f"at least {math.ceil(1e4 / max(1, batches)) / 1e4:g}: {batches} batches times {limit} is 0"
        require(not batches or limit <= 0 or used[kind] > 0, f"trainer.{key}", limit, allowed)
    interval = arguments["val_check_interval"]
    if isinstance(interval, int) and used["val"] and arguments["check_val_every_n_epoch"] is not None:
        more = "with --trainer.check_val_every_n_epoch null it counts the batches of all epochs"
        allowed = f"at most {used['train']}, the batches of an epoch; {more}"
        require(interval <= used["train"], "trainer.val_check_interval", interval, allowed)
