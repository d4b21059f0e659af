"""The status of a run. `status_of` decides it for every reader: `fit`, sweeps, the report and reproductions.

finished      its last values are final
running       a process trains it, or was killed and left no trace
interrupted   a signal, a time limit or the end of its sweep stopped it; the same command resumes it
stopped       hyperband stopped it
failed        it ended with an error
broken        its files are missing or cannot be read, so its result is not known
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lightning_ssl.app.launch.noted_signals import SIGNALS

BROKEN = "broken"
STATUSES = ("finished", "running", "interrupted", "stopped", "failed", BROKEN)
TERMINATION_SIGNALS = (*SIGNALS, signal.SIGKILL)


@dataclass(frozen=True)
class Exit:
    """How the process of a sweep's trial ended, as its engine saw it.

    code          None if the process, or its parent, was killed before it could record one
    pruned        hyperband stopped it
    interrupted   the engine is stopping all trials
    """

    code: int | None
    pruned: bool = False
    interrupted: bool = False


def status_of(
    summary: Mapping[str, Any], *, end: Exit | None = None, trial: str | None = None, readable: bool = True
) -> str:
    """The status of a run whose summary.json is given.

    end        of a process that has just ended. The summary may be that of an earlier attempt, so it is not used alone
    trial      the status in the sweep.db of an older version, which did not write the end of a trial into its folder
    readable   whether the files that the status promises can be read

    A trial that was killed from outside is interrupted, not failed: the same command resumes it.
    """
    recorded = summary.get("status")
    if end is not None:
        killed = end.code is None or signal_of(end.code) in TERMINATION_SIGNALS
        if recorded == "finished" and killed:
            return "finished"
        if end.code == 0 and recorded not in ("interrupted", "failed"):
            return "finished"
        if end.pruned:
            return "stopped"
        return "interrupted" if end.interrupted or killed or (recorded, end.code) == ("interrupted", 0) else "failed"
    if trial in ("failed", "stopped") or (trial in ("running", "interrupted") and not summary):
        return str(trial)
    return str(recorded) if recorded == "failed" or (readable and recorded in STATUSES) else BROKEN


def signal_of(exit_code: int) -> int:
    """The number of the signal that ended a process: −9, or 137 where a shell reports it."""
    return -exit_code if exit_code < 0 else exit_code - 128
