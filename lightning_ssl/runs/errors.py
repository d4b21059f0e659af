"""Errors of the parser in one line: `key=value: what is allowed`.

jsonargparse reports an error as a tree of attempts, and wraps the ValueError of a class that refused an argument.
`PATTERNS` lists every text of jsonargparse that is read here. They are not part of its documented interface: they were
checked with version 4.53.0, and `tests/runs/test_errors.py` names the pattern that a new version breaks.
"""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from lightning_ssl import methods
from lightning_ssl.losses.families import Family
from lightning_ssl.losses.importance import Importance

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
    "class of a key": re.compile(r"class_path '([^']+)'"),
    "expected type": re.compile(r"Expected an? ([^\n]*)"),
    "simple type": re.compile(r"<class '(float|int|str|bool)'|Literal"),
    "choices": re.compile(r"Literal\[(.*)\]"),
    "type name": re.compile(r"<class '([^']+)'>"),
    "start": re.compile(r'^Parser key "([^"]+)": '),
}

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
        owner, valid = class_name(owners[-1]), arguments_of(owners[-1])
    elif group == "data":
        owner, valid = "data", arguments_of("lightning_ssl.data.DataModule")
    else:
        owner, valid = group or "the configuration", []
    found = ".".join(path) + ("" if value is None else f"={value}")
    return f"{found}: unknown key {key} for {owner}" + (f"; valid keys: {', '.join(valid)}" if valid else "")


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


def arguments_of(path: str) -> list[str]:
    """The arguments of a class, and those that it passes on to its bases."""
    kind = pydoc.locate(path)
    names: dict[str, None] = {}
    for base in getattr(kind, "__mro__", ()):
        if base.__module__.startswith("lightning_ssl") and "__init__" in vars(base):
            parameters = inspect.signature(base.__init__).parameters.values()
            names |= {each.name: None for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD}
    return [name for name in names if name not in ("self", "loss")]


def refusal(error: BaseException) -> BaseException:
    """Unwrap the ValueError that jsonargparse wrapped."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ValueError) and not PATTERNS["value"].search(str(cause)):
            return ValueError(str(cause))
        cause = cause.__cause__ or cause.__context__
    return error


def class_name(path: str) -> str:
    """The name of a class without its module."""
    return path.rpartition(".")[2]


def class_names(key: str) -> list[str]:
    """The classes that a key can name."""
    last = key.rpartition(".")[2]
    base = {"model": methods.Method, "importance": Importance, "family": Family}.get(last)
    return sorted(set(concrete(base))) if base else []


def concrete(base: type) -> Iterator[str]:
    """The names of this package's subclasses that can be instantiated."""
    kind: type
    for kind in base.__subclasses__():
        ours = kind.__module__.startswith("lightning_ssl") and kind.__name__ != "Contrastive"
        if ours and not getattr(kind, "__abstractmethods__", None):
            yield kind.__name__
        yield from concrete(kind)
