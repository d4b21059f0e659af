"""The arguments of a class or function: names, types, defaults, and descriptions from docstrings."""

from __future__ import annotations

import inspect
import itertools
import re
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import lightning_ssl
from lightning_ssl.base.user_code import is_user_module

REQUIRED = inspect.Parameter.empty
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class Argument:
    """One argument of a class or function."""

    name: str
    type: Any
    default: Any = REQUIRED
    owner: Any = None

    @property
    def description(self) -> str:
        """Its description in the docstring of the owner."""
        return description(self.owner, self.name)


@cache
def arguments_of(owner: Any) -> dict[str, Argument]:
    """The arguments of a class or function, and those of the base classes to which a class passes `**network`."""
    found: dict[str, Argument] = {}
    for number, function in enumerate(constructors(owner)):
        for each in parameters(function):
            # A base's argument without a default is one that the subclass gives itself.
            given_by_subclass = number > 0 and each.default is REQUIRED
            if each.kind in NAMED and each.name not in found and not given_by_subclass:
                found[each.name] = Argument(each.name, hint_of(function, each), each.default, owner)
    return found


@cache
def takes_any_name(owner: Any) -> bool:
    """Whether `**kwargs` of a class or function takes further names. A library may pass them anywhere."""
    functions = constructors(owner)
    return any(passes_on(each) and (each is functions[-1] or is_foreign(each)) for each in functions)


def is_foreign(function: Callable[..., Any]) -> bool:
    """Whether a function belongs to a library other than this package."""
    module = str(getattr(function, "__module__", ""))
    return not module.startswith("lightning_ssl.") and not is_user_module(module)


def constructors(owner: Any) -> list[Callable[..., Any]]:
    """The functions that take the arguments: a constructor, and those of the bases to which it passes `**kwargs`."""
    if not inspect.isclass(owner):
        return [owner]
    found: list[Callable[..., Any]] = []
    for base in owner.__mro__[:-1]:  # the last one is `object`
        if "__init__" in vars(base) and (not found or passes_on(found[-1])):
            found.append(vars(base)["__init__"])
    return found


def passes_on(function: Callable[..., Any]) -> bool:
    return any(each.kind is each.VAR_KEYWORD for each in parameters(function))


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a function, without `self`; none if it has no signature."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin
        return []
    return [each for each in found if each.name != "self"]


def hint_of(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The type of a parameter; Any if its annotation is missing or cannot be resolved."""
    hint = parameter.annotation
    if isinstance(hint, str):
        function = inspect.unwrap(function)
        names = {**vars(typing), **getattr(function, "__globals__", {})}
        try:
            hint = eval(hint, names)
        except Exception:  # a name that only a type checker imports
            return Any
    return Any if hint is REQUIRED else hint


def description(owner: Any, name: str) -> str:
    """The description of an argument in the docstring of a class, its constructor or its bases; else empty."""
    bases = owner.__mro__ if inspect.isclass(owner) else (owner,)
    documented = [part for base in bases for part in (base, getattr(base, "__init__", None))]
    texts = [inspect.cleandoc(getattr(each, "__doc__", None) or "") for each in documented]
    return next(filter(None, (from_columns(text, name) or google_arguments(text).get(name) for text in texts)), "")


def from_columns(text: str, name: str) -> str:
    """Read the form of this package: the name, two spaces or more, the description; its lines are aligned."""
    entry = re.search(rf"^((?:\w+, )*{name}(?:, \w+)*  +)(\S.*(?:\n.*)*)", text, re.MULTILINE)
    if entry is None:
        return ""
    first, *lines = entry[2].splitlines()
    indent = " " * len(entry[1])
    more = itertools.takewhile(lambda line: line.startswith(indent) and line.strip(), lines)
    return " ".join([first.strip(), *map(str.strip, more)])


@cache
def google_arguments(text: str) -> dict[str, str]:
    """The descriptions of the section `Args:`, as in Lightning, by name and without markup."""
    if "Args:" not in text:
        return {}
    import docstring_parser  # late, for start-up time

    found = {}
    for parameter in docstring_parser.parse(text).params:
        plain = re.sub(r":\w+:`~?([^`<]*?)(?: <[^>]*>)?`", r"\1", parameter.description or "")
        found[parameter.arg_name] = " ".join(plain.replace("``", "").replace("`", "").split())
    return found


def summary(owner: Any) -> str:
    """The first line of a docstring."""
    return inspect.cleandoc(owner.__doc__ or "").partition("\n")[0]


def subclasses(base: type) -> Iterator[type]:
    """A class and those below it."""
    yield base
    kind: type
    for kind in base.__subclasses__():
        yield from subclasses(kind)


def concrete(base: type) -> list[type]:
    """The public subclasses of this package that can be instantiated."""
    below = [kind for kind in subclasses(base) if kind is not base and not inspect.isabstract(kind)]
    return [kind for kind in below if getattr(lightning_ssl, kind.__name__, None) is kind]
