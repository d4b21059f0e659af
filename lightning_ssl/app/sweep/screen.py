"""The output of a sweep: a live table in a terminal, one line per event elsewhere."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lightning_ssl.app.runs import RunFolder
from lightning_ssl.app.runs.panels import RESULTS
from lightning_ssl.app.runs.run_record import read_record
from lightning_ssl.app.runs.small_files import as_mapping
from lightning_ssl.app.runs.status import BROKEN
from lightning_ssl.app.sweep.plan import SEED, Plan, any_fit_flags
from lightning_ssl.app.sweep.state import UNFINISHED, State, Trial
from lightning_ssl.base.untrusted import printable

MAX_RANKED = 10  # rows of the table for trials that have ended, the best first

ACCURACIES = {metric.key for metric in RESULTS.values()}

NO_LIMIT = 10**9  # the limit of `--status` for a search without --count and run_cap


class Screen:
    """Prints the progress of a sweep. The live table disappears when the context ends."""

    def __init__(self, plan: Plan, folder: Path, workers: int, console: Console | None = None) -> None:
        self.plan, self.folder, self.workers = plan, folder, workers
        self.console = console or Console(highlight=False, soft_wrap=True)
        self.live: Live | None = None
        self.epochs: dict[str, int] = {}  # epochs of each trial, by its configuration

    def __enter__(self) -> Screen:
        self.print_line(f"sweep {self.plan.name}: {self.plan.limit} trials in {self.folder}, {self.workers} at a time")
        if self.console.is_terminal:
            self.live = Live(console=self.console, auto_refresh=False, transient=True)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            with self.ignore_closed_output():
                self.live.stop()

    @contextmanager
    def ignore_closed_output(self) -> Iterator[None]:
        """Continue without output if the terminal or the pipe has been closed."""
        try:
            yield
        except (OSError, SystemExit):  # rich raises SystemExit for a broken pipe
            self.live, self.console = None, Console(file=io.StringIO())

    def print_line(self, line: str) -> None:
        with self.ignore_closed_output():
            self.console.print(printable(line), markup=False)

    def trial_started(self, row: Trial) -> None:
        if self.live is None:
            self.print_line(f"[{row.number}/{self.plan.limit}] {row.id} {'resumes' if row.attempt else 'starts'}")

    def trial_ended(self, row: Trial) -> None:
        if self.live is None or row.status == "failed":
            self.print_line(f"[{row.number}/{self.plan.limit}] {row.id} {result_line(self.plan, row)}")

    def update(self, rows: list[Trial]) -> None:
        """Redraw the live table: the running trials, then the best of the others."""
        if self.live is None:
            return
        table = new_table(self.plan)
        for row in (row for row in rows if row.status == "running"):
            elapsed = time.time() - (row.started_at or time.time())
            value = RunFolder(self.folder / row.id).last_value(self.plan.metric)
            table.add_row(*table_cells(replace(row, value=value, seconds=elapsed), *self.progress(row)))
        add_ranked(table, self.plan, rows, style="dim")
        with self.ignore_closed_output():
            self.live.update(Group(plain(progress_line(self.plan, rows, self.workers)), table), refresh=True)

    def progress(self, row: Trial) -> tuple[str, str]:
        """The epoch of a running trial, such as 3/10, and the time left; empty where its files do not tell them."""
        run = RunFolder(self.folder / row.id)
        if row.id not in self.epochs and (epochs := planned_epochs(run)):
            self.epochs[row.id] = epochs
        planned = self.epochs.get(row.id)
        if planned is None:
            return "", ""
        summary = run.summary()
        done, duration = epochs_done(summary), summary.get("duration")
        epoch = f"{min(done + 1, planned)}/{planned}"
        if not done or not isinstance(duration, (int, float)):
            return epoch, ""
        since = time.time() - (run.path / "summary.json").stat().st_mtime  # it is written at the end of each epoch
        return epoch, format_duration(max(0.0, duration / done * (planned - done) - since))

    def print_summary(self, rows: list[Trial], interrupted: bool) -> int:
        """Print failed and broken trials, the best ones and the progress; return the exit code of the command."""
        rows = [checked(self.plan, self.folder, row) for row in rows]
        for row in rows:
            if row.status in ("failed", BROKEN) or (row.status == "interrupted" and row.error):
                self.print_line(f"{row.status}: {row.id}: {row.error} (see {self.folder / row.id / 'log.txt'})")
        self.print_line(progress_line(self.plan, rows, self.workers))
        if best := ranked(self.plan, rows):
            table = new_table(self.plan)
            add_ranked(table, self.plan, rows)
            with self.ignore_closed_output():
                self.console.print(table)
            self.print_line(best_line(self.plan, self.folder, best))
        elif self.plan.metric and any(row.status == "finished" for row in rows):
            logged = sorted({name for row in rows for name in RunFolder(self.folder / row.id).logged_metrics()})
            names = ", ".join(logged) or "none"
            self.print_line(f"no trial logged the metric {self.plan.metric!r}; logged metrics: {names}")
        if interrupted:
            self.print_line("stopped; run the same command to resume")
            return 130
        if killed := [row for row in rows if row.status in UNFINISHED]:
            self.print_line(f"{len(killed)} killed; run the same command to resume")
        return 1 if killed or any(row.status in ("failed", BROKEN) for row in rows) else 0


# -- text -------------------------------------------------------------------------------------------------------------


def result_line(plan: Plan, row: Trial) -> str:
    """Format how a trial ended: its status, its duration, and its value or its error."""
    text = f"{row.status} after {format_duration(row.seconds)}"
    if row.status in ("failed", BROKEN):
        return f"{text}: {row.error}"
    return f"{text}: {plan.metric}={row.value:.6g}" if row.value is not None else text


def new_table(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("trial", overflow="fold")  # the names are long: on a narrow terminal they take a second line
    table.add_column("status", no_wrap=True)
    for title in (plan.metric or "", "time", "epoch", "left"):
        table.add_column(plain(title), justify="right", no_wrap=True)
    return table


def table_cells(row: Trial, *progress: str) -> tuple[Text, ...]:
    number = "" if row.value is None else f"{row.value:.4f}"
    return tuple(map(plain, (row.id, row.status, number, format_duration(row.seconds), *progress)))


def add_ranked(table: Table, plan: Plan, rows: Iterable[Trial], style: str | None = None) -> None:
    """Add the best of the trials that have ended."""
    for row in ranked(plan, rows)[:MAX_RANKED]:
        table.add_row(*table_cells(row), style=style)


def plain(text: str) -> Text:
    """Text from a sweep file or a run folder for a table. rich reads a string as markup: `m[/x]` is an error."""
    return Text(printable(text))


def planned_epochs(run: RunFolder) -> int | None:
    """`trainer.max_epochs` of a run; None before its configuration is written, or if it has no limit."""
    epochs = as_mapping(run.config().get("trainer")).get("max_epochs")
    return epochs if isinstance(epochs, int) and epochs > 0 else None


def epochs_done(summary: dict[str, Any]) -> int:
    """Complete epochs of a run. `epoch` of summary.json is the index of the last one, and 0 before the first step."""
    epoch, step = summary.get("epoch"), summary.get("step")
    return epoch + 1 if isinstance(epoch, int) and isinstance(step, int) and step > 0 else 0


def ranked(plan: Plan, rows: Iterable[Trial]) -> list[Trial]:
    """Sort the trials that have ended with a value, the best first."""
    valued = [row for row in rows if row.status in ("finished", "stopped") and row.value is not None]
    return sorted(valued, key=lambda row: -row.value if plan.maximize else row.value)  # type: ignore[operator, arg-type, return-value]


def ranked_groups(plan: Plan, rows: Iterable[Trial]) -> list[tuple[str, float, list[Trial]]]:
    """Group the trials that differ only in their seed: name, mean and trials of each group, the best mean first.

    A group of one trial has the name of the trial.
    """
    groups: dict[str, list[Trial]] = {}
    for row in ranked(plan, rows):
        groups.setdefault(plan.experiment(row.parameters), []).append(row)
    found = []
    for trials in groups.values():
        parameters = {key: value for key, value in trials[0].parameters.items() if key != SEED}
        name = trials[0].id if len(trials) == 1 else plan.words_of(parameters) or plan.name
        found.append((name, fmean(row.value for row in trials if row.value is not None), trials))
    return sorted(found, key=lambda group: -group[1] if plan.maximize else group[1])


def best_line(plan: Plan, folder: Path, rows: Iterable[Trial]) -> str:
    """Name the group with the best mean over seeds, and say if it was chosen on test images."""
    groups = ranked_groups(plan, rows)
    name, mean, trials = groups[0]
    over = f"mean of {len(trials)} seeds" if len(trials) > 1 else str(folder / name)
    line = f"best: {name}  {plan.metric}={mean:.6g}  ({over})"
    settings = as_mapping(RunFolder(folder / trials[0].id).config().get("data"))
    on_test_images = plan.metric in ACCURACIES and bool(settings) and not settings.get("holdout")
    return f"{line}, chosen on test images (no data.holdout)" if len(groups) > 1 and on_test_images else line


def progress_line(plan: Plan, rows: Sequence[Trial], workers: int) -> str:
    """Format the number of trials per status, the best trial and the time left."""
    statuses = ("running", "finished", "stopped", "failed", BROKEN)
    count = {status: sum(row.status == status for row in rows) for status in statuses}
    parts = [f"{plan.name}: {count['finished']} of {plan.limit} finished", f"{count['running']} running"]
    parts += [f"{count[status]} {status}" for status in statuses[2:] if count[status]]
    if groups := ranked_groups(plan, rows):
        name, mean, _ = groups[0]
        parts.append(f"best {name} {mean:.4f}")
    left = time_left(plan, rows, workers)
    return " · ".join([*parts, f"{format_duration(left)} left"] if left else parts)


def time_left(plan: Plan, rows: Sequence[Trial], workers: int) -> float | None:
    """Estimate the seconds left from the mean duration of finished trials; None before one has finished."""
    durations = [row.seconds for row in rows if row.status == "finished"]
    if not durations:
        return None
    mean = fmean(durations)
    elapsed = [time.time() - row.started_at for row in rows if row.status == "running" and row.started_at]
    to_start = plan.limit - sum(row.status in ("running", "finished", "stopped", "failed", BROKEN) for row in rows)
    work = to_start * mean + sum(max(0.0, mean - seconds) for seconds in elapsed)
    return work / min(workers, max(1, to_start + len(elapsed)))


def format_duration(seconds: float | None) -> str:
    minutes, rest = divmod(int(seconds or 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def checked(plan: Plan, folder: Path, row: Trial) -> Trial:
    """Return the trial with the status "broken" if its files cannot be read, as in the report.

    Failed is a trial that ended with an error, and this status remains. A command other than `lightning-ssl fit` does
    not have to write a run folder.
    """
    command = plan.command_for(row.parameters, folder / row.id / "parameters.json")
    if row.status != "finished" or any_fit_flags(command) is None:
        return row
    record = read_record(folder / row.id)
    if record.status != BROKEN:
        return row
    return replace(row, status=BROKEN, value=None, error="; ".join(record.problems) or "its files cannot be read")


# -- without an engine ------------------------------------------------------------------------------------------------


def print_trials(trials: Iterable[tuple[Trial, str]]) -> None:
    """Print each trial that would run now, and its command (`--dry-run`)."""
    for row, command in trials:
        print(printable(f"{row.id}\n    {command}"))


def print_status(plan: Plan, folder: Path) -> None:
    """Print the progress of a sweep and the status of each trial (`--status`). An engine may be running."""
    rows: list[Trial] = []
    if (folder / "sweep.db").exists():
        with State(folder / "sweep.db") as state:
            rows = [checked(plan, folder, row) for row in state.trials()]
    if plan.limit == NO_LIMIT:
        plan = replace(plan, limit=len(rows))
    print(printable(progress_line(plan, rows, 1)))
    for row in rows:
        result = result_line(plan, row) if row.status not in UNFINISHED else row.status
        print(printable(f"  {row.id}  {result}"))
