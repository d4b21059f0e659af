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
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from lightning_ssl.base.checks import UserError, require
from lightning_ssl.base.files import write_atomic
from lightning_ssl.base.machine import available_cores
from lightning_ssl.base.untrusted import load_json, printable, read_text
from lightning_ssl.data.loader import decoded_batches, load_all
from lightning_ssl.data.pixels import UNREADABLE, as_rgb, decode, opened, reason_of
from lightning_ssl.data.split import Batch, DatasetInfo, Images, held_out

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".tif", ".tiff")
TEST_FOLDERS = ("val", "test")
CHUNK = 256  # files that a worker checks at a time
VERSION = 3  # of the check; raise it when other files become readable


@dataclass(frozen=True)
class ImageFolder:
    """The files of a split; `batch` decodes them."""

    files: list[str]
    labels: Tensor  # int64 (N,)
    classes: tuple[str, ...]
    store_size: int
    note: str = ""  # a line for the user
    decodes: ClassVar[bool] = True

    def __len__(self) -> int:
        return len(self.files)

    def batch(self, ids: Tensor) -> Batch:
        """Decode the images with these ids (B,)."""
        images = torch.stack([decode(self.files[i], self.store_size) for i in ids.tolist()])
        return images, self.labels[ids], ids

    def load(self) -> Images:
        """Decode every file into memory."""
        return load_all(self, self.store_size, self.classes)

    def only(self, chosen: Tensor) -> ImageFolder:
        """The part of the files that a mask (N,) chooses."""
        files = [file for file, kept in zip(self.files, chosen.tolist(), strict=True) if kept]
        return replace(self, files=files, labels=self.labels[chosen])


class Place(NamedTuple):
    """A folder of images and its classes; without classes the images have no labels."""

    folder: Path
    classes: tuple[str, ...]


def open_split(
    name: str, root: Path, split: str, *, store_size: int = 256, corrupt: str = "error", val_share: float = 0.0
) -> ImageFolder:
    """List the files of a split and check that they can be read. Classes, and files of a class, are sorted by name."""
    test = test_place(root)
    require(not val_share or test is None, "val_share", val_share, f"0: {root} has test images in {TEST_FOLDERS[0]}")
    if split == "test" and not val_share:
        if test is None:
            raise UserError(no_test(name, root, val_share=val_share))
        expected = train_place(root).classes
        if test.classes != expected:
            odd = sorted(set(test.classes) ^ set(expected))[:5]
            raise UserError(f"root={str(root)!r}: {test.folder.name} and train must have the same classes, not {odd}")
        return listed(root, test, store_size, corrupt)
    found = listed(root, train_place(root), store_size, corrupt)
    if not val_share:
        return found
    chosen = held_out(found.labels, val_share)
    return found.only(chosen if split == "test" else ~chosen)


def check_values(store_size: int = 256, corrupt: str = "error", val_share: float = 0.0) -> None:
    """Refuse options before a file is read."""
    require(1 <= store_size <= 4096, "store_size", store_size, "between 1 and 4096 pixels")
    require(corrupt in ("error", "skip"), "corrupt", corrupt, "error or skip")
    require(0 <= val_share < 1, "val_share", val_share, "0 or above, and below 1")


def no_test(name: str, root: Path, *, val_share: float = 0.0, **_: object) -> str:
    """Why there are no test images; empty if there are."""
    if val_share or test_place(root) is not None:
        return ""
    return f"{root} has no folder {' or '.join(TEST_FOLDERS)}; the option val_share: 0.1 holds out training images"


def info(name: str, root: Path, *, store_size: int = 256, **_: object) -> DatasetInfo:
    """The stored size, the number of class folders, and the mean and standard deviation of ImageNet."""
    classes = train_place(root).classes
    return DatasetInfo(store_size, len(classes), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


# ---------------------------------------------------------------------------------------------------------------------
# The layout


def train_place(root: Path) -> Place:
    """The folder of the training images."""
    if (root / "train").is_dir():
        return Place(root / "train", class_names(root / "train"))
    if root.is_dir() and test_place(root) is None:
        if any(map(is_image, os.listdir(root))):
            return Place(root, ())
        classes = tuple(each for each in class_names(root) if any(images_in(root / each)))
        if classes:
            return Place(root, classes)
    raise UserError(
        f"root={str(root)!r}: root must be a folder with train/CLASS/*.jpg, CLASS/*.jpg, or *.jpg without labels"
    )


def test_place(root: Path) -> Place | None:
    """The folder of the test images; None if there is none."""
    for name in TEST_FOLDERS:
        if (root / name).is_dir():
            return Place(root / name, class_names(root / name))
    return None


def listed(root: Path, place: Place, store_size: int, corrupt: str) -> ImageFolder:
    """The readable files of a folder."""
    files: list[str] = []
    labels: list[int] = []
    folder, classes = place
    seen: dict[tuple[int, int], str] = {}
    for label, class_folder in enumerate(folder / name for name in classes) if classes else [(-1, folder)]:
        found = sorted(images_in(class_folder, seen))
        files += found
        labels += [label] * len(found)
    require(len(files) > 0, "root", str(root), f"a folder with images in {folder.name}: {', '.join(SUFFIXES)}")
    whole = ImageFolder(files, torch.tensor(labels), classes, store_size)
    bad = unreadable_files(folder, files)
    if not bad:
        return whole
    first, why = next(iter(bad.items()))
    if corrupt == "error":
        more = f" ({len(bad)} of {len(files)} files are unreadable)" if len(bad) > 1 else ""
        raise UserError(f"{first} is not a readable image: {why}{more}; the option corrupt: skip leaves it out")
    require(len(bad) < len(files), "root", str(root), f"a folder with readable images in {folder.name}")
    kept = whole.only(torch.tensor([file not in bad for file in files]))
    note = f"{folder}: {len(bad)} of {len(files)} images are unreadable and left out, first {first}"
    return replace(kept, note=printable(note))


def class_names(folder: Path) -> tuple[str, ...]:
    with os.scandir(folder) as entries:
        return tuple(sorted(e.name for e in entries if e.is_dir() and not e.name.startswith(".")))


def images_in(folder: Path, seen: dict[tuple[int, int], str] | None = None) -> Iterator[str]:
    """The image files below a folder. `seen` has the folders that were listed before, by device and inode."""
    seen = {} if seen is None else seen
    for parent, _, names in os.walk(folder, followlinks=True):
        state = os.stat(parent)
        first = seen.setdefault((state.st_dev, state.st_ino), parent)
        if first != parent:
            raise UserError(f"{parent} is the same folder as {first}, by a link; remove the link")
        for name in names:
            if is_image(name):
                yield os.path.join(parent, name)


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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's, about metadata
            with opened(file) as encoded:
                encoded.draft("RGB", (1, 1))
                as_rgb(encoded)
    except UNREADABLE as error:
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
