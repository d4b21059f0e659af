"""A folder of images in ImageNet's layout.

    ROOT/train/CLASS/**/*.jpg     training images; without class folders, ROOT/train/*.jpg, they have no labels
    ROOT/val/CLASS/**/*.jpg       test images (a folder named `test` also works)

Every image is stored at one size: the shorter side is resized to `store_size` with antialiasing, then the centre is
cropped. Augmentation crops from the stored image.
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
from lightning_ssl.data.split import Batch, BatchDataset, DatasetInfo, Images
from lightning_ssl.machine import available_cores

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".tif", ".tiff")
FOLDERS = {"train": ("train",), "pretrain": ("train",), "test": ("val", "test")}


@dataclass(frozen=True)
class ImageFolder:
    """The files of a split; `batch` decodes them."""

    files: list[str]
    labels: Tensor  # int64 (N,)
    classes: tuple[str, ...]
    store_size: int
    decodes: ClassVar[bool] = True

    def __len__(self) -> int:
        return len(self.files)

    def batch(self, ids: Tensor) -> Batch:
        """Decode the images with these ids (B,)."""
        images = torch.stack([decode(self.files[i], self.store_size) for i in ids.tolist()])
        return images, self.labels[ids], ids

    def load(self) -> Images:
        """Decode every file into memory."""
        images = torch.empty(len(self), 3, self.store_size, self.store_size, dtype=torch.uint8)
        batches = torch.arange(len(self)).split(64)
        loader = DataLoader(
            BatchDataset(self),
            sampler=batches,
            batch_size=None,
            num_workers=min(available_cores(), len(batches)),
            generator=torch.Generator(),  # a DataLoader without one draws from the global generator
        )
        for part, _, ids in loader:
            images[ids] = part
        return Images(images, self.labels, self.classes)


def open_split(name: str, root: Path, split: str, *, store_size: int = 256) -> ImageFolder:
    """List the files of a split. Classes and the files of a class are sorted by name."""
    require(store_size >= 1, "store_size", store_size, "at least 1 pixel")
    folder = split_folder(root, split)
    classes = class_names(folder)
    train = FOLDERS["train"][0]
    if split == "test" and (root / train).is_dir():
        expected = class_names(root / train)
        if classes != expected:
            odd = sorted(set(classes) ^ set(expected))
            raise ValueError(f"root={str(root)!r}: {folder.name} and {train} must have the same classes, not {odd[:5]}")
    files: list[str] = []
    labels: list[int] = []
    for label, class_folder in enumerate(folder / name for name in classes) if classes else [(-1, folder)]:
        found = sorted(images_in(class_folder))
        files += found
        labels += [label] * len(found)
    require(len(files) > 0, "root", str(root), f"a folder with images in {folder.name}: {', '.join(SUFFIXES)}")
    return ImageFolder(files, torch.tensor(labels), classes, store_size)


def info(name: str, root: Path, *, store_size: int = 256) -> DatasetInfo:
    """The stored size, the number of class folders, and the mean and standard deviation of ImageNet."""
    classes = class_names(split_folder(root, "train"))
    return DatasetInfo(store_size, len(classes), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def split_folder(root: Path, split: str) -> Path:
    for name in FOLDERS[split]:
        if (root / name).is_dir():
            return root / name
    layout = " or ".join(f"{name}/CLASS/*.jpg" for name in FOLDERS[split])
    raise ValueError(f"root={str(root)!r}: root must be a folder with {layout}")


def class_names(folder: Path) -> tuple[str, ...]:
    with os.scandir(folder) as entries:
        return tuple(sorted(e.name for e in entries if e.is_dir() and not e.name.startswith(".")))


def images_in(folder: Path) -> Iterator[str]:
    for parent, _, names in os.walk(folder, followlinks=True):
        for name in names:
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                yield os.path.join(parent, name)


def decode(file: str, size: int) -> Tensor:
    """Decode one image to uint8 (3, size, size)."""
    try:
        with Image.open(file) as encoded:
            encoded.draft("RGB", (2 * size, 2 * size))  # JPEG: decode at a lower resolution, still twice the target
            picture = encoded.convert("RGB")
            scale = size / min(picture.size)
            width, height = (max(size, round(side * scale)) for side in picture.size)
            picture = picture.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=3.0)
            left, top = (width - size) // 2, (height - size) // 2
            pixels = np.array(picture.crop((left, top, left + size, top + size)))  # (size, size, 3)
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise ValueError(f"{file} is not a readable image: {error}") from error
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
