"""Notes the signals that ask a run to stop, also while `fit` imports torch, which takes seconds.

By default a signal ends a process at once. A single process that has not begun to train loses nothing by it.
`must_start` says which processes must not end in this way. Python needs about 50 ms before it comes here. Ranks that
Lightning starts are safe in that time too (`blocked`). A trial that an agent or a launcher starts is not.

This module imports neither torch nor Lightning.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)
# Variables of a trial of a W&B agent, and of ranks that Lightning and torchrun started.
STARTED_BY = ("WANDB_RUN_ID", "LIGHTNING_SSL_RUN", "TORCHELASTIC_RUN_ID")


def must_start(environment: Mapping[str, str]) -> bool:
    """Whether this process must train its first step before it stops.

    A trial of a W&B agent marks its W&B run as preempted. W&B does not hand out a run again that was never opened. If
    one of several ranks ends while it imports torch, its launcher kills the others.
    """
    several_tasks = environment.get("SLURM_STEP_NUM_TASKS", "1") != "1"  # one task can be a shell: `srun --pty bash`
    return several_tasks or any(name in environment for name in STARTED_BY)


@contextmanager
def blocked() -> Iterator[None]:
    """Delay signals until the end. A process that is started meanwhile gets them when it enters `NotedSignals`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class NotedSignals:
    """Notes the first signal that asks the run to stop. A second Ctrl-C raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.number = 0  # of the signal that stops the run; 0: none
        self.previous: dict[int, Any] = {}

    def __enter__(self) -> NotedSignals:
        if threading.current_thread() is threading.main_thread():
            ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # by `nohup`
            numbers = [number for number in SIGNALS if not (ignored and number == signal.SIGHUP)]
            self.previous = {number: signal.signal(number, self.note) for number in numbers}
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # of a process that was started while they were blocked
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    def note(self, number: int, frame: FrameType | None = None) -> None:
        """The handler of all signals."""
        if self.number and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = self.number or number
