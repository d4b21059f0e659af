"""The process of one trial.

It is forked from a forkserver that has already imported torch and Lightning, so `lightning-ssl fit` starts within a
second. Any other command is started from this process as a separate program. The process leads its own session, so
Ctrl-C in a terminal reaches only the engine. It ends when the engine ends, even if the engine is killed by SIGKILL.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

from lightning_ssl.app.launch.noted_signals import SIGNALS
from lightning_ssl.app.runs import RunFolder
from lightning_ssl.app.sweep.state import State

PROGRAM = "lightning_ssl.app.cli"  # the module of `lightning-ssl`, as in `python -m`
# Modules that the parent process of all trials imports once; those of `fit` import torch.
PRELOAD = ["lightning_ssl.app.sweep.detach", "lightning_ssl", "lightning_ssl.app.sweep.trial"]
PRELOAD_FIT = [PROGRAM, "lightning_ssl.app.training.run"]

ATTEMPT_REVOKED = 3  # exit code of a process whose attempt another engine has revoked
PARENT_LOST = 255  # exit code that multiprocessing reports when the forkserver has ended
GRACE_PERIOD = 50.0  # seconds between SIGTERM and SIGKILL, in which a trial saves its state; a batch script has 60


@dataclass(frozen=True)
class Job:
    """The arguments of a trial's process."""

    folder: Path  # in that of the sweep, with the name of the trial
    attempt: int
    command: list[str]
    fit_flags: list[str] | None  # None for a command other than `lightning-ssl fit`
    cwd: Path
    parameters: str  # JSON
    environment: dict[str, str]


def run_trial(job: Job) -> None:
    """Run a trial. This is the target of its process."""
    os.setsid()
    threading.Thread(target=exit_with_engine, daemon=True).start()
    file, id = job.folder.parent / "sweep.db", job.folder.name
    try:
        with State(file) as state:
            if not state.claim(id, job.attempt, os.getpid(), process_start_time(os.getpid()) or ""):
                os._exit(ATTEMPT_REVOKED)
        os.chdir(job.cwd)
        begin(job)
        code = run_command(job.command) if job.fit_flags is None else run_fit(job.fit_flags)
        with State(file) as state:
            state.record_exit(id, job.attempt, code)
    except (ValueError, OSError) as error:  # such as a full disk; the engine reports it too
        print(f"{id}: {error}", file=sys.stderr)
        code = 2
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if code >= 0 else 128 - code)  # does not wait for threads that a library left running


def begin(job: Job) -> None:
    """Prepare the run folder of an attempt. Its summary says from now on that the trial runs."""
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / "parameters.json").write_text(job.parameters, encoding="utf-8")
    redirect_output(job.folder / "log.txt")
    os.environ.update(job.environment)
    if job.attempt > 1:
        print(f"attempt {job.attempt}")
    run = RunFolder(job.folder)
    if not run.is_finished():
        run.update_summary(status="running", error=None)


def redirect_output(log: Path) -> None:
    """Append standard output and standard error to the log, line by line."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115


def run_fit(flags: list[str]) -> int:
    """Run `lightning-ssl fit` in this process, as `python -m` does, and return its exit code."""
    program = importlib.import_module(PROGRAM)
    assert program.__file__ is not None
    # Lightning starts the other ranks of a DDP run from __main__ and sys.argv.
    sys.modules["__main__"] = program
    sys.argv = [program.__file__, "fit", *flags]
    try:
        code: int = program.main(sys.argv[1:])
        return code
    except BaseException:
        traceback.print_exc()
        return 1


def run_command(command: list[str]) -> int:
    """Run a command as a separate program and return its exit code. `python` is the interpreter of this process."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    try:
        program = subprocess.Popen(command, env={**os.environ, "PATH": path}, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"{command[0] if command else 'command'}: {error.strerror or error}", file=sys.stderr)
        return 127
    for number in SIGNALS:
        signal.signal(number, lambda caught, _: program.send_signal(caught))
    return program.wait()


# -- processes --------------------------------------------------------------------------------------------------------


def exit_with_engine() -> None:
    """Wait until the engine's process ends, then end this trial. It runs in a thread of the trial."""
    engine = multiprocessing.parent_process()
    assert engine is not None
    wait([engine.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_PERIOD)
    kill_group(os.getpid())


def process_start_time(pid: int) -> str | None:
    """Return when a living process started, as text that is only compared; None if there is no such process.

    The operating system uses a pid again, so the start time is needed to identify a process.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
    listed = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout.strip() or None


def terminate(pid: int, start_time: str | None, grace_period: float = GRACE_PERIOD) -> None:
    """Send SIGTERM to a process, and SIGKILL to its group after the grace period. Ignore another process's pid."""
    if not start_time or process_start_time(pid) != start_time:
        return
    send_signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_period
    while process_start_time(pid) == start_time and time.monotonic() < deadline:
        time.sleep(0.05)
    if process_start_time(pid) == start_time:
        kill_group(pid)
        send_signal(pid, signal.SIGKILL)
        while process_start_time(pid) == start_time:
            time.sleep(0.05)


def send_signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_group(pid: int) -> None:
    """Send SIGKILL to a trial and to every process that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
