"""The user's own map-style data set as a split: items are read on request, by worker processes.

An item is `(image, label)`, a longer tuple that starts so, or an image alone. An image is a PIL image, a uint8 array or
tensor, or a float one in [0, 1]. Its shorter side is resized to `size`, then the centre is cropped, if it is not
square. A label is a whole number from 0; None and −1 mean no label.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from lightning_ssl.base.checks import UserError, require
from lightning_ssl.base.user_code import place_of, place_of_error, reason
from lightning_ssl.data.loader import load_all
from lightning_ssl.data.pixels import from_anything
from lightning_ssl.data.split import Batch, DatasetInfo, Images, stratified

OPTIONS = ("store_size", "num_classes", "val_share")  # of `MapStyle`
LARGEST = 256  # the stored size of larger images, unless `store_size` is given
SAMPLE = 512  # images that the channel statistics are computed from


@dataclass(frozen=True)
class Items:
    """A split whose images are read on request: items of a map-style data set."""

    dataset: Any
    size: int
    classes: tuple[str, ...] = ()
    ids: Tensor | None = None  # (N,): the items of this split; None means all
    note: str = ""  # a line for the user
    decodes: ClassVar[bool] = True

    def __len__(self) -> int:
        return len(self.dataset) if self.ids is None else len(self.ids)

    def batch(self, ids: Tensor) -> Batch:
        """Read the items with these ids (B,)."""
        items = ids if self.ids is None else self.ids[ids]
        pairs = [read_item(self.dataset, i, self.size) for i in items.tolist()]
        return torch.stack([image for image, _ in pairs]), torch.tensor([label for _, label in pairs]), ids

    @property
    def labels(self) -> Tensor:
        """int64 (N,), −1 without a label."""
        return labels_of(self.dataset) if self.ids is None else labels_of(self.dataset)[self.ids]

    def part(self, split: str, labels: Tensor, val_share: float) -> Items:
        """The part of all training images that is for a split: a share of each class is for testing."""
        chosen = stratified(labels, val_share, 0, "val_share")
        return replace(self, ids=(chosen if split == "test" else ~chosen).nonzero()[:, 0])

    def load(self) -> Images:
        """Read every item into memory."""
        return load_all(self, self.size, self.classes)


def read_item(dataset: Any, index: int, size: int | None) -> tuple[Tensor, int]:
    """One item as uint8 (3, size, size) and a label."""
    image, label = raw_item(dataset, index)
    try:
        return from_anything(image, size), as_label(label)
    except ValueError as error:
        raise UserError(f"item {index} of {place_of(dataset)}: {error}") from error


def raw_item(dataset: Any, index: int) -> tuple[Any, Any]:
    """One item as image and label, as the user's data set returns them."""
    try:
        item = dataset[index]
        if not isinstance(item, tuple | list):
            return item, None
        return item[0], item[1] if len(item) > 1 else None
    except UserError:  # an unreadable file
        raise
    except Exception as error:
        # One line, also for the exceptions that a worker process cannot pass on.
        place = "" if place_of_error(error) else f"{place_of(dataset)}: "
        raise UserError(f"item {index} of the data set: {place}{reason(error)}") from error


def as_label(label: Any) -> int:
    """A label as int; −1 for None."""
    if label is None:
        return -1
    if isinstance(label, Tensor | np.ndarray | np.generic) and label.ndim == 0:
        label = label.item()
    if isinstance(label, bool) or not isinstance(label, int) or label < -1:
        raise UserError(f"a label {label!r}; expected a whole number from 0, or None")
    return label


def labels_of(dataset: Any) -> Tensor:
    """The labels of a data set (N,): its `targets` or `labels`, else read from its items."""
    for name in ("targets", "labels"):
        found = getattr(dataset, name, None)
        if isinstance(found, Sequence | Tensor | np.ndarray) and len(found) == len(dataset):
            return torch.as_tensor([as_label(label) for label in found])
    with fixed_random_numbers():
        if raw_item(dataset, 0)[1] is None:
            return torch.full((len(dataset),), -1)
        return torch.tensor([as_label(raw_item(dataset, i)[1]) for i in range(len(dataset))])


kept: list[Any] = []  # the last source, its owner and its arguments


def kept_source(owner: Any, make: Callable[..., MapStyle], *arguments: Any) -> MapStyle:
    """A source of these arguments. The configuration and the data module ask for the same one: the last is kept."""
    if not kept or kept[0] is not owner or kept[1] != repr(arguments):
        kept[:] = owner, repr(arguments), make(*arguments)
    found: MapStyle = kept[2]
    return found


