"""The loop of a sweep: choose a trial, start its process, watch it, record how it ended.

The same command resumes a sweep, however the engine ended. A trial is final (finished, stopped, failed) or unfinished.
An unfinished trial starts again with the same parameters in the same run folder, where `lightning-ssl fit` resumes.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType
from typing import Any

from lightning_ssl.app.launch.noted_signals import NotedSignals
from lightning_ssl.app.runs import RunFolder
from lightning_ssl.app.runs.status import Exit, signal_of, status_of
from lightning_ssl.app.sweep import trial
from lightning_ssl.app.sweep.plan import Plan, any_fit_flags, fit_flags
from lightning_ssl.app.sweep.screen import Screen
from lightning_ssl.app.sweep.state import UNFINISHED, State, Trial
from lightning_ssl.app.sweep.wandb_sweeps import Parameters
from lightning_ssl.base.checks import UserError
from lightning_ssl.base.files import locked

POLL_INTERVAL = 0.5  # seconds
PRUNE_INTERVAL = 2.0  # seconds
BELOW_CUT_OFF = "stopped by hyperband: below the cut-off"


@dataclass
class RunningTrial:
    """The process of a trial, and the index of its worker."""

    process: Any
    slot: int
    folder: Path
    kill_at: float = math.inf  # the end of the grace period of a trial that was asked to stop

    @property
    def lost_its_parent(self) -> bool:
        """Whether the parent of all trials was killed, and this trial still runs.

        Some seconds after its end a program of the trial, in a session of its own, can still run. It is not waited for.
        """
        in_time = time.monotonic() < self.kill_at + POLL_INTERVAL
        return self.process.exitcode == trial.PARENT_LOST and in_time and trial.is_running(self.folder)

    @property
    def is_alive(self) -> bool:
        return self.process.exitcode is None or self.lost_its_parent

    def stop(self) -> None:
        """Send SIGTERM once. `kill_overdue` ends a trial that still runs after the grace period."""
        if self.kill_at == math.inf:
            self.kill_at = time.monotonic() + trial.GRACE_PERIOD
            trial.terminate(self.process.pid)

    def kill_overdue(self) -> None:
        if time.monotonic() > self.kill_at:
            trial.kill_group(self.process.pid)
            self.process.kill()


@dataclass
class Engine:
    """Runs the trials of a plan in separate processes, `workers` at a time.

    ended   is called with the run folder of each trial that has ended
    """

    plan: Plan
    folder: Path
    workers: int = 1
    gpus: Sequence[str] = ()
    retry: bool = False
    ended: Callable[[Path], None] | None = None

    def __post_init__(self) -> None:
        self.running: dict[str, RunningTrial] = {}
        self.histories: dict[str, list[float]] = {}  # values of the metric, per trial
        self.signals = SignalCounter()
        self.pruned_at = 0.0
        self.context: Any = multiprocessing.get_context("forkserver")

    def run(self) -> int:
        """Run or resume the sweep. The exit code is 0 if no trial failed, 1 if one failed, 130 if interrupted."""
        self.folder.mkdir(parents=True, exist_ok=True)
        running = f"{self.folder}: another `lightning-ssl sweep` is running in this folder"
        lock = locked(self.folder / "sweep.lock", running)
        with State(self.folder / "sweep.db") as self.state, lock, self.signals:
            check_settings(self.state, self.plan, self.folder)
            self.state.set_settings(self.plan.fixed_settings())
            self.recover()
            with Screen(self.plan, self.folder, self.workers) as self.screen:
                try:
                    self.run_trials()
                except BaseException:  # no trial continues without an engine
                    self.signals.count += 1
                    while any(entry.is_alive for entry in self.running.values()):
                        self.stop_all()
                        self.wait_for_exit()
                    with contextlib.suppress(ValueError, OSError):  # the state cannot be written, as on a full disk
                        self.collect_exited()
                    raise
            return self.screen.print_summary(self.state.trials(), interrupted=self.signals.count > 0)

    def recover(self) -> None:
        """Record the trials of an earlier engine that have ended. Those that still run end with that engine."""
        for row in self.state.trials():
            if row.status == "running":
                trial.wait_for_end(self.folder / row.id)
                row = self.state.trial(row.id)
                self.record_end(row, row.exit_code)
            elif row.status == "failed" and self.retry:
                self.state.set(row.id, status="pending", error=None)

    def run_trials(self) -> None:
        """Run unfinished trials first, then new ones, until none is left or a signal arrives."""
        unfinished = [row for row in self.state.trials() if row.status in UNFINISHED]
        while True:
            self.state.require_file()
            self.collect_exited()
            if self.signals.count:
                self.stop_all()
            rows = self.state.trials()
            while not self.signals.count and len(self.running) < self.workers:
                row = unfinished.pop(0) if unfinished else self.next_trial(rows)
                if row is None:
                    break
                self.start(row)
                rows = self.state.trials()
            if not self.running:
                return
            if "early_terminate" in self.plan.config and time.monotonic() - self.pruned_at > PRUNE_INTERVAL:
                self.prune(rows)
            self.screen.update(rows)
            self.wait_for_exit()

    def wait_for_exit(self) -> None:
        """Wait until a trial exits, but no longer than POLL_INTERVAL. Kill those whose grace period is over."""
        running = [entry.process for entry in self.running.values() if entry.process.exitcode is None]
        wait([process.sentinel for process in running], timeout=POLL_INTERVAL)
        for entry in self.running.values():
            entry.kill_overdue()

    # -- starting a trial ---------------------------------------------------------------------------------------------

    def next_trial(self, rows: list[Trial]) -> Trial | None:
        """Add a new trial to the state; None when the sweep has no more."""
        if any(self.plan.target_reached(row.value) for row in rows):
            return None
        if self.plan.method == "bayes":
            self.read_histories(rows)
        parameters = self.plan.next_parameters(rows, self.histories)
        if parameters is None:
            return None
        number = len(rows) + 1
        return self.state.add(number, trial_id(self.plan, number, parameters), parameters)

    def start(self, row: Trial) -> None:
        """Start the process of a trial. It is in the state before it starts, so a later engine finds it."""
        folder = self.folder.absolute() / row.id
        trial.wait_for_end(folder)
        command = trial_command(self.plan, self.folder, row)
        flags = fit_flags(command)
        if not self.running:
            self.context.set_forkserver_preload([*trial.PRELOAD, *([] if flags is None else trial.PRELOAD_FIT)])
        slot = min(set(range(self.workers)) - {entry.slot for entry in self.running.values()})
        # The forkserver keeps the environment of its own start, so each trial gets the current one.
        environment = {**os.environ, "LIGHTNING_SSL_TRIAL": str(folder), "LIGHTNING_SSL_SWEEP": self.plan.name}
        if self.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self.gpus[slot % len(self.gpus)]
        self.screen.trial_started(row)
        attempt = row.attempt + 1
        self.state.set(row.id, status="running", attempt=attempt, started_at=time.time(), exit_code=None, error=None)
        arguments = (folder, attempt, command, flags, row.parameters, environment, Path.cwd())
        process = self.context.Process(target=trial.run_trial, args=arguments, name=row.id)
        try:
            process.start()  # it starts the forkserver again if that has ended
        except (EOFError, ConnectionError) as error:  # the forkserver was killed at this moment
            raise UserError(f"{row.id}: the parent of the trials ended; the same command resumes the sweep") from error
        self.running[row.id] = RunningTrial(process, slot, folder)
        self.state.set(row.id, pid=process.pid)

    # -- the end of a trial -------------------------------------------------------------------------------------------

    def collect_exited(self) -> None:
        """Record the end of each trial whose process has exited."""
        for id, entry in list(self.running.items()):
            if entry.lost_its_parent:
                entry.stop()
            if entry.is_alive:
                continue
            row = self.state.trial(id)
            exit_code = row.exit_code
            if exit_code is None:  # the trial was killed, and its programs may still run
                trial.kill_group(entry.process.pid)
                exit_code = None if entry.process.exitcode == trial.PARENT_LOST else entry.process.exitcode
            del self.running[id]
            self.record_end(row, exit_code, observed=True)
            self.screen.trial_ended(self.state.trial(id))
            if self.ended is not None and not self.signals.count:
                self.ended(self.folder / id)

    def record_end(self, row: Trial, exit_code: int | None, observed: bool = False) -> None:
        """Write how a trial ended into its run folder, then status and result to the state.

        exit_code  see `Exit`
        observed   this engine saw the process exit; False for a trial of an earlier engine
        """
        run = RunFolder(self.folder / row.id)
        self.histories[row.id] = run.history(self.plan.metric)
        summary = run.summary()
        status = status_of(summary, end=Exit(exit_code, row.pruned, self.signals.count > 0))
        error = run.error_line(exit_code or 0) if status == "failed" else None
        if status == "interrupted" and observed and not self.signals.count:
            error = "lost its parent process" if exit_code is None else f"ended by signal {signal_of(exit_code)}"
        if summary.get("status") != status and run.path.is_dir():  # a killed process leaves "running"
            run.update_summary(status=status, error=error or (BELOW_CUT_OFF if status == "stopped" else None))
        self.state.set(
            row.id,
            status=status,
            exit_code=exit_code,
            pid=None,
            value=run.last_value(self.plan.metric),
            error=error,
            seconds=row.seconds + (max(0.0, time.time() - row.started_at) if observed and row.started_at else 0.0),
        )

    # -- stopping trials ----------------------------------------------------------------------------------------------

    def prune(self, rows: list[Trial]) -> None:
        """Stop the running trials below the hyperband cut-off."""
        self.pruned_at = time.monotonic()
        self.read_histories(rows)
        for id in self.plan.trials_to_prune(rows, self.histories):
            if not self.state.trial(id).pruned:
                self.state.set(id, pruned=True)
                self.screen.print_line(f"{id}: below the hyperband cut-off, stopping it")
                self.running[id].stop()

    def read_histories(self, rows: list[Trial]) -> None:
        """Read the metric's values of running trials, and of trials not read before."""
        for row in rows:
            if row.id not in self.histories or row.id in self.running:
                self.histories[row.id] = RunFolder(self.folder / row.id).history(self.plan.metric)

    def stop_all(self) -> None:
        """Ask the running trials to stop. A second signal kills them."""
        if any(entry.kill_at == math.inf for entry in self.running.values()):
            self.screen.print_line("stopping: the running trials save their state (press Ctrl-C again to kill them)")
        for entry in self.running.values():
            entry.stop()
            if self.signals.count > 1:
                entry.kill_at = 0.0


