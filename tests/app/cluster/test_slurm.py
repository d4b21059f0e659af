"""`lightning-ssl fit` and the scripts of deploy/slurm on a real SLURM of two nodes."""

import re

import pytest
from helpers import ROOT
from helpers.closeness import close
from helpers.outcome import assert_same, outcome
from helpers.processes.slurm import Slurm, missing
from helpers.processes.trials import (
    EPOCHS,
    PAGE,
    STOPPED_AT,
    WORDS,
    assert_stopped_by_a_signal,
    page_command,
    sweep_file,
    wait_for_held,
)
from helpers.processes.wandb_server import ENTITY, Server
from helpers.smooth import SmoothSimCLR
from helpers.training import terms_of

from lightning_ssl.app import runs
from lightning_ssl.app.commands import fit
from lightning_ssl.app.runs import RunFolder

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
SLURM = ROOT / "deploy" / "slurm"
AGENTS = str(SLURM / "agents.sbatch")


@pytest.fixture(scope="module")
def cluster():
    with Slurm() as cluster:
        yield cluster


def quoted(*words):
    return " ".join(f"'{word}'" for word in words)


def complete(cluster, *words, **options):
    """Submit a job and wait until it has completed."""
    job = cluster.submit(*words, **options)
    assert_completed(cluster, job)
    return job


def assert_completed(cluster, job):
    assert cluster.state_of(job, "COMPLETED", "FAILED") == "COMPLETED"


def stopped(cluster, job, folder, *stop):
    """Stop a job that waits for a signal. SLURM requeues it. Returns its run."""
    wait_for_held(folder)
    cluster.run(*stop, job)
    assert cluster.state_of(job, "PENDING", "COMPLETED", "FAILED") == "PENDING"
    return assert_stopped_by_a_signal(folder / "runs")


def assert_continued(cluster, job, run):
    cluster.start_requeued(job)
    assert_completed(cluster, job)
    assert (run.summary()["status"], run.summary()["step"]) == ("finished", 2 * EPOCHS)


def create_sweep(cluster, server, folder):
    """Create the sweep of sweep.yaml on a server. Returns the environment of its agents."""
    key = server.environment(patient=True) | {"HOME": str(folder)}
    cluster.run("wandb", "sweep", "--project=p", "sweep.yaml", cwd=folder, **key)
    return key


def test_a_script_with_two_tasks_and_no_srun_is_one_process(cluster, tmp_path):
    command = quoted("lightning-ssl", "fit", *WORDS, "--trainer.max_epochs=1", "--runs=alone")
    job = complete(cluster, "--ntasks=2", f"--wrap={command}", cwd=tmp_path)
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


@pytest.mark.slow
def test_a_step_of_one_task_can_start_several_ranks(cluster, tmp_path):
    """Its processes stop together too: SLURM sends a signal to all of them."""
    flags = ["--trainer.devices=2", "--trainer.strategy=ddp", f"--trainer.max_epochs={EPOCHS}"]
    command = f"--wrap=srun {quoted('lightning-ssl', 'fit', *WORDS, *flags)}"
    job = cluster.submit("--ntasks=1", command, cwd=tmp_path, HOLD=str(tmp_path / "held"))
    wait_for_held(tmp_path)
    cluster.run("scancel", "--signal=TERM", job)
    assert cluster.state_of(job, "COMPLETED", "FAILED") == "FAILED"
    run = assert_stopped_by_a_signal(tmp_path / "runs")
    complete(cluster, "--ntasks=1", command, cwd=tmp_path)
    assert (run.summary()["status"], run.summary()["step"]) == ("finished", 2 * EPOCHS)
    assert len(runs.find(tmp_path / "runs")) == 1


# -- deploy/slurm/ddp.sbatch -------------------------------------------------------------------------------------------

TWO_NODES = ["--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=1", "--cpus-per-task=1", str(SLURM / "ddp.sbatch")]


