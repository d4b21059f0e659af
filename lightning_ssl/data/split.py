"""A data set (`Source`) and its splits: images in memory (`Images`), or read on request (`map_style.Items`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from lightning_ssl.base.checks import require
from lightning_ssl.base.seeding import generator_of

Batch = tuple[Tensor, Tensor, Tensor]
"""images uint8 (B, 3, H, W), labels int64 (B,), ids int64 (B,)."""


class DatasetInfo(NamedTuple):
    """Properties of a data set that are known before an image is read."""

    image_size: int
    num_classes: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


class Source(Protocol):
    """The interface of a data set. `DATASETS` names a class for each: its arguments are the root and the options."""

    @property
    def no_test(self) -> str:
        """Why there are no test images; empty if there are."""

    @property
    def info(self) -> DatasetInfo: ...

    def open_split(self, split: str) -> Split: ...


class Split(Protocol):
    """The interface of a split."""

    decodes: ClassVar[bool]
    """Whether `batch` decodes files. If so, batches are read by worker processes."""

    @property
    def labels(self) -> Tensor:
        """int64 (N,), −1 without a label."""

    def __len__(self) -> int: ...

    def batch(self, ids: Tensor) -> Batch: ...

    def load(self) -> Images:
        """The split with all images in memory."""


@dataclass(frozen=True)
class Images:
    """A split in memory. Batches index into its tensors."""

    images: Tensor  # uint8 (N, 3, H, W)
    labels: Tensor  # int64 (N,), −1 without a label
    classes: tuple[str, ...]
    decodes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        shape, dtypes = tuple(self.images.shape), (self.images.dtype, self.labels.dtype)
        require(len(shape) == 4 and shape[1] == 3, "images", shape, "of shape (N, 3, H, W)")
        require(self.labels.shape == shape[:1], "labels", tuple(self.labels.shape), f"of shape ({shape[0]},)")
        require(dtypes == (torch.uint8, torch.int64), "images and labels", dtypes, "uint8 and int64")

    def __len__(self) -> int:
        return len(self.images)

    @property
    def device(self) -> torch.device:
        return self.images.device

    def to(self, device: torch.device) -> Images:
        """The split on a device. Batches are then made there, from ids on that device."""
        return Images(self.images.to(device), self.labels.to(device), self.classes)

    def batch(self, ids: Tensor) -> Batch:
        """The images with these ids (B,)."""
        return self.images[ids], self.labels[ids], ids

    def load(self) -> Images:
        return self


def stratified(labels: Tensor, amount: int | float, seed: int, key: str) -> Tensor:
    """Choose images of every class for validation: labels (N,) → bool (N,). Images with the label −1 are not chosen.

    amount   a share of every class below 1, or a number of images, which the classes share by their sizes
    key      how errors name the amount
    """
    classes, sizes = labels[labels >= 0].unique(return_counts=True)
    require(len(classes) > 0, key, amount, "0 for images without labels: validation needs labels")
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    for label, count in zip(classes.tolist(), class_counts(sizes.tolist(), amount), strict=True):
        ids = (labels == label).nonzero()[:, 0]
        kept = min(len(ids) - 1, count)  # every class keeps a training image
        chosen[ids[torch.randperm(len(ids), generator=generator_of(seed, label))[:kept]]] = True
    require(bool(chosen.any()), key, amount, "0 where every class has a single image")
    most = f"at most {int(sizes.sum()) - len(classes)}: every class keeps a training image"
    require(amount < 1 or int(chosen.sum()) == amount, key, amount, most)
    return chosen


def class_counts(sizes: Sequence[int], amount: int | float) -> list[int]:
    """How many images of each class are held out. A share is at least one image.

    >>> class_counts([50, 30, 20], 0.1), class_counts([50, 30, 20], 4)
    ([5, 3, 2], [2, 1, 1])
    """
    if amount < 1:
        return [max(1, round(amount * size)) for size in sizes]
    exact = [amount * size / sum(sizes) for size in sizes]
    counts = [int(share) for share in exact]
    largest_first = sorted(range(len(sizes)), key=lambda k: counts[k] - exact[k])  # the remainders
    for k in largest_first[: int(amount) - sum(counts)]:
        counts[k] += 1
    return counts
