from typing import NamedTuple

import pytest
import yaml
from helpers.sweeps import FAKE_COMMAND, ForkedSweep, count_lines, wait_until

from lightning_ssl.app import cli


@pytest.fixture
def write_sweep(tmp_path):
    """Writes the sweep file `one.yaml`: a grid of `fake_trial.py` by default."""

    def write(**keys):
        keys = {"method": "grid", "metric": {"name": "score", "goal": "maximize"}, "command": FAKE_COMMAND, **keys}
        file = tmp_path / "one.yaml"
        file.write_text(yaml.safe_dump({k: v for k, v in keys.items() if v is not None}, sort_keys=False))
        return file

    return write


@pytest.fixture
def start_sweep():
    """Starts `lightning-ssl sweep` with two workers, and waits until two trials have started."""

    def start(file, start=ForkedSweep):
        engine = start(file, "--workers", "2")
        wait_until(lambda: count_lines(file.parent / "runs" / "one" / "started").total() == 2)
        return engine

    return start


class Result(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run_sweep(capfd):
    """Runs `lightning-ssl sweep` in this process, with the folder `runs` beside the file."""

    def run(file, *flags):
        capfd.readouterr()
        code = cli.main(["sweep", str(file), "--runs", str(file.parent / "runs"), *flags])
        return Result(code, *capfd.readouterr())

    return run
