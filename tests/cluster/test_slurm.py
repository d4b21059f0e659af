"""`lightning-ssl fit` and the scripts of deploy/slurm on a real SLURM of two nodes."""

import json
import re

import pytest
import yaml
from helpers import ROOT
from helpers.closeness import close
from helpers.outcome import assert_same, outcome
from helpers.slurm import Slurm, missing, wait_until
from helpers.smooth import SmoothSimCLR
from helpers.training import terms_of
from helpers.wandb_server import ENTITY, Server

from lightning_ssl import runs
from lightning_ssl.commands import fit
from lightning_ssl.runs import RunFolder
from lightning_ssl.runs.checkpoints import damage

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
SLURM = ROOT / "deploy" / "slurm"
AGENTS = str(SLURM / "agents.sbatch")
WORDS = [
    "--model=helpers.smooth.SmoothSimCLR",
    "--model.tau=0.2",  # float64, no batch norm
    '--data.options={"train_images": 48, "test_images": 32}',
    "--data.batch_size=24",  # 2 steps an epoch
    "--trainer.accelerator=cpu",
    "--trainer.enable_progress_bar=false",
    "--knn.k=5",
]


@pytest.fixture(scope="module")
def cluster():
    with Slurm() as cluster:
        yield cluster


def quoted(*words):
    return " ".join(f"'{word}'" for word in words)


def test_a_script_with_two_tasks_and_no_srun_is_one_process(cluster, tmp_path):
    command = quoted("lightning-ssl", "fit", *WORDS, "--trainer.max_epochs=1", "--runs=alone")
    job = cluster.submit("--ntasks=2", f"--wrap={command}", cwd=tmp_path)
    assert cluster.state_of(job, "COMPLETED", "FAILED") == "COMPLETED"
    (run,) = runs.find(tmp_path / "alone")
    assert (run.summary()["status"], run.summary()["step"]) == ("finished", 2)
    assert "srun" not in (tmp_path / f"slurm-{job}.out").read_text()


@pytest.mark.slow
def test_ranks_that_the_trainer_does_not_expect_are_refused(cluster, tmp_path):
    command = quoted("lightning-ssl", "fit", *WORDS, "--trainer.devices=1", "--runs=refused")
    job = cluster.submit("--ntasks=2", f"--wrap=srun {command}", cwd=tmp_path)
    assert cluster.state_of(job, "COMPLETED", "FAILED") == "FAILED"
    printed = (tmp_path / f"slurm-{job}.out").read_text()
    assert "trainer.devices=1: expected 2, because srun started 2 ranks on 1 node" in printed
    assert not (tmp_path / "refused").exists()


# -- deploy/slurm/ddp.sbatch -------------------------------------------------------------------------------------------

EPOCHS = 30
TWO_NODES = ["--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=1", "--cpus-per-task=1", str(SLURM / "ddp.sbatch")]


@pytest.fixture(scope="module")
def whole(cluster, tmp_path_factory):
    """An uninterrupted run of two ranks on two nodes."""
    folder = tmp_path_factory.mktemp("whole")
    job = cluster.submit(*TWO_NODES, *WORDS, f"--trainer.max_epochs={EPOCHS}", "--name=whole", cwd=folder)
    assert cluster.state_of(job, "COMPLETED", "FAILED") == "COMPLETED"
    return RunFolder(folder / "runs" / "whole")


@pytest.mark.slow
def test_two_tasks_are_one_run_with_the_weights_of_one_process(whole, tmp_path):
    assert fit.main([*WORDS, f"--trainer.max_epochs={EPOCHS}", f"--runs={tmp_path}", "--name=one"]) == 0
    steps, pixels = 2 * EPOCHS, 2 * 24 * 32 * 32  # a gradient of a convolution adds up the pixels of two views
    weights = [runs.read_checkpoint(path)["state_dict"] for path in (whole.path, tmp_path / "one")]
    close(*weights, terms=steps * (2 * terms_of(SmoothSimCLR()) + pixels), gain=1 / 0.2)
    assert len(list(whole.path.parent.iterdir())) == 1