@pytest.fixture(scope="module")
def whole(cluster, tmp_path_factory):
    """An uninterrupted run of two ranks on two nodes."""
    folder = tmp_path_factory.mktemp("whole")
    complete(cluster, *TWO_NODES, *WORDS, f"--trainer.max_epochs={EPOCHS}", "--name=whole", cwd=folder)
    return RunFolder(folder / "runs" / "whole")


@pytest.mark.slow
def test_two_tasks_are_one_run_with_the_weights_of_one_process(whole, tmp_path):
    assert fit.main([*WORDS, f"--trainer.max_epochs={EPOCHS}", f"--runs={tmp_path}", "--name=one"]) == 0
    steps, pixels = 2 * EPOCHS, 2 * 24 * 32 * 32  # a gradient of a convolution adds up the pixels of two views
    weights = [runs.read_checkpoint(path)["state_dict"] for path in (whole.path, tmp_path / "one")]
    close(*weights, terms=steps * (2 * terms_of(SmoothSimCLR()) + pixels), gain=1 / 0.2)
    assert len(list(whole.path.parent.iterdir())) == 1


# The script gets SIGUSR1 before the time limit. SLURM sends SIGTERM to preempt a job.
# Ranks get the signal of `--signal=USR1@60`, without `B:`, and that of `scancel --signal`; nobody requeues the job.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("stop", "state", "code"),
    [
        (["scancel", "--batch", "--signal=USR1"], "PENDING", ""),
        (["scontrol", "requeue"], "PENDING", ""),
        (["scancel"], "CANCELLED", ""),
        (["scancel", "--signal=USR1"], "FAILED", "ExitCode=138:0"),
        (["scancel", "--signal=TERM"], "FAILED", "ExitCode=143:0"),
    ],
    ids=["time limit", "preemption", "cancelled", "SIGUSR1 to the ranks", "SIGTERM to the ranks"],
)
def test_a_stopped_job_leaves_a_checkpoint_and_continues_bit_for_bit(stop, state, code, cluster, whole, tmp_path):
    job = cluster.submit(
        *TWO_NODES, *WORDS, f"--trainer.max_epochs={EPOCHS}", cwd=tmp_path, HOLD=str(tmp_path / "held")
    )
    wait_for_held(tmp_path)
    cluster.run(*stop, job)
    assert cluster.state_of(job, "PENDING", "COMPLETED", "FAILED", "CANCELLED") == state
    assert code in cluster.run("scontrol", "-o", "show", "job", job)
    run = assert_stopped_by_a_signal(tmp_path / "runs")
    if state != "PENDING":
        cluster.run("scontrol", "requeue", job)
    cluster.start_requeued(job)
    assert cluster.state_of(job, "COMPLETED", "FAILED") == "COMPLETED"
    assert f"resumed from step-{STOPPED_AT:08d}.ckpt" in (tmp_path / f"slurm-{job}.out").read_text()
    assert_same(outcome(run), outcome(whole))


@pytest.mark.slow
def test_before_the_time_limit_a_run_has_longer_than_kill_wait_for_its_checkpoint(tmp_path):
    """KillWait is 30 seconds by default, and a validation can take longer. The script is told a minute before."""
    with Slurm(kill_wait=2) as cluster:
        words = [*TWO_NODES, *WORDS, f"--trainer.max_epochs={EPOCHS}"]
        job = cluster.submit(*words, cwd=tmp_path, HOLD=str(tmp_path / "held"), HOLD_SECONDS="10")
        stopped(cluster, job, tmp_path, "scancel", "--batch", "--signal=USR1")


@pytest.mark.slow
def test_a_second_job_in_the_same_folder_is_refused_and_does_not_hang(cluster, tmp_path):
    """Its rank 0 is refused. Its rank 1 waits for it, and SLURM ends it after KillWait."""
    words = [*TWO_NODES, *WORDS, f"--trainer.max_epochs={EPOCHS}", "--name=one"]
    first = cluster.submit(*words, cwd=tmp_path, HOLD=str(tmp_path / "held"))
    wait_for_held(tmp_path)
    second = cluster.submit(*words, cwd=tmp_path)
    assert cluster.state_of(second, "COMPLETED", "FAILED") == "FAILED"
    assert "name='one': another process is training" in (tmp_path / f"slurm-{second}.out").read_text()
    cluster.run("scancel", "--signal=USR1", first)
    assert cluster.state_of(first, "COMPLETED", "FAILED") == "FAILED"
    assert RunFolder(tmp_path / "runs" / "one").summary()["step"] == STOPPED_AT


