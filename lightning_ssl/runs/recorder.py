"""What Lightning does, written into a run folder: a logger, a recorder and the checkpoints.

Whatever a resumed run must know is in its checkpoint: how many rows of metrics.csv had been written, the losses of the
epoch so far, the time spent. So a run that was killed at any step ends with the files of one that was not.
"""

from __future__ import annotations

import io
import math
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.loggers import Logger
from pytorch_lightning.plugins.io import TorchCheckpointIO
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torch import Tensor

from lightning_ssl import runs
from lightning_ssl.callbacks.features import log_at_once, until_validation
from lightning_ssl.checks import require
from lightning_ssl.runs import Run


class RunLogger(Logger):
    """Metrics go into metrics.csv as they come."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    @property
    def name(self) -> str:
        return self.run.path.name

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> str:
        return str(self.run.path.parent)

    @property
    def log_dir(self) -> str:
        return str(self.run.path)

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Nothing: config.yaml has them."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        values = {name: float(value) for name, value in metrics.items() if name != "epoch"}
        if values:
            epoch = metrics.get("epoch")
            self.run.metrics.append({"epoch": None if epoch is None else int(epoch), "step": step, **values})


class NotFinite(ValueError):
    """A loss that is no number any more."""


class Recorder(pl.Callback):
    """Keeps summary.json, logs what a step costs and the mean loss of an epoch, and stops at a loss that is not finite.

    It comes after the callbacks that measure and before the checkpoints.
    """

    logs_train_loss = True  # `Method.training_step` then leaves `train/loss` to this callback

    def __init__(self, run: Run, images_per_step: int) -> None:
        self.run, self.images_per_step = run, images_per_step
        self.elapsed, self.training, self.images = 0.0, 0.0, 0  # seconds of fit, of training steps; images trained on
        self.loss, self.losses = 0.0, 0  # of this epoch: their sum in double precision, and how many
        self.last_finite: tuple[int, float] | None = None
        self.rows = 0
        self.began = self.mark = 0.0
        self.images_here, self.training_here = 0, 0.0  # of this process, for its speed

    # -- state --------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        now = time.perf_counter()
        return {
            "rows": self.run.metrics.rows,
            "elapsed": self.elapsed + now - self.began,
            "training": self.training,
            "images": self.images,
            "loss": self.loss,
            "losses": self.losses,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    # -- hooks --------------------------------------------------------------------------------------------------------

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.began = time.perf_counter()
        if trainer.is_global_zero:
            self.run.metrics.open(self.rows)
            self.summarize(trainer, status="running", error=None)

    # A step lasts from the end of the one before it, so that waiting for data counts and validation does not.
    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.mark = time.perf_counter()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.mark = time.perf_counter()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.mark = time.perf_counter()

    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Tensor) -> None:
        mine = float(loss.detach())  # times the scale of `precision="16-mixed"`
        finite = torch.isfinite(loss.detach())
        if trainer.world_size > 1:  # a loss of local pairs may fail on one rank; the others must stop with it
            finite = trainer.strategy.reduce(finite.float(), reduce_op="sum") == trainer.world_size
        if not finite:
            before = "no finite one before it"
            if self.last_finite is not None:
                before = f"the last finite one was {self.last_finite[1]:g} at step {self.last_finite[0]}"
            path = self.run.checkpoints / "last_finite.ckpt"
            trainer.save_checkpoint(path)
            raise NotFinite(
                f"train/loss={'finite here, not on another rank,' if math.isfinite(mine) else repr(mine)} "
                f"at step {trainer.global_step}: {before}; "
                f"the weights before this step are in {path}"
            )

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        now = time.perf_counter()
        spent, self.mark = now - self.mark, now
        self.training += spent
        self.training_here += spent
        self.images += self.images_per_step
        self.images_here += self.images_per_step
        loss = float(outputs["loss"])
        self.last_finite = trainer.global_step - 1, loss
        self.loss += loss
        self.losses += 1
        if trainer.progress_bar_callback is not None:
            pl_module.log("images_per_second", self.speed, prog_bar=True, logger=False)
        if (batch_idx + 1) % getattr(trainer, "log_every_n_steps", 50) == 0:
            cost = {"lr": learning_rate(trainer), "images_per_second": self.speed}
            log_at_once(trainer, {"train/loss": loss, **cost})

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        mean = self.loss / max(1, self.losses)
        if trainer.world_size > 1:
            local = torch.tensor(mean, dtype=torch.float64, device=pl_module.device)
            mean = float(trainer.strategy.reduce(local, reduce_op="mean"))
        self.loss, self.losses = 0.0, 0
        cost = {"lr": learning_rate(trainer), "images_per_second": self.speed}
        log_at_once(trainer, {"train/loss_epoch": mean, **cost})
        self.summarize(trainer)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        timers = [each for each in getattr(trainer, "callbacks", []) if isinstance(each, pl.callbacks.Timer)]
        left = [timer.time_remaining() for timer in timers]
        out_of_time = any(seconds is not None and seconds <= 0 for seconds in left)  # `max_time`: there is more to do
        self.summarize(trainer, status="interrupted" if out_of_time else "finished")

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        stopped = isinstance(exception, KeyboardInterrupt) or type(exception).__name__ == "SIGTERMException"
        reason = str(exception).strip().partition("\n")[0] or type(exception).__name__
        self.summarize(trainer, status="interrupted" if stopped else "failed", error=None if stopped else reason)

    # -- summary ------------------------------------------------------------------------------------------------------

    @property
    def speed(self) -> float:
        """Images per second of training steps, of this process's whole step."""
        return self.images_here / self.training_here if self.training_here else math.nan

    def summarize(self, trainer: pl.Trainer, **fields: Any) -> None:
        if not trainer.is_global_zero:
            return
        last, best = self.run.metrics.last_and_best()
        self.run.update_summary(
            duration=self.elapsed + (time.perf_counter() - self.began if self.began else 0.0),
            images_per_second=self.images / self.training if self.training else None,
            epoch=trainer.current_epoch,
            step=trainer.global_step,
            last=last,
            best=best,
            **fields,
        )


