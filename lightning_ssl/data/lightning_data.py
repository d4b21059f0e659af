"""The user's own LightningDataModule with the methods and callbacks of this package.

    trainer.fit(SimCLR(…), data.adapt(MyDataModule(), num_classes=10))

A batch is `(images, labels)` or `(images, labels, ids)`: images uint8 (B, 3, H, W), labels int64 (B,) with −1 for no
label. `check_batches` reads the first batch of each loader and refuses any other form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from lightning_ssl._lightning import pl
from lightning_ssl.base.checks import UserError, require
from lightning_ssl.base.user_code import place_of
from lightning_ssl.data.map_style import fixed_random_numbers
from lightning_ssl.data.split import Batch

EXPECTED = "(images uint8 (B, 3, H, W), labels int64 (B,)) with ids (B,) or without"
PASSED_ON = (
    "image_size", "mean", "std", "prepare_data", "teardown", "state_dict", "load_state_dict", "train_dataloader",
    "test_dataloader", "transfer_batch_to_device", "on_after_batch_transfer",
)  # fmt: skip


def adapt(module: pl.LightningDataModule, num_classes: int | None = None) -> AdaptedModule:
    """A user's own LightningDataModule in the form that the callbacks of this package need.

    num_classes  None takes it from the attribute `num_classes` of the module

    >>> class Mine(pl.LightningDataModule):
    ...     def train_dataloader(self):
    ...         return [(torch.zeros(8, 3, 32, 32, dtype=torch.uint8), torch.zeros(8, dtype=torch.int64))]
    >>> adapt(Mine(), num_classes=2).num_classes
    2
    """
    return AdaptedModule(module, num_classes)


def check_batches(module: Any) -> None:
    """Refuse a LightningDataModule whose first training or validation batch has another form."""
    with fixed_random_numbers():  # a DataLoader draws from the global generator
        for name in ("train_dataloader", "val_dataloader"):
            for loader in loaders_of(module, name):
                batch = next(iter(loader), None)
                require(batch is not None, f"{place_of(module)}: {name}", "empty", "a loader with batches")
                as_batch(batch, f"{place_of(module)}: the first batch of {name}")


def loaders_of(module: Any, name: str) -> list[Iterable[Any]]:
    """The loaders that a method of a module returns; none if it does not define the method."""
    if getattr(type(module), name) is getattr(pl.LightningDataModule, name):
        return []
    found = getattr(module, name)()
    return list(found) if isinstance(found, list | tuple) else [found]


def as_batch(batch: Any, where: str = "batch") -> Batch:
    """A batch as `(images, labels, ids)`; without ids they are −1."""
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        raise UserError(f"{where} is of type {form(batch)}; expected {EXPECTED}")
    images, labels = batch[:2]
    tensors = isinstance(images, Tensor) and isinstance(labels, Tensor)
    kinds = tensors and images.dtype == torch.uint8 and labels.dtype == torch.int64
    if not kinds or images.ndim != 4 or images.shape[1] != 3 or labels.shape != images.shape[:1]:
        raise UserError(f"{where} has images {form(images)} and labels {form(labels)}; expected {EXPECTED}")
    ids = batch[2] if len(batch) == 3 else torch.full_like(labels, -1)
    return images, labels, ids


def form(found: Any) -> str:
    """What a value is, for an error."""
    return f"{found.dtype} {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__


class AdaptedModule(pl.LightningDataModule):
    """A user's module behind the interface of `DataModule`. Its loaders stay its own, so Lightning shards them."""

    def __init__(self, module: pl.LightningDataModule, num_classes: int | None = None) -> None:
        super().__init__()
        classes = getattr(module, "num_classes", None) if num_classes is None else num_classes
        known = isinstance(classes, int) and classes >= 0
        require(known, "num_classes", classes, "given, or an attribute of the module; 0 without labels")
        self.module, self.num_classes = module, classes
        for name in PASSED_ON:
            if hasattr(module, name):
                setattr(self, name, getattr(module, name))

    def setup(self, stage: str) -> None:
        """Set up the module and check its first batches."""
        self.module.trainer = self.trainer
        self.module.setup(stage)
        check_batches(self.module)

    def val_dataloader(self) -> Any:
        loaders = loaders_of(self.module, "val_dataloader")
        return loaders[0] if len(loaders) == 1 else loaders

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Batch:
        return as_batch(self.module.on_before_batch_transfer(batch, dataloader_idx))

    def reference_dataloader(self, max_images: int | None = None) -> Iterator[Batch]:
        """The training images for kNN: every rank takes its share of the batches, `max_images` in all."""
        trainer = self.trainer
        rank, ranks = (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)
        own = getattr(self.module, "reference_dataloader", None)
        loader = self.module.train_dataloader() if own is None else own()
        seen = 0
        for number, batch in enumerate(loader):
            images, labels, ids = as_batch(batch)
            if max_images is not None and seen >= max_images:
                return
            kept = len(images) if max_images is None else min(len(images), max_images - seen)
            seen += kept
            if number % ranks == rank:
                yield images[:kept], labels[:kept], ids[:kept]
