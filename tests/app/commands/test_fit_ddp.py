"""`fit` on two ranks: the steps of one process with the whole batch, and one run folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import small_fit
from helpers.closeness import close
from helpers.processes.killing import one_thread  # noqa: F401
from helpers.processes.ranks import join, start_ranks
from helpers.smooth import SmoothSimCLR
from helpers.training import terms_of

from lightning_ssl.app import runs
from lightning_ssl.app.commands import fit
from lightning_ssl.app.runs import RunFolder

IMAGES, BATCH, EPOCHS, TAU = 96, 24, 2, 0.2
STEPS = EPOCHS * IMAGES // BATCH
WORDS = [
    *small_fit("helpers.smooth.SmoothSimCLR", IMAGES, 31, BATCH),
    f"--model.tau={TAU}",
    f"--trainer.max_epochs={EPOCHS}",
]


def weights(folder, name):
    return runs.read_checkpoint(RunFolder(folder / name).newest_checkpoint())["state_dict"]


def test_two_ranks_equal_one_process_with_the_whole_batch(tmp_path):
    argv = [*WORDS, f"--runs={tmp_path}"]
    assert join(start_ranks([*argv, "--name=two"])) == [0, 0]
    assert fit.main([*argv, "--name=one"]) == 0
    pixels = 2 * BATCH * 32 * 32  # a gradient of a convolution adds them up, in two views
    rounding = {"terms": STEPS * (2 * terms_of(SmoothSimCLR()) + pixels), "gain": 1 / TAU}
    one, two = weights(tmp_path, "one"), weights(tmp_path, "two")
    close(two, one, **rounding)
    start = runs.read_checkpoint(RunFolder(tmp_path / "one").step_checkpoints()[-1])["state_dict"]
    assert all((one[name] - start[name]).abs().max() > 1e-3 for name in one)  # it did learn
    # the callbacks saw the images of both ranks
    last = [RunFolder(tmp_path / name).summary()["last"] for name in ("one", "two")]
    for name in ("online/top1", "online/loss", "knn/top1", "spectrum/rankme"):
        close(torch.tensor(last[1][name]), torch.tensor(last[0][name]))  # float64 features, logged in float32
    one, two = (RunFolder(tmp_path / name).history("train/loss_epoch") for name in ("one", "two"))
    assert len(one) == EPOCHS
    close(two, one, **rounding)


@pytest.mark.slow
def test_a_trial_of_a_sweep_can_have_two_ranks(tmp_path):
    sweep = {
        "name": "ddp", "method": "grid", "metric": {"name": "online/top1", "goal": "maximize"},
        "command": ["${env}", "lightning-ssl", "fit", *small_fit("BYOL", train_images=64), "${args}"],
        "parameters": {
            "trainer.max_epochs": {"value": 1}, "trainer.devices": {"value": 2}, "trainer.strategy": {"value": "ddp"},
            "seed_everything": {"values": [0, 1]},
        },
    }  # fmt: skip
    (tmp_path / "ddp.json").write_text(json.dumps(sweep))  # JSON is YAML
    program = Path(sys.executable).with_name("lightning-ssl")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([program, "sweep", "ddp.json"], check=True, env=environment, cwd=tmp_path)
    found = runs.find(tmp_path / "runs")
    assert [(run.summary()["status"], run.summary()["step"]) for run in found] == [("finished", 4)] * 2
