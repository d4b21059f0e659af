"""The complete configurations of a sweep's runs, and how long the runs take at the speed of a scale."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from lightning_ssl import data
from lightning_ssl.app.config.labels import Scalar
from lightning_ssl.app.sweep.plan import SEED, Plan, any_fit_flags
from lightning_ssl.app.sweep.scales import PIXELS, Scale
from lightning_ssl.base.checks import UserError, shown

IMAGES = {"cifar10": 50_000, "cifar100": 50_000, "stl10": 105_000}  # of the split for training without labels

Settings = dict[str, Scalar]


def complete_configs(plan: Plan) -> list[dict[str, Any]]:
    """The complete configuration of each cell. Cells that differ in the seed share the parsing."""
    # Late: it imports torch and Lightning.
    from lightning_ssl.app.config.configuration import Configuration

    known: dict[str, dict[str, Any]] = {}
    found = []
    for cell in plan.cells:
        key = json.dumps({name: value for name, value in cell.items() if name != SEED}, sort_keys=True)
        if key not in known:
            command = plan.command_for(cell, Path("parameters.json"))
            flags = any_fit_flags(command)
            if flags is None:
                raise UserError(f"{plan.name}: command={shown(command[:4])}: expected `lightning-ssl fit`")
            known[key] = Configuration.parse(flags).stored()
        found.append({**known[key], SEED: cell.get(SEED)})
    return found


def seconds_of(settings: Settings, scale: Scale) -> float:
    """The training time of a run: its images, times the cost of its network, divided by the speed of the scale."""
    return images_of(settings) * relative_cost(settings, scale) / scale.images_per_second


def images_of(settings: Settings) -> float:
    """The number of training images of a run, over all epochs."""
    images, share = images_in(settings), settings.get("trainer.limit_train_batches")
    if isinstance(share, float) and share <= 1:
        images = round(images * share)
    elif isinstance(share, int | float):
        images = min(images, int(share) * int(settings["data.batch_size"] or 0))
    return float(images * int(settings["trainer.max_epochs"] or 0))


def images_in(settings: Settings) -> int:
    """The number of images for training without labels. Images of the user's own data are counted, not read."""
    name, prefix = str(settings["data.name"]), "data.options."
    if name in IMAGES:
        return IMAGES[name]
    options = {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}
    source = data.source_of(name, str(settings["data.root"]), options)
    drawn: int | None = getattr(source, "train_images", None)  # shapes
    return drawn or len(source.open_split("pretrain"))


def relative_cost(settings: Settings, scale: Scale) -> float:
    """The operations of a run's network for one image, relative to those of the scale's network."""
    size = int(settings["model.image_size"] or PIXELS)
    return operations(str(settings["model.backbone"]), size) / operations(scale.network, PIXELS)


@cache
def operations(backbone: str, size: int) -> int:
    """The floating-point operations of a forward pass of one image. No memory is allocated for it."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from lightning_ssl.networks import build_backbone

    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        build_backbone(backbone, size).eval()(torch.empty(1, 3, size, size))
    return counter.get_total_flops()
