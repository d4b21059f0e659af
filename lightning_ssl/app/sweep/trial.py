"""The process of one trial.

It is forked from a forkserver that has already imported torch and Lightning, so `lightning-ssl fit` starts within a
second. Any other command is started from this process as a separate program. The process leads its own session, so
Ctrl-C in a terminal reaches only the engine. It ends when the engine ends, even if the engine is killed by SIGKILL.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from multiprocessing.connection import wait
from pathlib import Path

from lightning_ssl.app.launch.noted_signals import SIGNALS
from lightning_ssl.app.runs import RunFolder
from lightning_ssl.app.sweep.state import State
from lightning_ssl.app.sweep.wandb_sweeps import Parameters
from lightning_ssl.base.checks import UserError

PROGRAM = "lightning_ssl.app.cli"  # the module of `lightning-ssl`, as in `python -m`
# Modules that the parent process of all trials imports once; those of `fit` import torch.
PRELOAD = ["lightning_ssl.app.sweep.detach", "lightning_ssl", "lightning_ssl.app.sweep.trial"]
PRELOAD_FIT = [PROGRAM, "lightning_ssl.app.training.run"]

LOG = "log.txt"
PARENT_LOST = 255  # exit code that multiprocessing reports when the forkserver has ended
GRACE_PERIOD = 50.0  # seconds between SIGTERM and SIGKILL, in which a trial saves its state; a batch script has 60


def run_trial(
    folder: Path,
    attempt: int,
    command: list[str],
    fit_flags: list[str] | None,
    parameters: Parameters,
    environment: dict[str, str],
    cwd: Path,
) -> None:
    """Run a trial. This is the target of its process.

    folder       in that of the sweep, with the name of the trial
    fit_flags    None for a command other than `lightning-ssl fit`
    """
    os.setsid()
    threading.Thread(target=exit_with_engine, daemon=True).start()
    os.environ.update(environment)
    try:
        os.chdir(cwd)
        begin(folder, attempt, parameters)
        code = run_command(command) if fit_flags is None else run_fit(fit_flags)
        with State(folder.parent / "sweep.db") as state:  # the code is not lost if the engine ends first
            state.set(folder.name, exit_code=code)
    except (ValueError, OSError) as error:  # such as a full disk; the engine reports it too
        print(f"{folder.name}: {error}", file=sys.stderr)
        code = 2
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if code >= 0 else 128 - code)  # does not wait for threads that a library left running


def begin(folder: Path, attempt: int, parameters: Parameters) -> None:
    """Prepare the run folder of an attempt. Its summary says from now on that the trial runs.

    Standard output and standard error are appended to the log, line by line. Every process of the trial inherits them,
    and with them the lock on the log (`is_running`).
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    fcntl.flock(log, fcntl.LOCK_EX)  # waits for a process of a killed engine that ends at this moment
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    (folder / "parameters.json").write_text(json.dumps(parameters), encoding="utf-8")
    if attempt > 1:
        print(f"attempt {attempt}")
    run = RunFolder(folder)
    if not run.is_finished():
        run.update_summary(status="running", error=None)


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


def is_running(folder: Path) -> bool:
    """Whether a process of a trial is alive. Each of them has the log as its standard output, and so the lock on it."""
    try:
        log = os.open(folder / LOG, os.O_RDONLY | os.O_NONBLOCK)  # does not wait for the writer of a pipe
    except OSError:
        return False
    try:
        fcntl.flock(log, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(log)


def wait_for_end(folder: Path) -> None:
    """Wait for the processes of an earlier attempt. They end with their engine or are killed soon after it."""
    deadline = time.monotonic() + GRACE_PERIOD + 10
    while is_running(folder):
        if time.monotonic() > deadline:
            raise UserError(f"{folder / LOG}: a process of this trial still runs; end it, then run the same command")
        time.sleep(0.05)


def terminate(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def kill_group(pid: int) -> None:
    """Send SIGKILL to a trial and to every process that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