@pytest.mark.slow
def test_a_requeued_job_continues_bit_for_bit(cluster, whole, tmp_path):
    """The signal is the one that SLURM sends to the script before the time limit."""
    job = cluster.submit(*TWO_NODES, *WORDS, f"--trainer.max_epochs={EPOCHS}", cwd=tmp_path)
    wait_for_checkpoint(tmp_path / "runs")
    cluster.run("scancel", "--batch", "--signal=USR1", job)
    assert cluster.state_of(job, "PENDING", "COMPLETED", "FAILED") == "PENDING"
    (run,) = runs.find(tmp_path / "runs")
    stopped_at = run.summary()["step"]
    assert run.newest_checkpoint().name == f"step-{stopped_at:08d}.ckpt"
    assert 0 < stopped_at < 2 * EPOCHS
    cluster.start_requeued(job)
    assert cluster.state_of(job, "COMPLETED", "FAILED") == "COMPLETED"
    assert f"resumed from step-{stopped_at:08d}.ckpt" in (tmp_path / f"slurm-{job}.out").read_text()
    assert_same(outcome(run), outcome(whole))


@pytest.mark.slow
def test_scancel_with_a_signal_leaves_a_whole_checkpoint(cluster, tmp_path):
    job = cluster.submit(*TWO_NODES, *WORDS, "--trainer.max_epochs=100000", cwd=tmp_path)
    wait_for_checkpoint(tmp_path / "runs")
    cluster.run("scancel", "--signal=TERM", job)
    assert cluster.state_of(job, "COMPLETED", "FAILED") == "FAILED"
    assert "ExitCode=143:0" in cluster.run("scontrol", "-o", "show", "job", job)
    (run,) = runs.find(tmp_path / "runs")
    assert run.summary()["status"] == "interrupted"
    assert damage(run.step_checkpoints()[0]) is None
    assert run.step_checkpoints()[0].name == f"step-{run.summary()['step']:08d}.ckpt"


def wait_for_checkpoint(folder):
    wait_until(lambda: list(folder.glob("*/checkpoints/step-*.ckpt")), 300)


# -- sweeps ------------------------------------------------------------------------------------------------------------

CELLS = {"seed_everything": [0, 1, 2], "trainer.max_epochs": [1]}


def sweep_file(folder, command):
    content = {
        "name": "s", "method": "grid", "metric": {"name": "online/top1", "goal": "maximize"},
        "command": command, "parameters": {name: {"values": values} for name, values in CELLS.items()},
    }  # fmt: skip
    (folder / "sweep.yaml").write_text(json.dumps(content))  # JSON is YAML


def cells(text):
    return [{"seed_everything": seed, "trainer.max_epochs": 1} for seed in CELLS["seed_everything"]]


def finished_seeds(folder):
    return sorted((run.summary()["seed"], run.summary()["status"], run.summary()["step"]) for run in runs.find(folder))


ALL_FINISHED = [(seed, "finished", 2) for seed in CELLS["seed_everything"]]


@pytest.mark.slow
def test_an_array_of_agents_shares_a_sweep_and_each_sees_its_own_gpu(cluster, tmp_path):
    note = 'echo "$SLURM_ARRAY_TASK_ID $CUDA_VISIBLE_DEVICES" >> gpus.txt; exec lightning-ssl fit "$@"'
    sweep_file(tmp_path, ["${env}", "sh", "-c", note, "sh", *WORDS, "${args}"])
    with Server(cells) as server:
        key = server.environment() | {"HOME": str(tmp_path)}
        cluster.run("wandb", "sweep", "--project=p", "sweep.yaml", cwd=tmp_path, **key)
        flags = ["--array=0-1", "--gpus=1", "--nodelist=n1", "--cpus-per-task=1", AGENTS]
        job = cluster.submit(*flags, f"{ENTITY}/p/sweep0", cwd=tmp_path, **key)
        assert cluster.state_of(job, "COMPLETED", "FAILED") == "COMPLETED"
        assert [run.exit_code for run in server.runs.values()] == [0, 0, 0]
    assert finished_seeds(tmp_path / "runs") == ALL_FINISHED
    seen = set((tmp_path / "gpus.txt").read_text().splitlines())
    assert len({line.split()[1] for line in seen}) == len(seen) == 2  # both agents took trials; each saw another GPU


