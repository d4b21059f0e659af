"""Groups of runs: a group has one loss, one data set and one value of every swept setting; its runs differ in the seed.

    grouping = Grouping.of(runs)
    for group in grouping.groups:  # best first, within each data set
        group.label        # "AlphaCL Direct p=6 τ=0.5"
        group.settings     # {"data.batch_size": 256}: the swept settings besides the loss
        group.results      # {seed: final accuracy in percent}

differences.py decides which settings are swept, data_sets.py which runs have the same data. Differences that make no
groups are named on the page.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count, cycle, groupby, zip_longest
from pathlib import Path
from statistics import fmean

from lightning_ssl.app.config.labels import Scalar, format_value, is_infonce, label_of, loss_of
from lightning_ssl.app.report.data_sets import base_name, data_sets, separation
from lightning_ssl.app.report.differences import Differences
from lightning_ssl.app.runs.choice import loss_name
from lightning_ssl.app.runs.run_record import RunRecord
from lightning_ssl.app.runs.status import STATUSES
from lightning_ssl.base.palette import LINE_STYLES, line_style

BASELINE = "#7f7f7f"

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
    settings: dict[str, Scalar]
    loss: tuple[tuple[str, Scalar], ...]
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
        return fmean(self.results.values()) if self.results else None

    def take_results(self, metric: str) -> str | None:
        """Take the final accuracies by seed. A repeated seed is one observation, the mean of its runs."""
        by_seed: dict[Scalar, list[float]] = defaultdict(list)
        for run in self.runs:
            if (value := accuracy(run, metric)) is not None:
                # A run without a seed is an observation of its own.
                by_seed[run.folder.as_posix() if run.seed is None else run.seed].append(value)
        self.results = {seed: fmean(values) for seed, values in sorted(by_seed.items(), key=repr)}
        repeated = sum(len(values) > 1 for values in by_seed.values())
        if not repeated:
            return None
        ran = f"{self.title}: {repeated} seed{'s' * (repeated > 1)} ran more than once"
        return f"{ran}; runs with the same seed are averaged and count as one."


@dataclass
class Grouping:
    """All groups, and the settings in which they differ. Runs without a readable configuration are in no group."""

    groups: list[Group]
    differences: Differences
    metric: str
    separation: str | None = None
    """Why there are several data sets; None if there is one."""
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, runs: Sequence[RunRecord], metric: str | None = None) -> Grouping:
        """Group the runs and take their final values of `metric` (see `final_metric` for the default)."""
        readable = [run for run in runs if "model" in run.settings]
        sets = data_sets(readable)
        differences = Differences.of(readable, sets)
        metric = metric or final_metric(readable)
        groups: dict[tuple[object, ...], Group] = {}
        for run in readable:
            chosen = {key: differences.settings[run.folder].get(key) for key in differences.swept}
            loss, data = loss_of(run.settings), sets[run.folder]
            new = Group(label(run), data, chosen, loss, infonce=is_infonce(run.settings))
            groups.setdefault((loss, data, tuple(map(repr, chosen.values()))), new).runs.append(run)
        notes = [note for group in groups.values() if (note := group.take_results(metric)) is not None]
        # Best first within each data set. Groups without a result come last.
        order = list(dict.fromkeys(sets.values()))
        ranked = sorted(groups.values(), key=lambda g: (g.mean is None, -(g.mean or 0), g.title))
        ranked.sort(key=lambda group: order.index(group.data))
        return cls(ranked, differences, metric, separation(readable), notes)

    @cached_property
    def group_of(self) -> dict[Path, Group]:
        """The group of each readable run, by run folder."""
        return {run.folder: group for group in self.groups for run in group.runs}

    @property
    def swept(self) -> list[str]:
        """The keys that make groups besides the loss and the data."""
        return self.differences.swept

    @cached_property
    def by_data(self) -> dict[str, list[Group]]:
        """The groups of each data set. Accuracies are compared within a data set only."""
        return {data: list(groups) for data, groups in groupby(self.groups, key=lambda group: group.data)}

    @property
    def data_sets(self) -> list[str]:
        return list(self.by_data)

    @cached_property
    def styles(self) -> dict[str, tuple[str, str]]:
        """(colour, line style) by the title of a group: a loss has one style on all data sets. InfoNCE is grey.

        Styles are given in the order of the places: to the best group of each data set, to the second of each, and so
        on. So the groups that are drawn have different styles if there are not too many of them.
        """
        coloured, grey = map(line_style, count()), ((BASELINE, line) for line in cycle(LINE_STYLES))
        styles: dict[str, tuple[str, str]] = {}
        for group in filter(None, chain(*zip_longest(*self.by_data.values()))):
            if group.title not in styles:
                styles[group.title] = next(grey if group.infonce else coloured)
        return styles

    @property
    def data_names(self) -> list[str]:
        """The names of the data sets without their options."""
        return list(dict.fromkeys(base_name(run.settings) for group in self.groups for run in group.runs))


def label(run: RunRecord) -> str:
    """The label of the loss, after the name that a tuning gives it."""
    name = loss_name(run.summary.get("tags"))
    return f"{name}: {label_of(run.settings)}" if name else label_of(run.settings)


def count_statuses(runs: Sequence[RunRecord]) -> dict[str, int]:
    """Number of runs by status, without those that no run has."""
    return {status: n for status in STATUSES if (n := sum(run.status == status for run in runs))}


def unfinished(runs: Sequence[RunRecord]) -> str:
    """The runs that are not finished in words, such as "2 running, 1 failed"."""
    return ", ".join(f"{n} {status}" for status, n in count_statuses(runs).items() if status != "finished")


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


def setting_name(key: str) -> str:
    """A swept setting in words, or else its flag without the first part."""
    return SETTING_NAMES.get(key, key.removeprefix("model.").removeprefix("data.").removeprefix("trainer."))
