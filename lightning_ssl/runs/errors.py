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
from lightning_ssl.checks import MAX_SHOWN, UserError, cut
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
        r"|No module named|Problem with given class_path|Not a valid subclass"
    ),
    "unknown flag of a class": re.compile(r"class_path '([^']+)':\s+unrecognized arguments: "),
    "class of a key": re.compile(r"class_path '([^']+)'"),
    "expected type": re.compile(r"Expected an? ([^\n]*)"),
    "simple type": re.compile(r"<class '(float|int|str|bool)'|Literal"),
    "choices": re.compile(r"Literal\[(.*)\]"),
    "type name": re.compile(r"<class '([^']+)'>"),
    "start": re.compile(r'^Parser key "([^"]+)": '),
    "subtypes": re.compile(r"Subtypes: \[(.*)\]"),
    "missing argument": re.compile(r"class_path '([^']+)':\s+the following arguments are required: (\w+)"),
    "refused group": re.compile(r"Unable to load config ['\"](.*?)['\"]"),
    # Lines that say how jsonargparse works, not what is wrong.
    "internal": re.compile(
        r"Does not validate|Subtypes: |^\s*Errors:|Expected an? |Not a valid subclass|Subclass types expect"
        r"|a class path|a dict with|Given value|Got value|Problem with given class_path|Parser key"
        r"|Unable to load config|[Ii]mport path|implicit class"
    ),
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
        words = nested[1].split(".")
        key = next((each for each in words if each not in names_of(unknown[1])), keys[-1])
        group = words[words.index(key) - 1] if key in words[1:] else None
        owner, valid = group_keys(group) or (class_name(unknown[1]), names_of(unknown[1]))
        return f"{'.'.join(keys)}={value}: {unknown_for(key, owner, valid)}"
    key = ".".join(dict.fromkeys(keys)).removesuffix(".class_path")
    expected = [word for word in PATTERNS["expected type"].findall(text) if "NoneType" not in word]
    if key and (missing := PATTERNS["missing argument"].search(text)):
        return f"{key}.{missing[2]}: {class_name(missing[1])} requires it"
    simple = bool(PATTERNS["simple type"].search(" ".join(expected)))
    if key and not simple and PATTERNS["unknown class"].search(text) and class_names(key):
        return (
            f"{key}={cut(str(value), MAX_SHOWN)}: expected one of {', '.join(class_names(key))}, or the path of a class"
        )
    got = PATTERNS["converted value"].search(text)
    if key and expected and simple:
        return f"{key}={cut(got[1] if got else str(value), MAX_SHOWN)}: expected {allowed(expected)}"
    plain = " ".join(line.strip(" -") for line in text.splitlines() if line.strip())
    if not key or not PATTERNS["internal"].search(text):
        return PATTERNS["start"].sub(r"\1: ", plain)
    found = got or given or PATTERNS["refused group"].search(text)
    shown = value if nested else found[1] if found else None
    where = key if shown is None or "Namespace(" in shown else f"{key}={cut(shown, MAX_SHOWN)}"
    return f"{where}: {reason_in(text) or f'expected {types_in(text)}'}"


def reason_in(text: str) -> str | None:
    """What a class said of its arguments, in an error of jsonargparse; None if it said nothing."""
    lines = [line.strip(" -") for line in text.splitlines()]
    own = [line for line in lines if line and not PATTERNS["internal"].search(line)]
    return own[0] if own else None


def types_in(text: str) -> str:
    """The types that a value can have, in words: `Callback, list of Callback, or null`."""
    if PATTERNS["refused group"].search(text):
        return "keys below it, or a YAML file with them"
    listed = PATTERNS["subtypes"].findall(text)
    if not listed:
        return allowed(PATTERNS["expected type"].findall(text))
    words = [each.strip() for each in re.split(r",(?![^\[]*\])", listed[-1])]
    names = [type_in_words(word) for word in words]
    return f"{', '.join(names[:-1])}{' or ' if names[1:] else ''}{names[-1]}"


