"""One label for a loss, from a configuration: the method, what gives its weights, and its parameters."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeAlias

Scalar: TypeAlias = "str | int | float | bool | None"

# Where, when and how a run was watched, not what was trained. A prefix with a dot covers everything below it.
INCIDENTAL = (
    "seed_everything", "model.seed", "data.seed", "data.root", "data.workers", "data.download", "data.validate",
    "name", "runs", "resume", "logger", "group", "tags", "config", "debug", "ckpt_path", "model.tile", "model.compile",
    "model.channels_last", "spectrum", "spectrum.", "importance_monitor", "importance_monitor.",
    "checkpoint", "checkpoint.", "checkpoints", "checkpoints.", "wandb", "wandb.", "verbose", "project", "entity",
    "trainer.accelerator", "trainer.devices", "trainer.num_nodes", "trainer.strategy", "trainer.strategy.",
    "trainer.logger", "trainer.logger.", "trainer.default_root_dir",
    "trainer.log_every_n_steps", "trainer.profiler", "trainer.profiler.", "trainer.enable_", "trainer.benchmark",
    "trainer.deterministic", "trainer.inference_mode", "trainer.detect_anomaly", "trainer.barebones",
    "trainer.num_sanity_val_steps", "trainer.callbacks.WeightNoise.seed",
    "trainer.check_val_every_n_epoch", "trainer.val_check_interval", "trainer.plugins", "trainer.fast_dev_run",
)  # fmt: skip
NOISE = "trainer.callbacks.WeightNoise"  # noise in every update is part of what is descended
# Arguments of every method; what else a model has belongs to its loss.
NETWORK = ("backbone", "stem", "image_size", "mean", "std", "augment", "projector", "predictor", "optimization")
SYMBOLS = {"tau": "τ", "gamma": "γ", "eps": "ε", "beta": "β"}
# Values that go without saying; other parameters of a loss are always named.
USUAL: dict[str, Scalar] = {
    "anchors": "both", "beta": 0, "backprop_alpha": False, "normalize": True, "eps": 1, "kind": "infonce", "r0": 0,
}  # fmt: skip


def loss_of(settings: Mapping[str, Scalar]) -> tuple[tuple[str, Scalar], ...]:
    """The method and the parameters of its loss, as one hashable thing."""
    mine = ((key, plain_number(value)) for key, value in settings.items() if of_loss(key))
    return tuple(sorted(mine, key=lambda pair: pair[0]))


def settings_of(settings: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """What else could change the result: data, network, optimizer, length of training."""
    return {key: plain_number(value) for key, value in settings.items() if not incidental(key) and not of_loss(key)}


@cache
def incidental(key: str) -> bool:
    return any(key == name or (name.endswith((".", "_")) and key.startswith(name)) for name in INCIDENTAL)


@cache
def of_loss(key: str) -> bool:
    """Whether a key says what is descended: the method and its arguments but the network's, and noise."""
    if incidental(key):
        return False
    network = key.startswith("model.") and key.split(".")[1] in NETWORK
    return (key == "model" or key.startswith("model.") or key.startswith(NOISE)) and not network


def label_of(settings: Mapping[str, Scalar]) -> str:
    """A readable name of the loss: the method, what gives its weights, and its parameters.

    >>> label_of({"model": "AlphaCL", "model.importance": "Direct", "model.importance.p": 6})
    'AlphaCL Direct p=6'
    """
    words, parameters = [str(settings["model"])], []
    if words == ["SimCLR"]:
        words.append("InfoNCE")
    for key, value in loss_of(settings):
        name = "noise" if key == f"{NOISE}.std" else key.rpartition(".")[2]
        if key == "model":
            continue
        if name in ("importance", "family"):
            if value not in ("FromFamily", None):
                words.append(str(value))
        elif value is not None and not (name in USUAL and value == USUAL[name]):
            symbol = SYMBOLS.get(name, name)
            parameters.append(symbol if value is True else f"{symbol}={shown(value)}")
    return " ".join(words + sorted(parameters, key=str.casefold))


def is_infonce(settings: Mapping[str, Scalar]) -> bool:
    """Whether this is the plain InfoNCE of the papers' first rows, by either of its names."""
    if settings.get("model.beta") not in (None, 0) or settings.get("model.backprop_alpha"):
        return False
    if settings.get("model") == "SimCLR":
        return settings.get("model.eps", 1) == 1
    family = settings.get("model.importance.family")
    return family == "InfoNCE" and settings.get("model.importance.family.eps", 1) == 1


def flatten(tree: Any, prefix: str = "") -> dict[str, Scalar]:
    """A configuration as the dotted flags that would give it: a class stands at its own key, its arguments below.

    >>> flatten({"model": {"class_path": "lightning_ssl.methods.SimCLR", "init_args": {"tau": 0.5}}})
    {'model': 'SimCLR', 'model.tau': 0.5}
    """
    if isinstance(tree, dict) and "class_path" in tree:
        name = str(tree["class_path"]).rpartition(".")[2]
        return {prefix: name, **flatten(tree.get("init_args") or {}, prefix)}
    if isinstance(tree, dict):
        flat: dict[str, Scalar] = {}
        for key, value in tree.items():
            flat.update(flatten(value, f"{prefix}.{key}" if prefix else str(key)))
        return flat
    if isinstance(tree, list) and tree and all(isinstance(item, dict) and "class_path" in item for item in tree):
        # Callbacks: each at its own class's key, since their order says nothing.
        named = {str(item["class_path"]).rpartition(".")[2]: item.get("init_args") for item in tree}
        return flatten(named, prefix) if prefix else {}
    if isinstance(tree, list | tuple):
        tree = json.dumps(tree, default=str, ensure_ascii=False)
    if not (tree is None or isinstance(tree, str | int | float)):
        tree = str(tree)
    return {prefix: tree} if prefix else {}


def shown(value: Scalar) -> str:
    """A value as a reader expects it: no trailing zeros, words for what is not a number."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def plain_number(value: Scalar) -> Scalar:
    """4.0 and 4 are one value; NaN, which equals nothing, becomes a word."""
    if isinstance(value, float) and not isinstance(value, bool):
        if math.isnan(value):
            return "nan"
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value
