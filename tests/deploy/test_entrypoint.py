"""The entry point of the image runs a program of the image, or else a command of lightning-ssl."""

import os
import shutil
import subprocess

import pytest
from helpers import ROOT

from lightning_ssl.commands.names import COMMANDS

ENTRYPOINT = ROOT / "deploy/docker/entrypoint.sh"

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


@pytest.fixture
def enter(tmp_path):
    """Run the entry point among programs that print their own name and their words, one per line."""
    programs, work = tmp_path / "bin", tmp_path / "work"
    programs.mkdir()
    for name in COMMANDS:  # a folder of the working directory is not a program
        (work / name).mkdir(parents=True)
    for name in ("lightning-ssl", "wandb"):
        (programs / name).write_text('#!/bin/bash\nprintf \'%s\\n\' "${0##*/}" "$@"\nexit 7\n')
        (programs / name).chmod(0o755)

    def run(*words):
        environment = {"PATH": f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin"}
        done = subprocess.run([ENTRYPOINT, *words], cwd=work, env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines(), done.stderr

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_suite_runs_lightning_ssl(enter, command):
    assert enter(command, "a word", "--flag=*") == (7, ["lightning-ssl", command, "a word", "--flag=*"], "")


def test_a_program_runs_itself(enter):
    assert enter("wandb", "agent", "E/P/ID") == (7, ["wandb", "agent", "E/P/ID"], "")
    assert enter("/usr/bin/env", "printf", "%s", "a  b") == (0, ["a  b"], "")


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["wandbb"]])
def test_everything_else_is_answered_by_lightning_ssl(enter, words):
    assert enter(*words) == (7, ["lightning-ssl", *words], "")
