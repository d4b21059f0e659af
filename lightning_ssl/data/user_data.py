"""A data set given by the path of a function or class: `--data.name mine.make_dataset`.

The options are its arguments. It is called once per split, with `split="train"` or `"test"` if it accepts `split`, or
with `train=True` or `False` if it accepts that, as the classes of torchvision do; `root` is passed if it accepts that.
A function that accepts neither, or returns None for the test images, gives no test images. `map_style.py` says what it
must return. These options are not arguments, unless the function has an argument of that name:

    store_size, num_classes, val_share      as in `map_style.Source`
"""

from __future__ import annotations

import difflib
import inspect
from pathlib import Path
from typing import Any

from lightning_ssl.checks import UserError
from lightning_ssl.data.map_style import Items, Source
from lightning_ssl.data.split import DatasetInfo
from lightning_ssl.user_code import load_object, place_of, reason

KEY = "data.name"
PREPARES = True  # a constructor may download
OURS = ("store_size", "num_classes", "val_share")
KEPT = 4  # sources in memory: the parser and the data module ask for the same one
sources: dict[str, tuple[Any, Source]] = {}


def open_split(name: str, root: Path, split: str, **options: Any) -> Items:
    """The split for training, or the one for testing."""
    return source(name, root, options).open_split(split)


def info(name: str, root: Path, **options: Any) -> DatasetInfo:
    """Image size, number of classes and channel statistics. Reads a sample of the images."""
    return source(name, root, options).info


def no_test(name: str, root: Path, **options: Any) -> str:
    """Why there are no test images; empty if there are."""
    return source(name, root, options).no_test


def check_options(name: str, options: dict[str, Any]) -> None:
    """Refuse an option that is neither ours nor an argument of the user's function."""
    make = load_maker(name)
    parameters = parameters_of(make)
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return
    valid = [key for key in parameters if key not in ("split", "train")]
    for key, value in options.items():
        if key not in valid and key not in OURS:
            close = difflib.get_close_matches(key, [*valid, *OURS], n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            known = ", ".join([*valid, *(each for each in OURS if each not in valid)])
            where = f"data.options.{key}={value!r}: unknown option of {name} ({place_of(make)})"
            raise UserError(f"{where}; valid options: {known}{hint}")


def source(name: str, root: Path, options: dict[str, Any]) -> Source:
    """The data sets of a path, made once per process."""
    make = load_maker(name)
    key = repr((name, str(root), sorted(options.items(), key=lambda pair: pair[0])))
    if key not in sources or sources[key][0] is not make:
        sources.pop(key, None)
        while len(sources) >= KEPT:
            del sources[next(iter(sources))]
        sources[key] = make, make_source(name, make, root, options)
    return sources[key][1]


def load_maker(name: str) -> Any:
    make = load_object(name, KEY)
    if not callable(make):
        kind = type(make).__name__
        raise UserError(f"{KEY}={name}: it is of type {kind}; expected a function or class that makes a data set")
    return make


def make_source(name: str, make: Any, root: Path, options: dict[str, Any]) -> Source:
    parameters = parameters_of(make)
    ours = {key: value for key, value in options.items() if key in OURS and key not in parameters}
    arguments = {key: value for key, value in options.items() if key not in ours}
    if "root" in parameters and "root" not in arguments:
        arguments["root"] = str(root)
    if "split" in parameters:
        splits: tuple[dict[str, Any], ...] = ({"split": "train"}, {"split": "test"})
    elif "train" in parameters:
        splits = ({"train": True}, {"train": False})
    else:
        splits = ({},)
    made = [call(name, make, {**arguments, **split}) for split in splits]
    if made[0] is None:
        raise UserError(f"{KEY}={name}: {place_of(make)}: it returned None for the training images")
    held_out = bool(ours.get("val_share"))
    test = made[1] if len(made) > 1 and not held_out else None
    return Source(made[0], test, f"{KEY}={name}", **ours)


def call(name: str, make: Any, arguments: dict[str, Any]) -> Any:
    try:
        return make(**arguments)
    except Exception as error:
        given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        raise UserError(f"{KEY}={name}: {reason(error)}; it was called with ({given})") from error


def parameters_of(make: Any) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(make).parameters)
    except (TypeError, ValueError):  # a builtin without a signature
        return {}
