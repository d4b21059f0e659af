"""A folder of images.

    ROOT/train/CLASS/**/*.jpg     training images; without class folders, ROOT/train/*.jpg, they have no labels
    ROOT/val/CLASS/**/*.jpg       test images (a folder named `test` also works); it may be missing
    ROOT/CLASS/**/*.jpg           without a folder `train`: training images by class
    ROOT/*.jpg                    without a folder `train`: training images without labels

A link to a folder is followed. A folder that is reached twice, such as by a link to a parent, is an error: its images
would have two labels.

Every image is stored at one size: the shorter side is resized to `store_size` with antialiasing, then the centre is
cropped. Augmentation crops from the stored image.

Options:

    store_size   side of the stored images in pixels
    corrupt      "error": an unreadable file is an error at the start; "skip": unreadable files are left out
    val_share    this share of the training images of each class is held out for validation, where there is no `val`

At the start every file is decoded once, JPEG at an eighth of its size, in worker processes. Which files cannot be read
is kept in `$XDG_CACHE_HOME/lightning_ssl/readable` (`~/.cache` by default), while names, sizes and times of the files
stay the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_ssl.base.checks import UserError, require
from lightning_ssl.base.files import write_atomic
from lightning_ssl.base.machine import available_cores
from lightning_ssl.base.untrusted import load_json, printable, read_text
from lightning_ssl.data.loader import decoded_batches
from lightning_ssl.data.map_style import Items
from lightning_ssl.data.pixels import as_rgb, decode, opened, reason_of
from lightning_ssl.data.split import DatasetInfo

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".tif", ".tiff")
TEST_FOLDERS = ("val", "test")
CHUNK = 256  # files that a worker checks at a time
VERSION = 3  # of the check; raise it when other files become readable


class Place(NamedTuple):
    """A folder of images and its classes; without classes the images have no labels."""

    folder: Path
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Files:
    """Image files with their labels, as a map-style data set."""

    files: list[str]
    labels: list[int]
    size: int

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return decode(self.files[index], self.size), self.labels[index]


@dataclass(frozen=True)
class ImageFolder:
    """The data set with its options."""

    root: Path
    store_size: int = 256
    corrupt: str = "error"
    val_share: float = 0.0

    def __post_init__(self) -> None:
        require(1 <= self.store_size <= 4096, "store_size", self.store_size, "between 1 and 4096 pixels")
        require(self.corrupt in ("error", "skip"), "corrupt", self.corrupt, "error or skip")
        require(0 <= self.val_share < 1, "val_share", self.val_share, "0 or above, and below 1")

    @property
    def info(self) -> DatasetInfo:
        """The stored size, the number of class folders, and the mean and standard deviation of ImageNet."""
        classes = train_place(self.root).classes
        return DatasetInfo(self.store_size, len(classes), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

    @property
    def no_test(self) -> str:
        """Why there are no test images; empty if there are."""
        if self.val_share or test_place(self.root) is not None:
            return ""
        folders = " or ".join(TEST_FOLDERS)
        return f"{self.root} has no folder {folders}; the option val_share: 0.1 holds out training images"

    def open_split(self, split: str) -> Items:
        """List the files of a split and check that they can be read. Classes and their files are sorted by name."""
        if split == "test" and self.no_test:
            raise UserError(self.no_test)
        train, test = train_place(self.root), test_place(self.root)
        none = f"0: {self.root} has test images in {TEST_FOLDERS[0]}"
        require(not self.val_share or test is None, "val_share", self.val_share, none)
        if split == "test" and test is not None:
            odd = sorted(set(test.classes) ^ set(train.classes))[:5]
            same = f"a folder whose {test.folder.name} and train have the same classes, not {odd}"
            require(not odd, "root", str(self.root), same)
            return self.listed(test)
        found = self.listed(train)
        return found.part(split, found.labels, self.val_share) if self.val_share else found

    def listed(self, place: Place) -> Items:
        """The readable files of a folder."""
        folder, classes = place
        seen: dict[tuple[int, int], str] = {}
        labelled = {folder / name: label for label, name in enumerate(classes)} or {folder: -1}
        found = [(file, label) for part, label in labelled.items() for file in sorted(images_in(part, seen))]
        require(len(found) > 0, "root", str(self.root), f"a folder with images in {folder.name}: {', '.join(SUFFIXES)}")
        bad, note = unreadable_files(folder, [file for file, _ in found]), ""
        if bad:
            first, why = next(iter(bad.items()))
            if self.corrupt == "error":
                more = f" ({len(bad)} of {len(found)} files are unreadable)" if len(bad) > 1 else ""
                raise UserError(f"{first} is not a readable image: {why}{more}; the option corrupt: skip leaves it out")
            require(len(bad) < len(found), "root", str(self.root), f"a folder with readable images in {folder.name}")
            note = f"{folder}: {len(bad)} of {len(found)} images are unreadable and left out, first {first}"
            found = [(file, label) for file, label in found if file not in bad]
        files, labels = map(list, zip(*found, strict=True))
        return Items(Files(files, labels, self.store_size), self.store_size, classes, note=printable(note))


# ---------------------------------------------------------------------------------------------------------------------
# The layout


def train_place(root: Path) -> Place:
    """The folder of the training images."""
    if (root / "train").is_dir():
        return Place(root / "train", class_names(root / "train"))
    if root.is_dir() and test_place(root) is None:
        if any(map(is_image, os.listdir(root))):
            return Place(root, ())
        classes = tuple(each for each in class_names(root) if any(images_in(root / each, {})))
        if classes:
            return Place(root, classes)
    layouts = "a folder with train/CLASS/*.jpg, CLASS/*.jpg, or *.jpg without labels"
    raise UserError(f"root={str(root)!r}: root must be {layouts}")


def test_place(root: Path) -> Place | None:
    """The folder of the test images; None if there is none."""
    folders = (root / name for name in TEST_FOLDERS)
    return next((Place(each, class_names(each)) for each in folders if each.is_dir()), None)


def class_names(folder: Path) -> tuple[str, ...]:
    with os.scandir(folder) as entries:
        return tuple(sorted(e.name for e in entries if e.is_dir() and not e.name.startswith(".")))


def images_in(folder: Path, seen: dict[tuple[int, int], str]) -> Iterator[str]:
    """The image files below a folder. `seen` has the folders that were listed before, by device and inode."""
    for parent, _, names in os.walk(folder, followlinks=True):
        state = os.stat(parent)
        first = seen.setdefault((state.st_dev, state.st_ino), parent)
        if first != parent:
            raise UserError(f"{parent} is the same folder as {first}, by a link; remove the link")
        yield from (os.path.join(parent, name) for name in names if is_image(name))


def is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


# ---------------------------------------------------------------------------------------------------------------------
# Unreadable files


def unreadable_files(folder: Path, files: list[str]) -> dict[str, str]:
    """The unreadable files and the reason for each, in the order of the files."""
    cache, state = cache_file(folder), fingerprint(files)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = load_json(read_text(cache))
        if known["files"] == state:
            return {str(file): str(why) for file, why in known["unreadable"].items()}
    chunks = torch.arange(len(files)).split(CHUNK)
    workers = min(available_cores(), len(chunks)) if len(chunks) > 1 else 0
    parts = decoded_batches(partial(reasons, files), chunks, workers)
    found = {file: why for part in parts for file, why in part if why}
    with contextlib.suppress(ValueError):  # a cache that cannot be written only costs time
        write_atomic(cache, json.dumps({"files": state, "unreadable": found}).encode())
    return found


def reasons(files: list[str], ids: Tensor) -> list[tuple[str, str]]:
    """The files at these positions, each with the reason why it is unreadable."""
    return [(files[i], why_unreadable(files[i])) for i in ids.tolist()]


def why_unreadable(file: str) -> str:
    """Why a file cannot be decoded; empty if it can."""
    try:
        with opened(file) as encoded:
            encoded.draft("RGB", (1, 1))
            as_rgb(encoded)
    except Exception as error:
        return reason_of(error)
    return ""


def fingerprint(files: list[str]) -> str:
    """A checksum of names, sizes and times."""
    digest = hashlib.sha256(f"{VERSION}\n".encode())
    for file in files:
        with contextlib.suppress(OSError):
            state = os.stat(file)
            digest.update(os.fsencode(file) + f"\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def cache_file(folder: Path) -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:32]
    return Path(home) / "lightning_ssl" / "readable" / f"{name}.json"
