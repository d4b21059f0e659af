"""When callbacks measure: the number of batches until validation, and the interval in epochs."""

from __future__ import annotations

import math

from lightning_ssl._lightning import pl


def is_due(trainer: pl.Trainer, every_n_epochs: int) -> bool:
    """Whether to measure at this validation: every `every_n_epochs` epochs, and at the last one if it is known."""
    if trainer.sanity_checking:
        return False
    epoch = trainer.current_epoch + 1
    last = epoch == trainer.max_epochs or trainer.global_step == trainer.max_steps
    return last or epoch % every_n_epochs == 0 or trainer.state.fn != "fit"


def batches_until_validation(trainer: pl.Trainer, batch_idx: int) -> tuple[float, float]:
    """Count the batches after this one before the next validation, and the batches from one validation to the next.

    Without validation the end of the epoch counts as one. The first number is infinite where the next validation is
    not in this epoch.
    """
    done, period = batch_idx + 1, trainer.num_training_batches
    if trainer.enable_validation:
        epochs, period = trainer.check_val_every_n_epoch, trainer.val_check_batch or period
        if epochs is None:  # `val_check_interval` then counts batches across epochs
            done = trainer.fit_loop.epoch_loop.total_batch_idx + 1
        elif (trainer.current_epoch + 1) % epochs:
            return math.inf, period
    return -done % period, period
