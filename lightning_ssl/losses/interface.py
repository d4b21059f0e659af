"""What can be used as a pair importance: anything that can be called with (d2_pos, d2_neg, valid).

Functions, and classes that do not inherit from `Importance`, can be used in its place. A class that inherits has `rows`
too, and the kernel is faster with them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lightning_ssl.base.checks import UserError, require
from lightning_ssl.base.user_code import name_of, place_of, place_of_error, reason

ARGUMENTS = ("d2_pos", "d2_neg", "valid")


def call_of(cls: type) -> Callable[..., Any] | None:
    """The `__call__` that a class defines. `cls.__call__` would find that of the metaclass."""
    return next((vars(base)["__call__"] for base in cls.__mro__ if "__call__" in vars(base)), None)


def require_importance(importance: Any) -> None:
    """Refuse anything that cannot be called with (d2_pos, d2_neg, valid)."""
    usable = callable(importance) and not isinstance(importance, type)
    require(usable, "importance", importance, "an Importance, such as Entropy(), or a function")
    if wrong := wrong_importance(importance):
        raise UserError(f"importance={name_of(importance)}: {wrong}")


def wrong_importance(found: Any) -> str | None:
    """Why an object of the user's own that does not inherit from `Importance` cannot be used as one; None if it can."""
    is_class, accepted = inspect.isclass(found), f"it must accept ({', '.join(ARGUMENTS)})"
    function = call_of(found) if is_class else found
    if function is None or not callable(function):
        return f"{place_of(found)} has no __call__; {accepted}"
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin without a signature
        return None
    try:
        signature.bind(*([None] if is_class else []), *ARGUMENTS)  # None: self
    except TypeError:
        return f"{place_of(found)}: {accepted}; its signature is {signature}"
    return None


def call_checked(importance: Any, key: str, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor) -> Tensor:
    """Call any importance. An error of the user's code names its file and line; α must have the shape of d2_neg."""
    name = name_of(importance)
    try:
        alpha = importance(d2_pos, d2_neg, valid)
    except Exception as error:
        if place_of_error(error) is None or isinstance(error, torch.OutOfMemoryError):
            raise
        raise UserError(f"{key}={name}: {reason(error)}") from error
    expected = f"expected a tensor of d2_neg's shape {tuple(d2_neg.shape)}"
    if not isinstance(alpha, Tensor):
        raise UserError(f"{key}={name}: {place_of(importance)}: it returned {type(alpha).__name__}; {expected}")
    if alpha.shape != d2_neg.shape:
        raise UserError(f"{key}={name}: {place_of(importance)}: it returned shape {tuple(alpha.shape)}; {expected}")
    return alpha
