"""Runs whose ranks torchrun starts, and agents on one machine, as docs/cluster.md has them."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT, TESTS
from helpers.closeness import close
from helpers.processes.trials import (
    EPOCHS,
    PAGE,
    WORDS,
    assert_stopped_by_a_signal,
    descendants,
    page_command,
    send_to_all,
    sweep_file,
    wait_for_held,
)
from helpers.processes.wandb_server import ENTITY, Server
from helpers.smooth import SmoothSimCLR
from helpers.training import free_port, terms_of

from lightning_ssl.app import runs
from lightning_ssl.app.commands import fit

pytestmark = pytest.mark.slow
BIN = Path(sys.executable).parent
LIMIT = 1800  # seconds: the machine may be slow


def environment(**more):
    known = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "SLURM_"))}
    path, python = f"{BIN}{os.pathsep}{os.environ['PATH']}", f"{ROOT}{os.pathsep}{TESTS}"
    return known | {"PATH": path, "PYTHONPATH": python, "OMP_NUM_THREADS": "1"} | more


# SLURM sends SIGTERM to all processes of a job. Ctrl-C reaches the agent alone: its trial is in another process group.
@pytest.mark.parametrize(
    ("to", "number"),
    [("the agent", signal.SIGTERM), ("all processes", signal.SIGTERM), ("the agent", signal.SIGINT)],
)
def test_a_trial_of_the_pages_torchrun_command_is_stopped_with_a_checkpoint_and_continued(to, number, tmp_path):
    command = [word.replace("--nproc-per-node=4", "--nproc-per-node=2") for word in page_command("torchrun")]
    sweep_file(tmp_path, [*command, *WORDS, "${args}"], {"trainer.max_epochs": [EPOCHS]})
    with Server(lambda text: [{"trainer.max_epochs": EPOCHS}]) as server:
        known = environment(**server.environment(patient=True), HOME=str(tmp_path), HOLD=str(tmp_path / "held"))
        subprocess.run(["wandb", "sweep", "--project=p", "sweep.yaml"], cwd=tmp_path, env=known, check=True)
        words = ["wandb", "agent", "--forward-signals", f"{ENTITY}/p/sweep0"]
        agent = subprocess.Popen(words, cwd=tmp_path, env=known)
        wait_for_held(tmp_path)
        send_to_all([agent.pid, *(descendants(agent.pid) if to == "all processes" else [])], number)
        agent.wait(timeout=LIMIT)
        (sent,) = server.runs.values()
        assert (sent.preempting, sent.exit_code) == (True, 143)
        run = assert_stopped_by_a_signal(tmp_path / "runs")
        subprocess.run(words, cwd=tmp_path, env=known, check=True, timeout=LIMIT)
        assert sent.exit_codes[-1] == 0
        assert [command["type"] for command in server.sweeps["sweep0"].handed_out] == ["run", "resume", "exit"]
    assert (run.summary()["status"], run.summary()["step"]) == ("finished", 2 * EPOCHS)
    assert len(runs.find(tmp_path / "runs")) == 1


def test_a_sweep_without_a_server_has_the_metric_of_a_trial_that_torchrun_starts(tmp_path):
    command = [word.replace("--nproc-per-node=4", "--nproc-per-node=2") for word in page_command("torchrun")]
    sweep_file(tmp_path, [*command, *WORDS, "${args}"], {"trainer.max_epochs": [1]})
    words = ["lightning-ssl", "sweep", "sweep.yaml"]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), check=True, timeout=LIMIT, capture_output=True)
    (run,) = runs.find(tmp_path / "runs")
    assert run.path.parent == tmp_path / "runs" / "s"
    assert (run.summary()["status"], run.summary()["step"]) == ("finished", 2)
    assert f"online/top1={run.summary()['last']['online/top1']:.4g}" in done.stdout.decode()


def test_the_pages_torchruns_on_two_nodes_are_one_run_with_the_weights_of_one_process(tmp_path):
    (line,) = re.findall(r"^    (torchrun --nnodes=2 (?:.*\\\n)*.*)$", PAGE, re.MULTILINE)
    line = line.replace("HOST:29400", f"127.0.0.1:{free_port()}").replace("--nproc-per-node=4", "--nproc-per-node=1")
    launcher, _, _ = line.partition("--config")
    words = shlex.split(launcher.replace("--no-python", "--local-addr=127.0.0.1 --no-python").replace("\\\n", ""))
    words += [*WORDS, f"--trainer.max_epochs={EPOCHS}"]
    started = [subprocess.Popen(words, cwd=tmp_path, env=environment()) for _ in range(2)]
    assert [process.wait(timeout=LIMIT) for process in started] == [0, 0]
    (run,) = runs.find(tmp_path / "runs")
    assert (run.summary()["status"], run.summary()["step"]) == ("finished", 2 * EPOCHS)
    assert fit.main([*WORDS, f"--trainer.max_epochs={EPOCHS}", f"--runs={tmp_path}", "--name=one"]) == 0
    steps, pixels = 2 * EPOCHS, 2 * 24 * 32 * 32  # a gradient of a convolution adds up the pixels of two views
    weights = [runs.read_checkpoint(path)["state_dict"] for path in (run.path, tmp_path / "one")]
    close(*weights, terms=steps * (2 * terms_of(SmoothSimCLR()) + pixels), gain=1 / 0.2)


def test_the_pages_agents_on_one_machine_see_one_gpu_each(tmp_path):
    """Each trial waits for one of the other agent."""
    lines = re.findall(r"^    (CUDA_VISIBLE_DEVICES=\d wandb agent .*ENTITY/PROJECT/ID &)$", PAGE, re.MULTILINE)
    note = 'echo "$CUDA_VISIBLE_DEVICES" >> gpus.txt; until [ "$(wc -l < gpus.txt)" -ge 2 ]; do sleep 0.2; done'
    sweep_file(tmp_path, ["${env}", "sh", "-c", note], {"p": [2, 4]})
    with Server(lambda text: [{"p": 2}, {"p": 4}]) as server:
        known = environment(**server.environment(patient=True), HOME=str(tmp_path))
        subprocess.run(["wandb", "sweep", "--project=p", "sweep.yaml"], cwd=tmp_path, env=known, check=True)
        script = "\n".join([*lines, "wait"]).replace("ENTITY/PROJECT/ID", f"{ENTITY}/p/sweep0")
        subprocess.run(["bash", "-c", script], cwd=tmp_path, env=known, check=True, timeout=LIMIT)
    assert sorted((tmp_path / "gpus.txt").read_text().split()) == ["0", "1"]
