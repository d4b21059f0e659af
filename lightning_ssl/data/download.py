"""Published data sets: download, verification and the cache.

    ROOT/cifar10/train.pt, test.pt      the cache: one memory-mapped file per split, identical for every source
    ROOT/cifar-10-batches-py/           torchvision's folder; used if it exists and its checksums are correct
    ROOT/cifar-10-python.tar.gz         the official archive; used if it exists and its checksum is correct

The files of the cache are complete or absent: they are written under temporary names and renamed. Downloads go to a
scratch folder that the next fetch empties. Each data set has one lock. A process that waited for the lock finds the
cache complete. `fetch(files=FOLDER)` reads the official files of another folder than the root and downloads nothing.
"""

from __future__ import annotations

import contextlib
import pickle
import shutil
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import torch
from filelock import FileLock

from lightning_ssl.base.checks import UserError, require, shown
from lightning_ssl.base.files import created_folder, write_all
from lightning_ssl.base.untrusted import one_line
from lightning_ssl.data.split import DatasetInfo, Images

SOCKET_TIMEOUT = 30.0  # seconds without data after which a download fails


class SourceUnavailable(Exception):
    """A source does not provide the data. The message is the reason."""


# torchvision raises them for a missing network, a wrong checksum, a missing or damaged file.
OFFICIAL_ERRORS = (OSError, RuntimeError, EOFError, KeyError, pickle.UnpicklingError)


@dataclass(frozen=True)
class Published(ABC):
    """A data set that is downloaded. A subclass says what it is and reads the official files."""

    root: Path
    name: ClassVar[str]
    official: ClassVar[str]  # its class in torchvision, which has the address, the file names and the checksums
    info: ClassVar[DatasetInfo]
    files: ClassVar[tuple[str, ...]] = ("train", "test")  # of the cache
    mirrors: ClassVar[Mapping[str, Callable[[Path, Path], dict[str, Images]]]] = {}  # called with root and scratch
    no_test: ClassVar[str] = ""

    @abstractmethod
    def read(self, official: Any, folder: Path) -> dict[str, Images]:
        """The content of the cache from a folder of official files, by the class of torchvision."""

    def open_split(self, split: str) -> Images:
        """Open a split; `pretrain` is train."""
        return self.mapped("train" if split == "pretrain" else split)

    def mapped(self, name: str) -> Images:
        """A file of the cache, mapped into memory. Official files in the root are converted first."""
        if not self.file(name).is_file():
            self.fetch("files")
        return read_cache(self.file(name))

    def file(self, name: str) -> Path:
        return self.root / self.name / f"{name}.pt"

    @property
    def is_complete(self) -> bool:
        return all(self.file(name).is_file() for name in self.files)

    def fetch(self, source: str = "auto", files: Path | None = None) -> Path:
        """Complete the cache from the first source that provides the data, and return its folder.

        files   a folder with official files; they are the only source then
        """
        online = ("torchvision", *self.mirrors)
        allowed = ("auto", "files", *online)
        require(source in allowed, "source", source, f"one of {', '.join(allowed)} for {self.name}")
        folder = self.root / self.name
        if self.is_complete:  # checked before the lock, because the root may be read-only
            return folder
        if source == "files" and not self.root.is_dir():
            raise self.missing([])  # nothing is created where nothing can be read
        if files is not None:
            require(source in ("auto", "files"), "source", source, "auto: --from names the source")
            require(files.is_dir(), "from", str(files), "a folder")
            online = ()
        with self.locked_scratch() as scratch:
            if not self.is_complete:  # another process may have completed it while this one waited for the lock
                sources = ("folder", "archive", *(each for each in online if source in ("auto", each)))
                self.fill(sources, files or self.root, scratch)
        return folder

    def fill(self, sources: tuple[str, ...], files: Path, scratch: Path) -> None:
        """Write the cache from the first of the sources that provides the data."""
        failures = []
        for source in sources:
            try:
                found = self.read_source(source, files, scratch)
            except (SourceUnavailable, *OFFICIAL_ERRORS) as error:
                failures.append(f"{source}: {one_line(error)}")
                continue
            if found is not None:
                write_all({self.file(name): cached(found[name]) for name in self.files})
                return
        if files != self.root:
            reasons = "; ".join(failures) or f"expected {' or '.join(self.official_names())}"
            raise UserError(f"from={shown(str(files))}: no official files of {self.name} ({reasons})")
        raise self.missing(failures)

    def official_names(self) -> tuple[str, ...]:
        """What a folder of official files contains: one of these."""
        official = self.official_class()
        return f"{official.base_folder}/", official.filename

    def official_class(self) -> Any:
        from torchvision import datasets  # late: it imports torch's image operators

        return getattr(datasets, self.official)

    @contextlib.contextmanager
    def locked_scratch(self) -> Iterator[Path]:
        """An empty scratch folder that only this process uses. A root that was created and stays empty is removed."""
        scratch, lock = self.root / f".{self.name}.partial", self.root / f".{self.name}.lock"
        try:
            with created_folder(self.root), FileLock(lock):
                try:
                    shutil.rmtree(scratch, ignore_errors=True)  # left by a killed process
                    scratch.mkdir()
                    yield scratch
                finally:
                    shutil.rmtree(scratch, ignore_errors=True)
                    # FileLock sees that the file it waited for was removed, and locks a new one.
                    lock.unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"root={str(self.root)!r}: cannot write there: {error.strerror or error}") from error

    def read_folder(self, files: Path) -> dict[str, Images] | None:
        """Decode the unpacked official files of a folder; None if it has none."""
        official = self.official_class()
        return self.read(official, files) if (files / official.base_folder).is_dir() else None

    def read_source(self, source: str, files: Path, scratch: Path) -> dict[str, Images] | None:
        """Decode one source; None if `files` has no such official file, which is the usual case."""
        if source in self.mirrors:
            return self.mirrors[source](self.root, scratch)
        if source == "folder":
            return self.read_folder(files)
        from torchvision.datasets.utils import check_integrity, extract_archive

        official = self.official_class()
        if source == "archive":
            archive = files / official.filename
            if not archive.is_file():
                return None
            if not check_integrity(archive, official.tgz_md5):
                raise SourceUnavailable(f"{archive.name} is incomplete: its checksum differs from the official one")
            extract_archive(archive, scratch)
        else:
            with socket_timeout(SOCKET_TIMEOUT):
                official(scratch, download=True)
        return self.read(official, scratch)

    def missing(self, failures: list[str]) -> UserError:
        """The error for missing data: why each source failed, and what a user can do."""
        archive = self.official_class().filename
        tried = f" ({'; '.join(failures)})" if failures else ""
        download = "" if failures else f"run `lightning-ssl data fetch {self.name} --root {self.root}`, or "
        advice = f"{download}put {archive} there; --data.name shapes needs no download"
        return UserError(f"{self.name} is not in {self.root}{tried}: {advice}")


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
        return Images(found["images"], found["labels"], tuple(map(str, found["classes"])))
    except Exception as error:  # an unpickler can raise anything
        raise UserError(f"{file} is not readable: delete it and fetch again ({one_line(error)})") from error
