"""`lightning-ssl data`: list and fetch."""

import pytest
import torch

from lightning_ssl import data
from lightning_ssl.app.commands import data as command
from lightning_ssl.base.files import write_atomic
from lightning_ssl.data.download import cached
from lightning_ssl.data.split import Images

SPLIT = Images(torch.zeros(1, 3, 32, 32, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64), ("a",))


@pytest.fixture(autouse=True)
def cifar10(tmp_path):
    for name in ("train", "test"):
        write_atomic(tmp_path / "cifar10" / f"{name}.pt", cached(SPLIT))


def test_list_shows_which_data_sets_are_downloaded(tmp_path, capsys):
    write_atomic(tmp_path / "cifar100" / "train.pt", cached(SPLIT))  # without the test images
    assert command.main(["list", "--root", str(tmp_path)]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert set(lines) == set(data.DATASETS)
    assert " here " in lines["cifar10"]
    assert "not here" in lines["cifar100"]
    assert "built in" in lines["shapes"]


def test_fetch_prints_the_folder(tmp_path, capsys):
    assert command.main(["fetch", "cifar10", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"cifar10 is in {tmp_path / 'cifar10'}\n"
    assert [file.name for file in tmp_path.iterdir()] == ["cifar10"]  # nothing written: the root may be read-only
