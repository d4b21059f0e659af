"""Wrong and hostile command lines: one line on standard error, exit code 2, and nothing left behind.

`kinds.yaml` has one case of each kind of refusal of each command. `safety.yaml` has every case in which another answer
would run code, overwrite a file, leave the folder, hang, or end in a killed process:

    fit --data.batch_size 0: "data.batch_size=0…at least 1…"

A key is a command line; `fit` gets the flags of SMALL before its own. NAME=VALUE before the command sets a variable of
the environment. $LONG and the other names of WORDS stand for their values. The value is the line without its prefix; …
stands for any text. The commands run in one process, in the folder of `workspace.py`. A command that is accepted does
no work: it fails the test as "accepted".
"""

import re
import shlex
import signal
import sys
from pathlib import Path

import pytest
import yaml
from app.hostile.workspace import SMALL, make_workspace, snapshot

from lightning_ssl.app import cli
from lightning_ssl.app.sweep.engine import Engine
from lightning_ssl.app.training import run as training
from lightning_ssl.base.checks import MAX_ERROR

CASES = {
    command: line
    for name in ("kinds.yaml", "safety.yaml")
    for command, line in yaml.safe_load(Path(__file__).with_name(name).read_text(encoding="utf-8")).items()
}
WORDS = {
    "$LONG": "n" * 300,
    "$WIDE": "é" * 200,  # 400 bytes
    "$ESCAPE": "\x1b[31mred\x07",
    "$NEWLINE": "a\nb",
    "$TAB": "a\tb",
}
SECONDS = 120  # after which a command counts as hanging, on a busy machine too


class Accepted(BaseException):
    """The command was not refused."""


def split(command: str) -> tuple[dict[str, str], list[str]]:
    """The variables of a command line, and its words."""
    words = shlex.split(command)
    for name, value in WORDS.items():
        words = [word.replace(name, value) for word in words]
    variables = {}
    while words and re.match(r"[A-Z_]+=", words[0]):
        name, _, variables[name] = words.pop(0).partition("=")
    return variables, [*words[:1], *SMALL, *words[1:]] if words[:1] == ["fit"] else words


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    make_workspace(folder)
    return folder


@pytest.fixture(autouse=True)
def only_refusals(workspace, monkeypatch):
    """Run in the workspace. Work that a refused command does not reach raises instead. Its modules are forgotten."""

    def accept(*_, **__):
        raise Accepted

    def hang(*_):
        raise TimeoutError(f"no answer after {SECONDS} s")

    monkeypatch.chdir(workspace)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python's own file beside a module is not the command's
    tests = str(Path(__file__).parents[2])  # pytest adds folders of tests to the path; a user has none of them
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if not folder.startswith(tests)])
    before = set(sys.modules)
    for owner, name in ((training, "train_in_folder"), (Engine, "start")):
        monkeypatch.setattr(owner, name, accept)
    previous = signal.signal(signal.SIGALRM, hang)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(workspace)):
            del sys.modules[name]


@pytest.mark.parametrize("command", CASES)
def test_refused_in_one_line_and_nothing_is_left_behind(command, workspace, monkeypatch, capfd):
    variables, words = split(command)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    before = snapshot(workspace)
    found = cli.main(words)
    shown = capfd.readouterr()
    assert found == 2, shown
    assert len(shown.err.splitlines()) == 1, shown.err
    assert shown.err.rstrip("\n").isprintable(), repr(shown.err)
    line = shown.err.strip().removeprefix("lightning-ssl: ")
    assert len(line) <= MAX_ERROR, len(line)
    pattern = ".*".join(map(re.escape, CASES[command].split("…")))
    assert re.fullmatch(pattern, line)
    assert "Traceback" not in shown.out + shown.err
    assert snapshot(workspace) == before


def test_every_command_has_cases():
    words = [split(command)[1] for command in CASES]
    assert {first for first, *_ in words} >= set(cli.COMMANDS)
