"""Checks of the arguments of Lightning's Trainer, before there is a run folder.

Lightning checks most of them when a Trainer is built, and does not always name the argument. `LIMITS` has those that it
accepts and that fail, or do nothing, later: `log_every_n_steps=0` logs no step, so `fit` refuses it.
"""

from __future__ import annotations

import math
import re
from typing import Any

from lightning_ssl._lightning import pl
from lightning_ssl.base.checks import UserError, is_number, shown

# The lowest and the highest number of an argument.
LIMITS: dict[str, tuple[float, float]] = {
    "accumulate_grad_batches": (1, 2**63 - 1),
    "check_val_every_n_epoch": (1, 2**63 - 1),
    "gradient_clip_val": (0, 1e300),
    "log_every_n_steps": (1, 2**63 - 1),
    "max_epochs": (-1, 2**63 - 1),
    "max_steps": (-1, 2**63 - 1),
    "min_epochs": (0, 2**63 - 1),
    "min_steps": (0, 2**63 - 1),
    "num_sanity_val_steps": (-1, 2**63 - 1),
}
ABOVE_ZERO = ("limit_train_batches", "val_check_interval")
NOT_ZERO = ("max_epochs", "max_steps")
# Callbacks that change a setting during the run, by the key of that setting.
TUNERS = {pl.callbacks.LearningRateFinder: "model.optimization.lr", pl.callbacks.BatchSizeFinder: "data.batch_size"}
REQUIRED_VALUES = {"barebones": False, "enable_checkpointing": True}


def checked_trainer(arguments: dict[str, Any]) -> pl.Trainer:
    """Build a Trainer that does not train. The error names the argument that is refused."""
    for key, (lowest, highest) in LIMITS.items():
        value = arguments.get(key)
        if is_number(value) and not lowest <= value <= highest:
            limit = f"at most {highest:.0e}" if value > highest else f"at least {lowest}"
            raise UserError(f"trainer.{key}={shown(value)}: {key} must be {limit}")
    for key in ABOVE_ZERO:
        value = arguments.get(key)
        if is_number(value) and not 0 < value < math.inf:
            raise UserError(f"trainer.{key}={shown(value)}: {key} must be above 0")
    for key in NOT_ZERO:
        if arguments.get(key) == 0:
            raise UserError(f"trainer.{key}=0: {key} must be at least 1, or -1 for no limit: 0 trains nothing")
    for key, allowed in REQUIRED_VALUES.items():
        if (value := arguments.get(key)) not in (None, allowed):
            raise UserError(f"trainer.{key}={value}: {key} must be {allowed}: a run has metrics and checkpoints")
    for least, most in (("min_epochs", "max_epochs"), ("min_steps", "max_steps")):
        low, high = arguments.get(least) or 0, arguments.get(most)
        if high not in (None, -1) and low > high:
            raise UserError(f"trainer.{least}={low}: {least} must be at most {most}, {high}")
    built = build(arguments)
    if isinstance(built, pl.Trainer):
        check_time(built, arguments.get("max_time"))
        check_tuners(built)
        return built
    given = {key: value for key, value in arguments.items() if value is not None}
    alone = [] if isinstance(build({}), Exception) else given  # else no argument is the cause
    own = [key for key in alone if isinstance(build({key: given[key]}), Exception)]
    named = [key for key in given if re.search(rf"\b{key}\b", str(built))]
    key = next(iter([*own, *named]), "")
    where = f"trainer.{key}={shown(given[key])}" if key else "trainer"
    reason = "the number is too large" if isinstance(built, OverflowError) else built
    raise UserError(f"{where}: {reason}") from built


def check_time(trainer: pl.Trainer, max_time: Any) -> None:
    """Refuse a time limit that ends a training before its first step."""
    timers = [each for each in getattr(trainer, "callbacks", []) if isinstance(each, pl.callbacks.Timer)]
    left = [timer.time_remaining() for timer in timers]
    if max_time is not None and any(seconds is not None and seconds <= 0 for seconds in left):
        raise UserError(f"trainer.max_time={shown(max_time)}: max_time must be above 0")


def check_batches(arguments: dict[str, Any], training: int, validation: int) -> None:
    """Refuse arguments that do not fit the numbers of batches of a training epoch and of a validation.

    Lightning checks them when it has the loaders, in the run folder.
    """
    if arguments.get("fast_dev_run"):  # it replaces these arguments
        return
    overfit = arguments.get("overfit_batches") or 0
    keys = ("overfit_batches",) * 2 if overfit else ("limit_train_batches", "limit_val_batches")
    used = []
    for key, batches, kind in zip(keys, (training, validation), ("training", "validation"), strict=True):
        limit = arguments.get(key)
        limit = 1.0 if limit is None else limit
        used.append(int(batches * limit) if isinstance(limit, float) else min(batches, limit))
        if batches and limit > 0 and used[-1] == 0:
            lowest = math.ceil(1e4 / batches) / 1e4
            raise UserError(
                f"trainer.{key}={limit}: {key} must be at least {lowest:g}: {batches} {kind} batches times {limit} is 0"
            )
    interval, batches = arguments.get("val_check_interval"), used[0]
    counts_epochs = arguments.get("check_val_every_n_epoch", 1) is not None
    if isinstance(interval, int) and interval > batches and counts_epochs and used[1]:
        raise UserError(
            f"trainer.val_check_interval={interval}: val_check_interval must be at most {batches}, the batches of an"
            " epoch; with --trainer.check_val_every_n_epoch null it counts the batches of all epochs"
        )


def check_tuners(trainer: pl.Trainer) -> None:
    """Refuse callbacks that replace a setting: two runs of one configuration would differ in it."""
    for kind, key in TUNERS.items():
        if any(isinstance(callback, kind) for callback in getattr(trainer, "callbacks", [])):
            reason = f"config.yaml would not have the value that it finds; set {key}"
            raise UserError(f"trainer.callbacks={kind.__name__!r}: trainer.callbacks must be without it: {reason}")


def build(arguments: dict[str, Any]) -> pl.Trainer | Exception:
    """A Trainer with a logger and checkpoints, which every run has; or Lightning's error."""
    callbacks = arguments.get("callbacks") or []
    callbacks = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
    checkpoint = pl.callbacks.ModelCheckpoint()
    logger = pl.loggers.logger.DummyLogger()
    try:
        return pl.Trainer(**{**arguments, "logger": [logger], "callbacks": [*callbacks, checkpoint]})
    except Exception as error:  # Lightning raises ValueError, TypeError, ImportError and its own classes
        return error
