"""Shared by the benchmarks: contenders that take turns, and the table of measured figures with their bars."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from lightning_ssl.base.checks import require


@dataclass(frozen=True)
class Bar:
    """One line of a table: a measured figure and the bar that it must reach.

    name      what is measured, with its unit
    measured  the figure
    bar       the figure to reach; None: the figure is only reported
    detail    the raw figures
    at_least  the bar is a lower bound; False: an upper bound
    """

    name: str
    measured: float
    bar: float | None
    detail: str
    at_least: bool = True

    @property
    def reached(self) -> bool:
        if self.bar is None:
            return True
        return self.measured >= self.bar if self.at_least else self.measured <= self.bar

    def __str__(self) -> str:
        verdict = ""
        if self.bar is not None:
            verdict = f"{'≥' if self.at_least else '≤'} {self.bar:<5g} {'reached' if self.reached else 'MISSED'}"
        return f"{self.name:<62} {self.measured:7.2f}  {verdict:<16} {self.detail}"


def require_new(json: str | None) -> None:
    """Refuse, before the work, a file that exists or cannot be written."""
    if json is not None:
        is_new = not os.path.lexists(json) and Path(json).absolute().parent.is_dir()
        require(is_new, "json", json, "a new file in a folder that exists")


def conclude(bars: Sequence[Bar], file: str | None) -> int:
    """Print how many bars are reached, write the figures to a JSON file if asked, and return the exit code."""
    if file is not None:
        Path(file).write_text(json.dumps([asdict(bar) | {"reached": bar.reached} for bar in bars], indent=1) + "\n")
    missed = sum(not bar.reached for bar in bars)
    threads, version = torch.get_num_threads(), torch.__version__
    print(f"{len(bars) - missed} of {len(bars)} bars reached, {threads} threads, torch {version}")
    return 1 if missed else 0


def seconds(run: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def seconds_in_turns(contenders: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """The times of each contender. They take turns, so other work on the machine slows all of them."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in contenders.items():
            times[name].append(seconds(run))
    return times


def median_seconds(contenders: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median time of each contender."""
    return {name: statistics.median(values) for name, values in seconds_in_turns(contenders, repeats).items()}
