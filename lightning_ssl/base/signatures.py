"""The arguments of a class or function: names, types, defaults, and descriptions from docstrings."""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Any

import lightning_ssl
from lightning_ssl.base.user_code import is_user_file

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
    for function, inherited in constructors(owner):
        for each in parameters(function):
            # A base's argument without a default is one that the subclass gives itself.
            given_by_subclass = inherited and each.default is REQUIRED
            if each.kind in NAMED and each.name not in found and not given_by_subclass:
                found[each.name] = Argument(each.name, hint_of(function, each), each.default, owner)
    return found


@cache
def takes_any_name(owner: Any) -> bool:
    """Whether `**kwargs` of a class or function takes further names. A library may pass them anywhere."""
    functions = [function for function, _ in constructors(owner)]
    passing = [any(each.kind is each.VAR_KEYWORD for each in parameters(function)) for function in functions]
    return passing[-1:] == [True] or any(p and is_foreign(each) for p, each in zip(passing, functions, strict=True))


def is_foreign(function: Callable[..., Any]) -> bool:
    """Whether a function belongs to a library other than this package."""
    module = str(getattr(function, "__module__", ""))
    file = getattr(sys.modules.get(module), "__file__", None)
    return module.partition(".")[0] != "lightning_ssl" and file is not None and not is_user_file(file)


def constructors(owner: Any) -> Iterator[tuple[Callable[..., Any], bool]]:
    """The functions that take the arguments, and whether each is a base's: the next one if one takes `**kwargs`."""
    if not inspect.isclass(owner):
        yield owner, False
        return
    for base in owner.__mro__:
        if "__init__" in vars(base) and base is not object:
            function = vars(base)["__init__"]
            yield function, base is not owner
            if not any(each.kind is each.VAR_KEYWORD for each in parameters(function)):
                return


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
    documented = [owner]
    if inspect.isclass(owner):
        documented = [part for base in owner.__mro__ for part in (base, vars(base).get("__init__"))]
    for text in (getattr(each, "__doc__", None) for each in documented):
        if text and (found := from_columns(text, name) or google_arguments(text).get(name, "")):
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
                if following[:column].strip() or not following[column:].strip():
                    break
                more.append(following.strip())
            return " ".join([line[column:].strip(), *more])
    return ""


@cache
def google_arguments(text: str) -> dict[str, str]:
    """The descriptions of the section `Args:`, as in Lightning, by name and without markup."""
    if "Args:" not in text:
        return {}
    import docstring_parser  # late, for start-up time

    found = {}
    for parameter in docstring_parser.parse(inspect.cleandoc(text)).params:
        plain = re.sub(r":\w+:`~?([^`<]*?)(?: <[^>]*>)?`", r"\1", parameter.description or "")
        found[parameter.arg_name] = " ".join(plain.replace("``", "").replace("`", "").split())
    return found


def summary(owner: Any) -> str:
    """The first line of a docstring."""
    return inspect.cleandoc(owner.__doc__ or "").partition("\n")[0]


def concrete(base: type) -> Iterator[type]:
    """The public subclasses of this package that can be instantiated."""
    kind: type
    for kind in base.__subclasses__():
        public = kind.__module__.startswith("lightning_ssl") and kind.__name__ in lightning_ssl.__all__
        if public and not inspect.isabstract(kind):
            yield kind
        yield from concrete(kind)


def is_group(hint: Any) -> bool:
    """Whether the keys of an argument are the fields of a dataclass, such as `model.optimization.lr`."""
    return inspect.isclass(hint) and is_dataclass(hint)
