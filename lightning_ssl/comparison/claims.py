"""The rules by which a claim holds, does not hold, or is not decided.

Two rules decide about a mean: `reproduce` uses its 95 % interval (`decide`), a laboratory the mean alone
(`mean_holds`, with the margin of `margin_of`, two published standard deviations).

Intervals are not corrected for the number of claims: of 20 claims about equal losses, one is expected to be decided
wrongly.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, Literal

from lightning_ssl.comparison.differences import Results

Relation = Literal["above", "below", "equal"]
Verdict = Literal["holds", "does not hold", "not decided"]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "not decided")


def decide(relation: Relation, low: float, high: float, margin: float) -> Verdict:
    """Return the verdict by the interval [low, high] of left − right. With the margin m ≥ 0:

    | claim              | holds                          | does not hold                        |
    |--------------------|--------------------------------|--------------------------------------|
    | left above right   | the interval is above m        | the interval is below m              |
    | left below right   | the interval is below −m       | the interval is above −m             |
    | left equal right   | the interval is within [−m, m] | the interval is outside of [−m, m]   |

    In every other case the claim is not decided.

    >>> decide("equal", -0.2, 0.9, margin=1), decide("above", -0.2, 0.9, margin=0)
    ('holds', 'not decided')
    """
    if relation == "below":
        return decide("above", -high, -low, margin)
    if relation == "above":
        return "holds" if low > margin else "does not hold" if high < margin else "not decided"
    if -margin <= low and high <= margin:
        return "holds"
    return "does not hold" if low > margin or high < -margin else "not decided"


def mean_holds(relation: Relation, difference: float, margin: float) -> bool:
    """Whether a claim holds by the mean alone: the rule of the laboratories.

    >>> mean_holds("above", 0.5, margin=0), mean_holds("equal", 0.5, margin=0.4)
    (True, False)
    """
    return decide(relation, difference, difference, margin) == "holds"


def margin_of(tolerance: float, published_std: float | None, sigmas: float = 2.0) -> float:
    """Return the margin of a laboratory's claim, max(tolerance, sigmas · published_std).

    >>> round(margin_of(0.03, None), 6), round(margin_of(0.03, 0.1), 6)
    (0.03, 0.2)
    """
    # Published figures have two digits, so a difference often equals the tolerance. The factor absorbs rounding.
    return max(tolerance, sigmas * (published_std or 0.0)) * (1 + 1e-9)


def mean_by_seed(losses: Sequence[Results]) -> dict[Any, float]:
    """Return the mean of several losses for each seed that all of them have.

    >>> mean_by_seed([{0: 1.0, 1: 3.0}, {1: 5.0, 2: 7.0}])
    {1: 4.0}
    """
    return {seed: fmean(x[seed] for x in losses) for seed in losses[0] if all(seed in x for x in losses)}
