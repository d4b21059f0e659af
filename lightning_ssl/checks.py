"""Checks of arguments. The error names the argument, its value and what is allowed, in one line."""

from __future__ import annotations

import math


def require(condition: bool, argument: str, value: object, allowed: str) -> None:
    """Raise `ValueError` unless the condition holds.

    >>> require(False, "tau", -1.0, "a finite number above 0")
    Traceback (most recent call last):
    ValueError: tau=-1.0: tau must be a finite number above 0
    """
    if not condition:
        raise ValueError(f"{argument}={value!r}: {argument} must be {allowed}")


def require_positive(argument: str, value: float) -> None:
    """Refuse anything but a finite number above 0. NaN is refused too, because it fails every comparison."""
    require(is_number(value) and 0 < value < math.inf, argument, value, "a finite number above 0")


def require_finite(argument: str, value: float) -> None:
    """Refuse anything but a finite number."""
    require(is_number(value) and math.isfinite(value), argument, value, "a finite number")


def is_number(value: object) -> bool:
    """Whether a value is an int or a float. A bool is not a number here."""
    return isinstance(value, int | float) and not isinstance(value, bool)
