"""Which settings differ between runs, and which of these differences make groups.

| difference                                                                                      | becomes          |
|-------------------------------------------------------------------------------------------------|------------------|
| a parameter of a sweep that has several values in it                                            | groups (`swept`) |
| a key with the role "setting" that has several values for the same loss on the same data        | groups (`swept`) |
| a key with the role "setting" that differs between losses only (SimSiam has its own projector)  | `recipe`         |
| any other key that can change a result: callbacks, precision, settings of the probe             | `unplanned`      |

`recipe` and `unplanned` make no groups; the page names them. The roles are those of app/config/keys.py. Differences
are taken within a data set, because runs on different data are not compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lightning_ssl.app.config.keys import CALLBACKS, INCIDENTAL, Role, role
from lightning_ssl.app.config.labels import Scalar, format_value, loss_of, plain_number
from lightning_ssl.app.report.formats import list_names
from lightning_ssl.app.runs.panels import RESULTS
from lightning_ssl.app.runs.run_record import RunRecord
from lightning_ssl.base.walk import parents

Settings = dict[str, Scalar]
VALUES_SHOWN = 4  # values of a key that a note lists
KEYS_SHOWN = 12  # keys that a note lists
# The metric that a key of the role "measuring" changes, by its first part.
METRICS = {**{flag: metric.key for flag, metric in RESULTS.items()}, "trainer": "every accuracy"}


@dataclass(frozen=True)
class Differences:
    """The settings in which runs differ. `settings` has the completed settings of each run."""

    swept: list[str]
    recipe: dict[str, list[Scalar]]
    unplanned: dict[str, list[Scalar]]
    settings: dict[Path, Settings]

    @classmethod
    def of(cls, runs: Sequence[RunRecord], data: Mapping[Path, str]) -> Differences:
        """Find the differences; `data` gives the data set of each run folder."""
        settings = completed(runs)
        searched = sweep_parameters(runs)

        def select(some: Iterable[RunRecord], *roles: Role) -> dict[str, list[Scalar]]:
            rows = (settings[run.folder] for run in some)
            return differing({key: value for key, value in row.items() if role(key) in roles} for row in rows)

        swept: set[str] = set()
        found: dict[str, list[Scalar]] = defaultdict(list)
        for same_data in split(runs, lambda run: data[run.folder]):
            for key, values in select(same_data, "setting", "measuring", "other", "incidental").items():
                found[key] += values
            for same_loss in split(same_data, lambda run: loss_of(run.settings)):
                swept.update(select(same_loss, "setting"))
        swept |= {key for key in found if not searched.isdisjoint((key, *parents(key)))}
        left = {key: distinct(values) for key, values in found.items() if key not in swept}
        recipe = {key: values for key, values in left.items() if role(key) == "setting"}
        unplanned = {key: values for key, values in left.items() if role(key) in ("measuring", "other")}
        return cls(sorted(swept), recipe, unplanned, settings)

    def note(self) -> str | None:
        """Name the unplanned differences in one sentence, and say which of them can change the measured accuracy."""
        if not self.unplanned:
            return None
        named = [value_list(key, values) for key, values in self.unplanned.items()]
        text = f"Differs between runs but is not part of the comparison: {list_names(named, KEYS_SHOWN)}."
        measuring = "; ".join(f"{', '.join(keys)} ({metric})" for metric, keys in self.measuring().items())
        return text + (f" This can change the measured accuracy: {measuring}." if measuring else "")

    def measuring(self) -> dict[str, list[str]]:
        """The unplanned differences in how accuracy is measured, by metric."""
        found: dict[str, list[str]] = defaultdict(list)
        for key in self.unplanned:
            if role(key) == "measuring":
                found[METRICS[key.partition(".")[0]]].append(key)
        return found

    def disturbs(self, metric: str) -> bool:
        """Whether an unplanned difference changes how this metric is measured."""
        return not {metric, METRICS["trainer"]}.isdisjoint(self.measuring())


def sweep_parameters(runs: Iterable[RunRecord]) -> set[str]:
    """The parameters that have several values among the trials of one sweep, without seeds and names."""
    found: set[str] = set()
    trials = [run for run in runs if run.parameters]
    for sweep in split(trials, lambda run: run.folder.parent):
        found.update(differing(run.parameters for run in sweep))
    return {key for key in found if key not in INCIDENTAL and not key.endswith(".seed")}


def completed(runs: Sequence[RunRecord]) -> dict[Path, Settings]:
    """The settings of each run, with plain numbers, and with a value for each part that another run sets to null.

    A part with arguments and without a class, such as a projector, has the value "given". The value of
    trainer.callbacks is the list of their names without those that belong to the loss.
    """
    null = {key for run in runs for key, value in run.settings.items() if value is None}
    found = {}
    for run in runs:
        above = {parent for key in run.settings for parent in parents(key)}
        callbacks = {key for key in above | run.settings.keys() if key.rpartition(".")[0] == CALLBACKS}
        names = sorted(key.rpartition(".")[2] for key in callbacks if role(key) != "loss")
        found[run.folder] = {
            **dict.fromkeys(above & null, "given"),
            **{key: plain_number(value) for key, value in run.settings.items()},
            CALLBACKS: ", ".join(names) or None,
        }
    return found


def differing(rows: Iterable[Settings]) -> dict[str, list[Scalar]]:
    """Keys with more than one value, with their values.

    A key that is absent has the value None. But if it is absent because a part above it differs, as the arguments of a
    callback that another run lacks, the difference is that of the part.
    """
    table = list(rows)
    varied: dict[str, list[Scalar]] = {}
    for key in sorted({key for row in table for key in row}):  # a part comes before its arguments
        explained = any(parent in varied for parent in parents(key))
        values = distinct(row.get(key) for row in table if key in row or not explained)
        if len(values) > 1:
            varied[key] = values
    return varied


def split(runs: Iterable[RunRecord], property_of: Callable[[RunRecord], object]) -> list[list[RunRecord]]:
    """Split runs by a property of theirs."""
    parts: dict[object, list[RunRecord]] = defaultdict(list)
    for run in runs:
        parts[property_of(run)].append(run)
    return list(parts.values())


def distinct(values: Iterable[Scalar]) -> list[Scalar]:
    """The values without repetitions, sorted. 1, 1.0 and True are distinct."""
    return sorted({repr(value): value for value in values}.values(), key=natural)


def value_list(key: str, values: Sequence[Scalar]) -> str:
    """Format a key with its values: `probe.lr (0.01, 0.1)`."""
    shown = ", ".join(format_value(value) for value in values[:VALUES_SHOWN])
    return f"{key} ({shown}{', …' * (len(values) > VALUES_SHOWN)})"


def natural(value: Scalar) -> tuple[int, float, str]:
    """Sort key: None, then numbers by size, then words by alphabet."""
    if value is None:
        return (-1, 0.0, "")
    if isinstance(value, int | float):
        return (0, float(value), "")
    return (1, 0.0, str(value))
