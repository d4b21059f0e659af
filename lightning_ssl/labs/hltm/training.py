"""Train tree-shaped networks of all widths, ranges of ρ and seeds on the same samples."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_ssl.labs.hltm.measures import evaluate
from lightning_ssl.labs.hltm.networks import LOSSES, Networks
from lightning_ssl.labs.hltm.tree import Samples, polarities
from lightning_ssl.labs.lab import track, use_threads

STEPS_PER_DRAW = 10


# The tensors are small: a second thread gains nothing.
@use_threads(1)
def train(
    depth: int,
    widths: Sequence[int],
    delta_lower: Sequence[float],
    seeds: range,
    *,
    epochs: int,
    samples: int = 64_000,
    batch: int = 128,
    lr: float = 0.1,
    tau: float = 0.1,
    loss: str = "nce",
    signed: bool = True,
    fresh: bool = True,
    bias: bool = True,
    normalize: bool = True,
    latents: Sequence[str] = ("root",),
    operators: Sequence[str] = (),
    curve_samples: int = 4096,
    progress: bool = False,
) -> tuple[Tensor, Tensor]:
    """Train all widths × δ × seeds; best correlations and operator norms, (epochs+1, W, D, S, latents | operators).

    Epochs 0, 1 and the last are measured on `samples` new samples, the others on `curve_samples`.
    """
    rho = polarities(depth, delta_lower, seeds, signed)
    training_samples, test_samples = Samples(rho, seeds, 2), Samples(rho, seeds, 3)
    groups = [Networks(depth, width, seeds, len(delta_lower), bias=bias) for width in widths]
    losses = [LOSSES[loss](tau, width) for width in widths]
    measured = []
    for epoch in track(range(epochs + 1), f"tree of depth {depth}", progress):
        if epoch and not fresh:
            training_samples.restart()
        steps = max(samples // batch, 1) if epoch else 0
        for first in range(0, steps, STEPS_PER_DRAW):
            count = min(STEPS_PER_DRAW, steps - first)
            leaves = training_samples.draw(count * batch, (2, 1))[0].unflatten(2, (3, count, batch))
            for k in range(count):
                index = groups[0].table_index(leaves[:, :, :, k].flatten(2))
                for networks, each in zip(groups, losses, strict=True):
                    networks.step(index, each, lr, normalize)
        n = samples if epoch in (0, 1, epochs) else min(curve_samples, samples)
        measured.append([evaluate(networks, test_samples, latents, operators, n) for networks in groups])
    correlation, norm = (
        torch.stack([torch.stack([measure[k] for measure in epoch]) for epoch in measured]) for k in (0, 1)
    )
    shape = (len(delta_lower), len(seeds))
    return correlation.unflatten(2, shape), norm.unflatten(2, shape)
