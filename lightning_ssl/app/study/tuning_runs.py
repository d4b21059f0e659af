"""The scores of a tuning's runs, and the choice of a setting for each loss."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from lightning_ssl.app.report.formats import list_names
from lightning_ssl.app.runs.choice import FILE, HOLDOUT, Choice, TunedLoss, TunedSetting, decisive, read_choice
from lightning_ssl.app.runs.run_record import Reader, RunRecord
from lightning_ssl.app.runs.status import BROKEN
from lightning_ssl.app.study.tuning import Setting, Tuning
from lightning_ssl.app.sweep.state import recorded
from lightning_ssl.base.checks import UserError

Scores = Sequence[float]  # of one setting: a score for each tuning seed


def best_setting(settings: Sequence[Scores]) -> int:
    """Return the index of the setting with the largest mean score; the first of equal ones. One without scores cannot
    be chosen.

    >>> best_setting([[0.6, 0.7], [0.7, 0.8], []])
    1
    """
    scored = [k for k, scores in enumerate(settings) if scores]
    return max(scored, key=lambda k: fmean(settings[k]))


def choose(tuning: Tuning, runs: Iterable[RunRecord]) -> Choice:
    """Choose a setting for each loss by the mean on the held-out images over the tuning seeds.

    A setting with a failed run cannot be chosen. A run that is missing or unfinished is refused: the budget of each
    loss is fixed.
    """
    found = runs_of(tuning, runs)
    results = [tuned(tuning, setting, found[setting.file]) for setting in tuning.settings]
    losses = {}
    for loss, space in tuning.spaces.items():
        mine = [(s, r) for s, r in zip(tuning.settings, results, strict=True) if s.loss == loss]
        if not any(result.scores for _, result in mine):
            raise UserError(f"{loss}: every setting has a failed run, so none can be chosen")
        chosen = best_setting([result.scores for _, result in mine])
        losses[loss] = TunedLoss(space, [result for _, result in mine], chosen, mine[chosen][0].decisive)
    return Choice(
        tuning.name, tuning.metric, tuning.holdout, tuning.tuning_seeds, tuning.fresh_seeds, losses,
    )  # fmt: skip


def runs_of(tuning: Tuning, runs: Iterable[RunRecord]) -> Mapping[str, dict[int, list[RunRecord]]]:
    """The runs of each setting by seed. Runs of other settings, seeds or held-out images are left out."""
    by_values = {repr(sorted(setting.decisive.items())): setting.file for setting in tuning.settings}
    found: dict[str, dict[int, list[RunRecord]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        file = by_values.get(repr(sorted(decisive(run.settings).items())))
        if file and run.seed in tuning.tuning_seeds and run.settings.get(HOLDOUT) == tuning.holdout:
            found[file][int(run.seed)].append(run)
    return found


def tuned(tuning: Tuning, setting: Setting, runs: Mapping[int, Sequence[RunRecord]]) -> TunedSetting:
    """The scores of a setting, or why it cannot be chosen."""
    scores, failed = [], []
    for seed in tuning.tuning_seeds:
        mine = runs.get(seed, ())
        finished = [run for run in mine if run.finished]
        if len(finished) > 1:
            names = list_names([run.name for run in finished])
            raise UserError(f"{setting.name}, seed {seed}: {names} are the same run; give folders with one of them")
        value = finished[0].last(tuning.metric) if finished else None
        if finished and value is None:
            raise UserError(f"{finished[0].name}: no value of {tuning.metric}, by which the settings are compared")
        if value is not None and value == value:
            scores.append(float(value))
        elif ended := [run for run in mine if run.status in ("failed", BROKEN)]:
            failed.append(f"seed {seed}: {ended[0].error or 'its files cannot be read'}")
        else:
            state = mine[0].status if mine else "missing"
            raise UserError(f"{setting.name}, seed {seed}: its run is {state}; the choice needs every run")
    if failed:
        return TunedSetting(setting.flags, [], failed[0])
    return TunedSetting(setting.flags, scores)


def freeze(tuning: Tuning, folder: Path, sources: Sequence[str | Path]) -> Choice:
    """Choose by the runs below some folders, and write the choice. What was frozen before is never replaced."""
    known = frozen(tuning, folder)
    choice = choose(tuning, Reader(recorded).runs(sources))
    if known is not None and known != choice:
        raise UserError(f"{folder / FILE}: the choice is frozen, and these runs give another; choose another --name")
    choice.write(folder)
    return choice


def frozen(tuning: Tuning, folder: Path) -> Choice | None:
    """The choice that was frozen in a folder; None before. A choice from another tuning file is refused."""
    file = folder / FILE
    if not file.exists():
        return None
    choice = read_choice(file)
    if not fits(choice, tuning):
        raise UserError(f"{file}: the tuning file has changed since the choice; restore it, or choose another --name")
    return choice


def fits(choice: Choice, tuning: Tuning) -> bool:
    """Whether the tuning file has what was fixed before the first run of a choice."""
    steps = (choice.tuning_seeds, choice.fresh_seeds) == (tuning.tuning_seeds, tuning.fresh_seeds)
    measured = (choice.name, choice.metric, choice.holdout) == (tuning.name, tuning.metric, tuning.holdout)
    return (
        steps
        and measured
        and choice.losses.keys() == tuning.spaces.keys()
        and all(
            loss.space == tuning.spaces[name]
            and [setting.flags for setting in loss.settings] == [setting.flags for setting in tuning.of_loss(name)]
            and loss.configuration == tuning.of_loss(name)[loss.chosen].decisive
            for name, loss in choice.losses.items()
        )
    )
