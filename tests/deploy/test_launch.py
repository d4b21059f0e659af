"""`deploy/launch.sh`: ranks get a signal that their launcher forwards, and the script ends as they do."""

import signal
import subprocess
import time

import pytest
from helpers import ROOT

LAUNCHER = """#!/bin/bash
trap 'echo TERM >> got; sleep 0.3; echo saved >> got; exit 1' TERM
trap 'echo USR1 >> got; sleep 0.3; echo saved >> got; exit 138' USR1
touch started
while true; do sleep 0.05; done
"""


@pytest.mark.parametrize(("name", "forwarded"), [("srun", "USR1"), ("torchrun", "TERM")])
def test_a_stop_reaches_the_ranks_and_the_script_waits_and_ends_by_the_signal(name, forwarded, tmp_path):
    (tmp_path / name).write_text(LAUNCHER)
    (tmp_path / name).chmod(0o755)
    script = subprocess.Popen([ROOT / "deploy" / "launch.sh", tmp_path / name, "fit"], cwd=tmp_path)
    while not (tmp_path / "started").exists():
        time.sleep(0.01)
    script.terminate()
    assert script.wait(timeout=60) == -signal.SIGTERM
    assert (tmp_path / "got").read_text().split() == [forwarded, "saved"]


@pytest.mark.parametrize("code", [0, 3])
def test_without_a_stop_the_code_is_that_of_the_launcher(code):
    done = subprocess.run([ROOT / "deploy" / "launch.sh", "bash", "-c", f"exit {code}"], timeout=60)
    assert done.returncode == code
