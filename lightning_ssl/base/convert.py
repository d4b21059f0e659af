"""Values from text and YAML: `convert(value, hint)` is the plain value of a type, or raises `Mismatch`.

A value of a flag is text; a value of a file has the type that YAML gives it. Both are converted by the same rules.

| hint    | accepted                                    | refused                  |
|---------|---------------------------------------------|--------------------------|
| int     | 3, "3", "010" (10), "1_000", "0x10"         | true, "2.0", "1e3"       |
| float   | 2, 2.5, "1e-3", ".5"                        | true, "inf", "nan"       |
| bool    | true, "true", "yes", "on", "True"           | 1, "1"                   |
| str     | any text, unchanged                         | null, a mapping, a list  |
| X\\|None | null, "null"                                |                          |

Plain values are those of JSON: a tuple becomes a list, a path stays text. `as_object` gives the object.
"""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from lightning_ssl.base.untrusted import MAX_DIGITS, load_yaml
from lightning_ssl.base.user_code import is_path, load_object

MAX_FLOAT = 1e308
WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
SEQUENCES = (list, tuple, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


class Mismatch(ValueError):
    """A value is not of the type. The caller knows the key."""


def members(hint: Any) -> tuple[Any, ...]:
    """The types of a union, or the type itself."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(inner for each in typing.get_args(hint) for inner in members(each))
    return (types.NoneType if hint is None else hint,)


def origin(hint: Any) -> Any:
    """The type without its arguments: `list[int]` → list."""
    return typing.get_origin(hint) or hint


def convert(value: Any, hint: Any) -> Any:
    """The plain value of a type, from text or a plain value.

    >>> convert("3", int), convert("1e-3", float), convert("[1, 2]", tuple[float, ...]), convert("null", str | None)
    (3, 0.001, [1.0, 2.0], None)
    """
    kinds = members(hint)
    if types.NoneType in kinds and (value is None or value == "null"):
        return None
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):  # a list or a mapping before text
        kinds = tuple(sorted(kinds, key=lambda kind: origin(kind) not in (*SEQUENCES, *MAPPINGS)))
    elif int in kinds and float in kinds:  # 2 stays 2
        kinds = (int, *(kind for kind in kinds if kind is not int))
    for kind in sorted(kinds, key=lambda kind: type(value) is not origin(kind) or isinstance(value, str)):
        with suppress(ValueError):
            return one(value, kind)
    raise Mismatch(f"expected {in_words(hint)}")


def one(value: Any, kind: Any) -> Any:
    """The value of a type that is no union. Raises ValueError if it is of another type."""
    base, inner = origin(kind), typing.get_args(kind)
    if kind in (Any, object) or isinstance(kind, typing.TypeVar):
        return value
    if base in (*SEQUENCES, *MAPPINGS) and isinstance(value, str):
        value = load_yaml(value)
    if base is Literal:
        return choice(value, inner)
    if base in SEQUENCES:
        return sequence(value, inner)
    if base in MAPPINGS:
        return mapping(value, inner)
    if base in NUMBERS:
        return NUMBERS[base](value)
    if base in TEXTS and isinstance(value, str) and (base is not collections.abc.Callable or is_path(value)):
        return value
    raise Mismatch


def whole(value: Any) -> int:
    found = int(value, 16 if "x" in value.lower() else 10) if isinstance(value, str) else value
    if type(found) is not int or abs(found) >= 10**MAX_DIGITS:
        raise Mismatch
    return found


def number(value: Any) -> float:
    found = float(value) if isinstance(value, str) else value
    if type(found) not in (int, float) or not -MAX_FLOAT <= found <= MAX_FLOAT:  # neither NaN nor infinite
        raise Mismatch
    return float(found)


def truth(value: Any) -> bool:
    found = WORDS.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise Mismatch
    return found


NUMBERS: dict[Any, Callable[[Any], Any]] = {int: whole, float: number, bool: truth}
TEXTS = (str, Path, collections.abc.Callable)  # a function of the user's own is given by its path


def choice(value: Any, choices: tuple[Any, ...]) -> Any:
    """One of the values of a Literal, also from its text."""
    for each in choices:
        if (type(value) is type(each) and value == each) or (isinstance(value, str) and value == str(each)):
            return each
    raise Mismatch


def sequence(value: Any, kinds: tuple[Any, ...]) -> list[Any]:
    """The items of `list[X]`, `tuple[X, ...]` or `tuple[X, Y]`."""
    if not isinstance(value, list | tuple):
        raise Mismatch
    if len(kinds) < 2 or kinds[1] is Ellipsis:
        kinds = (kinds or (Any,))[:1] * len(value)
    return [convert(each, kind) for each, kind in zip(value, kinds, strict=True)]


def mapping(value: Any, kinds: tuple[Any, ...]) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise Mismatch
    return {key: convert(each, kinds[1] if kinds else Any) for key, each in value.items()}


def as_list(value: Any) -> list[Any]:
    """A value of a type that takes one thing or a list of them."""
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def text_of(value: Any) -> str:
    """A value as it is written on a command line."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def in_words(hint: Any) -> str:
    """A type in words: `one of cosine, euclidean`, `int or null`, `a list of Callback`."""
    # typing caches unions without their order: Union[float, int] can be the Union[int, float] of another module.
    kinds, choices = sorted(members(hint), key=lambda kind: (kind is float) - (kind is int)), choices_in(hint)
    words = [f"one of {', '.join(choices)}"] if choices else []
    words += [name_of_type(kind) for kind in kinds if origin(kind) is not Literal and kind is not types.NoneType]
    words += ["null"] if types.NoneType in kinds else []
    return " or ".join(dict.fromkeys(words))


def choices_in(hint: Any) -> list[str]:
    """The values of a Literal, as text."""
    found = (each for kind in members(hint) if origin(kind) is Literal for each in typing.get_args(kind))
    return list(dict.fromkeys(map(str, found)))


def name_of_type(kind: Any) -> str:
    if origin(kind) in SEQUENCES:
        kinds = [each for each in typing.get_args(kind) if each is not Ellipsis]
        count = f"{len(kinds)} " if len(kinds) > 1 else ""
        return f"a list of {count}{in_words(kinds[0])}" if kinds else "a list"
    if origin(kind) in MAPPINGS:
        return "a mapping"
    known = {Any: "a value", str: "text", collections.abc.Callable: "the path of a function"}
    return str(known.get(origin(kind)) or getattr(kind, "__name__", kind))


def as_object(value: Any, hint: Any, key: str = "function") -> Any:
    """The object of a plain value: a tuple, a path, a function of the user's own.

    >>> as_object([1.0, 2.0], tuple[float, float])
    (1.0, 2.0)
    """
    kinds = [origin(kind) for kind in members(hint)]
    if isinstance(value, list) and tuple in kinds and list not in kinds:
        return tuple(value)
    if isinstance(value, str) and str not in kinds:
        if Path in kinds:
            return Path(value)
        if collections.abc.Callable in kinds:
            return load_object(value, key)
    return value
