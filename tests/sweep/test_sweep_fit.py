"""A sweep of `lightning-ssl fit`: it is forked from a process with torch, and it resumes."""

import subprocess
from pathlib import Path

import pytest
from helpers import ROOT
from helpers.sweeps import read_trials, sweep_command, wait_until

from lightning_ssl.runs import RunFolder

FIT = ["${env}", "lightning-ssl", "fit", "--config=configs/data/shapes.yaml", "${args}"]
SMALL = {
    "data.options": {"value": "{train_images: 256, test_images: 64}"},
    "data.batch_size": {"value": 64},
    "trainer.max_epochs": {"value": 4},
    "trainer.accelerator": {"value": "cpu"},
}
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


@pytest.mark.slow
def test_a_fit_whose_engine_is_killed_resumes_to_the_same_losses(write_sweep, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    parameters = {"config": {"values": ["configs/method/direct.yaml"]}, **SMALL}
    file = write_sweep(parameters=parameters, command=FIT, metric={"name": "online/top1", "goal": "maximize"})
    assert subprocess.run(sweep_command(file, "--name", "uninterrupted"), timeout=600).returncode == 0
    folder = tmp_path / "runs" / "one" / "001-direct"
    engine = subprocess.Popen(sweep_command(file))
    wait_until(lambda: list(folder.glob("checkpoints/step-*.ckpt")), seconds=300)
    engine.kill()
    engine.wait()
    assert subprocess.run(sweep_command(file), timeout=600).returncode == 0
    assert "resumed from step-" in (folder / "log.txt").read_text()
    resumed, uninterrupted = (
        RunFolder(tmp_path / "runs" / name / "001-direct").history("train/loss_epoch")
        for name in ("one", "uninterrupted")
    )
    assert len(resumed) == 4
    assert resumed == uninterrupted
