"""The loop of a sweep: draw a trial, start its process, watch it, write down how it ended.

Whatever happens to the engine, the same command continues: every trial is either closed (finished, stopped, failed) or
open, and an open one is started again with its own parameters in its own run folder, where `lightning-ssl fit` resumes.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import re
import shlex
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from lightning_ssl.runs import Run
from lightning_ssl.sweep import outcome, trial
from lightning_ssl.sweep.plan import Parameters, Plan, fits
from lightning_ssl.sweep.screen import Screen
from lightning_ssl.sweep.state import OPEN, State, Trial

POLL = 0.5
PRUNE_EVERY = 2.0
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGHUP)


class Running(NamedTuple):
    """A trial's process, and which of the workers it is."""

    process: Any
    slot: int

    def kill(self) -> None:
        trial.kill_group(self.process.pid)
        self.process.kill()


class Engine:
    """Runs the trials of a plan, a few at a time, in processes of their own."""

    def __init__(
        self, plan: Plan, folder: Path, workers: int = 1, gpus: Sequence[str] = (), retry: bool = False
    ) -> None:
        self.plan, self.folder, self.workers, self.gpus, self.retry = plan, folder, workers, list(gpus), retry
        self.running: dict[str, Running] = {}
        self.histories: dict[str, list[float]] = {}
        self.interrupts = 0  # how often Ctrl-C was pressed
        self.pruned_at = 0.0
        self.deadlines: dict[str, float] = {}  # until when a trial that was given up may take its leave
        self.context: Any = multiprocessing.get_context("forkserver")

    def run(self) -> int:
        """The exit code: 0 when every trial went well, 1 when one failed, 130 when stopped."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder / "sweep.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise ValueError(f"{self.folder}: another `lightning-ssl sweep` is at work here") from error
        try:
            with State(self.folder / "sweep.db") as self.state, Heeding(self):
                check_identity(self.state, self.plan, self.folder)
                self.state.set_note("identity", self.plan.identity())
                self.take_over()
                with Screen(self.plan, self.folder, self.workers) as self.screen:
                    try:
                        self.loop()
                    except BaseException:  # whatever it is, no trial is left to itself
                        self.interrupts += 1
                        self.end_all()
                        raise
                return self.screen.conclude(self.state.trials(), interrupted=self.interrupts > 0)
        finally:
            lock.release()

    # -- an engine that was here before -------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Close what ended unseen, end processes that were left alone, and open what has to run again."""
        for row in self.state.trials():
            while row.status in OPEN:
                if row.pid is not None:
                    trial.end(row.pid, row.birth)
                if self.state.take_over(row):
                    row = self.state.trial(row.id)
                    break
                row = self.state.trial(row.id)  # its process has begun since
            if row.status == "running":
                self.close(row, row.exit)
            elif row.status == "failed" and self.retry:
                self.state.set(row.id, status="pending", error=None)

    # -- the loop -----------------------------------------------------------------------------------------------------

    def loop(self) -> None:
        waiting = [row for row in self.state.trials() if row.status in OPEN]
        while True:
            self.harvest()
            if self.interrupts:
                self.end_all()
            rows = self.state.trials()
            while not self.interrupts and len(self.running) < self.workers:
                row = waiting.pop(0) if waiting else self.draw(rows)
                if row is None:
                    break
                self.start(row)
                rows = self.state.trials()
            if not self.running:
                return
            if self.plan.prunes and time.monotonic() - self.pruned_at > PRUNE_EVERY:
                self.prune(rows)
            self.screen.show(rows)
            wait([entry.process.sentinel for entry in self.running.values()], timeout=POLL)

    def draw(self, rows: list[Trial]) -> Trial | None:
        """A trial that has not been before, or None where the sweep has all of its own."""
        if any(self.plan.reached(row.value) for row in rows):
            return None
        if self.plan.method == "bayes":
            self.read_histories(rows)
        parameters = self.plan.draw(rows, self.histories)
        if parameters is None:
            return None
        number = len(rows) + 1
        return self.state.add(number, trial_id(self.plan, number, parameters), parameters)

    def start(self, row: Trial) -> None:
        slot = min(set(range(self.workers)) - {entry.slot for entry in self.running.values()})
        words, flags = command_of(self.plan, self.folder, row)
        environment = dict(os.environ)  # the parent of all trials has that of its own beginning
        folder = self.folder.absolute()
        environment |= {"LIGHTNING_SSL_TRIAL": str(folder / row.id), "LIGHTNING_SSL_SWEEP": self.plan.name}
        if self.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self.gpus[slot % len(self.gpus)]
        if not self.running:
            self.context.set_forkserver_preload(trial.PRELOAD if flags is None else trial.PRELOAD_FIT)
        job = trial.Job(
            state=folder / "sweep.db",
            id=row.id,
            attempt=self.state.hand_out(row),
            folder=folder / row.id,
            words=words,
            flags=flags,
            cwd=Path.cwd(),
            parameters=json.dumps(row.parameters),
            environment=environment,
        )
        process = self.context.Process(target=trial.begin, args=(job,), name=row.id)
        self.screen.starts(row)
        try:
            process.start()
        except (EOFError, ConnectionError) as error:
            raise ValueError(f"{row.id}: the parent of all trials has ended; does `lightning-ssl fit` work?") from error
        self.running[row.id] = Running(process, slot)

    def harvest(self) -> None:
        """Close the trials whose process is gone."""
        for id, entry in list(self.running.items()):
            if entry.process.exitcode is None:
                continue
            del self.running[id]
            row = self.state.trial(id)
            if row.exit is None:  # it was killed, perhaps alone
                trial.kill_group(entry.process.pid)
            self.close(row, row.exit if row.exit is not None else entry.process.exitcode, seen=True)
            self.screen.ends(self.state.trial(id))

    def close(self, row: Trial, exit: int | None, seen: bool = False) -> None:
        """Write down how a trial ended; None is the exit of a process that had no time to say."""
        folder = self.folder / row.id
        self.histories[row.id] = outcome.history(folder, self.plan.metric)
        said = outcome.summary(folder).get("status")
        status = verdict(exit, said, given_up=row.stop, interrupted=self.interrupts > 0, seen=seen)
        error = outcome.error_line(folder, exit or 0) if status == "failed" else None
        # A process that was killed could not say so itself, and would be taken for one at work.
        if said == "running" and status == "failed":
            Run(folder).update_summary(status="failed", error=error)
        elif said in ("running", "interrupted") and status == "stopped":
            Run(folder).update_summary(status="interrupted", error="stopped: behind the other trials of its sweep")
        self.state.set(
            row.id,
            status=status,
            exit=exit,
            pid=None,
            value=outcome.value(folder, self.plan.metric, self.histories[row.id]),
            error=error,
            seconds=row.seconds + (max(0.0, time.time() - row.started) if seen and row.started else 0.0),
        )

    # -- giving trials up ---------------------------------------------------------------------------------------------

    def prune(self, rows: list[Trial]) -> None:
        """Hyperband: end the running trials that are behind the others at the same point."""
        self.pruned_at = time.monotonic()
        self.read_histories(rows)
        for id in self.plan.to_stop(rows, self.histories):
            row = self.state.trial(id)
            if row.pid is not None and not row.stop:
                self.state.set(id, stop=True)
                self.screen.says(f"{id}: behind the others, stopping it")
                self.deadlines[id] = time.monotonic() + trial.GRACE
                trial.send(row.pid, signal.SIGTERM)
        for id, entry in self.running.items():
            if time.monotonic() > self.deadlines.get(id, math.inf):
                entry.kill()

    def read_histories(self, rows: list[Trial]) -> None:
        for row in rows:
            if row.id not in self.histories or row.id in self.running:
                self.histories[row.id] = outcome.history(self.folder / row.id, self.plan.metric)

    def end_all(self) -> None:
        """Ctrl-C: the running trials may save their state; a second one ends them at once."""
        if not self.running:
            return
        for entry in self.running.values():
            trial.send(entry.process.pid, signal.SIGTERM)
        self.screen.says("stopping: the running trials save their state (once more to end them at once)")
        deadline = time.monotonic() + trial.GRACE
        while self.running:
            wait([entry.process.sentinel for entry in self.running.values()], timeout=POLL)
            if self.interrupts > 1 or time.monotonic() > deadline:
                for entry in self.running.values():
                    entry.kill()
            self.harvest()


