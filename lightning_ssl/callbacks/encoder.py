"""What the measuring callbacks need of a LightningModule.

`Method` has all of it. Another LightningModule needs:

    features(images)      uint8 (B, 3, H, W) → features (B, F), in evaluation mode and without gradient      required
    validation_step       may return {"features": (B, F), "labels": (B,)}; else the callbacks call `features`
    views, projector      for alignment and uniformity in `FeatureSpectrum`; else these two are not logged
    loss                  a `PairLoss`, for `ImportanceMonitor`; else it logs nothing

and batches `(images uint8, labels, …)`. A label of −1 means that there is none.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from lightning_ssl._lightning import pl
from lightning_ssl.base.checks import UserError
from lightning_ssl.networks import eval_mode


@runtime_checkable
class Encoder(Protocol):
    """A module with features of images."""

    def features(self, images: Tensor) -> Tensor:
        """uint8 (B, 3, H, W) → (B, F)."""


def require_encoder(callback: pl.Callback, module: pl.LightningModule) -> None:
    """Refuse a module without `features`."""
    if not isinstance(module, Encoder):
        raise UserError(
            f"{type(callback).__name__}: {type(module).__name__} needs a method "
            "features(images: uint8 (B, 3, H, W)) -> features (B, F); see docs/own_parts.md"
        )


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
