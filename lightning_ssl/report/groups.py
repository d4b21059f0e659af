"""Which runs are one experiment: a loss with its parameters, times whatever else was swept; seeds apart.

    grouping = Grouping.of(runs)
    for group in grouping.groups:  # best first, within each data set
        group.label        # "AlphaCL Direct p=6 τ=0.5"
        group.settings     # {"data.batch_size": 256}: what was swept besides the loss
        group.results      # {seed: final accuracy in percent}

A parameter is *swept* when one and the same loss ran with several values of it. One that differs only between losses
is part of a loss's recipe (SimSiam brings its own projector): it makes no groups, but the page names it, since the
comparison is then of recipes and not of losses alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lightning_ssl.report.read import Run
from lightning_ssl.runs.labels import Scalar, is_infonce, label_of, loss_of, settings_of, shown

SETTING_NAMES = {
    "data.batch_size": "batch size",
    "trainer.max_epochs": "epochs",
    "trainer.max_steps": "steps",
    "model.optimization.lr": "learning rate",
    "model.optimization.name": "optimizer",
}


@dataclass
class Group:
    """Runs that differ in nothing but their seed."""

    label: str
    data: str
    loss: tuple[tuple[str, Scalar], ...]
    settings: dict[str, Scalar]
    runs: list[Run] = field(default_factory=list)
    results: dict[Scalar, float] = field(default_factory=dict)  # seed → final accuracy, %
    infonce: bool = False

    @property
    def title(self) -> str:
        """The label with what was swept beside the loss."""
        words = [f"{setting_name(key)} {shown(value)}" for key, value in self.settings.items()]
        return " · ".join([self.label, *words])

    @property
    def mean(self) -> float | None:
        """Of the final accuracies, a seed counting once."""
        return math.fsum(self.results.values()) / len(self.results) if self.results else None

    def statuses(self) -> dict[str, int]:
        """How many runs ended, or did not, in which way."""
        counts: dict[str, int] = {}
        for run in self.runs:
            counts[run.status] = counts.get(run.status, 0) + 1
        return counts


@dataclass
class Grouping:
    """Every run in its group, and what tells groups apart."""

    groups: list[Group]
    swept: list[str]
    recipe: dict[str, list[Scalar]]
    """Parameters that differ between losses without having been swept, with their values."""
    metric: str
    homeless: list[Run]
    """Runs without a readable configuration."""
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, runs: Sequence[Run], metric: str | None = None) -> Grouping:
        """Group the runs and take their final values of `metric` (see `final_metric` when it is not given)."""
        told = [run for run in runs if "model" in run.settings]
        homeless = [run for run in runs if "model" not in run.settings]
        # Within a data set: what follows from it, such as the pixels' mean, was not swept.
        losses: dict[tuple[object, str], list[Run]] = defaultdict(list)
        sets: dict[str, list[Run]] = defaultdict(list)
        for run in told:
            losses[loss_of(run.settings), data_of(run)].append(run)
            sets[data_of(run)].append(run)
        swept = sorted(
            {key for same in losses.values() for key in differing(settings_of(run.settings) for run in same)}
            - {"data.name"}
        )
        recipe: dict[str, list[Scalar]] = {}
        for same in sets.values():
            for name, values in differing(settings_of(run.settings) for run in same).items():
                if name not in swept and name != "data.name":
                    known = recipe.setdefault(name, [])
                    known += [value for value in values if value not in known]
        metric = metric or final_metric(told)
        groups: dict[tuple[object, ...], Group] = {}
        for run in told:
            chosen = {key: run.settings.get(key) for key in swept}
            data = data_of(run)
            key = (loss_of(run.settings), data, tuple(map(repr, chosen.values())))
            group = groups.setdefault(
                key,
                Group(label_of(run.settings), data, loss_of(run.settings), chosen, infonce=is_infonce(run.settings)),
            )
            group.runs.append(run)
        grouping = cls(list(groups.values()), swept, recipe, metric, homeless)
        for group in grouping.groups:
            grouping.take_results(group)
        # Best first; groups without a result come after those with one, and never vanish.
        grouping.groups.sort(key=lambda g: (g.data, g.mean is None, -(g.mean or 0), g.title))
        return grouping

    def take_results(self, group: Group) -> None:
        """Final accuracies by seed; a repeated seed is one observation, the mean of its runs."""
        by_seed: dict[Scalar, list[float]] = defaultdict(list)
        for run in group.runs:
            value = accuracy(run, self.metric)
            if value is not None:
                # Without a seed there is nothing to pair by: each run stands for itself.
                by_seed[run.folder.as_posix() if run.seed is None else run.seed].append(value)
        group.results = {seed: math.fsum(values) / len(values) for seed, values in sorted(by_seed.items(), key=repr)}
        repeated = sum(len(values) > 1 for values in by_seed.values())
        if repeated:
            self.notes.append(
                f"{group.title}: {repeated} seed{'s' * (repeated > 1)} ran more than once; "
                "runs of one seed are averaged and count as one."
            )

    @property
    def data_sets(self) -> list[str]:
        """The data sets, in the order of the groups; accuracies are compared within one only."""
        return list(dict.fromkeys(group.data for group in self.groups))


def accuracy(run: Run, metric: str) -> float | None:
    """The final accuracy in percent: the last value of a run that finished, None of any other."""
    value = run.last(metric) if run.finished else None
    if value is None or not math.isfinite(value):
        return None
    if not 0 <= value <= 1:
        problem = f"{metric}={value:g}: an accuracy is a share between 0 and 1, so it is not counted"
        if problem not in run.problems:
            run.problems.append(problem)
        return None
    return 100 * value


def final_metric(runs: Iterable[Run]) -> str:
    """The linear evaluation that every finished run has, the papers' first; otherwise the online probe."""
    finished = [run for run in runs if run.finished]
    common = set.intersection(*(set(run.linear()) for run in finished)) if finished else set()
    return min(common, key=lambda name: ("adam" not in name, name), default="online/top1")


def differing(settings: Iterable[dict[str, Scalar]]) -> dict[str, list[Scalar]]:
    """Keys that do not have the same value everywhere, with their values."""
    rows = list(settings)
    keys = sorted({key for row in rows for key in row})
    varied = {}
    for key in keys:
        values = {repr(row.get(key)): row.get(key) for row in rows}
        if len(values) > 1:
            varied[key] = sorted(values.values(), key=natural)
    return varied


def data_of(run: Run) -> str:
    return str(run.settings.get("data.name", run.settings.get("data", "?")))


def setting_name(key: str) -> str:
    """A swept parameter in words where there are some, otherwise its flag without what every flag shares."""
    return SETTING_NAMES.get(key, key.removeprefix("model.").removeprefix("data.").removeprefix("trainer."))


def natural(value: Scalar) -> tuple[int, float, str]:
    """Numbers by size, then words by alphabet."""
    if isinstance(value, int | float):
        return (0, float(value), "")
    return (1, 0.0, str(value))
