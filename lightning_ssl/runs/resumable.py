"""The shape of a checkpoint from which Lightning can resume.

Lightning and torch restore a state without a check: a wrong type or shape raises in the first step, or later, when the
run folder has changed already. Here every part is compared with an example before: the loops with those of a new
Trainer, the optimizer and its schedule with those of the method, a probe with a new one.

    loops.fit_loop        counters of epochs, batches and steps; the position of the loader
    optimizer_states      one, whose tensors have the shapes of the parameters
    lr_schedulers         one
    callbacks             the states of the callbacks of this run; those of other callbacks are not read
    DataModule            the position in the epoch

A method with its own `configure_optimizers`, and the user's own callbacks, have no example. The states of such
callbacks are loaded into a copy.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from packaging.version import InvalidVersion, Version
from pytorch_lightning.plugins.environments import LightningEnvironment
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from lightning_ssl._lightning import pl
from lightning_ssl.app.config.configuration import Parts
from lightning_ssl.callbacks import OnlineProbe
from lightning_ssl.checks import UserError
from lightning_ssl.methods import Method
from lightning_ssl.optim import constant
from lightning_ssl.runs.checkpoints import is_whole, is_whole_tensor, load_checkpoint, require_weights, wrong_value
from lightning_ssl.runs.devices import as_list
from lightning_ssl.runs.folder import RunFolder
from lightning_ssl.runs.recorder import Recorder
from lightning_ssl.untrusted import one_line

KINDS = {"optimizer_states": list, "lr_schedulers": list, "loops": dict, "callbacks": dict}
COUNTERS = ("epoch_progress", "epoch_loop.batch_progress")  # of the loops that a checkpoint of any version has
VERSION = "pytorch-lightning_version"


def require_resumable(file: Path, parts: Parts, batches: int) -> None:
    """Refuse a checkpoint that Lightning could not resume, or that has the weights of another network.

    batches    number of training batches of an epoch
    """
    content = load_checkpoint(file)
    for key, kind in KINDS.items():
        if not isinstance(content.get(key), kind):
            raise UserError(f"checkpoint={str(file)!r}: it has no {key}; expected one written by `lightning-ssl fit`")
    require_weights(parts.method, content["state_dict"], file)
    wrong = wrong_version(content) or wrong_loops(content["loops"], batches) or wrong_position(content, batches)
    wrong = wrong or wrong_optimizers(parts.method, content) or wrong_callbacks(parts, content["callbacks"])
    if wrong:
        raise UserError(f"checkpoint={str(file)!r}: {wrong}")
    epoch, last = content["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"], parts.trainer["max_epochs"]
    if last not in (None, -1) and epoch > last:
        raise UserError(f"trainer.max_epochs={last}: max_epochs must be at least {epoch}, the epochs of {file}")


def wrong_version(content: dict[str, Any]) -> str | None:
    try:
        Version(content.get(VERSION))  # type: ignore[arg-type]
    except (InvalidVersion, TypeError):
        return wrong_value(VERSION, content.get(VERSION), "a version of Lightning")
    return None


def wrong_loops(loops: dict[str, Any], batches: int) -> str | None:
    """What is wrong with the counters of Lightning's loops, or None. Those of other versions may be missing."""
    found = loops.get("fit_loop")
    if not isinstance(found, dict):
        return wrong_value("loops.fit_loop", found, "counters of Lightning's loops")
    for key, example in loop_counters().items():
        if key not in found and key not in COUNTERS:
            continue
        if wrong := unlike(example, found.get(key), f"loops.fit_loop.{key}"):
            return wrong
    outer, inner = (found.get(key, {}) for key in ("state_dict", "epoch_loop.state_dict"))
    for key, state in (("state_dict", outer), ("epoch_loop.state_dict", inner)):
        if not isinstance(state, dict):
            return wrong_value(f"loops.fit_loop.{key}", state, "a mapping")
    if not is_whole(inner.get("_batches_that_stepped", 0)):
        return wrong_value("_batches_that_stepped", inner["_batches_that_stepped"], "a whole number from 0")
    states = outer.get("combined_loader", [])
    if not isinstance(states, list) or len(states) > 1:
        return wrong_value("combined_loader", states, "the position of one loader")
    return wrong_place("combined_loader", states[0], batches) if states else None


@cache
def loop_counters() -> dict[str, Any]:
    """The counters of the loops of a new Trainer, by name. It does not read the variables of a launcher."""
    alone = LightningEnvironment()
    trainer = pl.Trainer(accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, plugins=alone)
    state: dict[str, Any] = trainer.fit_loop.state_dict()
    return {key: value for key, value in state.items() if not key.endswith("state_dict")}


def wrong_position(content: dict[str, Any], batches: int) -> str | None:
    return wrong_place("DataModule", content["DataModule"], batches) if content.get("DataModule", {}) != {} else None


