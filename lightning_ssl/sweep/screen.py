"""What one sees of a sweep: a live table in a terminal, a line per event elsewhere."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lightning_ssl.sweep import outcome
from lightning_ssl.sweep.plan import Plan
from lightning_ssl.sweep.state import OPEN, State, Trial

SHOWN = 10  # of the finished trials, the best


ENDLESS = 10**9  # trials: of a search that nobody gave an end


class Screen:
    """The live table; leaving it leaves what is on it."""

    def __init__(self, plan: Plan, folder: Path, workers: int, console: Console | None = None) -> None:
        self.plan, self.folder, self.workers = plan, folder, workers
        self.console = console or Console(highlight=False, soft_wrap=True)
        self.live: Live | None = None

    def __enter__(self) -> Screen:
        self.says(f"sweep {self.plan.name}: {self.plan.limit} trials in {self.folder}, {self.workers} at a time")
        if self.console.is_terminal:
            self.live = Live(console=self.console, auto_refresh=False, transient=True)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            with self.unbroken():
                self.live.stop()

    @contextmanager
    def unbroken(self) -> Iterator[None]:
        """A terminal that is gone, or a pipe that nobody reads any more, does not end a sweep: it goes on unseen."""
        try:
            yield
        except (OSError, SystemExit):  # rich exits at a broken pipe
            self.live, self.console = None, Console(file=io.StringIO())

    def says(self, line: str) -> None:
        with self.unbroken():
            self.console.print(line, markup=False)

    def starts(self, row: Trial) -> None:
        if self.live is None:
            self.says(f"[{row.number}/{self.plan.limit}] {row.id} {'continues' if row.attempt else 'starts'}")

    def ends(self, row: Trial) -> None:
        if self.live is None or row.status == "failed":
            self.says(f"[{row.number}/{self.plan.limit}] {row.id} {sentence(self.plan, row)}")

    def show(self, rows: list[Trial]) -> None:
        """Draw the table anew."""
        if self.live is None:
            return
        running = [row for row in rows if row.status == "running"]
        table = new_table(self.plan)
        for row in running:
            table.add_row(*cells(row, self.running_value(row), time.time() - (row.started or time.time())))
        for row in ranked(self.plan, rows)[:SHOWN]:
            table.add_row(*cells(row, row.value, row.seconds), style="dim")
        with self.unbroken():
            self.live.update(Group(Text(headline(self.plan, rows, self.workers)), table), refresh=True)

    def running_value(self, row: Trial) -> float | None:
        folder = self.folder / row.id
        return outcome.value(folder, self.plan.metric, outcome.history(folder, self.plan.metric))

    def conclude(self, rows: list[Trial], interrupted: bool) -> int:
        """Say how it went; the exit code of the command."""
        for row in rows:
            if row.status == "failed":
                self.says(f"failed: {row.id}: {row.error} (see {self.folder / row.id / 'log.txt'})")
        self.says(headline(self.plan, rows, self.workers))
        best = ranked(self.plan, rows)
        if best:
            table = new_table(self.plan)
            for row in best[:SHOWN]:
                table.add_row(*cells(row, row.value, row.seconds))
            with self.unbroken():
                self.console.print(table)
            self.says(f"best: {best[0].id}  {self.plan.metric}={best[0].value:.6g}  ({self.folder / best[0].id})")
        elif self.plan.metric and any(row.status == "finished" for row in rows):
            seen = sorted({name for row in rows for name in outcome.metrics(self.folder / row.id)})
            self.says(f"no trial logged the metric {self.plan.metric!r}; logged were: {', '.join(seen) or 'none'}")
        if interrupted or any(row.status in OPEN for row in rows):
            self.says("stopped; the same command continues")
            return 130
        return 1 if any(row.status == "failed" for row in rows) else 0


def sentence(plan: Plan, row: Trial) -> str:
    words = f"{row.status} after {clock(row.seconds)}"
    if row.status == "failed":
        return f"{words}: {row.error}"
    return f"{words}: {plan.metric}={row.value:.6g}" if row.value is not None else words


def new_table(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("trial", "status"):
        table.add_column(title, no_wrap=True)
    for title in (plan.metric or "", "time"):
        table.add_column(title, justify="right")
    return table


def cells(row: Trial, value: float | None, seconds: float) -> tuple[str, str, str, str]:
    return row.id, row.status, "" if value is None else f"{value:.4f}", clock(seconds)


def ranked(plan: Plan, rows: Iterable[Trial]) -> list[Trial]:
    """The trials that have a value, the best first."""
    valued = [row for row in rows if row.status in ("finished", "stopped") and row.value is not None]
    return sorted(valued, key=lambda row: -row.value if plan.maximize else row.value)  # type: ignore[operator, arg-type, return-value]


def headline(plan: Plan, rows: Sequence[Trial], workers: int) -> str:
    """Running, done, failed, best so far, time left."""
    count = {
        status: sum(row.status == status for row in rows) for status in ("running", "finished", "stopped", "failed")
    }
    words = [f"{plan.name}: {count['finished']} of {plan.limit} finished", f"{count['running']} running"]
    words += [f"{count[status]} {status}" for status in ("stopped", "failed") if count[status]]
    best = ranked(plan, rows)[:1]
    if best:
        words.append(f"best {best[0].id} {best[0].value:.4f}")
    left = time_left(plan, rows, workers)
    return " · ".join([*words, f"{clock(left)} left"] if left else words)


def time_left(plan: Plan, rows: Sequence[Trial], workers: int) -> float | None:
    """As long as the trials so far took on average; None before one has finished."""
    took = [row.seconds for row in rows if row.status == "finished"]
    if not took:
        return None
    mean = fmean(took)
    running = [time.time() - row.started for row in rows if row.status == "running" and row.started]
    to_start = plan.limit - sum(row.status in ("running", "finished", "stopped", "failed") for row in rows)
    work = to_start * mean + sum(max(0.0, mean - seconds) for seconds in running)
    return work / min(workers, max(1, to_start + len(running)))


def clock(seconds: float | None) -> str:
    minutes, rest = divmod(int(seconds or 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def print_trials(trials: Iterable[tuple[Trial, str]]) -> None:
    """A dry run: every trial that would run now, and its command."""
    for row, command in trials:
        print(f"{row.id}\n    {command}")


def print_status(plan: Plan, folder: Path) -> None:
    """How far a sweep is, whether an engine is at work or not."""
    rows: list[Trial] = []
    if (folder / "sweep.db").exists():
        with State(folder / "sweep.db") as state:
            rows = state.trials()
    if plan.limit == ENDLESS:
        plan = replace(plan, limit=len(rows))
    print(headline(plan, rows, 1))
    for row in rows:
        print(f"  {row.id}  {sentence(plan, row) if row.status not in OPEN else row.status}")
