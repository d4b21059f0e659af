"""`fit` on several ranks: the steps of one process with the whole batch, one run folder, whoever starts the ranks."""

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import TESTS
from helpers.training import free_port

from lightning_ssl import fit, runs
from lightning_ssl.runs import Run

WORDS = [
    "--model=helpers.smooth.SmoothSimCLR",
    '--data.options={"train_images": 96, "test_images": 31}',
    "--data.batch_size=24",  # 4 steps an epoch, whatever the number of ranks
    "--trainer.max_epochs=2",
    "--trainer.accelerator=cpu",
    "--trainer.enable_progress_bar=false",
]


def one_rank(argv, rank, ranks, port):
    """What torchrun does for a process, on one machine."""
    torch.set_num_threads(1)
    os.environ |= {
        "TORCHELASTIC_RUN_ID": "7",
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0", "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    from pytorch_lightning.utilities.rank_zero import rank_zero_only

    rank_zero_only.rank = rank  # Lightning reads it from the environment when it is imported
    sys.exit(fit.main([*argv, f"--trainer.devices={ranks}", "--trainer.strategy=ddp"]))


def weights(folder, name):
    return runs.read_checkpoint(Run(folder / name).newest_checkpoint())["state_dict"]


def test_two_ranks_take_the_steps_of_one_process_with_the_whole_batch(tmp_path):
    context, port = multiprocessing.get_context("fork"), free_port()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    argv = [*WORDS, f"--runs={tmp_path}"]
    ranks = [context.Process(target=one_rank, args=([*argv, "--name=two"], rank, 2, port)) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    assert [process.exitcode for process in ranks] == [0, 0]
    assert fit.main([*argv, "--name=one"]) == 0
    torch.set_num_threads(threads)
    one, two = weights(tmp_path, "one"), weights(tmp_path, "two")
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-9, atol=1e-11)
    # the callbacks saw the images of both ranks
    last = [Run(tmp_path / name).summary()["last"] for name in ("one", "two")]
    for name in ("online/top1", "online/loss", "knn/top1", "rank/rankme"):
        assert last[1][name] == pytest.approx(last[0][name], rel=1e-5)
    one, two = (torch.tensor(Run(tmp_path / name).metrics.series("train/loss_epoch")) for name in ("one", "two"))
    torch.testing.assert_close(two, one, rtol=1e-9, atol=0)


@pytest.mark.slow
def test_lightning_starts_the_ranks_itself_and_there_is_one_run_folder(tmp_path):
    flags = ["--trainer.devices=2", "--trainer.strategy=ddp", f"--runs={tmp_path}"]
    program = Path(sys.executable).with_name("lightning-ssl")
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
    subprocess.run([program, "fit", *WORDS, *flags], check=True, env=environment, cwd=TESTS)
    found = runs.find(tmp_path)
    assert [run.summary()["status"] for run in found] == ["finished"]
    assert found[0].summary()["step"] == 8


@pytest.mark.slow
def test_a_trial_of_a_sweep_may_have_several_ranks(tmp_path):
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
