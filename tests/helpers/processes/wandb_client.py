"""W&B's own command line, beside `wandb_server.Server`."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import yaml

BIN = Path(sys.executable).parent


def grid(text):
    """The cells of a grid, in the order of W&B's server."""
    parameters = yaml.safe_load(text)["parameters"]
    values = [about["values"] if "values" in about else [about["value"]] for about in parameters.values()]
    return [dict(zip(parameters, cell, strict=True)) for cell in itertools.product(*values)]


def run_client(folder, server, *words):
    """Run `wandb WORDS` in a folder, and return its output."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    environment = known | server.environment() | {
        "HOME": str(folder), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
        "WANDB_AGENT_MAX_INITIAL_FAILURES": "1",
    }  # fmt: skip
    done = subprocess.run(
        [BIN / "wandb", *words], env=environment, cwd=folder, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
