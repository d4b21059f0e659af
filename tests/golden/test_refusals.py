"""Wrong command lines of `lightning-ssl fit`: exit code 2, one line that names the key, and no run folder."""

import shlex
import signal
import sys
from pathlib import Path

import pytest
import yaml

from lightning_ssl.app import cli
from lightning_ssl.app.training import run

TABLE = yaml.safe_load((Path(__file__).parent / "data/refusals.yaml").read_text(encoding="utf-8"))
SAMPLE = 12  # the distance of the cases of the fast test
SECONDS = 60  # after which a command counts as hanging


class Accepted(BaseException):
    """The command line was not refused."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files of the table, in which no training starts. Its modules are forgotten afterwards."""

    def accept(*_):
        raise Accepted

    def hang(*_):
        raise TimeoutError(f"no answer after {SECONDS} s")

    for name, text in TABLE["files"].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "train_in_folder", accept)
    before = set(sys.modules)
    previous = signal.signal(signal.SIGALRM, hang)
    signal.alarm(SECONDS)
    yield tmp_path
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def cases():
    """Every case; most of them are slow tests."""
    for number, (command, key) in enumerate(TABLE["cases"].items()):
        marks = pytest.mark.slow if number % SAMPLE else ()
        yield pytest.param(command, key, id=command, marks=marks)


@pytest.mark.parametrize(("command", "key"), list(cases()))
def test_a_wrong_command_line_is_refused_in_one_line_that_names_the_key(command, key, folder, capfd):
    code = cli.main(["fit", *shlex.split(TABLE["start"]), *shlex.split(command)])
    shown = capfd.readouterr()
    assert code == 2, shown
    (line,) = shown.err.splitlines()
    assert key in line
    assert "Traceback" not in line
    assert {path.name for path in folder.iterdir() if path.name != "__pycache__"} == {
        Path(name).parts[0] for name in TABLE["files"]
    }
