"""Who started the ranks of a run, and what the Trainer must expect of them."""

import os
import re

import pytest

from lightning_ssl.app.commands import fit
from lightning_ssl.app.config.configuration import Configuration
from lightning_ssl.app.launch import ranks
from lightning_ssl.app.launch.devices import SrunEnvironment, for_launched_ranks
from lightning_ssl.app.training.choose_folder import choose, generated_name
from lightning_ssl.app.training.run import quiet

BATCH = {
    "SLURM_JOB_ID": "12",
    "SLURM_JOB_NAME": "train",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
}
STEP = BATCH | {
    "SLURM_STEP_ID": "3", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "n1",
    "SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_NODEID": "0",
}  # fmt: skip
ONE_TASK = STEP | {"SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
TWO_NODES = STEP | {
    "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "gpu-[03-04,09],login",
    "SLURM_LOCALID": "0", "SLURM_NODEID": "1",
}  # fmt: skip
TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}
ONE_NODE = TORCHRUN | {"WORLD_SIZE": "2"}
FLAGS = ["--model=SimCLR", "--model.backbone=resnet_tiny", "--trainer.accelerator=cpu"]


@pytest.fixture
def started(monkeypatch):
    """Set the variables of a launcher, without those of the one that started the tests."""

    def started(variables):
        for name in os.environ:
            if name.startswith(("SLURM_", "WANDB_", "TORCHELASTIC_")) or name in (*TORCHRUN, "MASTER_ADDR"):
                monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    monkeypatch.setattr(ranks.rank_zero_only, "rank", 0)
    return started


def trainer(*flags):
    with quiet():
        return dict(Configuration.parse([*FLAGS, *flags]).values["trainer"])


@pytest.mark.parametrize(
    ("variables", "launch"),
    [
        ({}, ranks.Launch()),
        (BATCH, ranks.Launch()),
        (STEP, ranks.Launch("srun", 2, 1)),
        (TWO_NODES, ranks.Launch("srun", 2, 2)),
        (ONE_TASK, ranks.Launch()),  # `srun --gpus=4 lightning-ssl fit`, `srun --pty zsh`
        (STEP | {"SLURM_JOB_NAME": "interactive"}, ranks.Launch("srun", 2, 1)),  # `srun -n2` inside `salloc`
        (BATCH | {"SLURM_STEP_ID": ranks.SALLOC_STEP}, ranks.Launch()),
        (STEP | {"WANDB_RUN_ID": "a1"}, ranks.Launch("srun", 2, 1)),  # `srun lightning-ssl fit` below an agent
        (STEP | {"WANDB_RUN_ID": "a1", "SLURM_TASK_PID": str(os.getpid())}, ranks.Launch()),  # `srun wandb agent`
        (TORCHRUN, ranks.Launch("torchrun", 4, 2)),
        (STEP | TORCHRUN, ranks.Launch("torchrun", 4, 2)),
    ],
)
def test_the_launcher_is_read_from_the_environment(variables, launch, started):
    started(variables)
    assert ranks.launch() == launch


def test_a_batch_script_without_srun_is_one_process(started):
    started(BATCH)
    ranks.forget_unused_tasks()
    assert "SLURM_NTASKS" not in os.environ
    assert "SLURM_PROCID" not in os.environ
    assert ranks.is_first_process()
    started(STEP)
    ranks.forget_unused_tasks()
    assert os.environ["SLURM_NTASKS"] == "2"


@pytest.mark.parametrize(
    ("variables", "flags", "message"),
    [
        (STEP, ["--trainer.devices=1"], "trainer.devices=1: expected 2, because srun started 2 ranks on 1 node"),
        (TORCHRUN, ["--trainer.devices=2"], "trainer.num_nodes=1: expected 2, because torchrun started 4 ranks"),
        ({}, ["--trainer.devices=-3"], "trainer.devices='-3': "),
        (TWO_NODES | {"SLURM_STEP_TASKS_PER_NODE": "2,1"}, [], "2,1 on a node: expected the same number on every node"),
        ({}, ["--trainer.num_nodes=2"], "trainer.num_nodes=2: expected 1, or srun or torchrun to start the ranks"),
    ],
)
def test_ranks_that_the_trainer_does_not_expect_are_refused_before_there_is_a_folder(
    variables, flags, message, started, tmp_path
):
    started(variables)
    with pytest.raises(ValueError, match=message):
        fit.main([*FLAGS, *flags, f"--runs={tmp_path}"])
    assert not list(tmp_path.iterdir())