def documented_step():
    """The command of docs/cluster.md for trials that are job steps, without its last word."""
    (line,) = re.findall(r"command: (\[.* srun,.*\])", (ROOT / "docs" / "cluster.md").read_text())
    return [str(ROOT / word) if word == "deploy/launch.sh" else word for word in yaml.safe_load(line)[:-1]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "tasks", "code"), [(["${env}", "lightning-ssl", "fit"], 1, 143), (documented_step(), 2, 138)]
)
def test_a_requeued_agent_continues_the_trial_that_was_stopped(command, tasks, code, cluster, tmp_path):
    """The signal is the one that SLURM sends to the script before the time limit."""
    sweep_file(tmp_path, [*command, *WORDS, "${args}"])
    with Server(lambda text: [{"seed_everything": 0, "trainer.max_epochs": 100}]) as server:
        key = server.environment() | {"HOME": str(tmp_path)}
        cluster.run("wandb", "sweep", "--project=p", "sweep.yaml", cwd=tmp_path, **key)
        flags = ["--array=0", "--gpus=1", "--cpus-per-task=1", f"--ntasks={tasks}", "--nodes=1", AGENTS]
        job = cluster.submit(*flags, f"{ENTITY}/p/sweep0", cwd=tmp_path, **key)
        wait_for_checkpoint(tmp_path / "runs")
        cluster.run("scancel", "--batch", "--signal=USR1", f"{job}_0")
        assert cluster.state_of(job, "PENDING", "COMPLETED", "FAILED") == "PENDING"
        (sent,) = server.runs.values()
        assert (sent.preempting, sent.exit_code) == (True, code)
        cluster.start_requeued(f"{job}_0")
        assert cluster.state_of(job, "COMPLETED", "FAILED") == "COMPLETED"
        assert (sent.exit_codes, sent.opened) == ([code, 0], 2)
        assert [command["type"] for command in server.sweeps["sweep0"].handed_out] == ["run", "resume", "exit"]
    assert finished_seeds(tmp_path / "runs") == [(0, "finished", 200)]


@pytest.mark.slow
def test_agents_that_are_tasks_of_one_step_train_runs_of_their_own(cluster, tmp_path):
    sweep_file(tmp_path, ["${env}", "lightning-ssl", "fit", *WORDS, "${args}"])
    with Server(lambda text: cells(text)[:2]) as server:
        key = server.environment() | {"HOME": str(tmp_path)}
        cluster.run("wandb", "sweep", "--project=p", "sweep.yaml", cwd=tmp_path, **key)
        cluster.run("srun", "--ntasks=2", "wandb", "agent", f"{ENTITY}/p/sweep0", cwd=tmp_path, **key)
        assert [run.exit_code for run in server.runs.values()] == [0, 0]
    assert finished_seeds(tmp_path / "runs") == ALL_FINISHED[:2]


@pytest.mark.slow
def test_the_trials_of_an_agent_can_be_steps_of_its_job(cluster, tmp_path):
    sweep_file(tmp_path, [*documented_step(), *WORDS, "${args}"])
    with Server(cells) as server:
        key = server.environment() | {"HOME": str(tmp_path)}
        cluster.run("wandb", "sweep", "--project=p", "sweep.yaml", cwd=tmp_path, **key)
        agent = f"--wrap=wandb agent {ENTITY}/p/sweep0"
        job = cluster.submit("--nodes=1", "--ntasks-per-node=2", agent, cwd=tmp_path, **key)
        assert cluster.state_of(job, "COMPLETED", "FAILED") == "COMPLETED"
        assert [run.exit_code for run in server.runs.values()] == [0, 0, 0]
    assert finished_seeds(tmp_path / "runs") == ALL_FINISHED


@pytest.mark.slow
def test_a_sweep_without_a_server_has_a_worker_for_each_gpu(cluster, tmp_path):
    sweep_file(tmp_path, ["${env}", "lightning-ssl", "fit", *WORDS, "${args}"])
    flags = ["--gpus=2", "--cpus-per-task=2", str(SLURM / "sweep_local.sbatch"), "sweep.yaml"]
    job = cluster.submit(*flags, cwd=tmp_path)
    assert cluster.state_of(job, "COMPLETED", "FAILED") == "COMPLETED"
    assert finished_seeds(tmp_path / "runs") == ALL_FINISHED