@dataclass(eq=False)
class MapStyle:
    """A source of map-style data sets: one for training and one for testing.

    key          how the data set is named in errors
    test         None: no test images, unless `val_share` holds out training images
    store_size   side of the images; None takes the shorter side of the first image, at most `LARGEST`
    num_classes  None takes it from `num_classes`, `classes`, `targets` or `labels` of the data set, else from all items
    """

    train: Any
    test: Any = None
    key: str = "train"
    store_size: int | None = None
    num_classes: int | None = None
    val_share: float = 0.0

    def __post_init__(self) -> None:
        require_map_style(self.key, self.train)
        if self.test is not None:
            require_map_style(f"test images of {self.key}", self.test)
        size, classes, share = self.store_size, self.num_classes, self.val_share
        require(size is None or size >= 1, "store_size", size, "at least 1 pixel")
        require(classes is None or classes >= 0, "num_classes", classes, "0 or above")
        require(0 <= share < 1, "val_share", share, "0 or above, and below 1")
        require(not share or self.test is None, "val_share", share, "0 where there are test images")

    def open_split(self, split: str) -> Items:
        """The split for training, or the one for testing."""
        if split == "test" and self.no_test:
            raise UserError(self.no_test)
        dataset = self.test if split == "test" and not self.val_share else self.train
        found = Items(dataset, self.size, class_names(dataset))
        return found.part(split, self.labels, self.val_share) if self.val_share else found

    @property
    def no_test(self) -> str:
        """Why there are no test images; empty if there are."""
        if self.test is not None or self.val_share:
            return ""
        return f"{self.key} has no test images; val_share=0.1 holds out training images"

    @cached_property
    def info(self) -> DatasetInfo:
        """Image size, number of classes and channel statistics."""
        return DatasetInfo(self.size, self.classes, *self.moments())

    @cached_property
    def size(self) -> int:
        if self.store_size is not None:
            return self.store_size
        with fixed_random_numbers():
            image, _ = read_item(self.train, 0, None)
        return min(image.shape[1], LARGEST)

    @cached_property
    def classes(self) -> int:
        """The number of classes; 0 without labels."""
        if self.num_classes is not None:
            return self.num_classes
        known = getattr(self.train, "num_classes", None)
        if isinstance(known, int):
            return known
        return len(class_names(self.train)) or int(self.labels.max()) + 1

    @cached_property
    def labels(self) -> Tensor:
        """The labels of the training images (N,)."""
        return labels_of(self.train)

    def moments(self) -> tuple[Any, Any]:
        """Mean and standard deviation of the channels: `mean` and `std` of the data set, else of a sample."""
        given: list[Any] = [getattr(self.train, name, None) for name in ("mean", "std")]
        if all(isinstance(each, Sequence) and len(each) == 3 for each in given):
            return tuple(map(float, given[0])), tuple(map(float, given[1]))
        count = min(SAMPLE, len(self.train))
        ids = [i * len(self.train) // count for i in range(count)]  # evenly spaced: it may be sorted by class
        with fixed_random_numbers():
            images = torch.stack([read_item(self.train, i, self.size)[0] for i in ids])
        pixels = images.transpose(0, 1).flatten(1).double() / 255  # (3, …)
        std = pixels.std(1).clamp(min=1e-3)  # images of one colour
        return tuple(round(x, 4) for x in pixels.mean(1).tolist()), tuple(round(x, 4) for x in std.tolist())


def class_names(dataset: Any) -> tuple[str, ...]:
    """The `classes` of a data set; empty without any."""
    names = getattr(dataset, "classes", ())
    return tuple(map(str, names)) if isinstance(names, Sequence) and not isinstance(names, str) else ()


def require_map_style(key: str, dataset: Any) -> None:
    """Refuse a data set without a length or items."""
    usable = hasattr(type(dataset), "__len__") and hasattr(type(dataset), "__getitem__")
    if not usable or isinstance(dataset, str | dict):
        kind, expected = type(dataset).__name__, f"expected __len__ and __getitem__ ({place_of(dataset)})"
        raise UserError(f"{key}: {kind} is no map-style data set; {expected}")
    require(len(dataset) > 0, key, dataset, "a data set with at least one item")


@contextmanager
def fixed_random_numbers() -> Iterator[None]:
    """Items of a data set with random transforms are the same in every process; the generators are restored after."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    torch.default_generator.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])
