"""What measures features: the base of such callbacks, and what they need of a LightningModule.

`Method` has all of it. Another LightningModule needs:

    features(images)      uint8 (B, 3, H, W) → features (B, F), in evaluation mode and without gradient      required
    validation_step       may return {"features": (B, F), "labels": (B,)}; else the callbacks call `features`
    views, projector      for alignment and uniformity in `FeatureSpectrum`; else these two are not logged
    loss                  a `PairLoss`, for `ImportanceMonitor`; else it logs nothing

and batches `(images uint8, labels, …)`. A label of −1 means that there is none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from lightning_ssl._lightning import pl
from lightning_ssl.base.checks import UserError
from lightning_ssl.callbacks.schedule import is_due
from lightning_ssl.networks import eval_mode


class FeatureCallback(pl.Callback, ABC):
    """The base of a callback that logs metrics of the features of all validation images, but not in the sanity check.

    A subclass defines what it keeps of a batch (`begin`, `add`), and the metrics of what it kept (`measure`).
    """

    every_n_epochs = 1  # how often, besides the last epoch
    in_progress_bar = ""  # the metric that the progress bar shows

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not callable(getattr(pl_module, "features", None)):
            method = "features(images: uint8 (B, 3, H, W)) -> features (B, F); see docs/own_parts.md"
            raise UserError(f"{type(self).__name__}: {type(pl_module).__name__} needs a method {method}")

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.begin()

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        if is_due(trainer, self.every_n_epochs):
            self.add(trainer, batch[0], *validation_features(trainer, pl_module, outputs, batch))

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if is_due(trainer, self.every_n_epochs):
            for key, value in self.measure(trainer, pl_module).items():
                # Every rank has the same values. `sync_dist` only silences Lightning's warning.
                each: dict[str, Any] = {"on_epoch": True, "sync_dist": True, "prog_bar": key == self.in_progress_bar}
                pl_module.log(key, value.to(pl_module.device, torch.float32), on_step=False, batch_size=1, **each)

    @abstractmethod
    def begin(self) -> None:
        """Forget the last validation."""

    @abstractmethod
    def add(self, trainer: pl.Trainer, images: Tensor, features: Tensor, labels: Tensor) -> None:
        """Take a batch of validation images (B, 3, H, W), with features (B, F) and labels (B,)."""

    @abstractmethod
    def measure(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Tensor]:
        """The metrics of all batches, the same on every rank."""


def number_of_features(trainer: pl.Trainer, module: pl.LightningModule) -> int:
    """F: the backbone's `num_features`, or the width of the features of two black images."""
    width = getattr(getattr(module, "backbone", None), "num_features", None)
    if isinstance(width, int):
        return width
    size = getattr(getattr(trainer, "datamodule", None), "image_size", None) or 32
    images = torch.zeros(2, 3, size, size, dtype=torch.uint8, device=module.device)
    return features_of(trainer, module, images).shape[1]


def features_of(trainer: pl.Trainer, module: pl.LightningModule, images: Tensor) -> Tensor:
    """Features of uint8 images in evaluation mode, without gradient, in the precision of validation: (B, F)."""
    with torch.no_grad(), eval_mode(module), trainer.precision_plugin.val_step_context():
        features: Tensor = module.features(images)  # type: ignore[operator]
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != len(images):
        found = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise UserError(f"{type(module).__name__}.features: expected shape ({len(images)}, F), got {found}")
    return features


def validation_features(
    trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any
) -> tuple[Tensor, Tensor]:
    """Features and labels of a validation batch: from `validation_step`, or computed here."""
    if isinstance(outputs, dict) and {"features", "labels"} <= outputs.keys():
        return outputs["features"], outputs["labels"]
    return features_of(trainer, module, batch[0]), batch[1]