def learning_rate(trainer: pl.Trainer) -> float:
    return float(trainer.optimizers[0].param_groups[0]["lr"])


# ---------------------------------------------------------------------------------------------------------------------
# Checkpoints


class WholeFiles(TorchCheckpointIO):
    """Checkpoints that are whole or absent, and that are read without running anything they contain."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        content = io.BytesIO()
        torch.save(checkpoint, content)
        runs.write_whole(Path(path), content.getbuffer())

    def load_checkpoint(self, path: Any, map_location: Any = "cpu", weights_only: bool | None = True) -> dict[str, Any]:
        return runs.read_checkpoint(path)


class Checkpoints(Checkpoint):
    """Saves at the end of every `every_n_epochs` epochs, or every `every_n_steps` steps, and keeps the newest `keep`.

    every_n_epochs    0: never at an epoch's end
    every_n_steps     None: not within an epoch
    keep              two at least, so that there is one to go back to
    """

    def __init__(self, every_n_epochs: int = 1, every_n_steps: int | None = None, keep: int = 2) -> None:
        super().__init__()
        require(every_n_epochs >= 0, "every_n_epochs", every_n_epochs, "0 or above")
        require(every_n_steps is None or every_n_steps >= 1, "every_n_steps", every_n_steps, "at least 1")
        require(keep >= 2, "keep", keep, "at least 2, so that a damaged one has one before it")
        self.every_n_epochs, self.every_n_steps, self.keep = every_n_epochs, every_n_steps, keep
        self.saved_at, self.is_due, self.step = -1, False, 0
        self.run: Run | None = None
        self.config: dict[str, Any] = {}

    def into(self, run: Run, config: dict[str, Any]) -> Checkpoints:
        """Where to save, and the configuration that every checkpoint carries."""
        self.run, self.config = run, config
        return self

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint["lightning_ssl"] = {"config": self.config, "version": runs.version()}

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        # A batch whose gradients are only accumulated takes no step.
        if not self.every_n_steps or trainer.global_step == self.step or trainer.global_step % self.every_n_steps:
            return
        # From a checkpoint of an epoch's last step Lightning resumes with the next epoch, and from one before a
        # validation after it: what they log would be missing, so that they come first.
        self.is_due = True
        left, _ = until_validation(trainer, batch_idx)
        if not trainer.is_last_batch and not (trainer.enable_validation and left == 0):
            self.save(trainer)

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        self.step = trainer.global_step

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.is_due and trainer.state.fn == "fit" and not trainer.is_last_batch:
            self.save(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        epoch = trainer.current_epoch + 1
        if self.is_due or epoch == trainer.max_epochs or (self.every_n_epochs and epoch % self.every_n_epochs == 0):
            self.save(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.saved_at != trainer.global_step:  # `max_steps` or `max_time` ended an epoch early
            self.save(trainer)

    def save(self, trainer: pl.Trainer) -> None:
        assert self.run is not None
        self.saved_at, self.is_due = trainer.global_step, False
        trainer.save_checkpoint(self.run.checkpoints / f"step-{trainer.global_step:08d}.ckpt")
        if trainer.is_global_zero:
            for old in self.run.step_checkpoints()[self.keep :]:
                old.unlink()
