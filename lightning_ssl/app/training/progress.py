"""The progress bar of `lightning-ssl fit`: one bar for the whole training, 80 columns.

epoch 3/100   2%|▎           | 1:45:10 left, 5120 images/s, online/top1 0.713
"""

from __future__ import annotations

import math
import sys
from typing import Any

from tqdm.std import tqdm  # type: ignore[import-untyped]

from lightning_ssl._lightning import pl
from lightning_ssl.callbacks.log import is_log_step

WIDTH = 80
METRIC = "online/top1"  # at the end of the line, once it is logged
FORMAT = "{desc} {percentage:3.0f}%|{bar}| {remaining} left{postfix}"
FORMAT_WITHOUT_END = "{desc} step {n_fmt}, {elapsed}{postfix}"  # neither max_epochs nor max_steps


class TrainingBar(pl.callbacks.ProgressBar):
    """Shows the epoch, the time left of all epochs, the speed, and the last accuracy of the probe.

    The host reads the speed and the accuracy at log steps only.
    """

    shows_loss = False  # so the method does not log it for the bar

    def __init__(self) -> None:
        super().__init__()
        self.bar: tqdm | None = None
        self.enabled = True

    def disable(self) -> None:
        """Switch the bar off. Lightning does so on every rank but the first."""
        self.enabled = False

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self.bar is None:
            total = total_batches(trainer)
            self.bar = tqdm(
                desc=epoch_of(trainer),
                total=total,
                initial=batches_done(trainer, batch_idx),  # of a resumed run; they do not count for the time left
                bar_format=FORMAT if total else FORMAT_WITHOUT_END,
                ncols=WIDTH,
                smoothing=0,  # the mean over the whole training, with its validations
                file=sys.stdout,
                disable=not self.enabled,
            )
            self.show(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.bar is not None:
            self.bar.update(batches_done(trainer, batch_idx + 1) - self.bar.n)
            if is_log_step(trainer, batch_idx) or trainer.is_last_batch:
                self.show(trainer)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.show(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.close()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self.close()

    def show(self, trainer: pl.Trainer) -> None:
        """Set the epoch and the values. tqdm limits how often the line is drawn."""
        if self.bar is None or self.bar.disable:
            return
        self.bar.set_description_str(epoch_of(trainer), refresh=False)
        speed = trainer.progress_bar_metrics.get("images_per_second")
        last = trainer.callback_metrics.get(METRIC)
        values = [] if speed is None else [f"{float(speed):.0f} images/s"]
        values += [] if last is None else [f"{METRIC} {float(last):.3f}"]
        self.bar.set_postfix_str(", ".join(values), refresh=False)

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print a line above the bar."""
        tqdm.write(" ".join(map(str, args)), file=sys.stdout)

    def close(self) -> None:
        """Draw the bar for the last time."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def epoch_of(trainer: pl.Trainer) -> str:
    """The epoch in words: `epoch 3/100`."""
    epochs = "" if trainer.max_epochs in (None, -1) else f"/{trainer.max_epochs}"
    return f"epoch {trainer.current_epoch + 1}{epochs}"


def total_batches(trainer: pl.Trainer) -> int | None:
    """Number of training batches of all epochs; None if the training has no end."""
    ends = []
    if trainer.max_epochs not in (None, -1):
        ends.append(trainer.max_epochs * trainer.num_training_batches)
    if trainer.max_steps != -1:
        ends.append(trainer.max_steps * trainer.accumulate_grad_batches)
    return int(min(ends)) if ends and min(ends) < math.inf else None


def batches_done(trainer: pl.Trainer, batches: int) -> int:
    """Number of training batches, with those of earlier epochs."""
    before = trainer.current_epoch * trainer.num_training_batches
    return int(before if before < math.inf else 0) + batches
