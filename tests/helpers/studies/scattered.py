"""Results of losses with seeds: spreads that differ, an effect of the seed, means that differ a little."""

import numpy as np

SHAPES = [(1, 5), (2, 2), (2, 3), (2, 5), (3, 2), (3, 3), (3, 8), (4, 4), (4, 5), (7, 3), (7, 5), (12, 4), (12, 10)]


def scattered(losses, seeds, number):
    """Results (K, S) in points, around 70, the same for the same number. Every third one has a noisy loss."""
    rng = np.random.default_rng([losses, seeds, number])
    x = 70 + 0.6 * rng.standard_normal((losses, seeds)) + rng.standard_normal(seeds)
    x += rng.choice([0.0, 0.5, 1.0, 3.0], (losses, 1))
    if number % 3 == 0:
        x[0] += 3 * rng.standard_normal(seeds)
    return x
