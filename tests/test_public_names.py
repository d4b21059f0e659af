"""The public names of the package: imported on first use, listed once."""

import subprocess
import sys

import pytest

import lightning_ssl
from lightning_ssl import callbacks, losses, methods

EVERY_NAME = [name for names in lightning_ssl.PUBLIC_NAMES.values() for name in names]


@pytest.mark.parametrize("room", [losses, methods, callbacks])
def test_the_names_are_those_of_the_rooms(room):
    assert set(lightning_ssl.PUBLIC_NAMES[room.__name__.rpartition(".")[2]]) == set(room.__all__)


@pytest.mark.parametrize("name", EVERY_NAME)
def test_a_public_name_is_the_object_of_its_room(name):
    (room,) = [room for room, names in lightning_ssl.PUBLIC_NAMES.items() if name in names]
    assert getattr(lightning_ssl, name) is getattr(getattr(lightning_ssl, room), name)
    assert name in lightning_ssl.__all__


def test_names_are_listed_before_they_are_imported():
    code = """
import sys, lightning_ssl
assert {"AlphaCL", "Direct", "DataModule"} <= set(dir(lightning_ssl))
assert not {"torch", "pytorch_lightning"} & set(sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'lightning_ssl' has no attribute 'Nothing'"):
        _ = lightning_ssl.Nothing


@pytest.mark.slow
def test_type_checkers_see_the_public_names(tmp_path):
    (tmp_path / "user.py").write_text(
        "from lightning_ssl import AlphaCL, DataModule, Direct, OnlineProbe, PairLoss\n"
        "reveal_type(Direct(p=4).p)\nreveal_type(AlphaCL)\nPairLoss(wrong=1)\n"
    )
    words = [sys.executable, "-m", "mypy", "--no-incremental", "--follow-imports=silent", str(tmp_path / "user.py")]
    result = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert 'Revealed type is "builtins.float"' in result.stdout or 'Revealed type is "float"' in result.stdout
    assert 'Unexpected keyword argument "wrong" for "PairLoss"' in result.stdout
