"""Short runs and sweeps for the tests on clusters, and the commands of docs/cluster.md."""

import json
import os
import re
from pathlib import Path

import yaml

from helpers import ROOT, small_fit
from helpers.processes.held import HELD_AT
from helpers.sweeps import wait_until
from lightning_ssl.app import runs
from lightning_ssl.app.runs.checkpoints import damage

PAGE = (ROOT / "docs" / "cluster.md").read_text()
# Two steps an epoch, in float64 without batch norm; with HOLD it waits for a signal.
WORDS = [*small_fit("helpers.processes.held.HeldSimCLR", 48, 32, 24), "--model.tau=0.2", "--knn.k=5"]
EPOCHS = 5
STOPPED_AT = HELD_AT + 1  # steps


def sweep_file(folder, command, parameters):
    """Write sweep.yaml: a grid over the parameters."""
    content = {
        "name": "s", "method": "grid", "metric": {"name": "online/top1", "goal": "maximize"},
        "command": command, "parameters": {name: {"values": values} for name, values in parameters.items()},
    }  # fmt: skip
    (folder / "sweep.yaml").write_text(json.dumps(content))  # JSON is YAML


def page_command(launcher):
    """The command of docs/cluster.md for trials whose ranks srun or torchrun starts, without its last word."""
    (line,) = re.findall(rf"command: (\[.* {launcher},.*\])", PAGE)
    return [str(ROOT / word) if word == "deploy/launch.sh" else word for word in yaml.safe_load(line)[:-1]]


def wait_for_held(folder):
    """Wait until a run that was started with HOLD=folder/held waits for a signal."""
    wait_until((folder / "held").exists, 1800)


def assert_stopped_by_a_signal(folder):
    """One run, with a checkpoint of the step in which it got the signal."""
    (run,) = runs.find(folder)
    assert (run.summary()["status"], run.summary()["step"]) == ("interrupted", STOPPED_AT)
    assert run.newest_checkpoint().name == f"step-{STOPPED_AT:08d}.ckpt"
    assert damage(run.newest_checkpoint()) is None
    return run


def descendants(pid):
    """The processes that this one started, and those that they started."""
    parents = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(file.parent.name)] = int(file.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    found, new = [], [pid]
    while new:
        new = [child for child, parent in parents.items() if parent in new]
        found += new
    return found


def send_to_all(pids, number):
    """Send a signal to processes that may have ended."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
