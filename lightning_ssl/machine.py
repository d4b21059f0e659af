"""Resources of the machine. Importing this imports no torch."""

from __future__ import annotations

import os


def available_cores() -> int:
    """The number of CPU cores that this process may use. An affinity mask (`taskset`, SLURM) lowers it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
