"""Reads a checkpoint of lightning-bolts: tensors and plain values, checked against the shape that is expected."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lightning_ssl.app.runs.checkpoints import damage, is_whole, is_whole_tensor, unreadable
from lightning_ssl.base.checks import UserError, is_number, require
from lightning_ssl.base.untrusted import check_nested

if TYPE_CHECKING:
    from torch import Tensor

    State = dict[str, Tensor]

# Settings that are read, by whether they are whole numbers.
NUMBERS = {
    "batch_size": True, "warmup_epochs": True, "temperature": False, "initial_tau": False, "learning_rate": False,
    "momentum": False, "weight_decay": False,
}  # fmt: skip


class Bolts(NamedTuple):
    """The parts of a bolts checkpoint that are converted."""

    state: State
    hparams: dict[str, Any]
    """The arguments of its LightningModule."""
    epoch: int
    step: int
    file: Path = Path("CKPT")  # for errors


def read(path: Path) -> Bolts:
    """Read a Lightning checkpoint, and check the shape of what is converted. No code in it is executed."""
    import torch

    require(path.is_file(), "checkpoint", str(path), "a file")
    if zipfile.is_zipfile(path) and (wrong := damage(path)):
        raise UserError(f"checkpoint={str(path)!r}: not a readable checkpoint ({wrong})")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        check_nested(found)
    except Exception as error:  # an unpickler can raise any type
        advice = "; save it again with only its state_dict and plain hyper_parameters" if "GLOBAL" in str(error) else ""
        raise UserError(f"checkpoint={str(path)!r}: {unreadable(error)}{advice}") from error
    valid = isinstance(found, dict) and isinstance(found.get("state_dict"), dict)
    require(valid, "checkpoint", str(path), "a checkpoint of Lightning, with a state_dict")
    for name, value in found["state_dict"].items():
        require(isinstance(name, str) and is_weight(name, value), "state_dict", name, "names of weights, each a tensor")
    hparams = found.get("hyper_parameters") or {}
    require(isinstance(hparams, dict), "hyper_parameters", hparams, "a mapping")
    for key, whole in NUMBERS.items():
        allowed = is_whole(hparams.get(key, 0)) if whole else is_finite(hparams.get(key, 0))
        require(allowed, f"hyper_parameters.{key}", hparams.get(key), "a whole number" if whole else "a finite number")
    pooled = hparams.get("maxpool1")
    require(pooled is None or isinstance(pooled, bool), "hyper_parameters.maxpool1", pooled, "True or False")
    for key in ("epoch", "global_step"):
        require(is_whole(found.get(key, 0)), key, found.get(key), "a whole number from 0")
    return Bolts(found["state_dict"], dict(hparams), found.get("epoch", 0), found.get("global_step", 0), path)


def is_weight(name: str, value: Any) -> bool:
    """Whether a value can be a weight or a buffer of this name."""
    return is_whole_tensor(value) and (value.ndim > 0 or name.endswith("num_batches_tracked"))


def is_finite(value: Any) -> bool:
    return is_number(value) and math.isfinite(value)
