"""The difference of two losses, its interval and p.

If two losses share at least two seeds, they are compared by a paired t-test over those seeds, otherwise by Welch's
t-test. One seed gives no interval and no test.

Five seeds are a small sample, and a t-test assumes normal differences. p is the probability of a difference at least
this large if the losses were equal and only the seed varied. It says nothing about other data sets, longer training or
other hyperparameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lightning_ssl.comparison.spread import Spread, interval, p_value, standard_error

Results = Mapping[Any, float]  # seed → result
Test = Literal["paired t", "Welch t", "one seed: no test", "one common seed: no test", "no spread: no test"]


@dataclass(frozen=True)
class Comparison:
    """The difference of two means, its 95 % interval and its two-sided p; None where there is no test."""

    difference: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    test: Test = "one seed: no test"
    pairs: int = 0


def compare(a: Results, b: Results) -> Comparison | None:
    """Compare a − b over seeds; return None if one has no result.

    >>> found = compare({0: 70.0, 1: 71.0, 2: 73.0}, {0: 69.0, 1: 69.0, 2: 70.0})  # differences 1, 2, 3
    >>> found.difference, found.test, found.pairs, round(found.p, 3)  # t = 2 / (1/√3), 2 degrees of freedom
    (2.0, 'paired t', 3, 0.074)
    """
    if not a or not b:
        return None
    common = [seed for seed in a if seed in b]
    if len(common) >= 2:
        spread = Spread.of([a[seed] - b[seed] for seed in common])
        assert spread.std is not None
        p = p_value(spread.mean, standard_error((spread.std, spread.n)), spread.n - 1)
        return Comparison(spread.mean, spread.low, spread.high, p, "paired t", spread.n)
    one, two = Spread.of(a.values()), Spread.of(b.values())
    difference = one.mean - two.mean
    if one.std is None or two.std is None:
        if common:  # the difference for one seed is still paired, but has no standard error
            return Comparison(a[common[0]] - b[common[0]], test="one common seed: no test", pairs=1)
        return Comparison(difference)
    error = standard_error((one.std, one.n), (two.std, two.n))
    if error == 0:
        return Comparison(difference, test="no spread: no test")
    u, v = one.std**2 / one.n, two.std**2 / two.n
    freedom = (u + v) ** 2 / (u**2 / (one.n - 1) + v**2 / (two.n - 1))
    return Comparison(
        difference, *interval(difference, error, freedom), p_value(difference, error, freedom), test="Welch t"
    )