class SignalCounter(NotedSignals):
    """Counts the signals that ask a sweep to stop. The engine checks the count once per loop."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def note(self, number: int, frame: FrameType | None = None) -> None:
        self.count += 1


# -- a trial's id and command -----------------------------------------------------------------------------------------


def trial_id(plan: Plan, number: int, parameters: Parameters) -> str:
    """Name a trial by its number and the parameters that vary: `003-direct-seed_everything=1`."""
    slug = re.sub(r"[^A-Za-z0-9_.=+-]+", "_", plan.words_of(parameters))[:80].rstrip("-_.")
    return f"{number:03d}-{slug}" if slug else f"{number:03d}"


def trial_command(plan: Plan, folder: Path, row: Trial) -> list[str]:
    """Build a trial's command. `lightning-ssl fit`, also after a launcher, gets its run folder as flags."""
    command = plan.command_for(row.parameters, folder / row.id / "parameters.json")
    given = any_fit_flags(command)
    if given is None:
        return command
    group = [] if any(word.partition("=")[0] == "--group" for word in given) else ["--group", plan.name]
    return [*command, "--runs", str(folder), "--name", row.id, "--resume", "auto", *group]


def check_settings(state: State, plan: Plan, folder: Path) -> None:
    """Refuse to resume a sweep with a changed sweep file."""
    stored, current = state.settings(), json.loads(json.dumps(plan.fixed_settings()))
    for row in state.trials():
        if row.status in UNFINISHED and not plan.allows(row.parameters):
            raise UserError(f"{state.file}: the parameters of trial {row.id} are not in the sweep file")
    if stored is None:
        return
    stored, current = plan.comparable_settings(stored), plan.comparable_settings(current)
    changed = [key for key in current if stored.get(key) != current[key]]
    if changed:
        raise UserError(
            f"{folder}: the sweep file has changed since this sweep started ({', '.join(changed)}); "
            "restore it, or start another sweep with --name"
        )


def preview(plan: Plan, folder: Path) -> Iterator[tuple[Trial, str]]:
    """Yield the trials that would run now, and their commands."""
    database = folder / "sweep.db"
    rows: list[Trial] = []
    if database.exists():
        with State(database) as state:
            check_settings(state, plan, folder)
            rows = state.trials()
    for row in rows:
        if row.status in UNFINISHED:
            yield row, shlex.join(trial_command(plan, folder, row))
    new = plan.open_cells(rows) if plan.method == "grid" else iter(lambda: plan.next_parameters(rows, {}), None)
    for parameters in new:
        number = len(rows) + 1
        rows.append(Trial(number, trial_id(plan, number, parameters), parameters))
        yield rows[-1], shlex.join(trial_command(plan, folder, rows[-1]))
