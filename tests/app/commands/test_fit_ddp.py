"""`fit` on two ranks: the steps of one process with the whole batch, and one run folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import TESTS
from helpers.closeness import close
from helpers.ranks import join, start_ranks
from helpers.smooth import SmoothSimCLR
from helpers.training import terms_of

from lightning_ssl.app import runs
from lightning_ssl.app.commands import fit
from lightning_ssl.app.runs import RunFolder

IMAGES, BATCH, EPOCHS, TAU = 96, 24, 2, 0.2
STEPS = EPOCHS * IMAGES // BATCH
WORDS = [
    "--model=helpers.smooth.SmoothSimCLR",
    f"--model.tau={TAU}",
    f'--data.options={{"train_images": {IMAGES}, "test_images": 31}}',
    f"--data.batch_size={BATCH}",  # of all ranks together
    f"--trainer.max_epochs={EPOCHS}",
    "--trainer.accelerator=cpu",
    "--trainer.enable_progress_bar=false",
]


def weights(folder, name):
    return runs.read_checkpoint(RunFolder(folder / name).newest_checkpoint())["state_dict"]


def test_two_ranks_equal_one_process_with_the_whole_batch(tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    argv = [*WORDS, f"--runs={tmp_path}"]
    assert join(start_ranks([*argv, "--name=two"])) == [0, 0]
    assert fit.main([*argv, "--name=one"]) == 0
    torch.set_num_threads(threads)
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
def test_lightning_starts_the_ranks_and_there_is_one_run_folder(tmp_path):
    flags = ["--trainer.devices=2", "--trainer.strategy=ddp", f"--runs={tmp_path}"]
    program = Path(sys.executable).with_name("lightning-ssl")
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
    subprocess.run([program, "fit", *WORDS, *flags], check=True, env=environment, cwd=TESTS)
    found = runs.find(tmp_path)
    assert [run.summary()["status"] for run in found] == ["finished"]
    assert found[0].summary()["step"] == 8


@pytest.mark.slow
def test_a_trial_of_a_sweep_can_have_two_ranks(tmp_path):
    flags = {"data.options": '{"train_images": 64, "test_images": 32}', "data.batch_size": 16, "trainer.max_epochs": 1}
    flags |= {"model": "BYOL", "model.backbone": "resnet_tiny"}
    flags |= {"trainer.accelerator": "cpu", "trainer.devices": 2, "trainer.strategy": "ddp"}
    sweep = {
        "name": "ddp", "method": "grid", "metric": {"name": "online/top1", "goal": "maximize"},
        "command": ["${env}", "lightning-ssl", "fit", "${args}"],
        "parameters": {key: {"value": value} for key, value in flags.items()} | {"seed_everything": {"values": [0, 1]}},
    }  # fmt: skip
    (tmp_path / "ddp.json").write_text(json.dumps(sweep))  # JSON is YAML
    program = Path(sys.executable).with_name("lightning-ssl")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([program, "sweep", "ddp.json"], check=True, env=environment, cwd=tmp_path)
    found = runs.find(tmp_path / "runs")
    assert [run.summary()["status"] for run in found] == ["finished", "finished"]
