"""Features of a frozen network on labelled images."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_ssl.base.checks import UserError, cut
from lightning_ssl.data.loader import Loader
from lightning_ssl.methods import Method


class LabelledFeatures(NamedTuple):
    """Features (N, F) of images and their labels (N,)."""

    features: Tensor
    labels: Tensor


def extract_features(
    method: Method, loader: Loader, device: torch.device, advance: Callable[[], None] = lambda: None
) -> LabelledFeatures:
    """Compute the features of the labelled, un-augmented images in evaluation mode. The network does not change.

    advance     called after every batch
    """
    # Allocated once: a list of parts and its concatenation need twice the memory.
    features = torch.empty(len(loader.split), method.backbone.num_features, device=device)
    labels, filled = [], 0
    for images, y, _ in loader:
        known = y >= 0
        if known.any():
            x = method.features(images[known].to(device))  # (b, F)
            features[filled : filled + len(x)] = x
            labels.append(y[known])
            filled += len(x)
        advance()
    if not filled:
        raise UserError("data: no image has a label; a linear evaluation needs labels")
    if not features[:filled].isfinite().all():
        raise UserError("checkpoint: the features are not finite numbers; the training diverged")
    return LabelledFeatures(features[:filled], torch.cat(labels).to(device))


def select_device(name: str) -> torch.device:
    """The device with this name; `auto` is CUDA if it is available, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = cut(str(error).partition("\n")[0], 100)
        raise UserError(f"device={name!r}: device must be auto or a device that torch has here ({reason})") from error
