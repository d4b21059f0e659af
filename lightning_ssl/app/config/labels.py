"""One label for a loss: the method, its importance or family, and its parameters.

label_of_config(config)    "AlphaCL Direct p=6 τ=0.5", in summary.json, in W&B and in the report
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from lightning_ssl.app.config.keys import role
from lightning_ssl.base.facts import Room, declared, facts_of
from lightning_ssl.base.walk import ClassPath, is_node, walk

Scalar: TypeAlias = "str | int | float | bool | None"

ROOMS: tuple[Room, Room] = ("losses", "methods")
SYMBOLS: dict[str, str] = declared("symbols", *ROOMS)  # an argument has one symbol in every class


def loss_of(settings: Mapping[str, Scalar]) -> tuple[tuple[str, Scalar], ...]:
    """The keys of the loss with their values, hashable and sorted."""
    mine = ((key, plain_number(value)) for key, value in settings.items() if role(key) == "loss")
    return tuple(sorted(mine, key=lambda pair: pair[0]))


def label_of(settings: Mapping[str, Scalar]) -> str:
    """The label of a flat configuration.

    >>> label_of({"model": "AlphaCL", "model.importance": "Direct", "model.importance.p": 6})
    'AlphaCL Direct p=6'
    """
    words, parameters = [str(settings.get("model", "?"))], []
    if words == ["SimCLR"]:
        words.append("InfoNCE")
    for key, value in loss_of(settings):
        owner, _, name = key.rpartition(".")
        if key == "model":
            continue
        if name in ("importance", "family"):
            words += [] if value is None else [str(value)]
        elif value is not None and not is_unlabelled(settings.get(owner) or class_name(owner), name, value):
            callback = facts_of("callbacks").get(class_name(owner))
            symbol = (callback.declared.get("symbols", {}) if callback else SYMBOLS).get(name, name)
            parameters.append(symbol if value is True else f"{symbol}={format_value(value)}")
    return " ".join(words + sorted(parameters, key=str.casefold))


def is_unlabelled(kind: Scalar, name: str, value: Scalar) -> bool:
    """Whether the label of a class leaves out this value. A class of the user's own can inherit from any of ours."""
    known = facts_of("losses") | facts_of("methods") | facts_of("callbacks")
    left_out = known[kind].declared.get("unlabelled", {}) if kind in known else declared("unlabelled", *ROOMS)
    return name in left_out and bool(left_out[name] == value)


def label_of_config(config: Mapping[str, Any]) -> str:
    """The label of a nested configuration, as in config.yaml."""
    return label_of(flatten(config))


def short_label(config: Mapping[str, Any]) -> str:
    """The classes of a loss without their parameters, `AlphaCL Direct`, for the names of folders."""
    return loss_name(flatten(config))


def loss_name(settings: Mapping[str, Scalar]) -> str:
    """The classes of the loss of a flat configuration."""
    words = [settings.get(key) for key in ("model", "model.importance")]
    return " ".join(str(word) for word in words if word is not None)


def is_infonce(settings: Mapping[str, Scalar]) -> bool:
    """Whether the loss is the plain InfoNCE of the papers' first rows, under either of its names."""
    if settings.get("model.beta") not in (None, 0) or settings.get("model.backprop_alpha"):
        return False
    if settings.get("model") == "SimCLR":
        return settings.get("model.eps", 1) == 1
    return settings.get("model.importance") == "InfoNCE" and settings.get("model.importance.eps", 1) == 1


def flatten(config: Any) -> dict[str, Scalar]:
    """A configuration as dotted flags for readers: classes by their names, lists as text.

    >>> flatten({"model": {"class_path": "lightning_ssl.methods.SimCLR", "init_args": {"tau": 0.5}}})
    {'model': 'SimCLR', 'model.tau': 0.5}
    """
    flat: dict[str, Scalar] = {}
    for key, value in walk(config):
        if isinstance(value, list) and value and all(map(is_node, value)):
            # Callbacks: each at the key of its class, because their order does not matter.
            for node in value:
                below = f"{key}.{class_name(node['class_path'])}"
                flat |= flatten({below: node.get("init_args") or None})
        elif isinstance(value, ClassPath):
            flat[key] = class_name(value)
        elif value is None or isinstance(value, str | int | float):
            flat[key] = value
        elif value != {}:
            flat[key] = json.dumps(value, default=str, skipkeys=True, ensure_ascii=False)  # YAML has dates as keys
    return unwrapped(flat)


def unwrapped(flat: dict[str, Any]) -> dict[str, Any]:
    """The keys of a (φ, ψ) loss in `FromFamily` as if it stood in the place of the importance.

    >>> unwrapped({"model.importance": "FromFamily", "model.importance.family": "MINE"})
    {'model.importance': 'MINE'}
    """
    if "FromFamily" not in flat.values():
        return flat
    return {key.replace(".family", "", 1): value for key, value in flat.items() if value != "FromFamily"}


def class_name(path: str) -> str:
    return path.rpartition(".")[2]


def format_value(value: Scalar) -> str:
    """A value for readers: no trailing zeros; yes, no and none in words."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def plain_number(value: Scalar) -> Scalar:
    """Make 4.0 and 4 one value, and NaN, which equals nothing, a word."""
    if isinstance(value, float) and not isinstance(value, bool):
        if math.isnan(value):
            return "nan"
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value
