"""The arguments with which a method was made, of all its constructors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

KEPT = "_recorded_arguments"  # an attribute of the instance


def records_arguments(init: Callable[..., None]) -> Callable[..., None]:
    """Let a constructor record its arguments with their defaults, before it runs.

    The constructor of a subclass runs first, and its arguments win over those that it passes to its base.
    """
    signature = inspect.signature(init)

    @functools.wraps(init)
    def recording(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        _, *given = bound.arguments.items()  # without self
        kept = vars(self).setdefault(KEPT, {})
        for name, value in given:
            passed_on = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
            for key, each in value.items() if passed_on else [(name, value)]:
                kept.setdefault(key, each)
        init(self, *args, **kwargs)

    return recording


def recorded(instance: Any) -> dict[str, Any]:
    """The recorded arguments of an instance, once: they are forgotten."""
    found: dict[str, Any] = vars(instance).pop(KEPT)
    return found
