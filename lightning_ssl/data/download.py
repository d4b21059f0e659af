"""Published data sets: download, verification and the cache.

    ROOT/cifar10/train.pt, test.pt      the cache: one memory-mapped file per split, identical for every source
    ROOT/cifar-10-batches-py/           torchvision's folder; used if it exists and its checksums are correct
    ROOT/cifar-10-python.tar.gz         the official archive; used if it exists and its checksum is correct

The files of the cache are complete or absent: they are written under temporary names and renamed. Downloads go to a
scratch folder that the next fetch empties. Each data set has one lock. A process that waited for the lock finds the
cache complete.
"""

from __future__ import annotations

import contextlib
import pickle
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from filelock import FileLock

from lightning_ssl.base.checks import UserError, require
from lightning_ssl.base.files import created_folder, write_all
from lightning_ssl.base.untrusted import one_line
from lightning_ssl.data.split import Images

SOCKET_TIMEOUT = 30.0  # seconds without data after which a download fails


class SourceUnavailable(Exception):
    """A source does not provide the data. The message is the reason."""


# torchvision raises them for a missing network, a wrong checksum, a missing or damaged file.
OFFICIAL_ERRORS = (OSError, RuntimeError, EOFError, KeyError, pickle.UnpicklingError)


@dataclass(frozen=True)
class Published:
    """A data set that is downloaded: its class in torchvision, its reader and its other sources."""

    name: str
    official: str  # the class of torchvision.datasets, which has the address, the file names and the checksums
    splits: tuple[str, ...]
    read: Callable[[Any, Path], dict[str, Images]]  # called with that class and the folder of the official files
    mirrors: dict[str, Callable[[Path, Path], dict[str, Images]]]  # called with ROOT and a scratch folder

    def split(self, root: Path, split: str) -> Images:
        """One split of the cache, mapped into memory. Official files in `root` are converted first."""
        file = root / self.name / f"{split}.pt"
        if not file.is_file():
            self.fetch(root, "files")
        return read_cache(file)

    def fetch(self, root: Path, source: str = "auto") -> Path:
        """Complete the cache from the first source that provides the data, and return its folder."""
        online = ("torchvision", *self.mirrors)
        allowed = ("auto", "files", *online)
        require(source in allowed, "source", source, f"one of {', '.join(allowed)} for {self.name}")
        folder = root / self.name
        if self.is_complete(folder):  # checked before the lock, because the root may be read-only
            return folder
        if source == "files" and not root.is_dir():
            raise UserError(self.missing_message(root, []))  # nothing is created where nothing can be read
        with self.locked_scratch(root) as scratch:
            if self.is_complete(folder):  # another process completed it while this one waited for the lock
                return folder
            failures = []
            for tried in ("folder", "archive", *(each for each in online if source in ("auto", each))):
                try:
                    found = self.read_source(tried, root, scratch)
                except (SourceUnavailable, *OFFICIAL_ERRORS) as error:
                    failures.append(f"{tried}: {one_line(error)}")
                    continue
                if found is not None:
                    write_all({folder / f"{split}.pt": cached(found[split]) for split in self.splits})
                    return folder
        raise UserError(self.missing_message(root, failures))

    def is_complete(self, folder: Path) -> bool:
        return all((folder / f"{split}.pt").is_file() for split in self.splits)

    @contextlib.contextmanager
    def locked_scratch(self, root: Path) -> Iterator[Path]:
        """An empty scratch folder that only this process uses. A root that was created and stays empty is removed."""
        scratch, lock = root / f".{self.name}.partial", root / f".{self.name}.lock"
        try:
            with created_folder(root), FileLock(lock):
                try:
                    shutil.rmtree(scratch, ignore_errors=True)  # left by a killed process
                    scratch.mkdir()
                    yield scratch
                finally:
                    shutil.rmtree(scratch, ignore_errors=True)
                    # FileLock sees that the file it waited for was removed, and locks a new one.
                    lock.unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"root={str(root)!r}: cannot write there: {error.strerror or error}") from error

    def read_source(self, source: str, root: Path, scratch: Path) -> dict[str, Images] | None:
        """Decode the splits of one source; None if the root has no such official file, which is the usual case."""
        if source in self.mirrors:
            return self.mirrors[source](root, scratch)
        from torchvision import datasets
        from torchvision.datasets.utils import check_integrity, extract_archive

        official = getattr(datasets, self.official)
        if source == "folder":
            return self.read(official, root) if (root / official.base_folder).is_dir() else None
        if source == "archive":
            archive = root / official.filename
            if not archive.is_file():
                return None
            if not check_integrity(archive, official.tgz_md5):
                raise SourceUnavailable(f"{archive.name} is incomplete: its checksum differs from the official one")
            extract_archive(archive, scratch)
        else:
            with socket_timeout(SOCKET_TIMEOUT):
                official(scratch, download=True)
        return self.read(official, scratch)

    def missing_message(self, root: Path, failures: list[str]) -> str:
        """The error for missing data: why each source failed, and what a user can do."""
        from torchvision import datasets

        archive = getattr(datasets, self.official).filename
        tried = f" ({'; '.join(failures)})" if failures else ""
        download = "" if failures else f"run `lightning-ssl data fetch {self.name} --root {root}`, or "
        return (
            f"{self.name} is not in {root}{tried}: {download}put {archive} there; --data.name shapes needs no download"
        )


@contextlib.contextmanager
def socket_timeout(seconds: float) -> Iterator[None]:
    """Set the default timeout of sockets. torchvision's downloads set none and can wait forever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def cached(split: Images) -> Callable[[BinaryIO], object]:
    """A split as a file of the cache, for `write_all`."""
    content = {"images": split.images, "labels": split.labels, "classes": list(split.classes)}
    return lambda stream: torch.save(content, stream)


def read_cache(file: Path) -> Images:
    """Map a split of the cache into memory. Pages are read on first use; ranks on one machine share them."""
    try:
        found = torch.load(file, mmap=True, weights_only=True)
        split = Images(found["images"], found["labels"], tuple(map(str, found["classes"])))
        low, high = map(int, split.labels.aminmax())  # counting per class would need memory for the largest label
        require(low >= -1 and high < len(split.classes), "labels", [low, high], "labels of the classes")
    except Exception as error:  # an unpickler can raise anything
        raise UserError(f"{file} is not readable: delete it and fetch again ({one_line(error)})") from error
    return split