def test_devices_auto_are_the_ranks_that_were_started_on_a_node(started):
    started(STEP)
    arguments, ranks = for_launched_ranks(trainer())
    assert (arguments["devices"], ranks) == (2, 2)
    assert isinstance(arguments["plugins"][-1], SrunEnvironment)


@pytest.mark.parametrize(("variables", "launcher"), [(STEP, "srun"), (ONE_NODE, "torchrun")])
@pytest.mark.parametrize("accelerator", ["auto", "gpu", "cuda"])
def test_ranks_that_do_not_see_the_gpus_of_their_node_are_refused(
    accelerator, variables, launcher, started, monkeypatch
):
    """With `--gpus-per-task` SLURM shows one GPU to each rank; Lightning says only "your machine only has: [0]"."""
    started(variables)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(
        ValueError, match=f"^trainer.devices=auto: {launcher} started 2 ranks on a node, which see 1 GPU"
    ):
        for_launched_ranks(trainer(f"--trainer.accelerator={accelerator}"))
    assert for_launched_ranks(trainer())[1] == 2  # on the CPU


@pytest.mark.parametrize(
    ("gpus", "line"), [(4, "srun started 2 ranks on a node with 4 GPUs: 2 are not used\n"), (2, "")]
)
def test_gpus_without_a_rank_are_reported(gpus, line, started, monkeypatch, capsys):
    started(STEP)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    for_launched_ranks(trainer("--trainer.accelerator=auto", "--trainer.strategy=ddp"))
    assert capsys.readouterr().out == line


def test_lightning_starts_the_ranks_of_a_step_of_one_task(started):
    """A task that has several GPUs uses all of them, as without srun."""
    started(ONE_TASK)
    ranks.forget_unused_tasks()
    arguments, number = for_launched_ranks(trainer("--trainer.devices=2", "--trainer.strategy=ddp"))
    assert (arguments["devices"], arguments["plugins"], number) == ("2", None, 2)


def test_ranks_meet_at_the_first_node_and_steps_of_one_job_at_different_ports(started):
    started(TWO_NODES)
    here = SrunEnvironment()
    assert (here.main_address, here.world_size(), here.global_rank(), here.local_rank()) == ("gpu-03", 2, 1, 0)
    ports = set()
    for step in range(5):
        started(STEP | {"SLURM_STEP_ID": str(step)})
        os.environ.pop("MASTER_PORT", None)
        ports.add(SrunEnvironment().main_port)
        os.environ.pop("MASTER_PORT", None)
    assert len(ports) == 5


@pytest.mark.parametrize(
    ("variables", "end"),
    [
        ({"WANDB_RUN_ID": "k3j2"}, r"-k3j2"),
        (STEP | {"WANDB_RUN_ID": "k3j2"}, r"-k3j2"),
        (STEP, r"-[0-9a-f]{8}-12"),
        (TORCHRUN, r"-[0-9a-f]{8}"),
        (TORCHRUN | {"TORCHELASTIC_RUN_ID": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"}, r"-[0-9a-f]{8}"),
        (TORCHRUN | {"TORCHELASTIC_RUN_ID": "mine"}, r"-[0-9a-f]{8}-mine"),
    ],
)
def test_every_rank_and_every_restart_names_the_folder_alike(variables, end, started, tmp_path):
    started(variables)
    config = Configuration.parse([*FLAGS, f"--runs={tmp_path}"])
    name = choose(config).run.path.name
    assert name == choose(config).run.path.name
    assert re.fullmatch(generated_name(config) + end, name)
    other = Configuration.parse([*FLAGS, f"--runs={tmp_path}", "--model.tau=0.1"])
    longer = Configuration.parse([*FLAGS, f"--runs={tmp_path}", "--trainer.max_epochs=7"])
    assert choose(longer).run.path.name == name
    assert (choose(other).run.path.name == name) == ("WANDB_RUN_ID" in variables)  # the id is unique already
