"""Writes a training into its run folder: a logger for metrics.jsonl, and a callback for summary.json.

The state that a resumed run needs is in its checkpoint: the number of events in metrics.jsonl, the losses of the epoch
so far, the time spent. A run that was killed at any step and resumed therefore ends with the files of an undisturbed
run.
"""

from __future__ import annotations

import math
import time
import traceback
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from lightning_ssl._lightning import pl
from lightning_ssl.app.launch.ranks import is_first_process
from lightning_ssl.app.runs.folder import RunFolder
from lightning_ssl.callbacks.log import is_log_step, log_now


class RunLogger(pl.loggers.Logger):
    """Appends metrics to metrics.jsonl as they are logged."""

    version = ""

    def __init__(self, run: RunFolder) -> None:
        super().__init__()
        self.run = run

    @property
    def name(self) -> str:
        return self.run.path.name

    @property
    def save_dir(self) -> str:
        return str(self.run.path.parent)

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Do nothing: config.yaml holds the hyperparameters."""

    @pl.utilities.rank_zero.rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        values = {name: float(value) for name, value in metrics.items() if name != "epoch"}
        if values:
            epoch = metrics.get("epoch")
            row = {"epoch": None if epoch is None else int(epoch), "step": step, **values}
            self.run.metrics_writer.append(row)


class Recorder(pl.Callback):
    """Updates summary.json, and logs loss, learning rate and speed. The host reads the loss at log steps only.

    Place it after the callbacks that measure and before `Checkpoints`.
    """

    logs_train_loss = True  # so the method does not log it a second time

    def __init__(self, run: RunFolder, begin: Callable[[pl.Trainer, pl.LightningModule], object] | None = None) -> None:
        """`begin` writes the first files of the run."""
        self.run, self.begin = run, begin
        self.is_open = False
        self.elapsed, self.training, self.images = 0.0, 0.0, 0  # seconds of fit, of training steps; images trained on
        # Of this epoch: their sum in double precision, on the device after the first step, and their number.
        self.loss: float | Tensor = 0.0
        self.losses = 0
        self.rows = 0
        self.began = self.mark = 0.0

    # -- state --------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        now = time.perf_counter()
        return {
            "rows": self.run.metrics_writer.rows,
            "elapsed": self.elapsed + now - self.began,
            "training": self.training,
            "images": self.images,
            "loss": float(self.loss),
            "losses": self.losses,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    # -- hooks --------------------------------------------------------------------------------------------------------

    def open(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write into the folder for the first time: before the training of a new run, after all is restored otherwise.

        An error before it leaves the folder of a resumed run as it is.
        """
        if self.is_open:
            return
        self.is_open = True
        if self.begin is not None:
            self.begin(trainer, pl_module)
        if is_first_process():
            self.run.metrics_writer.open(self.rows)
            self.summarize(trainer)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.began = time.perf_counter()

    # A step is timed from the end of the previous one: waiting for data counts, validation does not.
    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.open(trainer, pl_module)
        self.mark = time.perf_counter()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.mark = time.perf_counter()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.mark = time.perf_counter()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        now = time.perf_counter()
        spent, self.mark = now - self.mark, now
        self.training += spent
        self.images += pl.utilities.data.extract_batch_size(batch) * trainer.world_size
        loss = loss_of_batch(trainer, outputs)
        if loss is not None:
            self.loss = self.loss + loss.to(torch.float32 if loss.device.type == "mps" else torch.float64)
            self.losses += 1
        if is_log_step(trainer, batch_idx):
            found = {} if loss is None else {"train/loss": float(loss)}
            log_now(trainer, {**found, "lr": learning_rate(trainer), "images_per_second": self.speed})
            if trainer.progress_bar_callback is not None:
                # On the host: Lightning reads the values of a progress bar at every step.
                pl_module.log("images_per_second", torch.tensor(self.speed), prog_bar=True, logger=False)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        mean = float(self.loss) / max(1, self.losses)
        if trainer.world_size > 1:
            local = torch.tensor(mean, dtype=torch.float64, device=pl_module.device)
            mean = float(trainer.strategy.reduce(local, reduce_op="mean"))
        self.loss, self.losses = 0.0, 0
        log_now(trainer, {"train/loss_epoch": mean, "lr": learning_rate(trainer), "images_per_second": self.speed})
        self.summarize(trainer)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.open(trainer, pl_module)  # it is closed still if the checkpoint was the last one
        timers = [each for each in getattr(trainer, "callbacks", []) if isinstance(each, pl.callbacks.Timer)]
        left = [timer.time_remaining() for timer in timers]
        out_of_time = any(seconds is not None and seconds <= 0 for seconds in left)  # `max_time`: training is not done
        self.summarize(trainer, status="interrupted" if out_of_time else "finished")

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        if not self.is_open:
            return
        with suppress(ValueError, OSError):  # the disk may be full
            if isinstance(exception, (KeyboardInterrupt, pl.utilities.exceptions.SIGTERMException)):
                self.summarize(trainer, status="interrupted", error=None)
            else:
                reason = str(exception).strip().partition("\n")[0] or type(exception).__name__
                self.summarize(trainer, status="failed", error=reason)
                if is_first_process():
                    text = "".join(traceback.format_exception(exception))
                    (self.run.path / "error.txt").write_text(text, encoding="utf-8")

    # -- summary ------------------------------------------------------------------------------------------------------

    @property
    def speed(self) -> float:
        """Images per second of training steps, for the global batch."""
        return self.images / self.training if self.training else math.nan

    def summarize(self, trainer: pl.Trainer, **fields: Any) -> None:
        """Update summary.json."""
        if not is_first_process():  # a rank that Lightning starts has no `is_global_zero` before the training
            return
        self.run.update_summary(
            duration=self.elapsed + (time.perf_counter() - self.began if self.began else 0.0),
            images_per_second=self.speed if self.training else None,
            epoch=trainer.current_epoch,
            step=trainer.global_step,
            last=self.run.metrics_writer.last,
            best=self.run.metrics_writer.best,
            **fields,
        )


def loss_of_batch(trainer: pl.Trainer, outputs: Any) -> Tensor | None:
    """The loss of a batch; None if `training_step` skipped it. Lightning divides it by `accumulate_grad_batches`."""
    loss, accumulated = outputs.get("loss"), trainer.accumulate_grad_batches
    return loss if loss is None or accumulated == 1 else loss * accumulated


def learning_rate(trainer: pl.Trainer) -> float:
    return float(trainer.optimizers[0].param_groups[0]["lr"])
