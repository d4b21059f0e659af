"""A data set of the Hugging Face hub: `--data.name hf:NAME`. It needs the package `datasets`.

The training split is `train`; the test split is `test`, or `validation` if there is no `test`. Options:

    image, label                            names of the columns; by default they are found by their types and names
    train, test                             names of the splits
    store_size, num_classes, val_share      as in `MapStyle`

Other options are arguments of `datasets.load_dataset`, such as `{name: plain_text}`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning_ssl.base.checks import UserError
from lightning_ssl.base.user_code import reason
from lightning_ssl.data.map_style import OPTIONS, MapStyle, kept_source

USUAL = {
    "image": ("image", "img", "picture"),
    "label": ("label", "labels", "fine_label", "target"),
    "train": ("train",),
    "test": ("test", "validation", "valid", "val"),
}  # the names of columns and splits
OPTIONAL = ("label", "test")


class Columns:
    """The rows of a hub data set as `(image, label)`."""

    def __init__(self, rows: Any, image: str, label: str | None) -> None:
        self.rows, self.image, self.label = rows, image, label
        names = getattr(rows.features.get(label), "names", None) if label else None
        self.classes = tuple(map(str, names)) if names else None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        row = self.rows[index]
        return row[self.image], row[self.label] if self.label else None

    @property
    def labels(self) -> list[Any] | None:
        """The column of labels, read without the images."""
        return list(self.rows[self.label]) if self.label else None


def source_of(name: str, root: Path, options: dict[str, Any]) -> MapStyle:
    """The splits of a hub data set. `load_dataset` checks its own arguments."""
    return kept_source(None, load, name, options)


def load(name: str, options: dict[str, Any]) -> MapStyle:
    try:
        library: Any = importlib.import_module("datasets")
    except ImportError as error:
        raise UserError(f"data.name={name}: it needs the package datasets: pip install datasets") from error
    arguments = {key: value for key, value in options.items() if key not in (*OPTIONS, *USUAL)}
    try:
        splits = library.load_dataset(name.removeprefix("hf:"), **arguments)
    except Exception as error:
        raise UserError(f"data.name={name}: datasets.load_dataset failed: {reason(error)}") from error
    if not isinstance(splits, Mapping):
        raise UserError(f"data.name={name}: expected all splits; leave out the option split and use train and test")
    train = chosen(name, "train", options, splits)
    test = None if options.get("val_share") else chosen(name, "test", options, splits)
    columns = splits[train].features
    images = [column for column, kind in columns.items() if type(kind).__name__ == "Image"]
    image = chosen(name, "image", options, columns, *images)
    label = chosen(name, "label", options, columns)
    made = [None if split is None else Columns(splits[split], image, label) for split in (train, test)]
    given = {key: options[key] for key in OPTIONS if key in options}
    return MapStyle(made[0], made[1], f"data.name={name}", **given)


def chosen(name: str, role: str, options: dict[str, Any], present: Mapping[str, Any], *others: str) -> Any:
    """The column or split for a role: as given, or the first usual one that is present, or one of the others."""
    usual = [each for each in USUAL[role] if each in present]
    found = options.get(role) or next(iter([*usual, *others]), None)
    if found not in present and (found is not None or role not in OPTIONAL):
        raise UserError(f"data.options.{role}={found!r}: choose one of {', '.join(present)} of {name}")
    return found
