"""How many seeds a difference needs, and which difference a number of seeds can show."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_ssl.base.checks import require, require_positive
from lightning_ssl.comparison.best import FEWEST_FOR_A_WINNER
from lightning_ssl.comparison.estimate import LEVEL
from lightning_ssl.comparison.pairs import WEIGHT

ASSURANCE = 0.8  # probability that the planned number of seeds has the power
MOST = 10_000  # seeds


def variance_of_pilot(x: Any, assurance: float = ASSURANCE) -> Any:
    """Return an upper bound of the variance of a difference, from a pilot of S0 seeds:

        σ_D² = 2 MSE ν0 / χ²_{1 − assurance, ν0},   ν0 = (S0−1)(K−1)
        MSE  = Σ (x_sk − x̄_s. − x̄_.k + x̄..)² / ν0

    The pilot's own variance, 2 MSE, is too small in half of all cases.

    x   results (..., K, S0) in points, of the losses between which to decide

    >>> round(float(variance_of_pilot([[0.0, 0.0, 4.0, 4.0], [1.0, 3.0, 1.0, 3.0], [9.0, 5.0, 5.0, 9.0]])), 2)
    15.63
    >>> round(2 * 4.0 * 6 / 3.07, 2)  # MSE = 4, χ²_{0.2, 6} = 3.07
    15.64
    """
    from scipy.special import chdtri  # late: scipy takes long to import

    x = np.asarray(x, float)
    losses, seeds = x.shape[-2:]
    require(losses >= 2, "losses of the pilot", losses, "at least 2")
    require(seeds >= 2, "seeds of the pilot", seeds, "at least 2")
    centred = x - x.mean(-1, keepdims=True)
    squares = ((centred - centred.mean(-2, keepdims=True)) ** 2).sum((-1, -2))
    return 2 * squares / chdtri((seeds - 1) * (losses - 1), assurance)


def seeds_needed(variance: Any, losses: int, difference: float, power: float = 0.8, level: float = LEVEL) -> Any:
    """Return the smallest number of seeds S ≥ 5 with which a loss that is better than all others by δ wins:

        S ≥ σ_D² (t_{ν, 1 − level/2} + t_{ν, 1 − (1 − power)/(K−1)})² / δ²,   ν = S−1 + min(4, (S−1)(K−2)/2)

    variance   σ_D², the variance of the difference of two losses with the same seed; a number or an array

    >>> int(seeds_needed(2 * 0.6**2, losses=4, difference=1.2))
    8
    """
    require_positive("difference", difference)
    require(0 < power < 1, "power", power, "between 0 and 1")
    seeds = np.arange(FEWEST_FOR_A_WINNER, MOST + 1)
    shown = _standardized(seeds, losses, power, level) ** 2  # falls with S
    found = np.searchsorted(-shown, -(difference**2) / np.maximum(variance, 1e-300))
    require(bool((found < len(seeds)).all()), "difference", difference, f"large enough for {MOST} seeds to show it")
    return seeds[found]


def more_seeds(x: Any, difference: float, power: float = 0.8, losses: int | None = None) -> Any:
    """Return how many more seeds than those of the pilot each loss needs, to show a difference with 80 % assurance.

    x        results (..., K, S0) of the pilot
    losses   K at the start, if losses were excluded at earlier looks

    >>> int(more_seeds([[71.0, 70.0, 72.0], [69.0, 69.5, 70.5], [60.0, 61.0, 61.5]], difference=2.0))
    3
    """
    x = np.asarray(x, float)
    needed = seeds_needed(variance_of_pilot(x), losses or x.shape[-2], difference, power)
    return np.maximum(needed - x.shape[-1], 0)


def difference_shown(variance: Any, losses: int, seeds: int, power: float = 0.8, level: float = LEVEL) -> Any:
    """Return the difference δ that S seeds can show: the formula of `seeds_needed` the other way round.

    >>> round(float(difference_shown(2 * 0.6**2, losses=4, seeds=9)), 2)
    1.07
    """
    require(seeds >= 2, "seeds", seeds, "at least 2")
    return np.sqrt(variance) * _standardized(np.asarray(seeds), losses, power, level)


def _standardized(seeds: np.ndarray, losses: int, power: float, level: float) -> Any:
    """δ/σ_D that S seeds can show."""
    from scipy.special import stdtrit  # late: scipy takes long to import

    rivals = max(1, losses - 1)
    freedom = seeds - 1 + np.minimum(WEIGHT, (seeds - 1) * (max(losses, 2) - 2) / 2)
    quantiles = stdtrit(freedom, 1 - level / 2) + stdtrit(freedom, 1 - (1 - power) / rivals)
    return quantiles / np.sqrt(seeds)