class Heeding:
    """Signals are counted while the engine is at work, and acted upon where it is in order."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self.before[number] = signal.signal(number, self.count)

    def count(self, *_: object) -> None:
        self.engine.interrupts += 1

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def verdict(exit: int | None, said: str | None, given_up: bool, interrupted: bool, seen: bool) -> str:
    """How a trial ended, by its exit and what its summary said.

    An exit of None is that of a process that had no time to say. `seen`: this engine was there, and did not ask for it.
    """
    cut_off = exit is None or exit < 0 or exit - 128 in SIGNALS
    if (exit == 0 and said not in ("interrupted", "failed")) or (cut_off and said == "finished"):
        return "finished"
    if given_up:
        return "stopped"
    # A summary may be that of an attempt before this one, which then fails: it is not believed alone.
    if interrupted or (cut_off and not seen) or (said == "interrupted" and (cut_off or exit == 0)):
        return "interrupted"
    return "failed"


# -- a trial's name and command ---------------------------------------------------------------------------------------


def trial_id(plan: Plan, number: int, parameters: Parameters) -> str:
    """Its number, and what tells it from the others: `003-direct-seed_everything=1`."""
    searched = [key for key, entry in plan.config["parameters"].items() if set(entry) - {"distribution", "value"}]
    marks = []
    for key in searched:
        value = parameters[key]
        if isinstance(value, str) and value.endswith((".yaml", ".yml")):
            marks.append(Path(value).stem)
        else:
            shown = f"{value:.4g}" if isinstance(value, float) else str(value)
            marks.append(f"{key.rpartition('.')[2]}={shown}")
    slug = re.sub(r"[^A-Za-z0-9_.=+-]+", "_", "-".join(marks))[:80].rstrip("-_.")
    return f"{number:03d}-{slug}" if slug else f"{number:03d}"


def command_of(plan: Plan, folder: Path, row: Trial) -> tuple[list[str], list[str] | None]:
    """A trial's command, and its flags where it is a `lightning-ssl fit`, which is then told where it lives."""
    words = plan.words(row.parameters, folder / row.id / "parameters.json")
    flags = fits(words)
    if flags is None:
        return words, None
    told = ["--runs", str(folder), "--name", row.id, "--resume", "auto"]
    if not any(word.partition("=")[0] == "--group" for word in flags):
        told += ["--group", plan.name]
    return [*words, *told], [*flags, *told]


def check_identity(state: State, plan: Plan, folder: Path) -> None:
    """Refuse to go on with a sweep by another file: two sweeps in one folder would be neither."""
    known, asked = state.note("identity"), json.loads(json.dumps(plan.identity()))
    changed = [key for key in asked if known is not None and known.get(key) != asked[key]]
    if changed:
        raise ValueError(
            f"{folder}: the sweep file has changed since this sweep began ({', '.join(changed)}); "
            "put it back, or begin another sweep with --name"
        )


def preview(plan: Plan, folder: Path) -> Iterator[tuple[Trial, str]]:
    """The trials that would run now, and their commands."""
    database = folder / "sweep.db"
    rows: list[Trial] = []
    if database.exists():
        with State(database) as state:
            check_identity(state, plan, folder)
            rows = state.trials()
    shown = [row for row in rows if row.status in OPEN]
    while (parameters := plan.draw(rows, {})) is not None:
        number = len(rows) + 1
        rows.append(Trial(number, trial_id(plan, number, parameters), parameters))
        shown.append(rows[-1])
    for row in shown:
        yield row, shlex.join(command_of(plan, folder, row)[0])
