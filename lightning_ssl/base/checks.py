"""Checks of arguments. The error names the argument, its value and what is allowed, in one line."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from typing import Any, TypeGuard

MAX_SHOWN = 80  # characters of a value in an error
MAX_ERROR = 200  # characters of an error
MAX_NAME = 200  # bytes of the name of a folder; file systems allow 255, and files inside have longer paths
MAX_SEED = 2**32 - 1  # NumPy's
# `-inf` and `-1e-3` are values, not flags; argparse's own pattern has neither.
NEGATIVE_NUMBER = re.compile(r"-(\d|\.\d|\.?(inf|nan)\b)", re.IGNORECASE)


class UserError(ValueError):
    """A mistake that a person can correct: one line that names the key, its value and what is allowed.

    Several mistakes are several arguments. The command line prints them in one line, each cut to MAX_ERROR characters,
    and ends with code 2. Every other exception is a fault of the program: code 1.
    """

    def __str__(self) -> str:
        return "; ".join(map(str, self.args))


class RunFailed(Exception):
    """Training ended with an exception that is not a UserError."""


def require(condition: bool, argument: str, value: object, allowed: str) -> None:
    """Raise `UserError` unless the condition holds.

    >>> require(False, "tau", -1.0, "a finite number above 0")
    Traceback (most recent call last):
    lightning_ssl.base.checks.UserError: tau=-1.0: tau must be a finite number above 0
    """
    if not condition:
        raise UserError(f"{argument}={shown(value)}: {argument} must be {allowed}")


def require_positive(argument: str, value: float) -> None:
    """Refuse anything but a finite number above 0. NaN is refused too, because it fails every comparison."""
    require(is_number(value) and 0 < value < math.inf, argument, value, "a finite number above 0")


def require_finite(argument: str, value: float) -> None:
    """Refuse anything but a finite number."""
    require(is_number(value) and math.isfinite(value), argument, value, "a finite number")


def require_seed(argument: str, value: int) -> None:
    """Refuse a seed that NumPy does not accept."""
    require(0 <= value <= MAX_SEED, argument, value, f"between 0 and {MAX_SEED}")


def require_memory(argument: str, value: object, needed: int, available: int) -> None:
    """Refuse a size for which there is not enough memory. Both amounts are in bytes."""
    have = f"{needed / 1e9:,.0f} GB of memory, and there are {available / 1e9:,.0f} GB"
    require(needed <= available, argument, value, f"smaller: it needs {have}")


def require_folder_name(argument: str, name: str) -> None:
    """Refuse anything but the name of a visible folder: a path, control characters, a name that is too long."""
    allowed = "a folder name: no slash, no control character, no dot or hyphen at its start"
    require(name.isprintable() and not re.search(r"[/\\]|^[.-]|^\s*$", name), argument, name, allowed)
    require(len(name.encode()) <= MAX_NAME, argument, name, f"at most {MAX_NAME} bytes long")


def require_line(argument: str, value: str) -> None:
    """Refuse an empty text, and one with control characters."""
    require(value.isprintable() and bool(value.strip()), argument, value, "text without control characters")


def shown(value: Any) -> str:
    """A value in an error: its `repr`, cut to MAX_SHOWN characters."""
    return cut(repr(value), MAX_SHOWN)


def cut(text: str, length: int) -> str:
    """The start of a text, with … if something was cut off.

    >>> cut("a long sentence", 7)
    'a long…'
    """
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


def did_you_mean(name: str, known: Iterable[str], most: int = 3, cutoff: float = 0.6) -> str:
    """The question with the names that are close to a wrong one; empty if none is.

    >>> did_you_mean("Directt", ["Direct", "Entropy"])
    'did you mean Direct?'
    """
    close = difflib.get_close_matches(name, list(known), most, cutoff)
    return f"did you mean {' or '.join(close)}?" if close else ""


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is an int or a float. A bool is not a number here."""
    return isinstance(value, int | float) and not isinstance(value, bool)