@pytest.mark.slow
def test_the_pages_script_for_signals_to_the_ranks_requeues_the_job(cluster, tmp_path):
    flags, line = re.search(r"#SBATCH (.*--signal=USR1@60)\n    (srun .*)", PAGE).groups()
    words = quoted(*WORDS, f"--trainer.max_epochs={EPOCHS}")
    job = cluster.submit(
        *flags.split(), "--ntasks=2", f"--wrap={line.replace('…', words)}", cwd=tmp_path, HOLD=str(tmp_path / "held")
    )
    run = stopped(cluster, job, tmp_path, "scancel", "--signal=USR1")  # as SLURM does before the time limit
    assert_continued(cluster, job, run)


# -- sweeps ------------------------------------------------------------------------------------------------------------

CELLS = {"seed_everything": [0, 1, 2], "trainer.max_epochs": [1]}
ONE_CELL = {"seed_everything": [0], "trainer.max_epochs": [EPOCHS]}


def cells(text):
    return [{"seed_everything": seed, "trainer.max_epochs": 1} for seed in CELLS["seed_everything"]]


def finished_seeds(folder):
    return sorted((run.summary()["seed"], run.summary()["status"], run.summary()["step"]) for run in runs.find(folder))


ALL_FINISHED = [(seed, "finished", 2) for seed in CELLS["seed_everything"]]


@pytest.mark.slow
def test_an_array_of_agents_shares_a_sweep_and_each_sees_its_own_gpu(cluster, tmp_path):
    note = """echo "$SLURM_ARRAY_TASK_ID $CUDA_VISIBLE_DEVICES" >> gpus.txt
        until [ "$(wc -l < gpus.txt)" -ge 2 ]; do sleep 0.2; done  # for a trial of the other agent
        exec lightning-ssl fit "$@" """
    sweep_file(tmp_path, ["${env}", "sh", "-c", note, "sh", *WORDS, "${args}"], CELLS)
    with Server(cells) as server:
        key = create_sweep(cluster, server, tmp_path)
        flags = ["--array=0-1", "--gpus=1", "--nodelist=n1", "--cpus-per-task=1", AGENTS]
        complete(cluster, *flags, f"{ENTITY}/p/sweep0", cwd=tmp_path, **key)
        assert [run.exit_code for run in server.runs.values()] == [0, 0, 0]
    assert finished_seeds(tmp_path / "runs") == ALL_FINISHED
    seen = set((tmp_path / "gpus.txt").read_text().splitlines())
    assert seen in ({"0 0", "1 1"}, {"0 1", "1 0"})  # both agents took trials; each saw another GPU


