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
import os
import pickle
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from filelock import FileLock
from torch import Tensor

from lightning_ssl.checks import UserError, require
from lightning_ssl.data.split import Images
from lightning_ssl.files import write_all
from lightning_ssl.untrusted import one_line

SOCKET_TIMEOUT = 30.0  # seconds without data after which a download fails


class SourceUnavailable(Exception):
    """A source does not provide the data. The message is the reason."""


class NotPresent(SourceUnavailable):
    """There are no official files in the root. This is the usual case, so error messages omit it."""


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
        sources: dict[str, tuple[str, ...]] = {"files": (), "torchvision": ("torchvision",)}
        sources |= {mirror: (mirror,) for mirror in self.mirrors}
        require(source in {"auto", *sources}, "source", source, f"one of auto, {', '.join(sources)} for {self.name}")
        sources["auto"] = ("torchvision", *self.mirrors)
        folder = root / self.name
        if self.is_complete(folder):  # checked before the lock, because the root may be read-only
            return folder
        if source == "files" and not root.is_dir():
            raise UserError(self.missing_message(root, []))  # nothing is created where nothing can be read
        with self.locked_scratch(root) as scratch:
            if self.is_complete(folder):  # another process completed it while this one waited for the lock
                return folder
            failures = []
            for tried in ("folder", "archive", *sources[source]):
                try:
                    found = self.read_source(tried, root, scratch)
                except NotPresent:
                    continue
                except SourceUnavailable as reason:
                    failures.append(f"{tried}: {reason}")
                    continue
                write_all({folder / f"{split}.pt": cached(found[split]) for split in self.splits})
                return folder
        raise UserError(self.missing_message(root, failures))

    def is_complete(self, folder: Path) -> bool:
        return all((folder / f"{split}.pt").is_file() for split in self.splits)

    @contextlib.contextmanager
    def locked_scratch(self, root: Path) -> Iterator[Path]:
        """An empty scratch folder that only this process uses. A root that was created and stays empty is removed."""
        scratch, lock = root / f".{self.name}.partial", root / f".{self.name}.lock"
        created = [folder for folder in (root, *root.parents) if not os.path.lexists(folder)]
        try:
            root.mkdir(parents=True, exist_ok=True)
            with FileLock(lock):
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
        finally:
            for folder in created:
                with contextlib.suppress(OSError):  # it has files
                    folder.rmdir()

    def read_source(self, source: str, root: Path, scratch: Path) -> dict[str, Images]:
        """Decode the splits of one source, or raise `SourceUnavailable`."""
        if source in self.mirrors:
            return self.mirrors[source](root, scratch)
        from torchvision import datasets
        from torchvision.datasets.utils import check_integrity, extract_archive

        official = getattr(datasets, self.official)
        if source == "folder":
            if not (root / official.base_folder).is_dir():
                raise NotPresent
            with torchvision_errors():
                return self.read(official, root)
        if source == "archive":
            archive = root / official.filename
            if not archive.is_file():
                raise NotPresent
            if not check_integrity(archive, official.tgz_md5):
                raise SourceUnavailable(f"{archive.name} is incomplete: its checksum differs from the official one")
            with torchvision_errors():
                extract_archive(archive, scratch)
                return self.read(official, scratch)
        with torchvision_errors(), socket_timeout(SOCKET_TIMEOUT):
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
def torchvision_errors() -> Iterator[None]:
    """Turn torchvision's errors (no network, wrong checksum, missing file) into `SourceUnavailable`."""
    try:
        yield
    except (OSError, RuntimeError, EOFError, KeyError, pickle.UnpicklingError) as error:
        raise SourceUnavailable(str(error).partition("\n")[0] or type(error).__name__) from error


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
        require_labels(split.labels, len(split.classes), lowest=-1)
    except Exception as error:  # an unpickler can raise anything
        raise UserError(f"{file} is not readable: delete it and fetch again ({one_line(error)})") from error
    return split


def require_labels(labels: Tensor, classes: int, lowest: int = 0) -> None:
    """Refuse labels outside the classes: counting per class would need memory for the largest label."""
    low, high = (int(labels.min()), int(labels.max())) if len(labels) else (lowest, lowest)
    require(lowest <= low and high < classes, "labels", [low, high], f"from {lowest} to {classes - 1}")
