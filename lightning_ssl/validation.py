"""Refusals that name the argument, its value and what is allowed, in one line."""

from __future__ import annotations

import math


def require(condition: bool, argument: str, value: object, allowed: str) -> None:
    """Raise `ValueError` unless the condition holds."""
    if not condition:
        raise ValueError(f"{argument}={value!r}: {argument} must be {allowed}")


def require_positive(argument: str, value: float) -> None:
    """Refuse anything but a finite number above zero; NaN fails every comparison and so is refused too."""
    require(0 < value < math.inf, argument, value, "a finite number above 0")


def require_finite(argument: str, value: float) -> None:
    """Refuse infinities and NaN."""
    require(math.isfinite(value), argument, value, "a finite number")