def wrong_place(key: str, state: Any, batches: int) -> str | None:
    """What is wrong with the state of a loader: an epoch and a batch of it; or None."""
    if wrong := unlike({"epoch": 0, "batch": 0}, state, key):
        return wrong
    if state["batch"] > batches:
        return f"it was saved at batch {state['batch']} of an epoch, and an epoch has {batches} batches now"
    return None


# ---------------------------------------------------------------------------------------------------------------------
# Optimizer and schedule


def wrong_optimizers(method: nn.Module, content: dict[str, Any]) -> str | None:
    """What is wrong with the states of the optimizer and of its schedule, or None."""
    for key in ("optimizer_states", "lr_schedulers"):
        if not all(isinstance(state, dict) for state in content[key]):
            return wrong_value(key, content[key], "a list of mappings")
    if not isinstance(method, Method) or type(method).configure_optimizers is not Method.configure_optimizers:
        return None
    optimizer, states, schedules = method.make_optimizer(), content["optimizer_states"], content["lr_schedulers"]
    if wrong := wrong_optimizer(optimizer, states[0] if len(states) == 1 else {}):
        return wrong
    if len(schedules) != 1:
        return wrong_value("lr_schedulers", schedules, "one")
    return wrong_schedule(LambdaLR(optimizer, constant).state_dict(), schedules[0])


def wrong_optimizer(optimizer: Optimizer, state: dict[str, Any], owner: str = "model.optimization") -> str | None:
    """What is wrong with the state of an optimizer, or None."""
    groups, tensors = state.get("param_groups"), state.get("state", {})
    expected, found = describe_groups(optimizer.param_groups), describe_groups(groups)
    if found != expected:
        return f"its optimizer has {found}, that of {owner} has {expected}"
    assert isinstance(groups, list)
    for number, (mine, group) in enumerate(zip(optimizer.state_dict()["param_groups"], groups, strict=True)):
        if not all(map(is_whole, group["params"])) or group["params"] != mine["params"]:  # a tensor has no truth value
            return wrong_value(f"param_groups[{number}].params", group["params"], "the numbers of its parameters")
        for key in mine.keys() & group.keys() - {"params"}:
            if wrong := unlike(mine[key], group[key], f"param_groups[{number}].{key}"):
                return wrong
    if not isinstance(tensors, dict):
        return wrong_value("optimizer_states.state", tensors, "tensors by the number of their parameter")
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    names = example_state(optimizer)
    for number, kept in tensors.items():
        if not is_whole(number) or number >= len(parameters):
            return wrong_value("optimizer_states.state", number, f"a number below {len(parameters)}")
        like = {name: parameters[number] if value.shape else value for name, value in names.items()}
        if wrong := unlike(like, kept, f"optimizer_states.state[{number}]"):
            return wrong
    return None


def example_state(optimizer: Optimizer) -> dict[str, Tensor]:
    """The state that an optimizer keeps for a parameter. A tensor without a dimension is a count."""
    group, parameter = optimizer.param_groups[0], nn.Parameter(torch.zeros(2, 3))
    options = {key: value for key, value in group.items() if key not in ("params", "fused", "foreach")}
    same = type(optimizer)([{**options, "params": [parameter]}], lr=group["lr"])  # type: ignore[call-arg]
    parameter.grad = torch.zeros_like(parameter)
    same.step()
    return {name: value for name, value in same.state[parameter].items() if isinstance(value, Tensor)}


def describe_groups(groups: Any) -> str:
    """The sizes of parameter groups, and which state of them an optimizer keeps."""
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        return "no parameter groups"
    sizes = ["?" if not isinstance(group.get("params"), list) else str(len(group["params"])) for group in groups]
    kept = [name for name in ("betas", "momentum") if any(name in group for group in groups)]
    return f"{' + '.join(sizes) or 'no'} parameters with {' and '.join(kept) or 'neither betas nor momentum'}"


def wrong_schedule(example: dict[str, Any], state: dict[str, Any]) -> str | None:
    """What is wrong with the state of a schedule, or None. torch makes every key of it an attribute."""
    for key in ("base_lrs", "last_epoch"):
        if key not in state:
            return f"lr_schedulers has no {key}"
    for key, value in state.items():
        where = f"lr_schedulers.{key}"
        if not isinstance(key, str) or callable(getattr(LambdaLR, key, None)):
            return wrong_value("lr_schedulers", key, "the name of a value")
        if key == "lr_lambdas":
            count = len(example["base_lrs"])
            if not isinstance(value, list) or len(value) != count or any(each not in (None, {}) for each in value):
                return wrong_value(where, value, "a list without arguments")
        elif wrong := unlike(example.get(key), value, where):
            return wrong
    return None


# ---------------------------------------------------------------------------------------------------------------------
# Callbacks


