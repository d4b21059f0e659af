"""The runs of a reproduction at a scale, their data, and how long they take."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from lightning_ssl import data
from lightning_ssl.app.config import packaged
from lightning_ssl.app.config.labels import flatten
from lightning_ssl.app.reproduce.recipe import Reproduction, Work
from lightning_ssl.app.sweep import plan as sweep_plan
from lightning_ssl.app.sweep.cost import Settings, complete_configs, seconds_of
from lightning_ssl.app.sweep.engine import check_settings
from lightning_ssl.app.sweep.plan import SEED, Plan
from lightning_ssl.app.sweep.scales import Scale
from lightning_ssl.app.sweep.screen import format_duration
from lightning_ssl.app.sweep.state import State, Trial

Cell = tuple[str, str]
"""The name of a sweep, and the identity of one of its cells."""


@dataclass(frozen=True)
class Planned:
    """A sweep with the cells that are to be run, and the complete configuration of each cell."""

    plan: Plan
    folder: Path
    configs: list[dict[str, Any]]  # in the order of plan.cells

    @cached_property
    def settings(self) -> list[Settings]:
        """The configurations as dotted flags."""
        return [flatten(config) for config in self.configs]

    def keep(self, wanted: Callable[[dict[str, Any], Settings], bool]) -> Planned:
        """The sweep without the cells that are not wanted."""
        cells = zip(self.plan.cells, self.configs, self.settings, strict=True)
        kept = [(cell, config) for cell, config, settings in cells if wanted(cell, settings)]
        plan = replace(self.plan, cells=[cell for cell, _ in kept], limit=len(kept))
        return replace(self, plan=plan, configs=[config for _, config in kept])

    def trials(self) -> list[Trial]:
        """The trials of the cells that have started."""
        if not (self.folder / "sweep.db").is_file():
            return []
        with State(self.folder / "sweep.db") as state:
            check_settings(state, self.plan, self.folder)
            cells = {self.plan.identity(cell) for cell in self.plan.cells}
            return [row for row in state.trials() if self.plan.identity(row.parameters) in cells]


def plan_sweeps(work: Work, scale: Scale, seeds: int | None, runs: Path) -> list[Planned]:
    """Read the sweep files of a reproduction and complete the configuration of their cells.

    The folder of a sweep is RUNS/SWEEP-SCALE, so that reproductions with the same sweep share its runs. The cells are
    ordered by seed: an interrupted reproduction has every row with the first seeds.
    """
    found = []
    for name in work.sweeps:
        file = Path(packaged.find("sweeps", f"sweeps/{name}.yaml"))
        plan = sweep_plan.read(file, f"{name}-{scale.name}", extra_flags=scale.flags, seeds=seeds)
        plan = replace(plan, cells=sorted(plan.cells, key=lambda cell: cell.get(SEED, 0)))
        found.append(Planned(plan, runs / plan.name, complete_configs(plan)))
    return found


def missing_data(planned: Sequence[Planned], fetch: bool) -> dict[str, str]:
    """The data sets that this machine does not have, with a line about each.

    fetch   whether they are downloaded first
    """
    found = {}
    for name, root in sorted({(str(s["data.name"]), str(s["data.root"])) for each in planned for s in each.settings}):
        if data.is_complete(name, root):
            continue
        found[name] = f"{name} is not in {root}: it is downloaded before the first run, or its runs are left out"
        if fetch:
            try:
                data.fetch(name, root)
                del found[name]
            except ValueError as error:
                found[name] = f"{name} is missing, its runs are left out: {error}"
    return found


def without(planned: Sequence[Planned], missing: Collection[str]) -> list[Planned]:
    """Leave out the runs on missing data."""
    kept = [each.keep(lambda _, settings: settings["data.name"] not in missing) for each in planned]
    return [each for each in kept if each.plan.cells]


# ---------------------------------------------------------------------------------------------------------------------
# Time


@dataclass(frozen=True)
class Estimate:
    """How many runs are left, and the time of one worker for them in seconds. One process evaluates all of them."""

    total: int
    left: int
    training: float
    evaluation: float
    basis: str

    @property
    def seconds(self) -> float:
        return self.training + self.evaluation

    def line(self, workers: int, unit: str) -> str:
        hours = self.seconds / 3600
        amount = f"{hours:,.0f} {unit} hours" if hours >= 48 else f"{format_duration(self.seconds)} of one {unit}"
        shared = format_duration(self.training / workers + self.evaluation)
        with_workers = f", {shared} with {workers} workers" if workers > 1 else ""
        return f"{self.total} runs, {self.left} left: about {amount}{with_workers} ({self.basis})"


def estimate(
    planned: Sequence[Planned], scale: Scale, images_per_second: float | None = None, copied: Collection[Cell] = ()
) -> Estimate:
    """Estimate the time of the runs that are left, with their evaluation.

    The duration of finished runs of the same sweep is used if there are any, else the images of a run, times the
    multiplications of its network relative to those of the scale's network, divided by the speed.
    """
    scale = scale.at(images_per_second)
    basis = scale.basis
    total, left, seconds = 0, 0, 0.0
    measured: list[float] = []
    for each in planned:
        trials = each.trials()
        done = {each.plan.identity(row.parameters) for row in trials if row.status in ("finished", "failed")}
        done |= {cell for sweep, cell in copied if sweep == each.plan.name}
        cells = zip(each.plan.cells, each.settings, strict=True)
        waiting = [settings for cell, settings in cells if each.plan.identity(cell) not in done]
        total, left = total + len(each.plan.cells), left + len(waiting)
        durations = [row.seconds for row in trials if row.status == "finished" and row.seconds > 0]
        if durations and images_per_second is None:
            measured += durations
            seconds += fmean(durations) * len(waiting)
        else:
            seconds += sum(seconds_of(settings, scale) for settings in waiting)
    if measured:
        basis = f"{fmean(measured):.0f} s for a run, the mean of {len(measured)} finished ones"
    basis += f"; {scale.evaluation_seconds:g} s for its evaluation"
    return Estimate(total, left, seconds, scale.evaluation_seconds * left, basis)


def announcement(reproduction: Reproduction, scale: Scale, planned: Sequence[Planned]) -> list[str]:
    """What is going to run, in lines."""
    lines = [reproduction.title, f"scale {scale.name}: {scale.summary}"]
    for each in planned:
        names = ", ".join(dict.fromkeys(str(settings["data.name"]) for settings in each.settings))
        seeds = len({settings[SEED] for settings in each.settings})
        count = f"{len(each.plan.cells)} runs on {names}, {seeds} seed{'s' * (seeds > 1)}"
        lines.append(f"  {each.plan.name}: {count}, in {each.folder}")
    return lines
