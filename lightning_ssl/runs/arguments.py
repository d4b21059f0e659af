"""The arguments of a class: names, types, defaults, and descriptions from docstrings."""

from __future__ import annotations

import inspect
import pydoc
import re
import textwrap
import typing
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Any

import docstring_parser
from jsonargparse import Namespace

import lightning_ssl
from lightning_ssl import networks
from lightning_ssl.checks import UserError, shown

REQUIRED = inspect.Parameter.empty
# Classes whose arguments another class describes.
DESCRIBED_BY = {"Head": networks.Projector, "PredictorHead": networks.Projector}


@dataclass(frozen=True)
class Argument:
    """One argument of a class."""

    name: str
    type: Any
    default: Any  # `REQUIRED` if there is none
    description: str


def arguments_of(kind: type) -> dict[str, Argument]:
    """The arguments of a class, and those of its bases to which it passes `**network`."""
    found: dict[str, Argument] = {}
    for base in kind.__mro__:
        if "__init__" not in vars(base) or base is object:
            continue
        parameters = list(inspect.signature(base.__init__).parameters.values())[1:]  # type: ignore[misc]
        types = type_hints(base)
        for each in parameters:
            # A base's argument without a default is one that the subclass gives itself.
            given_by_subclass = base is not kind and each.default is REQUIRED
            named = each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
            if named and each.name not in found and not given_by_subclass:
                hint = types.get(each.name, each.annotation)
                found[each.name] = Argument(each.name, hint, each.default, description(kind, each.name))
        if not any(each.kind is each.VAR_KEYWORD for each in parameters):
            break
    return found


def type_hints(kind: type) -> dict[str, Any]:
    """The types of the arguments of a class; empty if a name in them cannot be resolved."""
    try:
        return typing.get_type_hints(kind.__init__)  # type: ignore[misc]
    except NameError:
        return {}


def description(kind: type, name: str) -> str:
    """The description of an argument in the docstring of a class, of its constructor, or of a base; else empty."""
    described = (DESCRIBED_BY[kind.__name__],) if kind.__name__ in DESCRIBED_BY else ()
    for base in (*kind.__mro__, *described):
        for text in (base.__doc__, getattr(vars(base).get("__init__"), "__doc__", None)):
            if text and (found := from_columns(text, name) or from_google(text, name)):
                return found
    return ""


def from_columns(text: str, name: str) -> str:
    """Read the form of this package: the name, two spaces or more, the description; its lines are aligned."""
    lines = inspect.cleandoc(text).splitlines()
    for number, line in enumerate(lines):
        entry = re.match(r"((?:\w+, )*\w+)  +(?=\S)", line)
        if entry and name in entry[1].split(", "):
            column = entry.end()
            more = []
            for following in lines[number + 1 :]:
                if not (following[:column].strip() == "" and following[column:].strip()):
                    break
                more.append(following.strip())
            return " ".join([line[column:].strip(), *more])
    return ""


def from_google(text: str, name: str) -> str:
    """Read the section `Args:` of a docstring, as in Lightning, without its markup."""
    return google_arguments(text).get(name, "") if "Args:" in text else ""


@cache
def google_arguments(text: str) -> dict[str, str]:
    """The descriptions of the section `Args:`, by name."""
    found = {}
    for parameter in docstring_parser.parse(textwrap.dedent(text)).params:
        plain = re.sub(r":\w+:`~?([^`<]*?)(?: <[^>]*>)?`", r"\1", parameter.description or "")
        found[parameter.arg_name] = " ".join(plain.replace("``", "").replace("`", "").split())
    return found


def summary(kind: type) -> str:
    """The first line of the docstring of a class."""
    return inspect.cleandoc(kind.__doc__ or "").partition("\n")[0]


def concrete(base: type) -> Iterator[type]:
    """The public subclasses of this package that can be instantiated."""
    kind: type
    for kind in base.__subclasses__():
        public = kind.__module__.startswith("lightning_ssl") and kind.__name__ in lightning_ssl.__all__
        if public and not getattr(kind, "__abstractmethods__", None):
            yield kind
        yield from concrete(kind)


def check_arguments(key: str, part: Namespace) -> None:
    """Refuse null, and a list for a group of keys, where the type of an argument allows neither. jsonargparse does."""
    kind = pydoc.locate(part.class_path)
    arguments = arguments_of(kind) if isinstance(kind, type) else {}
    for name, value in vars(part.get("init_args") or Namespace()).items():
        if isinstance(value, Namespace) and "class_path" in value:
            check_arguments(f"{key}.{name}", value)
        elif value is None and name in arguments and not allows_null(arguments[name].type):
            raise UserError(f"{key}.{name}=null: expected a value")
        elif name in arguments and is_dataclass(arguments[name].type) and not isinstance(value, Namespace):
            raise UserError(f"{key}.{name}={shown(value)}: expected keys below it")


def allows_null(hint: Any) -> bool:
    return hint in (Any, inspect.Parameter.empty) or type(None) in typing.get_args(hint)
