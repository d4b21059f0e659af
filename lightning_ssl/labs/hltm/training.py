"""Train tree-shaped networks of all widths, ranges of ρ and seeds on the same samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lightning_ssl.labs.hltm.measures import evaluate
from lightning_ssl.labs.hltm.networks import LOSSES, Networks
from lightning_ssl.labs.hltm.tree import Samples, polarities
from lightning_ssl.labs.lab import track, use_threads

STEPS_PER_DRAW = 10
CURVE_SAMPLES = 4096


# The tensors are small: a second thread gains nothing.
@use_threads(1)
def train(
    depth: int,
    widths: Sequence[int],
    delta_lower: Sequence[float],
    latents: Sequence[str],
    operators: Sequence[str],
    settings: dict[str, Any],
    progress: bool = False,
) -> tuple[Tensor, Tensor]:
    """Train all widths × δ × seeds; best correlations and operator norms, (epochs+1, W, D, S, latents | operators).

    Epochs 0, 1 and the last are measured on `samples` new samples, the others on `CURVE_SAMPLES`. `settings` are the
    arguments of `run` that this signature lacks.
    """
    s = settings
    seeds = range(s["first_seed"], s["first_seed"] + s["seeds"])
    rho = polarities(depth, delta_lower, seeds, s["signed"])
    training_samples, test_samples = Samples(rho, seeds, 2), Samples(rho, seeds, 3)
    groups = [Networks(depth, width, seeds, len(delta_lower), bias=s["bias"]) for width in widths]
    measured = []
    for epoch in track(range(s["epochs"] + 1), f"tree of depth {depth}", progress):
        if epoch and not s["fresh"]:
            training_samples.restart()
        steps = s["samples"] // s["batch"] if epoch else 0
        for first in range(0, steps, STEPS_PER_DRAW):
            count = min(STEPS_PER_DRAW, steps - first)
            leaves = training_samples.draw(count * s["batch"], (2, 1))[0].unflatten(2, (3, count, s["batch"]))
            for k in range(count):
                index = groups[0].table_index(leaves[:, :, :, k].flatten(2))
                for networks in groups:
                    networks.step(index, LOSSES[s["loss"]], s["tau"], s["lr"], s["normalize"])
        n = s["samples"] if epoch in (0, 1, s["epochs"]) else min(CURVE_SAMPLES, s["samples"])
        measured.append(torch.stack([evaluate(networks, test_samples, latents, operators, n) for networks in groups]))
    correlation, norm = torch.stack(measured).split([len(latents), len(operators)], 3)
    shape = (len(delta_lower), len(seeds))
    return correlation.unflatten(2, shape), norm.unflatten(2, shape)
