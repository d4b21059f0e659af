"""Resources of the machine. Importing this imports no torch."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def available_cores() -> int:
    """The number of CPU cores that this process may use. An affinity mask (`taskset`, SLURM) lowers it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int:
    """The bytes of memory of this machine; 2^63 if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 2**63


def describe() -> str:
    """The processor, the number of cores and the operating system."""
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        named = [line for line in cpuinfo.read_text(errors="replace").splitlines() if line.startswith("model name")]
        model = named[0].partition(":")[2].strip() if named else ""
    return f"{model or platform.processor() or platform.machine()}, {available_cores()} cores, {platform.system()}"
