"""The configuration of one run: read, completed, built.

| stage     | made by                  | holds                                                     | stored in       |
|-----------|--------------------------|-----------------------------------------------------------|-----------------|
| merged    | `merge.merge`            | the values of files and flags                             | nowhere         |
| completed | `Configuration.parse`    | … every default, and what follows from them: the size and | config.yaml and |
|           |                          | moments of the data, the stem, the logger                 | each checkpoint |
| built     | `Configuration.build`    | the objects: method, data module, callbacks               | memory          |
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
import yaml  # type: ignore[import-untyped]

from lightning_ssl import data
from lightning_ssl._lightning import pl
from lightning_ssl.app.config import keys
from lightning_ssl.app.config.merge import merge
from lightning_ssl.app.config.run_flags import check_run_flags, run
from lightning_ssl.app.config.text import Step, steps
from lightning_ssl.base.signatures import REQUIRED, Argument, arguments_of
from lightning_ssl.base.tree import Group, checked, construct, naming
from lightning_ssl.callbacks import BY_FLAG as CALLBACKS
from lightning_ssl.callbacks.checkpoints import Checkpoints
from lightning_ssl.data import DataModule
from lightning_ssl.losses.energy import PairLoss
from lightning_ssl.methods import Method
from lightning_ssl.networks import NAMES as BACKBONES
from lightning_ssl.networks import stem_for

TRAINER = {  # our defaults of Lightning's Trainer
    "max_epochs": 100, "log_every_n_steps": 10, "num_sanity_val_steps": 0, "enable_model_summary": False,
}  # fmt: skip


@cache
def root() -> Group:
    """Every argument of `lightning-ssl fit`."""
    # torch's synchronized batch norm refuses tensors on a CPU
    own = {**TRAINER, "sync_batchnorm": torch.cuda.is_available()}
    trainer = arguments_of(pl.Trainer)
    trainer = trainer | {name: replace(trainer[name], default=value) for name, value in own.items()}
    return Group(
        dict,
        {
            **arguments_of(run),
            "trainer": Argument("trainer", Group(dict, trainer), {}),
            "model": Argument("model", Method, REQUIRED),
            "data": Argument("data", Group(DataModule), {}),
            "checkpoint": Argument("checkpoint", Group(Checkpoints), {}),
            **{flag: Argument(flag, kind | None, {"class_path": kind.__name__}) for flag, kind in CALLBACKS.items()},
        },
    )


@dataclass(frozen=True)
class Parts:
    """The objects of a run."""

    method: Method
    data: DataModule
    measuring: list[pl.Callback]
    checkpoints: Checkpoints
    trainer: dict[str, Any]  # arguments of `pl.Trainer`


class Configuration:
    """The completed configuration of one run, as plain values in `values`."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    @classmethod
    def parse(cls, argv: Sequence[str]) -> Configuration:
        """Read the flags of `lightning-ssl fit`, and complete the result."""
        return cls.of(list(steps(argv)))

    @classmethod
    def of(cls, given: Sequence[Step]) -> Configuration:
        """Complete the values of files and flags. All wrong keys are told at once."""
        return cls(completed(checked(merge(given, root()), root(), "")))

    @property
    def seed(self) -> int:
        return int(self.values["seed_everything"])

    def stored(self) -> dict[str, Any]:
        """The configuration as in config.yaml: without where the run is."""
        return deepcopy({key: value for key, value in self.values.items() if key not in keys.PLACE})

    def build(self) -> Parts:
        """Seed the generators and build the objects. A class that refuses its arguments raises UserError."""
        pl.seed_everything(self.seed, verbose=False)
        values = deepcopy(self.values)  # the stored seeds stay null: they follow from seed_everything
        for part in (values["data"], values["model"]["init_args"]):
            if "seed" in part and part["seed"] is None:
                part["seed"] = self.seed
        built = construct(values, root(), "")
        if isinstance(getattr(built["model"], "loss", None), PairLoss):
            built["model"].loss.key = "model.importance"
        measuring = [built[key] for key in CALLBACKS if built[key] is not None]
        return Parts(built["model"], built["data"], measuring, built["checkpoint"], built["trainer"])


def printed(config: Configuration) -> str:
    """The configuration as YAML, for `--print_config`."""
    text: str = yaml.safe_dump(config.values, sort_keys=False, allow_unicode=True)
    return text


def completed(values: dict[str, Any]) -> dict[str, Any]:
    """Fill in what follows from the configuration: the data set's size and moments, the stem, the logger."""
    values["runs"], values["data"]["root"] = map(os.path.expanduser, (values["runs"], values["data"]["root"]))
    check_run_flags(values)
    model, data_module = values["model"]["init_args"], values["data"]
    with naming("data", data_module):
        info = data.info(data_module["name"], data_module["root"], **(data_module["options"] or {}))
    for key in ("image_size", "mean", "std"):
        if key in model and model[key] is None:
            found = getattr(info, key)
            model[key] = list(found) if isinstance(found, tuple) else found
    if "stem" in model and model["stem"] is None and model["backbone"] in BACKBONES:
        model["stem"] = stem_for(model["image_size"])
    if values["trainer"]["accelerator"] == "cpu":
        values["trainer"]["sync_batchnorm"] = False
    if values["logger"] is None:
        values["logger"] = "wandb" if os.environ.get("WANDB_SWEEP_ID") else "none"
    return values
