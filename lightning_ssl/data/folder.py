"""Any folder of images in ImageNet's layout, decoded by worker processes.

    ROOT/train/CLASS/**/*.jpg     to learn from; a train folder without sub-folders is one without labels
    ROOT/val/CLASS/**/*.jpg       to test on (`test` is taken as well)

An image becomes uint8 of one size: its shorter side is resized to `store_size`, with antialiasing, and the centre is
kept. Augmentation crops from that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import DataLoader

from lightning_ssl.checks import require
from lightning_ssl.data.download import Batch, DatasetInfo, Images

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".tif", ".tiff")
FOLDERS = {"train": ("train",), "pretrain": ("train",), "test": ("val", "test")}


@dataclass(frozen=True)
class Folder:
    """The files of a split; `batch` decodes them."""

    files: list[str]
    labels: Tensor  # int64 (N,)
    classes: tuple[str, ...]
    store_size: int
    decodes: ClassVar[bool] = True

    def __len__(self) -> int:
        return len(self.files)

    def batch(self, ids: Tensor) -> Batch:
        """The images of these ids (B,), decoded here and now."""
        images = torch.stack([decode(self.files[i], self.store_size) for i in ids.tolist()])
        return images, self.labels[ids], ids

    def load(self) -> Images:
        """Decode every file into memory."""
        images = torch.empty(len(self), 3, self.store_size, self.store_size, dtype=torch.uint8)
        parts = torch.arange(len(self)).split(64)
        loader = DataLoader(
            Parts(self, parts),
            batch_size=None,
            num_workers=min(processors(), len(parts)),
            generator=torch.Generator(),  # the global one is left alone
        )
        for part, _, ids in loader:
            images[ids] = part
        return Images(images, self.labels, self.classes)


@dataclass(frozen=True)
class Parts(torch.utils.data.Dataset[Batch]):
    """What a DataLoader's workers see: one item is one batch."""

    folder: Folder
    ids: tuple[Tensor, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Batch:
        return self.folder.batch(self.ids[index])


def rows(name: str, root: Path, split: str, *, store_size: int = 256) -> Folder:
    """The files of a split, sorted, classes in the order of their names."""
    require(store_size >= 1, "store_size", store_size, "at least 1 pixel")
    place = find(root, split)
    classes = class_names(place)
    train = FOLDERS["train"][0]
    if split == "test" and (root / train).is_dir():
        expected = class_names(root / train)
        if classes != expected:
            odd = sorted(set(classes) ^ set(expected))
            raise ValueError(f"root={str(root)!r}: {place.name} and {train} must have the same classes, not {odd[:5]}")
    files: list[str] = []
    labels: list[int] = []
    for label, folder in enumerate(place / name for name in classes) if classes else [(-1, place)]:
        found = sorted(images_in(folder))
        files += found
        labels += [label] * len(found)
    require(len(files) > 0, "root", str(root), f"a folder with images in {place.name}: {', '.join(SUFFIXES)}")
    return Folder(files, torch.tensor(labels), classes, store_size)


def info(name: str, root: Path, *, store_size: int = 256) -> DatasetInfo:
    """Size as stored, classes as there are folders, moments of ImageNet."""
    classes = class_names(find(root, "train"))
    return DatasetInfo(store_size, len(classes), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def find(root: Path, split: str) -> Path:
    """The folder of a split."""
    for name in FOLDERS[split]:
        if (root / name).is_dir():
            return root / name
    wanted = " or ".join(f"{name}/CLASS/*.jpg" for name in FOLDERS[split])
    raise ValueError(f"root={str(root)!r}: root must be a folder that holds {wanted}")


def class_names(place: Path) -> tuple[str, ...]:
    with os.scandir(place) as entries:
        return tuple(sorted(e.name for e in entries if e.is_dir() and not e.name.startswith(".")))


def images_in(folder: Path) -> Iterator[str]:
    for place, _, names in os.walk(folder, followlinks=True):
        for name in names:
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                yield os.path.join(place, name)


def decode(file: str, size: int) -> Tensor:
    """One image as uint8 (3, size, size)."""
    try:
        with Image.open(file) as encoded:
            encoded.draft("RGB", (2 * size, 2 * size))  # JPEG: skip detail that the resize would average away
            picture = encoded.convert("RGB")
            scale = size / min(picture.size)
            width, height = (max(size, round(side * scale)) for side in picture.size)
            picture = picture.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=3.0)
            left, top = (width - size) // 2, (height - size) // 2
            pixels = np.array(picture.crop((left, top, left + size, top + size)))  # (size, size, 3)
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise ValueError(f"{file} is not a readable image: {error}") from error
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
