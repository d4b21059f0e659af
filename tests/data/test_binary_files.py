"""CIFAR-100 from its official binary files in a folder of the user: `data fetch cifar100 --from FOLDER`."""

import hashlib

import numpy as np
import pytest
import torch

from lightning_ssl import data
from lightning_ssl.app.commands import data as command
from lightning_ssl.base.checks import UserError
from lightning_ssl.data import cifar


@pytest.fixture
def given(tmp_path, monkeypatch):
    """A folder with 20 + 8 images as binary files: its path, and the records of each split."""
    folder = tmp_path / "given" / cifar.BINARY
    folder.mkdir(parents=True)
    rng, records, files = np.random.default_rng(0), {}, {}
    for split, count in (("train", 20), ("test", 8)):
        records[split] = rng.integers(0, 100, (count, 3074), dtype=np.uint8)
        (folder / f"{split}.bin").write_bytes(records[split].tobytes())
        files[split] = f"{split}.bin", hashlib.sha1(records[split].tobytes()).hexdigest()
    monkeypatch.setattr(cifar, "BINARY_FILES", files)
    return folder.parent, records


def test_images_and_fine_labels_are_those_of_the_records(given, tmp_path, capsys):
    folder, records = given
    assert command.main(["fetch", "cifar100", "--root", str(tmp_path / "root"), "--from", str(folder)]) == 0
    assert capsys.readouterr().out == f"cifar100 is in {tmp_path / 'root' / 'cifar100'}\n"
    for split, expected in records.items():
        found = data.load("cifar100", tmp_path / "root", split)
        assert torch.equal(found.images, torch.from_numpy(expected[:, 2:].reshape(-1, 3, 32, 32)))
        assert found.labels.tolist() == expected[:, 1].tolist()
        assert len(set(found.classes)) == 100 == data.info("cifar100").num_classes


def test_files_with_another_checksum_are_refused(given, tmp_path):
    folder, _ = given
    with (folder / cifar.BINARY / "test.bin").open("ab") as file:
        file.write(bytes(3074))
    with pytest.raises(UserError, match=r"from=.*cifar100 \(folder: test.bin: its SHA-1 differs"):
        data.fetch("cifar100", tmp_path / "root", files=folder)
    assert not (tmp_path / "root").exists()


def test_a_folder_without_official_files_is_refused(tmp_path):
    names = "cifar-100-python/ or cifar-100-python.tar.gz or cifar-100-binary/"
    with pytest.raises(UserError, match=f"from=.*expected {names}"):
        data.fetch("cifar100", tmp_path / "root", files=tmp_path)
    with pytest.raises(UserError, match="from must be a folder"):
        data.fetch("cifar100", tmp_path / "root", files=tmp_path / "missing")
    assert not (tmp_path / "root").exists()
