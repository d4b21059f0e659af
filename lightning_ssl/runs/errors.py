"""Errors of the parser in one line: `key=value: what is allowed`.

jsonargparse reports an error as a tree of attempts, and wraps the ValueError of a class that refused an argument.
`PATTERNS` lists every text of jsonargparse that is read here. They are not part of its documented interface: they were
checked with version 4.53.0, and `tests/runs/test_errors.py` names the pattern that a new version breaks.
"""

from __future__ import annotations

import ast
import pydoc
import re
import traceback
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from lightning_ssl import methods
from lightning_ssl.data import DataModule
from lightning_ssl.losses.families import Family
from lightning_ssl.losses.importance import Importance
from lightning_ssl.runs.arguments import arguments_of, concrete

PATTERNS = {
    "key": re.compile(r'[Kk]ey "([^"]+)"'),
    "value": re.compile(r"Given value: (.*)"),
    "nested value": re.compile(r"NestedArg\(key='([^']*)', val='?(.*?)'?\)$"),
    "converted value": re.compile(r"Got value: (.*)"),
    "unknown key": re.compile(r"Option '([^']+)' is not accepted|Group '([^']+)' does not accept option '([^']+)'"),
    "unknown class": re.compile(
        r"Expected a dot import path|Expected a path but|[Ii]mport path .* does not correspond|Unable to import"
        r"|No module named|Problem with given class_path"
    ),
    "unknown flag of a class": re.compile(r"class_path '([^']+)':\s+unrecognized arguments: "),
    "class of a key": re.compile(r"class_path '([^']+)'"),
    "expected type": re.compile(r"Expected an? ([^\n]*)"),
    "simple type": re.compile(r"<class '(float|int|str|bool)'|Literal"),
    "choices": re.compile(r"Literal\[(.*)\]"),
    "type name": re.compile(r"<class '([^']+)'>"),
    "start": re.compile(r'^Parser key "([^"]+)": '),
}

# The classes of the parts that have no `class_path`.
PARTS = {"data": "DataModule", "trainer": "Trainer", "checkpoint": "Checkpoints"}
# Arguments that a method passes on under another name, by that name.
RENAMED = {"preset": "augment", "size": "image_size"}
GROUPS = {"optimization": "Optimization", "projector": "Head", "predictor": "PredictorHead"}


def one_line(error: Exception) -> str:
    """Turn an error of the parser into `key=value: what was expected`."""
    text = str(error)
    keys = PATTERNS["key"].findall(text)
    given = PATTERNS["value"].search(text)
    value = given[1] if given else None
    if nested := PATTERNS["nested value"].search(value or ""):
        # a flag below a class: `importance.p` of `--model.importance.p x`
        keys, value = [*keys[:1], *nested[1].split(".")], nested[2]
    if unknown := PATTERNS["unknown key"].search(text):
        key, group = unknown[1] or unknown[3], unknown[2]
        if not nested:
            value = value_at(key, given[1]) if given else None
        return unknown_key(text, keys, key, value, group)
    if nested and (unknown := PATTERNS["unknown flag of a class"].search(text)):
        key = next((each for each in nested[1].split(".") if each not in names_of(unknown[1])), keys[-1])
        return f"{'.'.join(keys)}={value}: {unknown_for(key, class_name(unknown[1]), names_of(unknown[1]))}"
    key = ".".join(dict.fromkeys(keys))
    expected = [word for word in PATTERNS["expected type"].findall(text) if "NoneType" not in word]
    simple = bool(PATTERNS["simple type"].search(" ".join(expected)))
    if key and not simple and PATTERNS["unknown class"].search(text) and class_names(key):
        return f"{key}={value}: expected one of {', '.join(class_names(key))}, or the path of a class"
    if key and expected and simple:
        got = PATTERNS["converted value"].search(text)
        return f"{key}={got[1] if got else value}: expected {allowed(expected)}"
    plain = " ".join(line.strip(" -") for line in text.splitlines() if line.strip())
    return PATTERNS["start"].sub(r"\1: ", plain)


def allowed(expected: list[str]) -> str:
    """The allowed values or types, in words."""
    choices = [choice for word in expected for choice in PATTERNS["choices"].findall(word)]
    if choices:
        return "one of " + ", ".join(choices).replace("'", "")
    kinds = [class_name(kind) for word in expected for kind in PATTERNS["type name"].findall(word)]
    return " or ".join(dict.fromkeys(kinds))


def unknown_key(text: str, keys: list[str], key: str, value: str | None, group: str | None) -> str:
    """Name an unknown key and the valid ones beside it."""
    owners = PATTERNS["class of a key"].findall(text)
    path = [*keys, *([group] if group and group not in keys else [])]
    if path[-1:] != [key]:
        path.append(key)
    if group in GROUPS:
        owner, valid = group, [field.name for field in fields(getattr(methods, GROUPS[group]))]
    elif owners:
        owner, valid = class_name(owners[-1]), names_of(owners[-1])
    elif group == "data":
        owner, valid = "data", list(arguments_of(DataModule))
    else:
        owner, valid = group or "the configuration", []
    found = ".".join(path) + ("" if value is None else f"={value}")
    return f"{found}: {unknown_for(key, owner, valid)}"


