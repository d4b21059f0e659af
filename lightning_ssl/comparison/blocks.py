"""Complete blocks: the seeds that every compared loss has. A seed is one block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Results = Mapping[Any, float]  # seed → result in points
FEWEST = 3  # seeds of a loss that is compared


@dataclass(frozen=True)
class Blocks:
    """The complete blocks of several losses. A loss is given by its index in the sequence that `blocks` received.

    x         results (K', S) of the compared losses, seeds in the order of `seeds`
    compared  the losses in the rows of x
    listed    the losses that have too few seeds to be compared
    seeds     the seeds in the columns of x
    dropped   every other seed of a compared loss → the compared losses that lack it
    """

    x: np.ndarray
    compared: tuple[int, ...]
    listed: tuple[int, ...]
    seeds: tuple[Any, ...]
    dropped: dict[Any, tuple[int, ...]]


def blocks(losses: Sequence[Results]) -> Blocks:
    """Return the complete blocks of the losses that have at least three seeds, and what they leave out.

    If no loss has three seeds, the losses with the most seeds are compared, and the others are listed.

    >>> found = blocks([{0: 70.0, 1: 71.0, 2: 72.0, 3: 73.0}, {0: 60.0}, {3: 69.0, 1: 68.0, 2: 67.0}])
    >>> found.x.tolist(), found.compared, found.seeds
    ([[71.0, 72.0, 73.0], [68.0, 67.0, 69.0]], (0, 2), (1, 2, 3))
    >>> found.listed, found.dropped  # loss 1 has one seed, and loss 2 lacks seed 0
    ((1,), {0: (2,)})
    """
    fewest = max(1, min(FEWEST, max(map(len, losses), default=0)))
    compared = tuple(k for k, results in enumerate(losses) if len(results) >= fewest)
    every = dict.fromkeys(seed for k in compared for seed in losses[k])
    lacking = {seed: tuple(k for k in compared if seed not in losses[k]) for seed in every}
    seeds = tuple(seed for seed, missing in lacking.items() if not missing)
    return Blocks(
        x=np.array([[losses[k][seed] for seed in seeds] for k in compared], float).reshape(len(compared), len(seeds)),
        compared=compared,
        listed=tuple(k for k in range(len(losses)) if k not in compared),
        seeds=seeds,
        dropped={seed: missing for seed, missing in lacking.items() if missing},
    )
