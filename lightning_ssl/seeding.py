"""Random generators that are a function of numbers such as (seed, epoch, batch), never of what was drawn before."""

from __future__ import annotations

import numpy as np
import torch


def generator_of(*numbers: int) -> torch.Generator:
    """A generator seeded by several numbers, such that those of (0, 1) and (1, 0) have nothing in common."""
    seed = np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1)
    return torch.Generator().manual_seed(int(seed))
