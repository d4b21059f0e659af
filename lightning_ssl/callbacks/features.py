"""What the callbacks share: features in evaluation mode, once for all of them, whole over ranks; logging at once."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from lightning_ssl.data.download import Batch

# ---------------------------------------------------------------------------------------------------------------------
# The encoder, left as it was


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while, so that no buffer moves; then every part is in the mode it was in before."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


@torch.no_grad()
def features_of(trainer: pl.Trainer, module: pl.LightningModule, images: Tensor) -> Tensor:
    """The backbone's features of uint8 images as they are, like those of `Method.validation_step`: (B, F)."""
    with evaluating(module), trainer.precision_plugin.val_step_context():
        features: Tensor = module(module.augment.unaugmented(images))  # type: ignore[operator,union-attr]
    return features


def labelled_features(trainer: pl.Trainer, module: pl.LightningModule, batch: Batch) -> tuple[Tensor, Tensor]:
    """Features (b, F) and labels (b,) of those images of a training batch that have a label.

    Whoever asks first at a step pays for the forward; the others get what it found.
    """
    images, labels = batch[:2]
    step, seen, found = LATEST.get(module, (-1, None, None))
    if found is None or step != module.global_step or seen is None or seen() is not images:
        known = labels >= 0
        chosen = images[known]
        # No norm nor convolution is asked about an empty batch.
        features = features_of(trainer, module, chosen) if len(chosen) else torch.zeros(0, 0, device=images.device)
        found = features, labels[known]
        LATEST[module] = (module.global_step, weakref.ref(images), found)
    return found


Found = tuple[Tensor, Tensor]
LATEST: weakref.WeakKeyDictionary[
    pl.LightningModule, tuple[int, weakref.ReferenceType[Tensor] | None, Found | None]
] = weakref.WeakKeyDictionary()


def is_due(trainer: pl.Trainer, every_n_epochs: int) -> bool:
    """Whether a validation is one to measure at: every so many epochs, and at the last, where that is known."""
    if trainer.sanity_checking:
        return False
    epoch = trainer.current_epoch + 1
    last = epoch == trainer.max_epochs or trainer.global_step == trainer.max_steps
    return last or epoch % every_n_epochs == 0 or trainer.state.fn != "fit"


def until_validation(trainer: pl.Trainer, batch_idx: int) -> tuple[float, float]:
    """Batches that come between this one and the next validation, or the end of the epoch where there is none; and how
    many there are from one to the next. Infinitely many where this epoch has none."""
    done, period = batch_idx + 1, trainer.num_training_batches
    if trainer.enable_validation:
        epochs, period = trainer.check_val_every_n_epoch, trainer.val_check_batch or period
        if epochs is None:  # validation counts batches without regard to epochs
            done = trainer.fit_loop.epoch_loop.total_batch_idx + 1
        elif (trainer.current_epoch + 1) % epochs:
            return math.inf, period
    return -done % period, period


def log_at_once(trainer: pl.Trainer, metrics: dict[str, float], module: pl.LightningModule | None = None) -> None:
    """To every logger, now: Lightning writes what a training step or epoch logs after the checkpoints of its end.

    A run killed in between would lose it. With `module`, other callbacks see it too, in `trainer.callback_metrics`.
    """
    if module is not None:
        module.log_dict(metrics, logger=False, batch_size=1)
    for logger in trainer.loggers:
        # Lightning counts the steps before the one it logs.
        logger.log_metrics({**metrics, "epoch": trainer.current_epoch}, step=max(0, trainer.global_step - 1))
