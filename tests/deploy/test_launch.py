"""`deploy/launch.sh`: ranks get a signal that their launcher forwards, and the script ends as they do."""

import os
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
    assert script.wait(timeout=600) == -number
    assert (tmp_path / "got").read_text().split() == [forwarded, "saved"]


WAITING = """#!/bin/bash
trap 'sleep 0.2; exit 1' TERM
while true; do sleep 0.05; done
"""

# bash reads this before the script. From the command FROM on, 30 commands get a SIGTERM first, those of the traps too.
STOPS = """unset BASH_ENV
kill() { [ "$1" != -s ] || [ "$3" = $$ ] || echo "$2" >> passed_on; builtin kill "$@"; }
set -o functrace
left=0
trap '[ "$BASH_COMMAND" != "$FROM" ] || left=30; if (( left-- > 0 )); then builtin kill -s TERM $$; fi' DEBUG
"""


@pytest.mark.parametrize("first", ["launcher=$!", '[ -z "$early" ]', 'wait "$launcher"'])
def test_of_many_stops_only_the_first_is_passed_on(first, tmp_path):
    """SLURM sends SIGTERM to all processes of a job, so the script gets it from there and from the agent."""
    (tmp_path / "torchrun").write_text(WAITING)
    (tmp_path / "torchrun").chmod(0o755)
    (tmp_path / "stops.sh").write_text(STOPS)
    words = [ROOT / "deploy" / "launch.sh", tmp_path / "torchrun"]
    script = subprocess.Popen(words, cwd=tmp_path, env=os.environ | {"BASH_ENV": "stops.sh", "FROM": first})
    assert script.wait(timeout=600) == -signal.SIGTERM
    assert (tmp_path / "passed_on").read_text().split() == ["TERM"]


def test_a_rank_that_fails_ends_the_others_and_torchrun_waits_for_a_checkpoint():
    words = ["bash", "-c", 'echo "$SLURM_KILL_BAD_EXIT $TORCH_ELASTIC_SHUTDOWN_TIMEOUT"']
    done = subprocess.run([ROOT / "deploy" / "launch.sh", *words], capture_output=True, text=True, timeout=600)
    assert done.stdout.split() == ["1", "60"]


@pytest.mark.parametrize("code", [0, 3])
def test_without_a_stop_the_code_is_that_of_the_launcher(code):
    done = subprocess.run([ROOT / "deploy" / "launch.sh", "bash", "-c", f"exit {code}"], timeout=600)
    assert done.returncode == code
