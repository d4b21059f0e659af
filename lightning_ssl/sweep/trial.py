"""The process of one trial.

It is forked from a parent that has imported torch and Lightning already (a forkserver), so that a `lightning-ssl fit`
begins within the second; any other command is started from there as a program of its own. It leads a session, so that
Ctrl-C in a terminal reaches the engine alone, which then decides; and it ends when the engine is gone, even by SIGKILL.
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
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path

from lightning_ssl.sweep.state import State

PROGRAM = "lightning_ssl.cli"  # the module whose `main` is `lightning-ssl`; by name, for it stands above this one
PRELOAD = ["lightning_ssl.sweep.apart", "lightning_ssl", PROGRAM, "lightning_ssl.sweep.trial"]
PRELOAD_FIT = [*PRELOAD, "lightning_ssl.commands.fit"]

TOO_LATE = 3  # the exit code of a process whose trial another engine has taken over
GRACE = 30.0  # seconds a trial has to save its state after SIGTERM


@dataclass(frozen=True)
class Job:
    """What a trial's process has to know."""

    state: Path
    id: str
    attempt: int
    folder: Path
    words: list[str]
    flags: list[str] | None  # of `lightning-ssl fit`, where it is one
    cwd: Path
    parameters: str = "{}"  # JSON
    environment: dict[str, str] = field(default_factory=dict)


def begin(job: Job) -> None:
    """Run a trial: the target of its process."""
    os.setsid()
    threading.Thread(target=end_with_engine, daemon=True).start()
    with State(job.state) as state:
        if not state.claim(job.id, job.attempt, os.getpid(), birth(os.getpid()) or ""):
            os._exit(TOO_LATE)
    os.chdir(job.cwd)
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / "parameters.json").write_text(job.parameters, encoding="utf-8")
    redirect(job.folder / "log.txt")
    os.environ.update(job.environment)
    code = run_command(job.words) if job.flags is None else run_fit(job.flags)
    with State(job.state) as state:
        state.ended(job.id, job.attempt, code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if code >= 0 else 128 - code)  # what a library left running must not hold the trial up


def redirect(log: Path) -> None:
    """Both outputs into the log, a line at a time; a resumed trial goes on where its log ended."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115


def run_fit(flags: list[str]) -> int:
    """`lightning-ssl fit`, in this process."""
    cli = importlib.import_module(PROGRAM)
    assert cli.__file__ is not None
    # Lightning starts the other ranks of a DDP run by what this process says it was started with.
    sys.modules["__main__"] = cli
    sys.argv = [cli.__file__, "fit", *flags]
    try:
        code: int = cli.main(["fit", *flags])
        return code
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1


def run_command(words: list[str]) -> int:
    """Any other command, as a program of its own."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # `python` is this one
    try:
        program = subprocess.Popen(words, env={**os.environ, "PATH": path}, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"{words[0] if words else 'command'}: {error.strerror or error}", file=sys.stderr)
        return 127
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda caught, _: program.send_signal(caught))
    return program.wait()


# -- processes --------------------------------------------------------------------------------------------------------


def end_with_engine() -> None:
    """Wait, in a thread of a trial, for the end of the engine, and end the trial then."""
    engine = multiprocessing.parent_process()
    assert engine is not None
    wait([engine.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    kill_group(os.getpid())


def birth(pid: int) -> str | None:
    """When a living process began, to tell it from another that got its number later; None where there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
    listed = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout.strip() or None


def end(pid: int, born: str | None, grace: float = GRACE) -> None:
    """Ask a process to end, and when it does not, end it with all that it started."""
    if not born or birth(pid) != born:
        return
    send(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while birth(pid) == born and time.monotonic() < deadline:
        time.sleep(0.05)
    if birth(pid) == born:
        kill_group(pid)
        send(pid, signal.SIGKILL)
        while birth(pid) == born:
            time.sleep(0.05)


def send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_group(pid: int) -> None:
    """SIGKILL for all that a trial started, and for itself."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
