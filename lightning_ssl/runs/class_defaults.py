"""The arguments of an importance or family that is chosen in place of another one.

jsonargparse keeps the arguments of the class before, if the new class has arguments of the same name: Square would get
the τ of Direct. That is right for methods, which share their network. An importance starts with its own defaults.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import yaml  # type: ignore[import-untyped]

import lightning_ssl
from lightning_ssl.checks import UserError
from lightning_ssl.runs.imports import given_values
from lightning_ssl.user_code import load_object, place_of

KEYS = ("model.importance", "model.importance.family")

Parameters = Mapping[str, inspect.Parameter]


def flags_of_defaults(argv: list[str]) -> list[str]:
    """Flags that reset the arguments which a class would get from the class that it replaces.

    An argument keeps a value that is given for its class: by a flag, or by a file that no later choice replaces.
    """
    found, values = list[str](), list(steps(argv))
    owner: str | None = None
    for key in KEYS:
        if key != KEYS[0] and key.rpartition(".")[2] not in parameters_of(owner):
            break  # the last importance has no family
        first = default_class(values, key)
        history = [] if first is None else [first]  # the classes in the order in which they are chosen
        from_flags, from_files = set[str](), set[str]()
        for is_file, step in values:
            below = {name.removeprefix(key).removeprefix("."): value for name, value in step if is_below(name, key)}
            chosen = below.get("class_path", below.get(""))
            if isinstance(chosen, str) and (not history or name_of(chosen) != name_of(history[-1])):
                history.append(chosen)
                from_files.clear()
            names = {name.partition(".")[0] for name in below} - {"", "class_path"}
            (from_files if is_file else from_flags).update(names)
        owner = history[-1] if history else None
        if len(history) > 1:
            inherited = {name for path in history[:-1] for name in parameters_of(path)}
            found += resetting_flags(key, history[-1], inherited - from_flags - from_files)
    return found


def resetting_flags(key: str, path: str, names: set[str]) -> Iterator[str]:
    """A flag with the default of each of these arguments that the class has."""
    for name, each in parameters_of(path).items():
        if name not in names:
            continue
        if each.default is each.empty:
            raise UserError(f"{key}.{name}: {path} requires it ({place_of(class_of(path))})")
        if each.default is None or isinstance(each.default, bool | int | float | str):
            yield f"--{key}.{name}={yaml.safe_dump(each.default).splitlines()[0]}"


def default_class(values: list[tuple[bool, list[tuple[str, Any]]]], key: str) -> str | None:
    """The class that the method has for a key if none is given."""
    paths = [value for _, step in values for name, value in step if name in ("model", "model.class_path")]
    parameter = parameters_of(paths[-1]).get(key.removeprefix("model.")) if paths else None
    if parameter is None or parameter.default is None or parameter.default is parameter.empty:
        return None
    kind = type(parameter.default)
    return f"{kind.__module__}.{kind.__qualname__}"


def steps(argv: list[str]) -> Iterator[tuple[bool, list[tuple[str, Any]]]]:
    """The values of each file and of each flag, in the order of the command line, and whether they are of a file."""
    for number, word in enumerate(argv):
        if word.startswith("-"):
            name = word.lstrip("-").partition("=")[0]
            yield name in ("config", "c"), list(given_values(argv[number : number + 1 + ("=" not in word)]))


def is_below(name: str, key: str) -> bool:
    return name == key or name.startswith(f"{key}.")


def name_of(path: str) -> str:
    """A class of this package by its name alone, another one by its whole path."""
    return path.rpartition(".")[2] if path.startswith("lightning_ssl.") else path


def class_of(path: Any) -> Any:
    """The class or function of a path or of a public name; None if there is none, which the parser refuses."""
    if not isinstance(path, str) or "." not in path:
        return getattr(lightning_ssl, str(path), None)
    try:
        return load_object(path, "class_path")
    except ValueError:
        return None


def parameters_of(path: Any) -> Parameters:
    """The arguments of a class; empty for a function."""
    found = class_of(path)
    return inspect.signature(found).parameters if inspect.isclass(found) else {}
