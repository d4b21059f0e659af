"""Start `lightning-ssl sweep` as a program, and read what it wrote."""

import sys
import time
from collections import Counter
from pathlib import Path

from helpers import TESTS
from lightning_ssl.app.sweep.state import State, Trial

FAKE_TRIAL = TESTS / "helpers" / "fake_trial.py"
FAKE_COMMAND = ["${env}", "${interpreter}", str(FAKE_TRIAL), "${args}"]


def sweep_command(file: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "lightning_ssl", "sweep", str(file), "--runs", str(file.parent / "runs"), *flags]


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
