"""`Checkpoints`: saves at the end of epochs or every few steps, and keeps the newest ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning_ssl._lightning import pl
from lightning_ssl.base.checks import require
from lightning_ssl.callbacks.schedule import batches_until_validation


class Checkpoints(pl.callbacks.Checkpoint):
    """Saves at the end of every `every_n_epochs` epochs, or every `every_n_steps` steps, and keeps the newest `keep`.

    every_n_epochs    0: never at the end of an epoch
    every_n_steps     None: never within an epoch
    keep              at least 2: the older one is the fallback
    """

    def __init__(self, every_n_epochs: int = 1, every_n_steps: int | None = None, keep: int = 2) -> None:
        super().__init__()
        require(every_n_epochs >= 0, "every_n_epochs", every_n_epochs, "0 or above")
        require(every_n_steps is None or every_n_steps >= 1, "every_n_steps", every_n_steps, "at least 1")
        require(keep >= 2, "keep", keep, "at least 2: the older one is the fallback")
        self.every_n_epochs, self.every_n_steps, self.keep = every_n_epochs, every_n_steps, keep
        self.saved_at, self.step = -1, 0
        self.is_due = False  # whether to save as soon as a run can resume there; `StopAtSignal` sets it too
        self.folder: Path | None = None
        self.record: dict[str, Any] = {}  # what every checkpoint carries

    def into(self, folder: Path, record: dict[str, Any]) -> Checkpoints:
        """Set the folder, and what every checkpoint carries at the key `lightning_ssl`."""
        self.folder, self.record = folder, record
        return self

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint["lightning_ssl"] = self.record

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self.step:  # while gradients are accumulated no step is taken
            return
        self.is_due |= bool(self.every_n_steps) and trainer.global_step % (self.every_n_steps or 1) == 0
        if not self.is_due:
            return
        # Lightning resumes a checkpoint of an epoch's last step with the next epoch, and one from before a validation
        # after it. What the end of the epoch or the validation logs would be missing, so the checkpoint comes later.
        left, _ = batches_until_validation(trainer, batch_idx)
        if not trainer.is_last_batch and not (trainer.enable_validation and left == 0):
            self.save(trainer)

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        self.step = trainer.global_step

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        accumulates = trainer.global_step == self.step  # a checkpoint would not have the gradients so far
        if self.is_due and trainer.state.fn == "fit" and not trainer.is_last_batch and not accumulates:
            self.save(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        epoch = trainer.current_epoch + 1
        if self.is_due or epoch == trainer.max_epochs or (self.every_n_epochs and epoch % self.every_n_epochs == 0):
            self.save(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.saved_at != trainer.global_step:  # `max_steps` or `max_time` ended an epoch early
            self.save(trainer)

    def save(self, trainer: pl.Trainer) -> None:
        """Save a checkpoint and remove the oldest ones."""
        assert self.folder is not None
        self.saved_at, self.is_due = trainer.global_step, False
        trainer.save_checkpoint(self.folder / f"step-{trainer.global_step:08d}.ckpt")
        if trainer.is_global_zero:
            for old in sorted(self.folder.glob("step-*.ckpt"), reverse=True)[self.keep :]:
                old.unlink()
