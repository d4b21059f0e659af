"""Where files come from: the ways to a published data set, its verification and the cache it is kept in.

    ROOT/cifar10/train.pt, test.pt      the cache, the same whatever the source: one file per split, mapped, not read
    ROOT/cifar-10-batches-py/           torchvision's own folder: taken, once its checksums hold, when it is there
    ROOT/cifar-10-python.tar.gz         the official archive, likewise

A split is written beside its place and renamed into it, so a file of the cache is whole or absent; downloads happen in
a scratch folder that the next fetch empties. One lock per data set makes processes wait for each other, and the one
that waited finds the work done.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from filelock import FileLock
from torch import Tensor

from lightning_ssl.checks import require

Batch = tuple[Tensor, Tensor, Tensor]
"""images uint8 (B, 3, H, W), labels int64 (B,), ids int64 (B,)."""

SECONDS_OF_SILENCE = 30.0  # a host that says nothing for so long is not there


class DatasetInfo(NamedTuple):
    """What is known of a data set before an image is read."""

    image_size: int
    num_classes: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


@dataclass(frozen=True)
class Images:
    """A split in memory; batches are slices of it."""

    images: Tensor  # uint8 (N, 3, H, W)
    labels: Tensor  # int64 (N,), −1 where there is none
    classes: tuple[str, ...]
    decodes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        shape = tuple(self.images.shape)
        require(len(shape) == 4 and shape[1] == 3, "images", shape, "of shape (N, 3, H, W)")
        require(self.images.dtype == torch.uint8, "images", self.images.dtype, "uint8")
        require(self.labels.shape == shape[:1], "labels", tuple(self.labels.shape), f"of shape ({shape[0]},)")
        require(self.labels.dtype == torch.int64, "labels", self.labels.dtype, "int64")

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, ids: Tensor) -> Batch:
        """The images of these ids (B,)."""
        return self.images[ids], self.labels[ids], ids

    def load(self) -> Images:
        return self


class DeadEnd(Exception):
    """A way that does not lead to the data, and why."""


@dataclass(frozen=True)
class Published:
    """A data set that others publish: its official form, how it is read, and other places that have it."""

    name: str
    official: str  # the class of torchvision.datasets that knows its address, files and checksums
    splits: tuple[str, ...]
    read: Callable[[Any, Path], dict[str, Images]]  # that class and the folder that holds the official files
    mirrors: dict[str, Callable[[Path, Path], dict[str, Images]]]  # ROOT and a scratch folder

    def split(self, root: Path, split: str) -> Images:
        """One split of the cache, mapped into memory; official files that lie in `root` are taken in first."""
        file = root / self.name / f"{split}.pt"
        if not file.is_file():
            self.fetch(root, "files")
        return read_cache(file)

    def fetch(self, root: Path, source: str = "auto") -> Path:
        """Make the cache complete by the first way that leads to the data, and say where it is."""
        ways = {"files": (), "torchvision": ("torchvision",), **{mirror: (mirror,) for mirror in self.mirrors}}
        ways["auto"] = ("torchvision", *self.mirrors)
        require(source in ways, "source", source, f"one of auto, {', '.join(list(ways)[:-1])} for {self.name}")
        folder = root / self.name
        if self.complete(folder):  # before the lock: the root may be read-only
            return folder
        with self.locked(root) as scratch:
            if self.complete(folder):  # by the one that was waited for
                return folder
            dead_ends = []
            for way in ("folder", "archive", *ways[source]):
                try:
                    found = self.follow(way, root, scratch)
                except DeadEnd as dead_end:
                    dead_ends.append(f"{way}: {dead_end}")
                    continue
                for split in self.splits:
                    write_cache(folder / f"{split}.pt", found[split])
                return folder
        raise ValueError(self.ways_out(root, source, dead_ends))

    def complete(self, folder: Path) -> bool:
        return all((folder / f"{split}.pt").is_file() for split in self.splits)

    @contextlib.contextmanager
    def locked(self, root: Path) -> Iterator[Path]:
        """An empty scratch folder, in which no other process is at work."""
        scratch = root / f".{self.name}.partial"
        try:
            root.mkdir(parents=True, exist_ok=True)
            with FileLock(root / f".{self.name}.lock"):
                shutil.rmtree(scratch, ignore_errors=True)  # of a process that was killed
                scratch.mkdir()
                try:
                    yield scratch
                finally:
                    shutil.rmtree(scratch, ignore_errors=True)
        except OSError as error:
            raise ValueError(f"root={str(root)!r}: cannot write there: {error.strerror or error}") from error

    def follow(self, way: str, root: Path, scratch: Path) -> dict[str, Images]:
        """The decoded splits by one way, or `DeadEnd`."""
        if way in self.mirrors:
            return self.mirrors[way](root, scratch)
        from torchvision import datasets
        from torchvision.datasets.utils import check_integrity, extract_archive

        official = getattr(datasets, self.official)
        if way == "folder":
            if not (root / official.base_folder).is_dir():
                raise DeadEnd("not there")
            with said_by_torchvision():
                return self.read(official, root)
        if way == "archive":
            archive = root / official.filename
            if not archive.is_file():
                raise DeadEnd("not there")
            if not check_integrity(archive, official.tgz_md5):
                raise DeadEnd(f"{archive.name} is not whole: its checksum differs from the official one")
            with said_by_torchvision():
                extract_archive(archive, scratch)
                return self.read(official, scratch)
        with said_by_torchvision(), socket_timeout(SECONDS_OF_SILENCE):
            official(scratch, download=True)
            return self.read(official, scratch)

    def ways_out(self, root: Path, source: str, dead_ends: list[str]) -> str:
        """The refusal: what is missing, the three ways out, and where each way that was tried ended."""
        from torchvision import datasets

        archive = getattr(datasets, self.official).filename
        command = f"lightning-ssl data fetch {self.name} --root {root}"
        online = command if source == "files" else f"{command} where there is a network, and copy {root / self.name}"
        tried = "; ".join(end for end in dead_ends if not end.endswith("not there"))
        return (
            f"{self.name} is not in {root}. Three ways out: (1) {online}; (2) put {archive} into {root};"
            f" (3) --data.name shapes, which needs no download" + (f". Tried {tried}" if tried else "")
        )


@contextlib.contextmanager
def said_by_torchvision() -> Iterator[None]:
    """Turn what torchvision raises for no network, a wrong checksum or a missing file into a dead end."""
    try:
        yield
    except (OSError, RuntimeError, EOFError, KeyError, pickle.UnpicklingError) as error:
        raise DeadEnd(str(error).partition("\n")[0] or type(error).__name__) from error


@contextlib.contextmanager
def socket_timeout(seconds: float) -> Iterator[None]:
    """torchvision's downloads wait for ever otherwise."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def write_cache(file: Path, split: Images) -> None:
    """Write beside the place and rename: the file is whole or absent, whatever happens in between."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.partial")
    with partial.open("wb") as stream:
        torch.save({"images": split.images, "labels": split.labels, "classes": list(split.classes)}, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(partial, file)


def read_cache(file: Path) -> Images:
    """A split of the cache; pages are read when they are touched, and ranks on one machine share them."""
    try:
        found = torch.load(file, mmap=True, weights_only=True)
        return Images(found["images"], found["labels"], tuple(found["classes"]))
    except (OSError, RuntimeError, EOFError, KeyError, TypeError, pickle.UnpicklingError) as error:
        raise ValueError(f"{file} is not readable: remove it, and it is made again") from error
