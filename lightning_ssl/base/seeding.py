"""Random generators that depend only on numbers such as (seed, epoch, batch), not on earlier draws."""

from __future__ import annotations

import numpy as np
import torch


def generator_of(*numbers: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a generator seeded by several numbers. The order counts: (0, 1) and (1, 0) give unrelated generators."""
    seed = np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1)
    return torch.Generator(device).manual_seed(int(seed))
