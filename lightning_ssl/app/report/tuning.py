"""Runs that confirm a tuning: which they are, what they say about the choice, and why they may name no winner.

`lightning-ssl tune` gives the runs of its confirmation a tag with the hash of the frozen choice (app/runs/choice.py). A
page of such runs compares them alone. Its losses are those of the choice, each with its chosen setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from lightning_ssl.app.config.labels import Scalar, format_value
from lightning_ssl.app.report.formats import list_names, signed
from lightning_ssl.app.report.groups import accuracy, setting_name
from lightning_ssl.app.runs.choice import HOLDOUT, Choice, TunedLoss, choices_in, decisive, read_choice, tag_of
from lightning_ssl.app.runs.run_record import RunRecord
from lightning_ssl.base.checks import UserError

NO_WIN = "no loss is named the winner"


@dataclass(frozen=True)
class Row:
    """A loss of a tuning.

    tuned   mean on the held-out images over the tuning seeds, in percent, by which the setting was chosen
    fresh   mean on the test images over the fresh seeds, in percent; None without a finished run
    seeds   the number of fresh seeds
    """

    name: str
    loss: TunedLoss
    tuned: float
    fresh: float | None
    seeds: int

    @property
    def gap(self) -> float | None:
        """Tuning score minus fresh score, in points."""
        return None if self.fresh is None else self.tuned - self.fresh

    @property
    def chosen(self) -> str:
        """The chosen values in words."""
        flags = self.loss.choice.flags
        return ", ".join(f"{setting_name(key)} {format_value(value)}" for key, value in flags.items()) or "–"

    @property
    def border(self) -> str:
        """A warning where a chosen value is at the border of a grid."""
        return list_names([setting_name(key) for key in self.loss.borders])

    @property
    def failed(self) -> int:
        """The number of settings that could not be chosen."""
        return sum(setting.failed is not None for setting in self.loss.settings)

    @property
    def scores(self) -> list[tuple[str, float | None]]:
        """Every setting in words, and its mean on the held-out images in percent."""
        return [
            (", ".join(format_value(v) for v in s.flags.values()), 100 * s.mean if s.scores else None)
            for s in self.loss.settings
        ]


@dataclass(frozen=True)
class Confirmation:
    """The runs that confirm a choice.

    choice    None if its file cannot be used
    runs      with the tag of a choice
    others    the number of other runs below the folders, such as those of the tuning seeds
    problems  why no loss may win: the seeds are not fresh, the file does not fit the runs, a loss is missing
    """

    choice: Choice | None
    runs: list[RunRecord]
    others: int
    problems: list[str]
    rows: list[Row]

    @property
    def metric(self) -> str | None:
        """The metric by which the settings were chosen, and the losses are compared."""
        return None if self.choice is None else self.choice.metric

    @property
    def notes(self) -> list[str]:
        """The tuning in sentences, for the tables without a page."""
        if self.choice is None:
            return []
        notes = [self.budget]
        for row in self.rows:
            score = "no" if row.fresh is None else f"{row.fresh:.2f} %"
            gap = "" if row.gap is None else f", gap {signed(row.gap)}"
            border = f", at the border of its grid ({row.border})" if row.border else ""
            notes.append(
                f"{row.name}: chosen {row.chosen}{border}; tuning score {row.tuned:.2f} %, fresh score {score}{gap}."
            )
        if self.others:
            notes.append(f"{self.others} other runs below these folders are not compared, such as those of the tuning.")
        return notes

    @property
    def budget(self) -> str:
        """What was spent on each loss before the choice."""
        assert self.choice is not None
        seeds = len(self.choice.tuning_seeds)
        (each,) = {len(loss.settings) for loss in self.choice.losses.values()}
        return (
            f"Tuned fairly: {each} settings × {seeds} tuning seeds for each of {len(self.choice.losses)} losses. The "
            f"setting with the highest mean of {self.choice.metric} on held-out training images was chosen, and frozen "
            f"before the runs with fresh seeds ({self.choice.hash[:12]})."
        )


def confirmation_of(sources: Sequence[str | Path], runs: Sequence[RunRecord]) -> Confirmation | None:
    """The runs that confirm a tuning; None if none has the tag of a choice."""
    tags = {run.folder: tag for run in runs if (tag := tag_of(run.summary.get("tags")))}
    mine = [run for run in runs if run.folder in tags]
    if not mine:
        return None
    problems: list[str] = []
    choice = frozen([*map(Path, sources), *(run.folder.parent for run in mine)], set(tags.values()), problems)
    rows = []
    if choice is not None:
        problems += misfits(choice, mine)
        rows = [row_of(name, loss, choice.metric, mine) for name, loss in choice.losses.items()]
        problems += [f"{row.name} has no finished run with a fresh seed" for row in rows if not row.seeds]
    return Confirmation(choice, mine, len(runs) - len(mine), problems, rows)


def frozen(folders: Sequence[Path], tags: set[str], problems: list[str]) -> Choice | None:
    """The one choice that the runs confirm, from its file in or above the folders."""
    if len(tags) > 1:
        problems.append("the runs confirm several choices; make a page of each")
        return None
    unfit = []
    for file in choices_in(path for folder in folders for path in (folder.resolve(), folder.resolve().parent)):
        try:
            choice = read_choice(file)
        except UserError as error:
            unfit.append(str(error))
            continue
        if choice.tag in tags:
            return choice
        unfit.append(f"{file.name} has another choice than the runs confirm")
    problems.append(unfit[0] if unfit else "the file with the choice, choice.json, is not in these folders")
    return None


def misfits(choice: Choice, runs: Sequence[RunRecord]) -> list[str]:
    """Why the runs are no fair test of the choice."""
    problems = []
    seeds = {run.seed for run in runs}
    if reused := sorted(seeds.intersection(choice.tuning_seeds), key=str):
        problems.append(f"the settings were chosen with the same seeds ({list_names([str(seed) for seed in reused])})")
    if held := sum(bool(run.settings.get(HOLDOUT)) for run in runs):
        problems.append(f"{held} of {len(runs)} runs are measured on held-out training images, not on test images")
    for run in runs:
        if wrong := difference(decisive(run.settings), choice):
            problems.append(f"the frozen choice does not fit {run.name}: {wrong}")
            break
    return problems


def difference(settings: dict[str, Scalar], choice: Choice) -> str:
    """Where a run differs from the chosen setting that is nearest to it; empty if it is one of them."""
    found = []
    for loss in choice.losses.values():
        keys = sorted({*settings, *loss.configuration})
        found.append([key for key in keys if settings.get(key) != loss.configuration.get(key)])
    place = min(range(len(found)), key=lambda k: len(found[k]))
    if not found[place]:
        return ""
    name, loss = list(choice.losses.items())[place]
    key = found[place][0]
    return f"{key}={format_value(settings.get(key))}, and {name} has {format_value(loss.configuration.get(key))}"


def row_of(name: str, loss: TunedLoss, metric: str, runs: Sequence[RunRecord]) -> Row:
    mine = [run for run in runs if decisive(run.settings) == loss.configuration]
    values = {run.seed: value for run in mine if (value := accuracy(run, metric)) is not None}
    return Row(name, loss, 100 * loss.choice.mean, fmean(values.values()) if values else None, len(values))