def wrong_callbacks(parts: Parts, states: dict[Any, Any]) -> str | None:
    """What is wrong with the states of the callbacks of this run, or None."""
    recorder = Recorder(RunFolder("."), 1)
    timer = pl.callbacks.Timer()
    callbacks: Sequence[pl.Callback] = [recorder, timer, *parts.measuring, *as_list(parts.trainer["callbacks"])]
    for callback in callbacks:
        state, key = states.get(callback.state_key), f"callbacks.{callback.state_key}"
        if state is not None and not isinstance(state, dict):
            return wrong_value(key, state, "a mapping")
        if not state:  # Lightning does not load it
            continue
        if callback is recorder:
            wrong = unlike(recorder.state_dict(), state, key)
        elif callback is timer:
            seconds = dict.fromkeys(timer.state_dict()["time_elapsed"], 0.0)
            wrong = unlike({"time_elapsed": seconds}, state, key)
        elif isinstance(callback, OnlineProbe):
            wrong = wrong_probe(callback, state, parts, key)
        else:
            wrong = refusal_of(callback, state, key)
        if wrong:
            return wrong
    return None


def wrong_probe(callback: OnlineProbe, state: dict[str, Any], parts: Parts, key: str) -> str | None:
    """What is wrong with the state of a probe, or None."""
    features, classes = parts.method.backbone.num_features, callback.num_classes or parts.data.num_classes
    probe = callback.make_probe(features, classes, torch.device("cpu"), torch.float32)
    example = {"probe": {**probe.state_dict(), "optimizer": {}}, "sums": torch.zeros(3), "epoch": 0}
    if wrong := unlike(example, state, key):
        return wrong
    found = state["probe"]
    if len(found["features"]) != len(found["labels"]):
        return wrong_value(f"{key}.labels", tuple(found["labels"].shape), f"{len(found['features'])} labels")
    return wrong_optimizer(probe.optimizer, found["optimizer"], "the probe")


def refusal_of(callback: pl.Callback, state: dict[str, Any], key: str) -> str | None:
    """The error of a copy of a callback that loads a state, or None."""
    try:
        mine = copy.deepcopy(callback)
    except Exception:  # not every object can be copied
        return None
    try:
        mine.load_state_dict(copy.deepcopy(state))
    except Exception as error:
        return f"{key}: {type(error).__name__}: {one_line(error)}"
    return None


# ---------------------------------------------------------------------------------------------------------------------
# The comparison


def unlike(example: Any, found: Any, key: str) -> str | None:
    """Where a value has another type or shape than the example, or None.

    Numbers are finite, and integers at least 0. In the shape of a tensor, 0 stands for any size. An empty mapping
    stands for any mapping, and None for any plain value.

    >>> unlike({"epoch": 0, "lr": [0.1]}, {"epoch": 3, "lr": [0.2]}, "state")
    >>> unlike({"epoch": 0, "lr": [0.1]}, {"epoch": -3, "lr": [0.2]}, "state")
    'state.epoch=-3: expected a whole number from 0'
    """
    if isinstance(example, dict):
        if not isinstance(found, dict) or (example and found.keys() != example.keys()):
            return wrong_value(key, found, f"the keys {', '.join(map(str, example))}" if example else "a mapping")
        inner = [unlike(value, found[name], f"{key}.{name}") for name, value in example.items()]
        return next(filter(None, inner), None)
    if isinstance(example, list | tuple):
        if not isinstance(found, list | tuple) or len(found) != len(example):
            return wrong_value(key, found, f"{len(example)} values")
        inner = [unlike(value, each, f"{key}[{n}]") for n, (value, each) in enumerate(zip(example, found, strict=True))]
        return next(filter(None, inner), None)
    if isinstance(example, Tensor):
        return unlike_tensor(example, found, key)
    if isinstance(example, bool):
        return None if isinstance(found, bool) else wrong_value(key, found, "true or false")
    if isinstance(example, int):
        return None if is_whole(found) else wrong_value(key, found, "a whole number from 0")
    if isinstance(example, float):
        number = isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found)
        return None if number else wrong_value(key, found, "a finite number")
    plain = found is None or isinstance(found, bool | int | float | str)
    return None if plain else wrong_value(key, found, "a plain value")


def unlike_tensor(example: Tensor, found: Any, key: str) -> str | None:
    if not is_whole_tensor(found):
        kind = type(found).__name__
        return f"{key}: expected a tensor with its values" + ("" if isinstance(found, Tensor) else f", not {kind}")
    if found.is_floating_point() != example.is_floating_point():
        return wrong_value(f"{key}.dtype", found.dtype, str(example.dtype))
    shape, expected = tuple(found.shape), tuple(example.shape)
    if len(shape) != len(expected) or any(mine not in (0, size) for mine, size in zip(expected, shape, strict=True)):
        return wrong_value(f"{key}.shape", shape, str(expected))
    return None