# The script gets SIGUSR1 before the time limit. SLURM sends SIGTERM to all processes of a job that it preempts: also to
# W&B's client, and to srun, so the tasks of srun may note either signal first.
@pytest.mark.slow
@pytest.mark.parametrize("stop", [["scancel", "--batch", "--signal=USR1"], ["scontrol", "requeue"]], ids=" ".join)
@pytest.mark.parametrize(
    ("command", "tasks", "codes"),
    [(["${env}", "lightning-ssl", "fit"], 1, (143,)), (page_command("srun"), 2, (138, 143))],
    ids=["fit", "srun"],
)
def test_a_requeued_agent_continues_the_trial_that_was_stopped(command, tasks, codes, stop, cluster, tmp_path):
    sweep_file(tmp_path, [*command, *WORDS, "${args}"], ONE_CELL)
    with Server(lambda text: [{name: values[0] for name, values in ONE_CELL.items()}]) as server:
        key = create_sweep(cluster, server, tmp_path) | {"HOLD": str(tmp_path / "held")}
        flags = ["--array=0", "--gpus=1", "--cpus-per-task=1", f"--ntasks={tasks}", "--nodes=1", AGENTS]
        job = cluster.submit(*flags, f"{ENTITY}/p/sweep0", cwd=tmp_path, **key)
        wait_for_held(tmp_path)
        cluster.run(*stop, f"{job}_0")
        assert cluster.state_of(job, "PENDING", "COMPLETED", "FAILED") == "PENDING"
        (sent,) = server.runs.values()
        assert (sent.preempting, sent.exit_code in codes) == (True, True)
        assert_stopped_by_a_signal(tmp_path / "runs")
        cluster.start_requeued(f"{job}_0")
        assert cluster.state_of(job, "COMPLETED", "FAILED") == "COMPLETED"
        assert sent.exit_codes[-1] == 0
        assert [command["type"] for command in server.sweeps["sweep0"].handed_out] == ["run", "resume", "exit"]
    assert finished_seeds(tmp_path / "runs") == [(0, "finished", 2 * EPOCHS)]
    assert f"resumed from step-{STOPPED_AT:08d}.ckpt" in (tmp_path / f"slurm-{job}_0.out").read_text()


@pytest.mark.slow
def test_agents_that_are_tasks_of_one_step_train_runs_of_their_own(cluster, tmp_path):
    sweep_file(tmp_path, ["${env}", "lightning-ssl", "fit", *WORDS, "${args}"], CELLS)
    with Server(lambda text: cells(text)[:2]) as server:
        key = create_sweep(cluster, server, tmp_path)
        cluster.run("srun", "--ntasks=2", "wandb", "agent", f"{ENTITY}/p/sweep0", cwd=tmp_path, **key)
        assert [run.exit_code for run in server.runs.values()] == [0, 0]
    assert finished_seeds(tmp_path / "runs") == ALL_FINISHED[:2]


@pytest.mark.slow
def test_the_trials_of_an_agent_can_be_steps_of_its_job(cluster, tmp_path):
    sweep_file(tmp_path, [*page_command("srun"), *WORDS, "${args}"], CELLS)
    with Server(cells) as server:
        key = create_sweep(cluster, server, tmp_path)
        agent = f"--wrap=wandb agent {ENTITY}/p/sweep0"
        complete(cluster, "--nodes=1", "--ntasks-per-node=2", agent, cwd=tmp_path, **key)
        assert [run.exit_code for run in server.runs.values()] == [0, 0, 0]
    assert finished_seeds(tmp_path / "runs") == ALL_FINISHED


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [0, 2])
def test_a_sweep_without_a_server_has_a_worker_for_each_gpu(gpus, cluster, tmp_path):
    sweep_file(tmp_path, ["${env}", "lightning-ssl", "fit", *WORDS, "${args}"], CELLS)
    flags = [f"--gpus={gpus}", "--cpus-per-task=2", str(SLURM / "sweep_local.sbatch"), "sweep.yaml"]
    complete(cluster, *flags, cwd=tmp_path)
    assert finished_seeds(tmp_path / "runs") == ALL_FINISHED


@pytest.mark.slow
@pytest.mark.parametrize("stop", [["scancel", "--batch", "--signal=USR1"], ["scontrol", "requeue"]], ids=" ".join)
def test_a_requeued_sweep_without_a_server_continues_its_trial(stop, cluster, tmp_path):
    sweep_file(tmp_path, ["${env}", "lightning-ssl", "fit", *WORDS, "${args}"], ONE_CELL)
    flags = ["--gpus=1", "--cpus-per-task=2", str(SLURM / "sweep_local.sbatch"), "sweep.yaml"]
    job = cluster.submit(*flags, cwd=tmp_path, HOLD=str(tmp_path / "held"))
    run = stopped(cluster, job, tmp_path, *stop)
    assert_continued(cluster, job, run)
