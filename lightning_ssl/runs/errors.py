"""What is wrong with a command line, in one line.

The parser explains itself by a tree of what it attempted, and wraps what a class said when it refused an argument. Here
both become `key=value: what is allowed`.
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
from lightning_ssl.methods.siamese import PredictorHead

NO_SUCH_KEY = re.compile(r"Option '([^']+)' is not accepted|Group '([^']+)' does not accept option '([^']+)'")

NO_SUCH_CLASS = re.compile(
    r"Expected a dot import path|Expected a path but|[Ii]mport path .* does not correspond|Unable to import"
    r"|No module named|Problem with given class_path"
)


def one_line(error: Exception) -> str:
    """The parser's explanation, which is a tree of attempts, as `key=value: what was expected`."""
    text = str(error)
    keys = re.findall(r'[Kk]ey "([^"]+)"', text)
    given = re.search(r"Given value: (.*)", text)
    value = given[1] if given else None
    if nested := re.search(r"NestedArg\(key='([^']*)', val='?(.*?)'?\)$", value or ""):
        # of a flag below a class: `importance.p` of `--model.importance.p x`
        keys, value = [*keys[:1], *nested[1].split(".")], nested[2]
    if refused := NO_SUCH_KEY.search(text):
        return unknown_key(text, keys, value if nested else None, refused[1] or refused[3], refused[2], given)
    key = ".".join(dict.fromkeys(keys))
    expected = [word for word in re.findall(r"Expected an? ([^\n]*)", text) if "NoneType" not in word]
    simple = bool(re.search(r"<class '(float|int|str|bool)'|Literal", " ".join(expected)))
    if key and not simple and NO_SUCH_CLASS.search(text) and names_for(key):
        return f"{key}={value}: expected one of {', '.join(names_for(key))}, or the path of a class"
    if key and expected and simple:
        choices = [choice for word in expected for choice in re.findall(r"Literal\[(.*)\]", word)]
        kinds = [short(kind) for word in expected for kind in re.findall(r"<class '([^']+)'>", word)]
        words = "one of " + ", ".join(choices).replace("'", "") if choices else " or ".join(dict.fromkeys(kinds))
        got = re.search(r"Got value: (.*)", text)
        return f"{key}={got[1] if got else value}: expected {words}"
    plain = " ".join(line.strip(" -") for line in text.splitlines() if line.strip())
    return re.sub(r'^Parser key "([^"]+)": ', r"\1: ", plain)


def unknown_key(
    text: str, keys: list[str], value: str | None, option: str, group: str | None, given: re.Match[str] | None
) -> str:
    """What a key that nobody knows should have been."""
    owners = re.findall(r"class_path '([^']+)'", text)
    path = [*keys, *([group] if group and group not in keys else [])]
    if path[-1:] != [option]:
        path.append(option)
    if value is None and given:
        try:
            value = str(look_for(option, ast.literal_eval(given[1])))
        except (ValueError, SyntaxError):
            value = None
    if group in ("optimization", "projector", "predictor"):
        owner, known = group, fields_of(group)
    elif owners:
        owner, known = short(owners[-1]), arguments_of(owners[-1])
    elif group == "data":
        owner, known = "data", arguments_of("lightning_ssl.data.DataModule")
    else:
        owner, known = group or "the configuration", []
    said = ".".join(path) + ("" if value is None else f"={value}")
    return f"{said}: {owner} has no {option}" + (f", but {', '.join(known)}" if known else "")


def look_for(key: str, value: Any) -> Any:
    """The value under a key, however deep it lies."""
    if isinstance(value, dict):
        if key in value:
            return value[key]
        found = [look_for(key, each) for each in value.values()]
        return next((each for each in found if each is not None), None)
    return None


def arguments_of(path: str) -> list[str]:
    """The arguments of a class and of those it hands the rest to."""
    kind = pydoc.locate(path)
    names: dict[str, None] = {}
    for base in getattr(kind, "__mro__", ()):
        if base.__module__.startswith("lightning_ssl") and "__init__" in vars(base):
            parameters = inspect.signature(base.__init__).parameters.values()
            names |= {each.name: None for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD}
    return [name for name in names if name not in ("self", "loss")]


def fields_of(group: str) -> list[str]:
    kind = {"optimization": methods.Optimization, "projector": methods.Head, "predictor": PredictorHead}[group]
    return [field.name for field in fields(kind)]


def refusal(error: BaseException) -> BaseException:
    """What a class said when it refused its arguments, from under the parser's words."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ValueError) and "Given value" not in str(cause):
            return ValueError(str(cause))
        cause = cause.__cause__ or cause.__context__
    return error


def short(path: str) -> str:
    """A class by its name alone."""
    return path.rpartition(".")[2]


def names_for(key: str) -> list[str]:
    """The classes that a key may name."""
    last = key.rpartition(".")[2]
    if last == "model":
        return sorted(concrete(methods.Method))
    base = {"importance": Importance, "family": Family}.get(last)
    return sorted(set(concrete(base))) if base else []


def concrete(base: type) -> Iterator[str]:
    """The names of the suite's own classes below one, without those that are a base of others only."""
    kind: type
    for kind in base.__subclasses__():
        ours = kind.__module__.startswith("lightning_ssl") and kind.__name__ != "Contrastive"
        if ours and not getattr(kind, "__abstractmethods__", None):
            yield kind.__name__
        yield from concrete(kind)
