"""The data set of each run, and a readable name for it.

Two runs have the same data set if every key with the role "data" is equal (app/config/keys.py): data.name,
data.options, data.split, data.holdout. An accuracy depends on the training and test images, so runs on different data
are never ranked together.

    shapes                        all runs on shapes have the same options
    shapes, train_images=600      another run has another number of training images
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from lightning_ssl.app.config.keys import role
from lightning_ssl.app.config.labels import format_value, plain_number
from lightning_ssl.app.report.differences import Settings, differing, natural, value_list
from lightning_ssl.app.runs.run_record import RunRecord

DEFAULTS: Settings = {"data.split": "pretrain", "data.holdout": 0}  # values of keys that a configuration may omit
IN_A_FOLDER = ("folder",)  # data sets whose images are those of data.root


def data_sets(runs: Sequence[RunRecord]) -> dict[Path, str]:
    """The name of each run's data set, by run folder, in the order in which the report shows the data sets."""
    names: dict[Path, str] = {}
    for base in sorted({base_name(run.settings) for run in runs}):
        members = [(run.folder, data_settings(run.settings)) for run in runs if base_name(run.settings) == base]
        keys = distinguishing([settings for _, settings in members])
        known: dict[str, str] = {}  # the settings → the name
        for folder, settings in sorted(members, key=lambda member: [natural(member[1].get(key)) for key in keys]):
            identity = repr(sorted(settings.items(), key=repr))
            if identity not in known:
                known[identity] = unique(full_name(base, keys, settings), known.values())
            names[folder] = known[identity]
    return names


def distinguishing(rows: Sequence[Settings]) -> list[str]:
    """The keys that tell data sets of one name apart. A key is left out if the others suffice."""
    keys = [*differing(rows)]

    def count(some: Sequence[str]) -> int:
        return len({repr([row.get(key) for key in some]) for row in rows})

    for key in tuple(keys):
        others = [other for other in keys if other != key]
        if count(others) == count(keys):
            keys = others
    return keys


def base_name(settings: Mapping[str, object]) -> str:
    return str(settings.get("data.name", settings.get("data", "?")))


def data_settings(settings: Settings) -> Settings:
    """The keys that decide which images a run saw, without null values."""
    name = base_name(settings)
    mine = {key: plain_number(value) for key, value in {**DEFAULTS, **settings}.items() if role(key) == "data"}
    if name in IN_A_FOLDER:
        mine["data.root"] = settings.get("data.root")
    return {key: value for key, value in mine.items() if value is not None}


def full_name(base: str, keys: Sequence[str], settings: Settings) -> str:
    """The base name and the keys in which data sets of this name differ."""
    words = [f"{short_key(key)}={format_value(settings[key])}" for key in keys if key in settings]
    return ", ".join([base, *words]) if words or not keys else f"{base}, default options"


def unique(name: str, taken: Collection[str]) -> str:
    """Number a name that is taken: values that differ can look the same."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    return found


def short_key(key: str) -> str:
    return key.removeprefix("data.").removeprefix("options.")


def separation(runs: Sequence[RunRecord]) -> str | None:
    """Say why there are several data sets; None if there is one."""
    bases = {base_name(run.settings) for run in runs}
    reasons = []
    for base in sorted(bases):
        found = differing(data_settings(run.settings) for run in runs if base_name(run.settings) == base)
        varied = [value_list(short_key(key), values).replace("(none, ", "(default, ") for key, values in found.items()]
        reasons += [f"the runs on {base} differ in {', '.join(varied)}"] if varied else []
    if len(bases) < 2 and not reasons:
        return None
    why = "; ".join(["an accuracy depends on the images for training and for testing", *reasons])
    return f"Losses are ranked within each data set and not across data sets: {why}."
