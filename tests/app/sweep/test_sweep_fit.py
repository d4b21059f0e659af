"""A sweep of `lightning-ssl fit` is forked from a process with torch. test_sweep_kills.py resumes such sweeps."""

import subprocess
from pathlib import Path

import pytest
from helpers import ROOT
from helpers.sweeps import read_trials, sweep_command

FIT = ["${env}", "lightning-ssl", "fit", "--config=configs/data/shapes.yaml", "${args}"]
METHOD_THAT_LOOKS_AT_ITS_PARENT = """
import os
from pathlib import Path
from lightning_ssl.methods import SimCLR

print("torch is loaded in the parent:", "libtorch" in Path(f"/proc/{os.getppid()}/maps").read_text())

class Method(SimCLR):
    pass
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")
def test_fit_is_forked_from_a_process_with_torch_and_its_error_is_recorded(write_sweep, tmp_path, monkeypatch):
    (tmp_path / "own_method.py").write_text(METHOD_THAT_LOOKS_AT_ITS_PARENT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(ROOT)
    parameters = {"model": {"value": "own_method.Method"}, "model.tau": {"values": [0.0]}}
    file = write_sweep(parameters=parameters, command=FIT, metric={"name": "online/top1"})
    subprocess.run(sweep_command(file), capture_output=True, timeout=300)
    (row,) = read_trials(tmp_path / "runs" / "one").values()
    assert row.status == "failed"
    assert "tau=0.0" in row.error
    assert "torch is loaded in the parent: True" in (tmp_path / "runs" / "one" / row.id / "log.txt").read_text()
