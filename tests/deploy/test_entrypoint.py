"""The entry point of the image runs a program of the image, or else a command of lightning-ssl.

It refuses an agent that cannot write its files.
"""

import os
import shutil
import subprocess

import pytest
from helpers import ROOT

from lightning_ssl.app.commands.names import COMMANDS

ENTRYPOINT = ROOT / "deploy/docker/entrypoint.sh"

pytestmark = pytest.mark.skipif(
    shutil.which("bash") is None or shutil.which("setpriv") is None, reason="bash or setpriv is not installed"
)


@pytest.fixture
def enter(tmp_path):
    """Run the entry point among programs that print their own name and their words, one per line."""
    programs, work = tmp_path / "bin", tmp_path / "work"
    programs.mkdir()
    for name in COMMANDS:  # a folder of the working directory is not a program
        (work / name).mkdir(parents=True)
    for name in ("lightning-ssl", "wandb", "launch.sh"):
        (programs / name).write_text('#!/bin/bash\nprintf \'%s\\n\' "${0##*/}" "$@"\nexit 7\n')
        (programs / name).chmod(0o755)

    def run(*words, folder=work, **variables):
        environment = {"PATH": f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin", **variables}
        # Root may write everywhere, unless it has no capabilities.
        limits = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []
        words = [*limits, ENTRYPOINT, *words]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
        return done.returncode, done.stdout.splitlines(), done.stderr

    return run


@pytest.fixture
def locked(tmp_path):
    """A folder that this user cannot write to."""
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_suite_runs_lightning_ssl(enter, command):
    assert enter(command, "a word", "--flag=*") == (7, ["lightning-ssl", command, "a word", "--flag=*"], "")


def test_a_program_runs_itself(enter):
    assert enter("wandb", "agent", "E/P/ID") == (7, ["wandb", "agent", "E/P/ID"], "")
    assert enter("/usr/bin/env", "printf", "%s", "a  b") == (0, ["a  b"], "")


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["wandbb"]])
def test_everything_else_is_answered_by_lightning_ssl(enter, words):
    assert enter(*words) == (7, ["lightning-ssl", *words], "")


AGENTS = [["wandb", "agent", "--forward-signals", "E/P/ID"], ["launch.sh", "wandb", "agent", "E/P/ID"]]


@pytest.mark.parametrize("words", AGENTS, ids=lambda words: words[0])
def test_an_agent_that_cannot_write_its_files_is_refused_in_one_line(enter, locked, words):
    """W&B's agent would fail at every trial of the sweep and end with exit code 0."""
    code, printed, error = enter(*words, folder=locked)
    assert (code, printed) == (2, [])
    assert error.startswith(f"entrypoint.sh: user {os.geteuid()} cannot write to {locked}, and an agent must: mount a ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("words", AGENTS, ids=lambda words: words[0])
def test_an_agent_is_refused_if_the_folder_of_wandb_belongs_to_another_user(enter, tmp_path, words):
    (tmp_path / "wandb").mkdir(mode=0o555)
    code, _, error = enter(*words, folder=tmp_path)
    assert (code, f"cannot write to {tmp_path}/wandb, " in error) == (2, True)


def test_the_folder_of_an_agent_is_wandb_dir_if_it_is_set(enter, locked, tmp_path):
    assert enter("wandb", "agent", "E/P/ID", folder=locked, WANDB_DIR=str(tmp_path / "new" / "folder"))[0] == 7
    assert enter("wandb", "agent", "E/P/ID", folder=tmp_path, WANDB_DIR="locked")[0] == 2


@pytest.mark.parametrize("words", [["fit"], ["wandb", "login"], ["wandb"], []])
def test_everything_but_an_agent_starts_in_a_folder_that_it_cannot_write_to(enter, locked, words):
    """A command of lightning-ssl that writes files says itself that it cannot."""
    assert enter(*words, folder=locked)[0] == 7
