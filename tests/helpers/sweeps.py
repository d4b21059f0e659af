"""Start `lightning-ssl sweep` as a program or as a fork, and read what it wrote."""

import multiprocessing
import os
import sys
import time
from collections import Counter
from multiprocessing import forkserver
from pathlib import Path

from helpers import TESTS
from lightning_ssl.app import cli
from lightning_ssl.app.sweep.state import State, Trial

FAKE_TRIAL = TESTS / "helpers" / "fake_trial.py"
FAKE_COMMAND = ["${env}", "${interpreter}", str(FAKE_TRIAL), "${args}"]


def sweep_command(file: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "lightning_ssl", "sweep", str(file), "--runs", str(file.parent / "runs"), *flags]


class ForkedSweep(multiprocessing.get_context("fork").Process):
    """`lightning-ssl sweep` in a fork of this process. Its output is in files beside the sweep file."""

    def __init__(self, file: Path, *flags: str) -> None:
        super().__init__()
        self.argv = ["sweep", str(file), "--runs", str(file.parent / "runs"), *flags]
        self.outputs = [file.with_name("stdout"), file.with_name("stderr")]
        self.start()

    def run(self) -> None:
        forkserver._forkserver.__init__()  # the server of an earlier sweep is no child of this process
        for number, file in enumerate(self.outputs, 1):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        sys.exit(cli.main(self.argv))

    def end(self) -> tuple[int | None, str, str]:
        """Wait; return the exit code and the output."""
        self.join(600)
        return self.exitcode, *(file.read_text(encoding="utf-8") for file in self.outputs)


def read_trials(folder: Path) -> dict[str, Trial]:
    with State(folder / "sweep.db") as state:
        return {row.id: row for row in state.trials()}


def count_lines(file: Path) -> Counter:
    """Count equal lines of the files `started` and `completed` of `fake_trial.py`."""
    return Counter(file.read_text().split()) if file.exists() else Counter()


def wait_until(condition, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
