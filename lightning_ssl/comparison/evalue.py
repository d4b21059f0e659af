"""The paired e-process: evidence between losses that may be looked at after every seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_ssl.comparison.estimate import LEVEL

FIRST = 3  # seeds at the first look


def e_values(x: Any, grain: float | None = None) -> np.ndarray:
    """Return E (..., K, K): E[..., j, i] is the evidence that loss j is better than loss i.

        E_ji = (1+n)^−½ [(R+z²)/(R+z²/(1+n))]^{n/2} · 2 F_{t,n}( z √(n/(1+n)) / √((R+z²/(1+n))/n) )

    with n seeds, z = √n (x̄_j − x̄_i) and R = (n−1) s²_ij. It is the ratio of two likelihoods of the t-test: the effect
    in standard deviations has a half-normal prior under "better", and is 0 under "equal". Where the difference or its
    variance is 0, E = 1. E is only used as a crossing event: the probability that it ever exceeds 1/a is at most a.

    x      results (..., K, n) in points
    grain  100 / number of test images: s²_ij is at least grain²/6. None: unknown

    >>> e = e_values([[2.0, 3.0, 4.0], [1.0, 1.0, 1.0]])  # n = 3, z² = 12, R = 2
    >>> round(float(e[0, 1]), 3)  # 4^−½ (14/5)^{3/2} · 2 F_{t,3}(√12 √(3/4) / √(5/3)) = 2.343 · 2 · 0.9486
    4.445
    """
    from scipy.special import stdtr  # late: scipy takes long to import

    x = np.asarray(x, float)
    n = x.shape[-1]
    d = x[..., :, None, :] - x[..., None, :, :]  # (..., K, K, n)
    mean = d.mean(-1)
    R = ((d - mean[..., None]) ** 2).sum(-1)
    R = np.maximum(R, 0.0 if grain is None else (n - 1) * grain**2 / 6)
    rounding = n * (1e-12 * np.fmax.reduce(np.abs(x), (-1, -2), initial=0.0)) ** 2  # of x, NaN left out
    known = (rounding[..., None, None] < R) & (mean != 0)
    R, z2 = np.where(known, R, 1.0), n * mean**2
    shrunk = R + z2 / (1 + n)
    ratio = np.log((R + z2) / shrunk) * n / 2 - np.log1p(n) / 2
    tail = 2 * stdtr(n, np.sign(mean) * np.sqrt(z2 * n / (1 + n) / (shrunk / n)))
    return np.where(known, np.exp(ratio) * tail, 1.0)


def seeds_until_dropped(x: Any, grain: float | None = None, first: int = FIRST, level: float = LEVEL) -> np.ndarray:
    """Return after how many seeds each loss is dropped (..., K); 0 if it is not.

    After each seed from `first` on, loss i is dropped once E_ji ≥ (K−1)/level for a loss j that is not dropped. The one
    that remains alone wins.

    x   results (..., K, S) in the order of the seeds; NaN after a loss is dropped

    >>> seeds_until_dropped([[70.0, 71.0, 72.0, 71.0, 71.5], [60.0, 61.5, 61.0, 62.0, 61.0]]).tolist()
    [0, 4]
    """
    x = np.asarray(x, float)
    losses, seeds = x.shape[-2:]
    dropped = np.zeros(x.shape[:-1], int)
    for n in range(first, seeds + 1):
        crossed = e_values(x[..., :n], grain) >= (losses - 1) / level  # (..., j, i)
        beaten = (crossed & (dropped == 0)[..., :, None]).any(-2)
        dropped = np.where((dropped == 0) & beaten, n, dropped)
    return dropped
