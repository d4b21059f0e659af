"""A real SLURM of two nodes with two fake GPUs each, on this machine, with its own ports, keys and state.

    with Slurm() as cluster:
        job = cluster.submit("deploy/slurm/ddp.sbatch", "--name=run")
        assert cluster.state_of(job, "COMPLETED", "FAILED") == "COMPLETED"

It needs root and Debian's packages slurm-wlm and munge.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from helpers import ROOT, TESTS
from helpers.sweeps import wait_until
from helpers.training import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "scancel", "sinfo", "squeue", "runuser")
SETTINGS = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmUser=root
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/%n
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,sched_min_interval=0
MpiDefault=none
ReturnToService=2
KillWait={kill_wait}
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=8 Gres=gpu:2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=8 Gres=gpu:2
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""
FAKE_GPUS = "Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n"


def missing() -> str:
    """Why there can be no cluster here; empty if there can be one."""
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    if lacking:
        return f"needs SLURM (apt-get install slurm-wlm munge): no {', '.join(lacking)}"
    return "" if os.geteuid() == 0 else "SLURM's daemons need root"


class Slurm:
    """Its daemons run until the block ends.

    kill_wait   seconds between the SIGTERM with which SLURM ends a job and SIGKILL
    """

    def __init__(self, kill_wait: int = 120) -> None:
        self.kill_wait = kill_wait
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # munged runs as another user: not below a private folder
        self.daemons: list[subprocess.Popen[bytes]] = []
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        known = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "WANDB_"))}
        self.environment = known | {
            "PATH": path,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{TESTS}",
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "OMP_NUM_THREADS": "1",
            "MASTER_ADDR": "127.0.0.1",  # the names n1 and n2 are known to SLURM alone
        }

    def __enter__(self) -> Slurm:
        for name in ("", "munge", "state", "n1", "n2"):
            (self.folder / name).mkdir(exist_ok=True)
            (self.folder / name).chmod(0o755)
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        for path in (key, key.parent):
            shutil.chown(path, "munge")
        controller, first, second = (free_port() for _ in range(3))
        host = socket.gethostname().partition(".")[0]
        ports = {"controller": controller, "first": first, "second": second}
        text = SETTINGS.format(folder=self.folder, host=host, kill_wait=self.kill_wait, **ports)
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text(FAKE_GPUS)
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        flags = [f"--{flag}={self.folder / 'munge' / name}" for flag, name in files.items()]
        self.start("runuser", "-u", "munge", "--", "munged", "--foreground", *flags)
        self.start("slurmctld", "-D")
        self.start("slurmd", "-D", "-N", "n1")
        self.start("slurmd", "-D", "-N", "n2")
        wait_until(self.is_idle, 300)
        return self

    def __exit__(self, *_: object) -> None:
        self.run("scancel", "--user=root", check=False)
        with suppress(AssertionError):
            wait_until(lambda: not self.run("squeue", "--noheader", check=False), 60)
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, *command: str) -> None:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.daemons.append(subprocess.Popen(command, env=self.environment, **quiet))

    def run(self, *command: str, check: bool = True, cwd: Path | None = None, **environment: str) -> str:
        """Run a program of SLURM. Returns what it prints."""
        done = subprocess.run(
            command, env=self.environment | environment, cwd=cwd, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout + done.stderr

    def submit(self, *words: str, cwd: Path | None = None, **environment: str) -> str:
        """`sbatch`. Returns the id of the job. The output is in slurm-ID.out in the folder."""
        return self.run("sbatch", "--parsable", *words, cwd=cwd, **environment).strip()

    def is_idle(self) -> bool:
        return self.run("sinfo", "-h", "-N", "-o", "%T", check=False).split() == ["idle", "idle"]

    def start_requeued(self, job: str) -> None:
        """Start a requeued job, the only one of the cluster, before SLURM's two minutes are over.

        A node refuses a start in the second in which it ended the job before ("Job credential revoked"), and the job
        then ends as failed. An idle node has ended it.
        """

        def is_started() -> bool:
            self.run("scontrol", "update", f"jobid={job}", "starttime=now", check=False)
            return self.states(job) != {"PENDING"}

        wait_until(self.is_idle, 900)
        time.sleep(2)  # the second has passed
        wait_until(is_started, 300)

    def states(self, job: str) -> set[str]:
        """The states of a job, or of the tasks of an array."""
        shown = self.run("scontrol", "-o", "show", "job", job, check=False).splitlines()
        return {word.partition("=")[2] for line in shown for word in line.split() if "JobState=" in word}

    def state_of(self, job: str, *states: str, timeout: float = 1800) -> str:
        """Wait until a job, or all tasks of an array, have one of the states, and return it."""
        found = ""

        def is_there() -> bool:
            nonlocal found
            together = self.states(job)
            found = together.pop() if len(together) == 1 else ""
            return found in states

        wait_until(is_there, timeout)
        return found
