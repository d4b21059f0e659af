"""What counts as a pair importance: anything that can be called with (d2_pos, d2_neg, valid).

`isinstance(x, Importance)` and `issubclass(X, Importance)` hold for functions and classes of the user that do not
inherit from `Importance`, as `collections.abc.Iterable` does for classes with `__iter__`. The parser of the command
line relies on it. A class that inherits has `rows` too; the kernel asks for that by `has_rows`.
"""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

from lightning_ssl.checks import UserError, require
from lightning_ssl.user_code import name_of, place_of, place_of_error, reason

ARGUMENTS = ("d2_pos", "d2_neg", "valid")
FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, partial)


class ImportanceType(ABCMeta):
    """The metaclass of `Importance`. Only `Importance` itself has virtual instances, not its subclasses."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if isinstance(instance, FUNCTIONS):
            return is_root(cls) and accepts_pairs(instance) and not is_ours(instance)
        # ABCMeta remembers the classes that do not inherit; `__subclasscheck__` below decides about those.
        return super().__instancecheck__(instance) or cls.__subclasscheck__(type(instance))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return super().__subclasscheck__(subclass) or (is_root(cls) and is_callable_class(subclass))


def is_root(cls: type) -> bool:
    """Whether a class is `Importance`: no base of it has the metaclass."""
    return not any(isinstance(base, ImportanceType) for base in cls.__mro__[1:])


def is_callable_class(cls: type) -> bool:
    """Whether the instances of a class can be called with (d2_pos, d2_neg, valid)."""
    if is_ours(cls) or issubclass(cls, (type, *FUNCTIONS)):  # the __call__ of functions takes anything
        return False
    call = call_of(cls)
    return call is not None and accepts_pairs(call, of_instance=True)


def is_ours(thing: Any) -> bool:
    """Whether a class or function is of this package. Its importances inherit; `PairLoss` takes three tensors too."""
    return str(getattr(thing, "__module__", "")).partition(".")[0] == "lightning_ssl"


def call_of(cls: type) -> Callable[..., Any] | None:
    """The `__call__` that a class defines. `cls.__call__` would find that of the metaclass."""
    return next((vars(base)["__call__"] for base in cls.__mro__ if "__call__" in vars(base)), None)


def accepts_pairs(function: Callable[..., Any], of_instance: bool = False) -> bool:
    """Whether a function accepts three positional arguments; an unbound method, `of_instance`, accepts self before."""
    try:
        inspect.signature(function).bind(*([None] if of_instance else []), *ARGUMENTS)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True


def has_rows(importance: Any) -> bool:
    """Whether an importance inherits from `Importance`, and so has `rows`."""
    return any(isinstance(base, ImportanceType) for base in type(importance).__mro__)


def require_importance(importance: Any) -> None:
    """Refuse anything that cannot be called with (d2_pos, d2_neg, valid)."""
    usable = callable(importance) and not isinstance(importance, type)
    require(usable, "importance", importance, "an Importance, such as Entropy(), or a function")
    plain = isinstance(importance, FUNCTIONS)
    function = importance if plain else call_of(type(importance))
    if function is None or accepts_pairs(function, of_instance=not plain):
        return
    raise UserError(f"importance={name_of(importance)}: {wrong_signature(importance)}")


def wrong_signature(importance: Any) -> str:
    """Say which arguments a function, or the call of a class, accepts instead of three."""
    function = call_of(importance) if isinstance(importance, type) else importance
    taken = "()" if function is None else str(inspect.signature(function))
    return f"{place_of(importance)}: it must accept ({', '.join(ARGUMENTS)}); its signature is {taken}"


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
