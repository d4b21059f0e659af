"""How many seeds, runs and hours a difference needs, and which difference a budget can show.

The spread of a difference is that of a pilot, or else of the archive in docs/results/runs. The time of a run is that of
the pilot, or else its images divided by the speed of a scale.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import yaml  # type: ignore[import-untyped]

from lightning_ssl.app.config.identity import identity, key_of
from lightning_ssl.app.config.labels import flatten
from lightning_ssl.app.report.data_sets import base_name, data_settings
from lightning_ssl.app.report.formats import list_names
from lightning_ssl.app.report.groups import Group, Grouping
from lightning_ssl.app.runs.run_record import Reader
from lightning_ssl.app.study.rounds import cells_of, experiments, with_cells
from lightning_ssl.app.sweep.cost import Settings, complete_configs, images_of, operations, seconds_of
from lightning_ssl.app.sweep.plan import SEED, Plan
from lightning_ssl.app.sweep.scales import PIXELS, Scale
from lightning_ssl.app.sweep.screen import format_duration
from lightning_ssl.app.sweep.state import recorded
from lightning_ssl.base.checks import UserError, require
from lightning_ssl.comparison.best import FEWEST_FOR_A_WINNER
from lightning_ssl.comparison.blocks import blocks
from lightning_ssl.comparison.planning import ASSURANCE, difference_shown, seeds_needed, variance_of_pilot

SIZE = (
    "data.name", "data.options.train_images", "data.batch_size", "trainer.max_epochs", "trainer.limit_train_batches",
    "model.backbone", "model.image_size",
)  # fmt: skip
"""What decides the work of a run."""

SHOWN = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)  # differences of the table, relative to the one in question


@dataclass(frozen=True)
class DataSet:
    """The losses of a sweep on one data set.

    seconds   training time of one seed of all losses
    variance  of the difference of two losses with the same seed
    """

    name: str
    losses: int
    seconds: float
    variance: float


@dataclass(frozen=True)
class Study:
    """What a sweep needs. Every data set gets the seeds of the one that needs most.

    spread, time   where the spread and the time of a run come from
    """

    sets: Sequence[DataSet]
    spread: str
    time: str
    power: float

    @property
    def losses(self) -> int:
        """The number of runs with one seed."""
        return sum(each.losses for each in self.sets)

    def seeds(self, difference: float) -> int:
        """The number of seeds with which a loss that is better than all others by the difference wins."""
        return max(int(seeds_needed(each.variance, each.losses, difference, self.power)) for each in self.sets)

    def difference(self, seeds: int) -> float:
        """The difference that a number of seeds can show."""
        return max(float(difference_shown(each.variance, each.losses, seeds, self.power)) for each in self.sets)

    def seconds(self, seeds: int, workers: int) -> float:
        return seeds * sum(each.seconds for each in self.sets) / workers

    def seeds_in(self, hours: float, workers: int) -> int:
        """The number of seeds that fit into a time. It is refused if they are fewer than two."""
        found = int(3600 * hours / self.seconds(1, workers))
        require(found >= 2, "hours", hours, f"enough for 2 seeds: {self.seconds(2, workers) / 3600:.2g}")
        return found

    def about(self) -> list[str]:
        """The losses, and where the figures come from."""
        names = [f"{each.losses} losses on {each.name}" for each in self.sets]
        return [list_names(names, 12), f"spread: {self.spread}", f"time: {self.time}"]

    def lines_for(self, difference: float, workers: int) -> list[str]:
        """The seeds that a difference needs, and a table of several differences."""
        seeds = self.seeds(difference)
        rows = []
        for factor in SHOWN:
            with suppress(UserError):  # a small one can need more seeds than anybody runs
                rows.append((factor * difference, self.seeds(factor * difference)))
        return [*self.about(), "", *self.table(rows, workers), "", self.answer(f"{difference:g}", seeds, workers)]

    def lines_within(self, seeds: int, workers: int) -> list[str]:
        """The difference that a number of seeds can show, and a table of several numbers."""
        rows = [(self.difference(each), each) for each in sorted({3, 5, 8, 12, 20, seeds})]
        answer = self.answer(f"{self.difference(seeds):.2f}", seeds, workers)
        return [*self.about(), "", *self.table(rows, workers), "", answer]

    def answer(self, difference: str, seeds: int, workers: int) -> str:
        """The answer in one sentence."""
        better = f"A loss that is better than all others by {difference} point{'s' * (difference != '1')}"
        chance = f"with a probability of {share(self.power)} ({share(ASSURANCE)} assurance)"
        wins = f"wins {chance}" if seeds >= FEWEST_FOR_A_WINNER else f"is the only one that can be the best {chance}"
        shared = f" with {workers} workers" if workers > 1 else ""
        time = format_duration(self.seconds(seeds, workers))
        return f"{better} {wins} with {seeds} seeds: {seeds * self.losses} runs, {time}{shared}."

    def table(self, rows: Sequence[tuple[float, int]], workers: int) -> list[str]:
        cells = [("difference", "seeds", "runs", "hours")]
        for difference, seeds in rows:
            hours = self.seconds(seeds, workers) / 3600
            cells.append((f"{difference:.2f}", str(seeds), str(seeds * self.losses), f"{hours:,.1f}"))
        return ["  ".join(cell.rjust(10) for cell in row) for row in cells]


def study(plan: Plan, pilot: Sequence[str], scale: Scale, power: float) -> Study:
    """Read what a sweep needs: its losses, their spread and the time of a run.

    pilot   folders or archives of runs whose spread and duration are used; none: those of the archive and of the scale
    """
    every = with_cells(plan, cells_of(plan, experiments(plan), [0]))
    settings = {}
    for config in complete_configs(every):
        del config[SEED]
        settings[key_of(identity(config))] = flatten(config)
    on: dict[str, list[Settings]] = defaultdict(list)  # the settings of the losses on each data set
    for each in settings.values():
        on[repr(sorted(data_settings(each).items(), key=repr))].append(each)
    alone = [base_name(losses[0]) for losses in on.values() if len(losses) < 2]
    if alone:
        raise UserError(f"{plan.name}: one loss on {alone[0]}, and nothing to compare it with")
    if pilot:
        found = Pilot.read(pilot, plan.metric)
        parts = [found.data_set(losses) for losses in on.values()]
        return Study(parts, found.spread, found.time, power)
    known = archive_spreads()
    spread = float(np.quantile([*known["spreads"].values()], ASSURANCE))
    parts = [
        DataSet(base_name(losses[0]), len(losses), sum(seconds_of(each, scale) for each in losses), spread**2)
        for losses in on.values()
    ]
    count = len(known["spreads"])
    basis = (
        f"{spread:.2f} points between two losses, or less in {share(ASSURANCE)} of {count} sweeps ({known['source']})"
    )
    return Study(parts, f"{basis}; --pilot takes it from your own runs", scale.basis, power)


def share(probability: float) -> str:
    """A probability in percent.

    >>> share(0.8)
    '80 %'
    """
    return f"{100 * probability:g} %"


def archive_spreads() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((files(__package__) / "spreads.yaml").read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True)
class Pilot:
    """Runs that a sweep is planned from. Their groups are those of the report."""

    groups: dict[str, list[Group]]
    variances: dict[str, float]
    seconds: list[float]
    settings: list[Settings]

    @classmethod
    def read(cls, folders: Sequence[str], metric: str | None) -> Pilot:
        for folder in folders:
            require(Path(folder).exists(), "pilot", folder, "a folder or an archive of runs")
        grouping = Grouping.of(Reader(recorded).runs(folders), metric)
        variances = {}
        for data, every in grouping.by_data.items():
            found = blocks([group.results for group in every])
            if len(found.compared) > 1 and len(found.seeds) > 1:
                variances[data] = float(variance_of_pilot(found.x))
        runs = [run for group in grouping.groups for run in group.runs if run.finished]
        timed = [(run, seconds) for run in runs if (seconds := run.number("duration")) is not None]
        if not variances or not timed:
            needed = f"two losses with two seeds each that have {metric}"
            raise UserError(f"pilot={list_names(list(folders))}: a pilot needs finished runs of {needed}")
        groups = {data: grouping.by_data[data] for data in variances}
        return cls(groups, variances, [seconds for _, seconds in timed], [run.settings for run, _ in timed])

    @property
    def spread(self) -> str:
        """Where the spread comes from."""
        upper = [f"{math.sqrt(variance):.2f} points on {data}" for data, variance in self.variances.items()]
        return f"at most {list_names(upper, 12)} between two losses of the pilot ({share(ASSURANCE)} assurance)"

    @property
    def time(self) -> str:
        mean = f"{fmean(self.seconds):.0f} s for a run, the mean of {len(self.seconds)} runs of the pilot"
        return f"{mean}; in proportion to images and network for runs of another size"

    def data_set(self, losses: Sequence[Settings]) -> DataSet:
        """The losses of a sweep with the spread of the pilot on the same data, or else its largest spread."""
        same = [
            self.variances[data]
            for data, groups in self.groups.items()
            if data_settings(groups[0].runs[0].settings) == data_settings(losses[0])
        ]
        variance = max(same or self.variances.values())
        return DataSet(base_name(losses[0]), len(losses), sum(map(self.seconds_of, losses)), variance)

    def seconds_of(self, settings: Settings) -> float:
        """The time of a run: the mean of the pilot's runs, in proportion to the work."""
        if len({tuple(each.get(key) for key in SIZE) for each in (settings, *self.settings)}) == 1:
            return fmean(self.seconds)
        return fmean(self.seconds) * work_of(settings) / fmean(map(work_of, self.settings))


def work_of(settings: Settings) -> float:
    """The operations of the forward passes of a run."""
    size = int(settings["model.image_size"] or PIXELS)
    return images_of(settings) * operations(str(settings["model.backbone"]), size)
