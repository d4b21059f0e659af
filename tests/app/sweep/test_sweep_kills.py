"""SIGKILL at random moments: every trial finishes once, with the weights of an undisturbed run."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from helpers import ROOT
from helpers.outcome import assert_same, outcome
from helpers.sweeps import read_trials, sweep_command, wait_until

from lightning_ssl.app.runs import RunFolder
from lightning_ssl.app.sweep import trial
from lightning_ssl.app.sweep.state import UNFINISHED

SLOW_STEPS = """
import time
from lightning_ssl._lightning import pl

class Slow(pl.Callback):
    def on_train_batch_start(self, *_):
        time.sleep(0.1)
"""
SMALL = {
    "model": "SimCLR",
    "model.backbone": "resnet_tiny",
    "data.options": "{train_images: 64, test_images: 16}",
    "data.batch_size": 16,  # 4 steps an epoch
    "checkpoint.every_n_steps": 3,
    "trainer.max_epochs": 24,
    "trainer.accelerator": "cpu",
    "trainer.callbacks": "slow_steps.Slow",
    "knn": "null",
    "spectrum": "null",
}
FIT = ["${env}", "lightning-ssl", "fit", "${args}"]


def random_victim(generator, folder, engine):
    """The engine, the process of a trial, or the parent of all trials; None if no trial runs."""
    pids = [row.pid for row in read_trials(folder).values() if row.pid and trial.is_running(folder / row.id)]
    if not pids:
        return None
    pid = generator.choice(pids)
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return generator.choice([engine.pid, pid, parent])


def unfinished(folder):
    return not (folder / "sweep.db").exists() or any(row.status in UNFINISHED for row in read_trials(folder).values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0])
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")
def test_twenty_kills_over_a_sweep_change_no_weight(seed, write_sweep, tmp_path, monkeypatch):
    (tmp_path / "slow_steps.py").write_text(SLOW_STEPS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", str(ROOT))]))
    parameters = {key: {"value": value} for key, value in SMALL.items()} | {"seed_everything": {"values": [*range(6)]}}
    file = write_sweep(parameters=parameters, command=FIT, metric={"name": "train/loss"})
    calm, folder = tmp_path / "runs" / "calm", tmp_path / "runs" / "one"
    assert subprocess.run(sweep_command(file, "--workers=2", "--name=calm")).returncode == 0

    generator, kills, engine = random.Random(seed), 0, None
    while kills < 20:
        assert kills == 0 or unfinished(folder), f"the sweep finished after {kills} kills"
        if engine is None or engine.poll() is not None:
            with (tmp_path / "stderr").open("a") as stderr:
                engine = subprocess.Popen(sweep_command(file, "--workers=2"), stderr=stderr)
        time.sleep(generator.uniform(0.2, 1.5))
        try:
            victim = random_victim(generator, folder, engine) if (folder / "sweep.db").exists() else None
            if victim is not None:
                os.kill(victim, signal.SIGKILL)
                kills += 1
        except (ProcessLookupError, FileNotFoundError):  # it ended in this moment
            continue
        if victim == engine.pid:
            engine.wait()
    engine.wait()
    assert "Traceback" not in (tmp_path / "stderr").read_text()
    wait_until(lambda: subprocess.run(sweep_command(file, "--workers=2")).returncode == 0, seconds=600)

    found = read_trials(folder)
    assert len(found) == 6
    assert {row.status for row in found.values()} == {"finished"}
    for id in found:
        assert_same(outcome(RunFolder(folder / id)), outcome(RunFolder(calm / id)), id)
        assert not list((folder / id).rglob(".*.[0-9]*"))  # files of killed writers
