"""Checks of a training with its data, before there is a run folder."""

from __future__ import annotations

import torch

from lightning_ssl.app.config.configuration import Parts
from lightning_ssl.app.launch.trainer_arguments import check_batches
from lightning_ssl.base.checks import require, require_memory
from lightning_ssl.base.machine import memory
from lightning_ssl.base.tree import naming
from lightning_ssl.callbacks import OnlineProbe


def check_training(parts: Parts, ranks: int) -> int:
    """Prepare the data and refuse what would fail in the first epoch. Returns its number of batches."""
    with naming("data", parts.data.configuration()):
        training, validation = parts.data.check(ranks)
    check_batches(parts.trainer, training, validation)
    check_views(parts, ranks)
    check_probes(parts)
    return training


def check_views(parts: Parts, ranks: int) -> None:
    """Refuse an image size at which the views of a batch, in float32, do not fit into the memory."""
    size, images = parts.method.augment.size, parts.data.batch_size // ranks
    on_gpu = torch.cuda.is_available() and parts.trainer["accelerator"] in ("auto", "gpu", "cuda")
    available = torch.cuda.get_device_properties(0).total_memory if on_gpu else memory()
    require_memory("model.image_size", size, 2 * images * 3 * size**2 * 4, available)


def check_probes(parts: Parts) -> None:
    """Refuse a probe with fewer classes than the data has labels."""
    known = parts.data.num_classes
    for callback in parts.measuring:
        if isinstance(callback, OnlineProbe) and callback.num_classes is not None:
            found = callback.num_classes
            require(found >= known, "probe.num_classes", found, f"at least {known}, the classes of the data")
