"""Checks of a training with its data, and of the checkpoint that it resumes, before there is a run folder.

Other damage of a checkpoint makes Lightning or torch fail while they restore the state. Nothing in the run folder
changes before that (`Recorder.open`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from lightning_ssl.app.config.configuration import Parts
from lightning_ssl.app.launch.trainer_arguments import check_batches
from lightning_ssl.app.runs.checkpoints import is_whole, load_checkpoint, require_weights
from lightning_ssl.app.runs.small_files import as_mapping
from lightning_ssl.base.checks import UserError, require, require_memory
from lightning_ssl.base.machine import memory
from lightning_ssl.base.tree import naming
from lightning_ssl.callbacks import OnlineProbe
from lightning_ssl.methods import Method

# What Lightning restores. It accepts a checkpoint without some of it, and begins with the first epoch.
STATE = {"optimizer_states": list, "lr_schedulers": list, "loops": dict, "callbacks": dict}


def check_training(parts: Parts, ranks: int) -> int:
    """Prepare the data and refuse what would fail in the first epoch. Returns its number of batches."""
    with naming("data", parts.data.configuration()):
        training, validation = parts.data.check(ranks)
    check_batches(parts.trainer, training, validation)
    check_views(parts, ranks)
    check_probes(parts)
    return training


def check_views(parts: Parts, ranks: int) -> None:
    """Refuse an image size at which the views of a batch, in float32, do not fit into the memory."""
    size, images = parts.method.augment.size, parts.data.batch_size // ranks
    on_gpu = torch.cuda.is_available() and parts.trainer["accelerator"] in ("auto", "gpu", "cuda")
    available = torch.cuda.get_device_properties(0).total_memory if on_gpu else memory()
    require_memory("model.image_size", size, 2 * images * 3 * size**2 * 4, available)


def check_probes(parts: Parts) -> None:
    """Refuse a probe with fewer classes than the data has labels."""
    known = parts.data.num_classes
    for callback in parts.measuring:
        if isinstance(callback, OnlineProbe) and callback.num_classes is not None:
            found = callback.num_classes
            require(found >= known, "probe.num_classes", found, f"at least {known}, the classes of the data")


def require_resumable(file: Path, parts: Parts, batches: int) -> None:
    """Refuse a checkpoint without a training's state, or with the state of another network, optimizer or data set.

    batches    number of training batches of an epoch
    """
    content = load_checkpoint(file)
    for key, kind in STATE.items():
        if not isinstance(content.get(key), kind):
            raise UserError(f"checkpoint={str(file)!r}: it has no {key}; expected one written by `lightning-ssl fit`")
    require_weights(parts.method, content["state_dict"], file)
    if not has_optimizer(content["optimizer_states"], parts.method):
        raise UserError(f"checkpoint={str(file)!r}: its optimizer has other parameter groups than model.optimization")
    place = as_mapping(content.get("DataModule")).get("batch", 0)
    if is_whole(place) and place > batches:
        where = f"it was saved at batch {place} of an epoch, and an epoch has {batches} batches now"
        raise UserError(f"checkpoint={str(file)!r}: {where}")
    epochs, last = content.get("epoch", 0), parts.trainer["max_epochs"]
    if last not in (None, -1) and epochs > last:
        raise UserError(f"trainer.max_epochs={last}: max_epochs must be at least {epochs}, the epochs of {file}")


def has_optimizer(states: list[Any], method: Any) -> bool:
    """Whether the states belong to the optimizer of a method. A method with an own optimizer has any."""
    if not isinstance(method, Method) or type(method).configure_optimizers is not Method.configure_optimizers:
        return True
    expected = parameter_groups(method.make_optimizer().state_dict())
    return [parameter_groups(state) for state in states] == [expected]


def parameter_groups(state: Any) -> list[Any] | None:
    """The size of each parameter group, and which state of it the optimizer keeps; None if there are no groups."""
    try:
        groups = state["param_groups"]
        return [(len(group["params"]), "betas" in group, "momentum" in group) for group in groups]
    except (LookupError, TypeError):
        return None
