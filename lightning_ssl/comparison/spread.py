"""Mean, standard deviation and 95 % interval of a sample."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from statistics import fmean

import numpy as np


@dataclass(frozen=True)
class Spread:
    """Mean, standard deviation (n − 1) and 95 % interval of a sample; None where n = 1 does not define them."""

    n: int
    mean: float
    std: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Collection[float]) -> Spread:
        """Return mean ± t_{0.975, n−1} s/√n.

        >>> spread = Spread.of([70.0, 72.0])  # s/√n = 1, and t_{0.975, 1} = 12.706
        >>> spread.mean, round(spread.low, 3), round(spread.high, 3)
        (71.0, 58.294, 83.706)
        """
        n, mean, std = len(values), fmean(values), standard_deviation(values)
        low, high = (None, None) if std is None else interval(mean, standard_error((std, n)), n - 1)
        return cls(n, mean, std, low, high)


def standard_deviation(values: Collection[float]) -> float | None:
    """Return √(Σ (x − x̄)² / (n − 1)); None for one value.

    >>> standard_deviation([1.0, 3.0, 5.0]), standard_deviation([4.0])
    (2.0, None)
    """
    if len(values) == 1:
        return None
    mean = fmean(values)
    return math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (len(values) - 1))


def standard_error(*samples: tuple[float, int]) -> float:
    """Return √(Σ s²/n) for samples (s, n): the error of a mean, or of the difference of independent means.

    >>> standard_error((2.0, 4)), standard_error((6.0, 4), (8.0, 4))
    (1.0, 5.0)
    """
    return math.hypot(*(std / math.sqrt(n) for std, n in samples))


def interval(estimate: float, error: float, freedom: float) -> tuple[float, float]:
    """Return the 95 % interval, estimate ± t_{0.975, freedom} error. Without a degree of freedom it is the estimate."""
    from scipy.special import stdtrit  # late: scipy takes long to import

    half = float(stdtrit(freedom, 0.975)) * error if freedom > 0 else 0.0
    return estimate - half, estimate + half


def spread_by_epoch(epochs: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct epochs, and the mean and standard deviation (n − 1) of the finite values of each: (E,) each.

    The deviation of one value is 0.

    >>> [array.tolist() for array in spread_by_epoch(np.array([1, 2, 1]), np.array([3.0, 4.0, 5.0]))]
    [[1, 2], [4.0, 4.0], [1.4142135623730951, 0.0]]
    """
    finite = np.isfinite(values)
    distinct, index = np.unique(epochs[finite], return_inverse=True)
    values = values[finite]
    count = np.bincount(index)
    mean = np.bincount(index, values) / count
    squares = np.bincount(index, (values - mean[index]) ** 2)
    return distinct, mean, np.sqrt(squares / np.maximum(count - 1, 1))
