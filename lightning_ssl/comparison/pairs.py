"""The differences of all pairs of losses, each with its own variance, shrunk towards the pooled one.

x_sk is the result of loss k with seed s, in complete blocks of S seeds. An array x has the shape (..., K, S): leading
dimensions are independent comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning_ssl.comparison.estimate import LEVEL, Estimate, shows_zero

WEIGHT = 4.0  # degrees of freedom of the pooled variance, at most


@dataclass(frozen=True)
class Pool:
    """The pooled variance of K losses.

    out      whether the spread of a loss stands out (..., K)
    kept     K', the number of losses that do not (...)
    mse      pooled variance of these losses (...); 0 if there are fewer than two
    weight   its degrees of freedom in the variance of a difference of two such losses (...)
    """

    out: np.ndarray
    kept: np.ndarray
    mse: np.ndarray
    weight: np.ndarray


@dataclass(frozen=True)
class Pairs:
    """The differences of K losses: `differences.value[..., i, j]` is x̄_i − x̄_j.

    The family of a page is its K (K − 1)/2 pairs. `p` and `interval` are corrected for it by Bonferroni's rule, so that
    they agree: p < 0.05 where the interval excludes 0.

    >>> found = compare_pairs([[70.0, 71.0, 72.0], [69.0, 69.0, 69.0]])  # differences 1, 2, 3: T = 2 / (1/√3), ν = 2
    >>> float(found.differences.value[0, 1]), round(float(found.p()[0, 1]), 3), bool(found.significant()[0, 1])
    (2.0, 0.074, False)
    """

    seeds: int
    pool: Pool
    differences: Estimate

    @property
    def losses(self) -> int:
        """K."""
        return self.pool.out.shape[-1]

    @property
    def family(self) -> int:
        """The number of pairs, K (K − 1)/2."""
        return max(1, self.losses * (self.losses - 1) // 2)

    def p(self) -> np.ndarray:
        """Return the corrected two-sided p (..., K, K), min(1, p K (K − 1)/2)."""
        return np.minimum(1.0, self.family * self.differences.p())

    def interval(self, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray]:
        """Return the corrected intervals (..., K, K): all cover with probability 1 − level."""
        return self.differences.interval(level / self.family)

    def significant(self, level: float = LEVEL) -> np.ndarray:
        """Whether the corrected p is below the level and the difference does not show as 0.00 (..., K, K)."""
        return (self.p() < level) & ~shows_zero(self.differences.value)


def compare_pairs(x: Any, grain: float | None = None) -> Pairs:
    """Return the differences of all pairs of losses, with

        v_ij = ((S−1) s²_ij + 2 d0 MSE) / (S−1+d0),   ν = S−1+d0,   T_ij = (x̄_i − x̄_j) / √(v_ij/S)

    s²_ij is the variance of x_si − x_sj over seeds, and d0 = 0 if the spread of i or j stands out, else the weight of
    the pool. There is no test if S < 2, or if v_ij = 0.

    x      results (..., K, S) in points
    grain  100 / number of test images: v_ij is at least grain²/6, the variance of two rounded results. None: unknown

    >>> found = compare_pairs([[0.0, 0.0, 4.0, 4.0], [1.0, 3.0, 1.0, 3.0], [9.0, 5.0, 5.0, 9.0]])
    >>> found.pool.mse.item(), found.pool.weight.item()  # s²_ij = 20/3, 32/3, 20/3, half their mean is 4; 3 · 1 / 2
    (4.0, 1.5)
    >>> e = found.differences  # v_12 = (3 · 20/3 + 2 · 1.5 · 4) / 4.5 = 64/9, and its standard error is √(v_12/4)
    >>> e.value[1, 2].item(), round(e.error[1, 2].item(), 3), e.freedom[1, 2].item()
    (-5.0, 1.333, 4.5)
    """
    x = np.asarray(x, float)
    seeds = x.shape[-1]
    d = x[..., :, None, :] - x[..., None, :, :]  # (..., K, K, S)
    if seeds < 2:
        out, zero = np.zeros(x.shape[:-1], bool), np.zeros(x.shape[:-2])
        return Pairs(seeds, Pool(out, zero + x.shape[-2], zero, zero), _untested(d))
    mean = d.mean(-1)  # (..., K, K)
    s2 = ((d - mean[..., None]) ** 2).sum(-1) / (seeds - 1)  # (..., K, K)
    pool = pooled(x, s2)
    kept = ~pool.out
    d0 = np.where(kept[..., :, None] & kept[..., None, :], pool.weight[..., None, None], 0.0)
    v = ((seeds - 1) * s2 + 2 * d0 * pool.mse[..., None, None]) / (seeds - 1 + d0)
    v = np.where(np.eye(x.shape[-2], dtype=bool), np.inf, v)  # no test of a loss against itself
    return Pairs(seeds, pool, Estimate(mean, _error(v, x, 2.0, grain), seeds - 1 + d0))


def contrast(x: Any, weights: Any, grain: float | None = None) -> Estimate:
    """Return the estimate of Σ_k c_k x̄_k, such as the mean of two losses minus a third (Σ_k c_k = 0):

        v = ((S−1) s²_c + d0 MSE Σ c²_k) / (S−1+d0)

    s²_c is the variance of Σ_k c_k x_sk over seeds, and d0 = 0 if the spread of a loss with c_k ≠ 0 stands out.

    >>> e = contrast([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0], [0.0, 0.0, 0.0]], [0.5, 0.5, -1.0])  # 2, 3, 4
    >>> e.value.item(), e.freedom.item()
    (3.0, 3.0)
    """
    x, c = np.asarray(x, float), np.asarray(weights, float)
    seeds = x.shape[-1]
    y = (c[:, None] * x).sum(-2)  # (..., S)
    if seeds < 2:
        return _untested(y)
    pool = pooled(x)
    d0 = np.where((pool.out & (c != 0)).any(-1), 0.0, pool.weight)
    squares = (c**2).sum()
    v = ((seeds - 1) * y.var(-1, ddof=1) + d0 * pool.mse * squares) / (seeds - 1 + d0)
    return Estimate(y.mean(-1), _error(v, x, squares, grain), seeds - 1 + d0)


def _untested(y: np.ndarray) -> Estimate:
    """The estimate from fewer than two differences y (..., S); its value is NaN without a seed."""
    value = y[..., 0] if y.shape[-1] else np.full(y.shape[:-1], np.nan)
    return Estimate(value, np.full(value.shape, np.inf), np.ones(value.shape))


def pooled(x: np.ndarray, s2: np.ndarray | None = None) -> Pool:
    """Return the pooled variance of the losses whose spread does not stand out (S ≥ 2).

        F_k = s²_k / mean of the other losses' s²,   out_k = F_k > F_.95(S−1, (S−1)(K−1))        (only for K > 2)
        MSE = Σ (x_sk − x̄_s. − x̄_.k + x̄..)² / ((S−1)(K'−1)),   weight = min(4, (S−1)(K'−2)/2)

    The sums of MSE are over the K' losses that are not out. MSE is half the mean of their s²_ij.

    s2   the variances s²_ij (..., K, K), if known

    >>> pooled(np.array([[0.0, 2.0, 4.0], [5.0, 7.0, 6.0], [0.0, 0.0, 99.0]])).out.tolist()
    [False, False, True]
    """
    losses, seeds = x.shape[-2:]
    if s2 is None:
        s2 = (x[..., :, None, :] - x[..., None, :, :]).var(-1, ddof=1)
    out = np.zeros(x.shape[:-1], bool)
    if losses > 2:
        from scipy.special import fdtri  # late: scipy takes long to import

        own = x.var(-1, ddof=1)
        others = own @ ((1 - np.eye(losses)) / (losses - 1))
        out = own > others * fdtri(seeds - 1, (seeds - 1) * (losses - 1), 0.95)
    inside = (~out).astype(float)  # (..., K)
    kept = inside.sum(-1)
    total = np.einsum("...i,...ij,...j->...", inside, s2, inside)
    mse = total / np.maximum(2 * kept * (kept - 1), 1)
    return Pool(out, kept, mse, np.clip((seeds - 1) * (kept - 2) / 2, 0.0, WEIGHT))


def _error(v: np.ndarray, x: np.ndarray, squares: float, grain: float | None) -> np.ndarray:
    """Return √(v/S), with v at least grain²/12 Σ c²_k; infinite where v is 0, or due to rounding of x."""
    v = np.maximum(v, 0.0 if grain is None else squares * grain**2 / 12)
    rounding = (1e-12 * np.abs(x).max((-1, -2), initial=0.0)) ** 2  # (...)
    smallest = rounding[(..., *[None] * (v.ndim - rounding.ndim))]
    return np.sqrt(np.where(v > smallest, v, np.inf) / x.shape[-1])
