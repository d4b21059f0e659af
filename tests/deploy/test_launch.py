"""`deploy/launch.sh`: ranks get a signal that their launcher forwards, and the script ends as they do."""

import signal
import subprocess
import time

import pytest
from helpers import ROOT

LAUNCHER = """#!/bin/bash
for name in TERM USR1 HUP; do trap "echo $name >> got; sleep 0.3; echo saved >> got; exit 1" $name; done
touch started
while true; do sleep 0.05; done
"""


# `wandb agent --forward-signals` passes on every signal that it gets: Ctrl-C, the end of a terminal, SLURM's SIGUSR1.
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize(("name", "forwarded"), [("srun", "USR1"), ("torchrun", "TERM")])
def test_a_stop_reaches_the_ranks_and_the_script_waits_and_ends_by_the_signal(name, forwarded, number, tmp_path):
    (tmp_path / name).write_text(LAUNCHER)
    (tmp_path / name).chmod(0o755)
    script = subprocess.Popen([ROOT / "deploy" / "launch.sh", tmp_path / name, "fit"], cwd=tmp_path)
    while not (tmp_path / "started").exists():
        time.sleep(0.01)
    script.send_signal(number)
    assert script.wait(timeout=60) == -number
    assert (tmp_path / "got").read_text().split() == [forwarded, "saved"]


COUNTING = """#!/bin/bash
trap 'echo TERM >> got' TERM
touch started
until [ -e go ]; do sleep 0.05; done
"""


def test_a_second_stop_is_not_passed_on(tmp_path):
    """SLURM sends SIGTERM to all processes of a job, so the script gets it from there and from the agent."""
    (tmp_path / "torchrun").write_text(COUNTING)
    (tmp_path / "torchrun").chmod(0o755)
    script = subprocess.Popen([ROOT / "deploy" / "launch.sh", tmp_path / "torchrun"], cwd=tmp_path)
    while not (tmp_path / "started").exists():
        time.sleep(0.01)
    for _ in range(2):
        script.terminate()
        while not (tmp_path / "got").exists():
            time.sleep(0.01)
    time.sleep(0.3)  # enough for a second signal to arrive, if there is one
    (tmp_path / "go").touch()
    assert script.wait(timeout=60) == -signal.SIGTERM
    assert (tmp_path / "got").read_text().split() == ["TERM"]


def test_a_rank_that_fails_ends_the_others_and_torchrun_waits_for_a_checkpoint():
    words = ["bash", "-c", 'echo "$SLURM_KILL_BAD_EXIT $TORCH_ELASTIC_SHUTDOWN_TIMEOUT"']
    done = subprocess.run([ROOT / "deploy" / "launch.sh", *words], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["1", "60"]


@pytest.mark.parametrize("code", [0, 3])
def test_without_a_stop_the_code_is_that_of_the_launcher(code):
    done = subprocess.run([ROOT / "deploy" / "launch.sh", "bash", "-c", f"exit {code}"], timeout=60)
    assert done.returncode == code
