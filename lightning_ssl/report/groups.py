"""Groups of runs: a group has one loss and one value of every other swept setting; its runs differ in their seed.

    grouping = Grouping.of(runs)
    for group in grouping.groups:  # best first, within each data set
        group.label        # "AlphaCL Direct p=6 τ=0.5"
        group.settings     # {"data.batch_size": 256}: the swept settings besides the loss
        group.results      # {seed: final accuracy in percent}

A setting is *swept* if the same loss ran with several values of it. A setting that differs only between losses belongs
to a loss's recipe (SimSiam has its own projector). It makes no groups, but the page names it, because the comparison
is then one of recipes, not of losses alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lightning_ssl.runs.labels import Scalar, format_value, is_infonce, label_of, loss_of, settings_of
from lightning_ssl.runs.record import RunRecord

SETTING_NAMES = {
    "data.batch_size": "batch size",
    "trainer.max_epochs": "epochs",
    "trainer.max_steps": "steps",
    "model.optimization.lr": "learning rate",
    "model.optimization.name": "optimizer",
}


@dataclass
class Group:
    """Runs that differ only in their seed."""

    label: str
    data: str
    loss: tuple[tuple[str, Scalar], ...]
    settings: dict[str, Scalar]
    runs: list[RunRecord] = field(default_factory=list)
    results: dict[Scalar, float] = field(default_factory=dict)  # seed → final accuracy, %
    infonce: bool = False

    @property
    def title(self) -> str:
        """The label and the swept settings."""
        words = [f"{setting_name(key)} {format_value(value)}" for key, value in self.settings.items()]
        return " · ".join([self.label, *words])

    @property
    def mean(self) -> float | None:
        """Mean of the final accuracies. Each seed counts once."""
        return math.fsum(self.results.values()) / len(self.results) if self.results else None

    def statuses(self) -> dict[str, int]:
        """Number of runs by status."""
        counts: dict[str, int] = {}
        for run in self.runs:
            counts[run.status] = counts.get(run.status, 0) + 1
        return counts


@dataclass
class Grouping:
    """All groups, and the settings in which they differ."""

    groups: list[Group]
    swept: list[str]
    recipe: dict[str, list[Scalar]]
    """Settings that differ between losses but were not swept, with their values."""
    metric: str
    unreadable: list[RunRecord]
    """Runs without a readable configuration."""
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, runs: Sequence[RunRecord], metric: str | None = None) -> Grouping:
        """Group the runs and take their final values of `metric` (see `final_metric` for the default)."""
        readable = [run for run in runs if "model" in run.settings]
        unreadable = [run for run in runs if "model" not in run.settings]
        swept = swept_settings(readable)
        metric = metric or final_metric(readable)
        groups: dict[tuple[object, ...], Group] = {}
        for run in readable:
            chosen = {key: run.settings.get(key) for key in swept}
            data = data_of(run)
            key = (loss_of(run.settings), data, tuple(map(repr, chosen.values())))
            group = groups.setdefault(
                key,
                Group(label_of(run.settings), data, loss_of(run.settings), chosen, infonce=is_infonce(run.settings)),
            )
            group.runs.append(run)
        grouping = cls(list(groups.values()), swept, recipes(readable, swept), metric, unreadable)
        for group in grouping.groups:
            grouping.take_results(group)
        # Best first. Groups without a result come last.
        grouping.groups.sort(key=lambda g: (g.data, g.mean is None, -(g.mean or 0), g.title))
        return grouping

    def take_results(self, group: Group) -> None:
        """Take the final accuracies by seed. A repeated seed is one observation, the mean of its runs."""
        by_seed: dict[Scalar, list[float]] = defaultdict(list)
        for run in group.runs:
            value = accuracy(run, self.metric)
            if value is not None:
                # A run without a seed is an observation of its own.
                by_seed[run.folder.as_posix() if run.seed is None else run.seed].append(value)
        group.results = {seed: math.fsum(values) / len(values) for seed, values in sorted(by_seed.items(), key=repr)}
        repeated = sum(len(values) > 1 for values in by_seed.values())
        if repeated:
            self.notes.append(
                f"{group.title}: {repeated} seed{'s' * (repeated > 1)} ran more than once; "
                "runs with the same seed are averaged and count as one."
            )

    @property
    def data_sets(self) -> list[str]:
        """The data sets, in the order of the groups. Accuracies are compared within a data set only."""
        return list(dict.fromkeys(group.data for group in self.groups))


def swept_settings(runs: Iterable[RunRecord]) -> list[str]:
    """Settings that have several values for the same loss on the same data set."""
    # Within a data set: settings that follow from it, such as the pixels' mean, were not swept.
    losses: dict[tuple[object, str], list[RunRecord]] = defaultdict(list)
    for run in runs:
        losses[loss_of(run.settings), data_of(run)].append(run)
    varied = {key for same in losses.values() for key in differing(settings_of(run.settings) for run in same)}
    return sorted(varied - {"data.name"})


def recipes(runs: Iterable[RunRecord], swept: Sequence[str]) -> dict[str, list[Scalar]]:
    """Settings that differ between losses on the same data set but were not swept, with their values."""
    sets: dict[str, list[RunRecord]] = defaultdict(list)
    for run in runs:
        sets[data_of(run)].append(run)
    found: dict[str, list[Scalar]] = {}
    for same in sets.values():
        for name, values in differing(settings_of(run.settings) for run in same).items():
            if name not in swept and name != "data.name":
                known = found.setdefault(name, [])
                known += [value for value in values if value not in known]
    return found


def accuracy(run: RunRecord, metric: str) -> float | None:
    """The final accuracy in percent: the last value of a finished run, None for any other run."""
    value = run.last(metric) if run.finished else None
    if value is None or not math.isfinite(value):
        return None
    if not 0 <= value <= 1:
        problem = f"{metric}={value:g}: not counted, because an accuracy is between 0 and 1"
        if problem not in run.problems:
            run.problems.append(problem)
        return None
    return 100 * value


def final_metric(runs: Iterable[RunRecord]) -> str:
    """The linear evaluation that every finished run has, Adam's (the papers') first; else the online probe."""
    finished = [run for run in runs if run.finished]
    common = set.intersection(*(set(run.linear()) for run in finished)) if finished else set()
    return min(common, key=lambda name: ("adam" not in name, name), default="online/top1")


def differing(settings: Iterable[dict[str, Scalar]]) -> dict[str, list[Scalar]]:
    """Keys with more than one value, with their values."""
    rows = list(settings)
    keys = sorted({key for row in rows for key in row})
    varied = {}
    for key in keys:
        values = {repr(row.get(key)): row.get(key) for row in rows}
        if len(values) > 1:
            varied[key] = sorted(values.values(), key=natural)
    return varied


def data_of(run: RunRecord) -> str:
    return str(run.settings.get("data.name", run.settings.get("data", "?")))


def setting_name(key: str) -> str:
    """A swept setting in words, or else its flag without the first part."""
    return SETTING_NAMES.get(key, key.removeprefix("model.").removeprefix("data.").removeprefix("trainer."))


def natural(value: Scalar) -> tuple[int, float, str]:
    """Sort key: numbers by size, then words by alphabet."""
    if isinstance(value, int | float):
        return (0, float(value), "")
    return (1, 0.0, str(value))
