"""The groups of the runs so far, and the look at them.

Losses are the groups of the report, so that a look and the page of the same runs agree. A look needs complete blocks:
if a run failed, its seed is replaced by a further seed for all losses. A loss with three failed runs is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from lightning_ssl.app.report.formats import list_names
from lightning_ssl.app.report.groups import Group, Grouping, accuracy
from lightning_ssl.app.report.images import images_measured
from lightning_ssl.app.runs.looks import FILE, TakenLook
from lightning_ssl.app.runs.run_record import RunRecord
from lightning_ssl.app.study.rounds import Rule, undecided
from lightning_ssl.base.checks import UserError
from lightning_ssl.comparison.estimate import LEVEL
from lightning_ssl.comparison.evalue import seeds_until_dropped
from lightning_ssl.comparison.looks import Outcome, look

MOST_FAILED = 2  # runs of a loss that is not left out
MOST_NAMES = 12  # in a line
DECIDED = ("wins", "alone", "equivalent")


class RaceRun(NamedTuple):
    """A run of a race.

    experiment  what it repeats (`Plan.experiment`)
    ended       whether it is not resumed
    """

    record: RunRecord
    experiment: str
    seed: int
    ended: bool


@dataclass(frozen=True)
class Field:
    """The runs of a race, in the groups of the report."""

    grouping: Grouping
    runs: Sequence[RaceRun]

    @classmethod
    def of(cls, runs: Sequence[RaceRun], metric: str | None) -> Field:
        return cls(Grouping.of([run.record for run in runs], metric), runs)

    @cached_property
    def groups(self) -> dict[tuple[str, str], Group]:
        """The groups by data set and title."""
        return {(group.data, group.title): group for group in self.grouping.groups}

    @cached_property
    def failed(self) -> Mapping[str, set[int]]:
        """The seeds with which each experiment ended without an accuracy."""
        found: dict[str, set[int]] = defaultdict(set)
        for run in self.runs:
            if run.ended and accuracy(run.record, self.grouping.metric) is None:
                found[run.experiment].add(run.seed)
        return found

    def is_out(self, experiment: str) -> bool:
        """Whether too many of its runs failed."""
        return len(self.failed.get(experiment, ())) > MOST_FAILED

    def experiments_in(self, data: str, title: str) -> list[str]:
        """The experiments of a group that are not left out. Two files can have the same loss."""
        if (data, title) not in self.groups:
            raise UserError(f"{title}: {FILE} has it among the survivors on {data}, but no run of it can be read")
        folders = {run.folder for run in self.groups[data, title].runs}
        found = dict.fromkeys(run.experiment for run in self.runs if run.record.folder in folders)
        return [each for each in found if not self.is_out(each)]

    def racing(self, looks: Sequence[TakenLook]) -> dict[str, list[str]]:
        """The losses that are not decided, by data set."""
        if looks:
            return {data: last.survivors for data, last in undecided(looks).items()}
        return {data: [group.title for group in groups] for data, groups in self.grouping.by_data.items()}

    def wanted(self, looks: Sequence[TakenLook], every: Iterable[str]) -> list[str]:
        """The experiments that run until the next look; without a look, all that are not left out."""
        if not looks:
            return [each for each in every if not self.is_out(each)]
        pairs = [(data, title) for data, titles in self.racing(looks).items() for title in titles]
        return list(dict.fromkeys(each for pair in pairs for each in self.experiments_in(*pair)))

    def blocks(self, wanted: Iterable[str], order: Iterator[int], number: int) -> list[int]:
        """The first seeds in an order with which no run of these experiments failed."""
        broken = {seed for each in wanted for seed in self.failed.get(each, ())}
        return [next(seed for seed in order if seed not in broken) for _ in range(number)]

    def look(self, looks: Sequence[TakenLook], seeds: Sequence[int], rule: Rule) -> list[TakenLook]:
        """Look at every data set that is not decided, on these seeds."""
        taken = []
        for data, every in self.racing(looks).items():
            titles = [title for title in every if self.experiments_in(data, title)]
            if not titles:
                break
            x = [[self.groups[data, title].results[seed] for seed in seeds] for title in titles]
            losses = undecided(looks)[data].losses if looks else len(titles)
            measured = images_measured(self.groups[data, titles[0]].runs[0], self.grouping.metric)
            grain = None if measured is None else 100 / measured
            survivors, outcome = outcome_of(x, losses, rule, grain)
            taken.append(
                TakenLook(
                    data=data,
                    seeds=len(seeds),
                    survivors=[titles[k] for k in survivors],
                    decided=outcome in DECIDED,
                    outcome=outcome,
                    losses=losses,
                    rates="open-ended" if rule.open_ended else "looks",
                    within=rule.within,
                    results={
                        title: dict(zip(map(str, seeds), row, strict=True))
                        for title, row in zip(titles, x, strict=True)
                    },
                )
            )
        if not taken:
            allowed = f"{self.grouping.metric} between 0 and 1"
            raise UserError(
                f"no run has {allowed}, so that nothing can be decided; --status lists the runs that failed"
            )
        return taken

    def left_out(self, looks: Sequence[TakenLook]) -> list[str]:
        """Name the losses that raced until the last look and are left out because their runs failed."""
        return [
            f"{title} on {data} is left out: more than {MOST_FAILED} of its runs failed"
            for data, titles in self.racing(looks).items()
            for title in titles
            if not self.experiments_in(data, title)
        ]

    def changed(self, looks: Iterable[TakenLook]) -> list[str]:
        """Say which results of earlier looks are different now. Their decisions are kept."""
        lines = []
        for each in looks:
            for title, before in each.results.items():
                group = self.groups.get((each.data, title))
                now = {seed: group.results.get(int(seed)) for seed in before} if group else {}
                if now != before:
                    kept = f"its decision is kept; remove {FILE} to decide again"
                    lines.append(
                        f"{title} on {each.data}: results changed since the look at {each.seeds} seeds; {kept}"
                    )
        return lines


def outcome_of(
    x: Sequence[Sequence[float]], losses: int, rule: Rule, grain: float | None
) -> tuple[Sequence[int], Outcome]:
    """The rows of the losses that survive a look at complete blocks, and the outcome.

    losses   K at the start
    """
    if not rule.open_ended:
        found = look(x, range(len(x)), losses, rule.most, rule.within, grain)
        return found.survivors, found.outcome
    if len(x) == 1:
        return [0], "alone"
    seeds = len(x[0])
    level = LEVEL * (len(x) - 1) / (losses - 1)  # so that a loss is dropped at (K − 1)/LEVEL, with K of the start
    dropped = seeds_until_dropped(x, grain, first=seeds, level=level)
    survivors = [k for k, at in enumerate(dropped) if not at]
    return survivors, "wins" if len(survivors) == 1 else "undecided" if seeds >= rule.most else "continue"


def sentence(look: TakenLook, several: bool) -> str:
    """A look in words.

    several   whether there are several data sets

    >>> look = TakenLook("shapes", 5, ["Direct"], True, "wins", 3, results={"Direct": {}, "InfoNCE": {}})
    >>> sentence(look, several=False)
    'after 5 seeds: Direct wins'
    """
    names = list_names(look.survivors, MOST_NAMES)
    text = {
        "wins": f"{names} wins",
        "alone": f"only {names} can be the best (95 %), but it does not beat every other loss",
        "equivalent": f"{names} are equivalent within {look.within} points",
        "undecided": f"not decided: {names} can be the best (95 %)",
        "continue": f"{names} can be the best (95 %) and get more seeds",
    }[look.outcome]
    out = [title for title in look.results if title not in look.survivors]
    rest = f"; no more seeds for {list_names(out, MOST_NAMES)}" if out and look.outcome == "continue" else ""
    return f"after {look.seeds} seeds{f' on {look.data}' if several else ''}: {text}{rest}"
