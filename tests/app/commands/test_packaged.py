"""Packaged files: short names of configs/ and sweeps/, and the files of the working directory before them."""

from pathlib import Path

import pytest

from lightning_ssl.app import cli
from lightning_ssl.app.config import packaged

QUICKSTART = str(packaged.PACKAGE / "configs" / "quickstart.yaml")
DIRECT = str(packaged.PACKAGE / "configs" / "method" / "direct.yaml")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("quickstart", QUICKSTART),
        ("quickstart.yaml", QUICKSTART),
        ("configs/quickstart.yaml", QUICKSTART),
        ("method/direct", DIRECT),
        ("configs/method/direct", DIRECT),
        ("method/matched/tsallis_q0.5", str(packaged.PACKAGE / "configs/method/matched/tsallis_q0.5.yaml")),
    ],
)
def test_a_packaged_file_is_found_by_its_short_name(name, path):
    assert packaged.find("configs", name) == path


@pytest.mark.parametrize("local", ["quickstart", "quickstart.yaml", "configs/quickstart.yaml"])
def test_a_file_of_the_working_directory_is_used_first(local, tmp_path):
    file = tmp_path / local
    file.parent.mkdir(exist_ok=True)
    file.write_text("trainer: {max_epochs: 1}")
    assert Path(packaged.find("configs", "quickstart")) == Path(local)


@pytest.mark.parametrize("folder", ["configs", "sweeps"])
def test_every_packaged_name_is_found(folder):
    names = packaged.names(folder)
    assert len(names) > 10
    assert all(Path(packaged.find(folder, name)).is_file() for name in names)


def test_a_sweep_is_found_by_its_short_name(capsys):
    assert cli.main(["sweep", "quickstart", "--dry-run", "--", "--knn", "null"]) == 0
    assert "--knn null" in capsys.readouterr().out