def type_in_words(text: str) -> str:
    """A type of Python in words: `list[a.b.C]` is a list of C."""
    text = PATTERNS["type name"].sub(r"\1", text)
    if text == "NoneType":
        return "null"
    outer, _, inner = text.rstrip("]").partition("[")
    if class_name(outer) in ("list", "tuple"):
        items = [class_name(each.strip()) for each in inner.split(",")]
        return f"a {class_name(outer)} of {' and '.join(dict.fromkeys(items))}"
    return {"dict": "a dictionary"}.get(class_name(outer), class_name(outer))


def allowed(expected: list[str]) -> str:
    """The allowed values or types, in words."""
    choices = [choice for word in expected for choice in PATTERNS["choices"].findall(word)]
    kinds = [class_name(kind) for word in expected for kind in PATTERNS["type name"].findall(word)]
    if choices:
        words = [*(["true", "false"] if "bool" in kinds else []), *choices]
        return "one of " + ", ".join(words).replace("'", "")
    return " or ".join(dict.fromkeys(kinds))


def unknown_key(text: str, keys: list[str], key: str, value: str | None, group: str | None) -> str:
    """Name an unknown key and the valid ones beside it."""
    owners = PATTERNS["class of a key"].findall(text)
    path = [*keys, *([group] if group and group not in keys else [])]
    if path[-1:] != [key]:
        path.append(key)
    if grouped := group_keys(group):
        owner, valid = grouped
    elif owners:
        owner, valid = class_name(owners[-1]), names_of(owners[-1])
    elif group == "data":
        owner, valid = "data", list(arguments_of(DataModule))
    else:
        owner, valid = group or "the configuration", []
    found = cut(".".join(path), MAX_SHOWN) + ("" if value is None else f"={cut(value, MAX_SHOWN)}")
    return f"{found}: {unknown_for(key, owner, valid)}"


def group_keys(group: str | None) -> tuple[str, list[str]] | None:
    """The name of a group of keys, such as `optimization`, and its keys; None for anything else."""
    if group not in GROUPS:
        return None
    return group, [field.name for field in fields(getattr(methods, GROUPS[group]))]


def unknown_for(key: str, owner: str, valid: list[str]) -> str:
    return f"unknown key {cut(key, MAX_SHOWN)} for {owner}" + (f"; valid keys: {', '.join(valid)}" if valid else "")


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
    """Unwrap the error that jsonargparse wrapped. One that names no argument gets the key of its class."""
    key = PATTERNS["key"].search(str(error))
    cause: BaseException | None = error
    while cause is not None:
        if not PATTERNS["internal"].search(str(cause)):
            text = str(cause)
            if key is None or re.match(r"[\w.]+=", text):
                return UserError(text)
            kind = "" if isinstance(cause, ValueError) else f"{type(cause).__name__}: "
            return UserError(f"{key[1]}: {kind}{text}")
        cause = cause.__cause__ or cause.__context__
    return UserError(one_line(error)) if isinstance(error, Exception) else error


def with_full_key(error: UserError, config: dict[str, Any] | None = None) -> UserError:
    """Name the full key in the error of a class: `tau=-1.0: …` becomes `model.importance.tau=-1.0: …`.

    error    an error of `checks.require`, raised when an object of the configuration was built or used
    config   the stored configuration; None if there is none yet, and then only errors about the data are changed

    The class is that of an object whose method is in the traceback. Its place in the configuration gives the key.
    """
    if re.match(r"options\.\w+=", str(error)):
        return UserError(f"data.{error}")
    refused = re.match(r"(\w+)=(.*)", str(error), re.DOTALL)
    if refused is None:
        return with_callback(error, config)
    name, rest = refused.groups()
    value = rest.partition(f": {name} must be")[0] if f": {name} must be" in rest else rest.partition(": ")[0]
    for kind in classes_in_traceback(error):
        if (key := key_of_argument(kind, name, value, config)) is not None:
            last = key.rpartition(".")[2]
            return UserError(f"{key}={rest.replace(f': {name} must be', f': {last} must be', 1)}")
    return error


def with_callback(error: UserError, config: dict[str, Any] | None) -> UserError:
    """Name the key of the user's callback that raised an error: `trainer.callbacks[0]: …`."""
    listed = [place for place in places(config) if place[0].startswith("trainer.callbacks")]
    for kind in classes_in_traceback(error):
        for path, owner, _ in listed:
            if owner == kind.__name__:
                return UserError(f"{path}: {error}")
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
