"""The arguments of a method as plain values, so that its checkpoint can rebuild it.

    AlphaCL(Direct(p=6)).hparams["importance"]
    {"class_path": "lightning_ssl.Direct", "init_args": {"tau": 0.5, "p": 6.0, "normalize": True}}

The form is that of jsonargparse, of config.yaml and of the command line. Plain values also keep a checkpoint loadable
with `weights_only=True`.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import lightning_ssl
from lightning_ssl.losses.families import Family
from lightning_ssl.losses.importance import Importance
from lightning_ssl.trust import require_trusted

PLAIN = (bool, int, float, str)
STORED = ("hyper_parameters", "hparams", "module_arguments")  # where Lightning looks for the arguments in a checkpoint
# What Lightning itself allows to build a module.
INSTANTIATORS = tuple(f"{name}.cli.instantiate_module" for name in ("pytorch_lightning", "lightning.pytorch"))


def plain_arguments(module: nn.Module) -> dict[str, Any]:
    """The arguments of the constructors that are running, as plain values. A base constructor calls it.

    Arguments of a subclass win over those that it passes to its base, such as `projector` of `SimSiam`. Modules other
    than the backbone are left out: their weights are in the checkpoint.
    """
    found: dict[str, Any] = {}
    frame = inspect.currentframe()
    frame = frame.f_back if frame is not None else None
    while frame is not None and frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is module:
        names, _, keywords, values = inspect.getargvalues(frame)
        found |= {name: values[name] for name in names if name != "self"}
        found |= values[keywords] if keywords else {}
        frame = frame.f_back
    kept = {name: value for name, value in found.items() if name == "backbone" or not isinstance(value, nn.Module)}
    return {name: as_plain(value) for name, value in kept.items()}


def as_plain(value: Any) -> Any:
    """A constructor argument as plain values: a class becomes `class_path` and `init_args`, a function its path."""
    if value is None or isinstance(value, PLAIN):
        return value
    if isinstance(value, dict):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    if isinstance(value, type) or inspect.isroutine(value):
        return import_path(value)
    if is_dataclass(value) and not isinstance(value, Importance | Family):
        return {field.name: as_plain(getattr(value, field.name)) for field in fields(value)}
    return {"class_path": import_path(type(value)), "init_args": init_args(value)}


def init_args(value: Any) -> dict[str, Any]:
    """The arguments of an object, read from its fields or from the attributes with the names of the arguments."""
    names = [parameter.name for parameter in inspect.signature(type(value)).parameters.values() if is_named(parameter)]
    return {name: as_plain(getattr(value, name)) for name in names if hasattr(value, name)}


def is_named(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def import_path(value: Any) -> str:
    """The path by which a class or a function is imported; the public one for those of this package."""
    name = value.__qualname__
    if value.__module__.startswith("lightning_ssl.") and name in lightning_ssl.__all__:
        return f"lightning_ssl.{name}"
    return f"{value.__module__}.{name}"


def require_trusted_arguments(checkpoint: Any, trust: Sequence[str], replaced: Collection[str]) -> None:
    """Refuse a checkpoint whose arguments name code outside the trusted modules, before Lightning builds it.

    checkpoint    a file, a URL, or an open file
    replaced      arguments that are not taken from the checkpoint
    """
    if str(checkpoint).startswith("http"):
        content = torch.hub.load_state_dict_from_url(str(checkpoint), map_location="cpu", weights_only=True)
    elif isinstance(checkpoint, str | Path):
        content = torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)
    else:
        content = torch.load(checkpoint, map_location="cpu", weights_only=True)
        checkpoint.seek(0)
    for key in STORED:
        found = content.get(key) if isinstance(content, dict) else None
        arguments = dict(found) if isinstance(found, dict) else {}
        if arguments.get("_instantiator") in INSTANTIATORS:
            del arguments["_instantiator"]
        kept = {name: value for name, value in arguments.items() if name not in replaced}
        require_trusted(kept, key, trust)
