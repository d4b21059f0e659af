"""Refusals that name the argument, its value and what is allowed, in one line."""

from __future__ import annotations

import math


def require(condition: bool, argument: str, value: object, allowed: str) -> None:
    """Raise `ValueError` unless the condition holds."""
    if not condition:
        raise ValueError(f"{argument}={value!r}: {argument} must be {allowed}")


def require_positive(argument: str, value: float) -> None:
    """Refuse anything but a finite number above zero; NaN fails every comparison and so is refused too."""
    require(is_number(value) and 0 < value < math.inf, argument, value, "a finite number above 0")


def require_finite(argument: str, value: float) -> None:
    """Refuse infinities and NaN."""
    require(is_number(value) and math.isfinite(value), argument, value, "a finite number")


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
