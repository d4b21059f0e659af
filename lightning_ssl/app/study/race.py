"""Rounds of runs with a look after each, until every data set is decided: `lightning-ssl sweep FILE --until decided`.

The looks are in looks.json beside sweep.db. The same command resumes after any crash: it runs what a round lacks, and
takes the looks that are not stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lightning_ssl.app.runs.looks import read_looks, write_looks
from lightning_ssl.app.runs.run_record import Reader
from lightning_ssl.app.study import rounds
from lightning_ssl.app.study.deciding import Field, RaceRun, sentence
from lightning_ssl.app.study.rounds import Rule
from lightning_ssl.app.sweep.engine import Engine
from lightning_ssl.app.sweep.plan import SEED, Plan
from lightning_ssl.app.sweep.state import UNFINISHED, Trial, recorded
from lightning_ssl.base.untrusted import printable


@dataclass
class Race:
    """A sweep whose seeds are added until it is decided."""

    plan: Plan
    folder: Path
    rule: Rule

    def __post_init__(self) -> None:
        self.looks = read_looks(self.folder)
        self.rule.require_same(self.looks, self.folder)

    def next_round(self) -> tuple[Plan, list[int]] | None:
        """The runs before the next look, with those so far, and the seeds of the look; None without a further look."""
        number = self.rule.next_look(self.looks)
        if number is None:
            return None
        field = field_of(self.plan, self.folder)
        wanted = field.wanted(self.looks, rounds.experiments(self.plan))
        seeds = field.blocks(wanted, rounds.seeds_in_order(self.plan), number)
        cells = rounds.cells_of(self.plan, wanted, seeds)
        return rounds.after(self.trials(), self.plan, cells), seeds

    def run(self, workers: int = 1, gpus: Sequence[str] = (), retry: bool = False) -> int:
        """Run or resume the race. The exit code is that of a sweep."""

        def run_trials(plan: Plan, retry: bool = False) -> int:
            """The exit code if the race cannot go on, else 0."""
            code = Engine(plan, self.folder, workers, gpus, retry).run()
            return code if code == 130 or unfinished(self.trials()) else 0

        if retry and (code := run_trials(rounds.after(self.trials(), self.plan, []), retry=True)):
            return code
        for line in (*field_of(self.plan, self.folder).changed(self.looks), *look_lines(self.folder)):
            print(printable(line))
        while (planned := self.next_round()) is not None:
            plan, seeds = planned
            rows = self.trials()
            if not unfinished(rows) and not any(plan.open_cells(rows)):
                self.look(seeds)
            elif code := run_trials(plan):
                return code
        return int(any(row.status == "failed" for row in self.trials()))

    def trials(self) -> list[Trial]:
        return rounds.trials(self.plan, self.folder)

    def look(self, seeds: list[int]) -> None:
        """Look at the runs, store what was decided, and print it."""
        field = field_of(self.plan, self.folder)
        left_out = field.left_out(self.looks)
        taken = field.look(self.looks, seeds, self.rule)
        write_looks(self.folder, [*self.looks, *taken])
        self.looks += taken
        for line in (*left_out, *look_lines(self.folder)[-len(taken) :]):
            print(printable(line), flush=True)


def look_lines(folder: Path) -> list[str]:
    """The looks of a sweep's folder in words."""
    looks = read_looks(folder)
    several = len({look.data for look in looks}) > 1
    return [printable(sentence(look, several)) for look in looks]


def field_of(plan: Plan, folder: Path) -> Field:
    """The trials of a sweep's folder."""
    reader = Reader(recorded)
    return Field.of(
        [
            RaceRun(
                reader.run(folder / row.id),
                plan.experiment(row.parameters),
                row.parameters[SEED],
                ended=row.status not in UNFINISHED,
            )
            for row in rounds.trials(plan, folder)
        ],
        plan.metric,
    )


def unfinished(trials: Sequence[Trial]) -> bool:
    return any(row.status in UNFINISHED for row in trials)
