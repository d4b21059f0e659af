"""A data set given by the path of a function or class: `--data.name mine.make_dataset`.

The options are its arguments. It is called once per split, with `split="train"` or `"test"` if it accepts `split`, or
with `train=True` or `False` if it accepts that, as the classes of torchvision do; `root` is passed if it accepts that.
A function that accepts neither, or returns None for the test images, gives no test images. `map_style.py` says what it
must return. These options are not arguments, unless the function has an argument of that name:

    store_size, num_classes, val_share      as in `MapStyle`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning_ssl.base.checks import UserError, shown
from lightning_ssl.base.signatures import arguments_of, takes_any_name
from lightning_ssl.base.tree import unknown_key
from lightning_ssl.base.user_code import load_object, place_of, reason
from lightning_ssl.data.map_style import OPTIONS, MapStyle, kept_source

KEY = "data.name"


def source_of(name: str, root: Path, options: dict[str, Any]) -> MapStyle:
    """The data sets of a path."""
    make = load_object(name, KEY)
    if not callable(make):
        kind = type(make).__name__
        raise UserError(f"{KEY}={name}: it is of type {kind}; expected a function or class that makes a data set")
    check_options(name, make, options)
    return kept_source(make, make_source, name, make, str(root), options)


def check_options(name: str, make: Any, options: dict[str, Any]) -> None:
    """Refuse an option that is neither one of `MapStyle` nor an argument of the user's function."""
    ours = {key: each for key, each in arguments_of(MapStyle).items() if key in OPTIONS}
    known = {key: each for key, each in arguments_of(make).items() if key not in ("split", "train")} | ours
    for key, value in options.items():
        if key not in known and not takes_any_name(make):
            raise UserError(f"options.{key}={shown(value)}: {unknown_key(key, f'{name} ({place_of(make)})', known)}")


def make_source(name: str, make: Any, root: str, options: dict[str, Any]) -> MapStyle:
    parameters = arguments_of(make)
    ours = {key: value for key, value in options.items() if key in OPTIONS and key not in parameters}
    arguments = {key: value for key, value in options.items() if key not in ours}
    if "root" in parameters:
        arguments = {"root": root, **arguments}
    splits: list[dict[str, Any]] = [{}]
    if "split" in parameters:
        splits = [{"split": "train"}, {"split": "test"}]
    elif "train" in parameters:
        splits = [{"train": True}, {"train": False}]
    train, test = ([call(name, make, {**arguments, **split}) for split in splits] + [None])[:2]
    if train is None:
        raise UserError(f"{KEY}={name}: {place_of(make)}: it returned None for the training images")
    return MapStyle(train, None if ours.get("val_share") else test, f"{KEY}={name}", **ours)


def call(name: str, make: Any, arguments: dict[str, Any]) -> Any:
    try:
        return make(**arguments)
    except Exception as error:
        given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        raise UserError(f"{KEY}={name}: {reason(error)}; it was called with ({given})") from error