def unknown_for(key: str, owner: str, valid: list[str]) -> str:
    return f"unknown key {key} for {owner}" + (f"; valid keys: {', '.join(valid)}" if valid else "")


def value_at(key: str, text: str) -> str | None:
    """The value of a key in the text of a nested dictionary, at any depth."""
    try:
        tree = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    found = look_up(key, tree)
    return None if found is None else str(found)


def look_up(key: str, tree: Any) -> Any:
    if not isinstance(tree, dict):
        return None
    if key in tree:
        return tree[key]
    found = [look_up(key, each) for each in tree.values()]
    return next((each for each in found if each is not None), None)


def names_of(path: str) -> list[str]:
    """The names of the arguments of a class, given by its path."""
    kind = pydoc.locate(path)
    return list(arguments_of(kind)) if isinstance(kind, type) else []


def refusal(error: BaseException) -> BaseException:
    """Unwrap the ValueError that jsonargparse wrapped."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ValueError) and not PATTERNS["value"].search(str(cause)):
            return ValueError(str(cause))
        cause = cause.__cause__ or cause.__context__
    return error


def with_full_key(error: ValueError, config: dict[str, Any] | None = None) -> ValueError:
    """Name the full key in the error of a class: `tau=-1.0: …` becomes `model.importance.tau=-1.0: …`.

    error    an error of `checks.require`, raised when an object of the configuration was built or used
    config   the stored configuration; None if there is none yet, and then only errors about the data are changed

    The class is that of an object whose method is in the traceback. Its place in the configuration gives the key.
    """
    refused = re.match(r"(\w+)=(.*)", str(error), re.DOTALL)
    if refused is None:
        return error
    name, rest = refused.groups()
    value = rest.partition(f": {name} must be")[0] if f": {name} must be" in rest else rest.partition(": ")[0]
    for kind in classes_in_traceback(error):
        if (key := key_of_argument(kind, name, value, config)) is not None:
            last = key.rpartition(".")[2]
            return ValueError(f"{key}={rest.replace(f': {name} must be', f': {last} must be', 1)}")
    return error


def classes_in_traceback(error: BaseException) -> Iterator[type]:
    """The classes of the objects whose methods raised an error, innermost first. Functions of `data` are DataModule."""
    cause: BaseException | None = error
    while cause is not None:
        if str(cause) == str(error):
            frames = [frame for frame, _ in traceback.walk_tb(cause.__traceback__)]
            for frame in reversed(frames):
                if "self" in frame.f_locals:
                    yield type(frame.f_locals["self"])
                elif frame.f_globals.get("__name__", "").startswith("lightning_ssl.data"):
                    yield DataModule
        cause = cause.__cause__ or cause.__context__


def key_of_argument(kind: type, name: str, value: str, config: dict[str, Any] | None) -> str | None:
    """The key of an argument of a class; None if the class is not in the configuration, or has no such argument."""
    if config is None:
        if kind is not DataModule:
            return None
        return f"data.{name}" if name in arguments_of(DataModule) else f"data.options.{name}"
    names = {base.__name__ for base in kind.__mro__}
    for path, owner, arguments in places(config):
        if owner not in names:
            continue
        leaves = dict(leaves_of(arguments))
        named = [key for key in leaves if key.rpartition(".")[2] in (name, RENAMED.get(name))]
        if named:  # `tau` of an importance within a method: the one with this value
            return f"{path}.{next((key for key in named if repr(leaves[key]) == value), named[0])}"
    return None


def places(tree: Any, path: str = "") -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """The key, class and arguments of every part of a configuration."""
    if isinstance(tree, list):
        for number, item in enumerate(tree):
            yield from places(item, f"{path}[{number}]")
    if not isinstance(tree, dict):
        return
    if "class_path" in tree:
        arguments = tree.get("init_args") or {}
        yield path, class_name(tree["class_path"]), arguments
    else:
        arguments = tree
        yield path, PARTS.get(path) or GROUPS.get(path.rpartition(".")[2]), arguments
    for key, item in arguments.items():
        yield from places(item, f"{path}.{key}" if path else key)


def leaves_of(arguments: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a part, by their key below it. `init_args` is left out of a key."""
    for key, item in arguments.items():
        inner = path if key == "init_args" else f"{path}.{key}" if path else key
        if isinstance(item, dict):
            yield from leaves_of(item, inner)
        elif key != "class_path":
            yield inner, item


def class_name(path: str) -> str:
    """The name of a class without its module."""
    return path.rpartition(".")[2]


def class_names(key: str) -> list[str]:
    """The classes that a key can name."""
    last = key.rpartition(".")[2]
    base = {"model": methods.Method, "importance": Importance, "family": Family}.get(last)
    return sorted({kind.__name__ for kind in concrete(base)}) if base else []
