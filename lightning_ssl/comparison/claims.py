"""The rules by which a claim about a difference holds, is contradicted, or is not decided.

`decide_claim` decides about losses, `decide_mean` about the mean of several runs of a laboratory, and `mean_holds` by
a difference alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lightning_ssl.comparison.estimate import LEVEL, Estimate
from lightning_ssl.comparison.spread import standard_error

Relation = Literal["above", "below", "equal", "not below"]
Outcome = Literal["holds", "contradicted", "not decided"]
OUTCOMES: tuple[Outcome, ...] = ("holds", "contradicted", "not decided")


@dataclass(frozen=True)
class Decision:
    """The outcome of a claim, its p and the interval of the difference.

    p and interval are corrected for the number of claims, and agree: the outcome is decided where p < level, and then
    the interval lies on one side. They are None if `untested` says why there is no test.
    """

    outcome: Outcome
    p: float | None = None
    low: float | None = None
    high: float | None = None
    untested: Literal["", "no test", "one run", "no spread"] = ""


def decide_claim(
    relation: Relation, estimate: Estimate, margin: float = 0.0, claims: int = 1, level: float = LEVEL
) -> Decision:
    """Decide a claim about a difference d = left − right, with a margin m ≥ 0:

    | relation  | holds                        | contradicted                | p                        | interval |
    |-----------|------------------------------|-----------------------------|--------------------------|----------|
    | above     | the interval is above m      | it is below m               | two-sided at m           | 95 %     |
    | below     | it is below −m               | it is above −m              | two-sided at −m          | 95 %     |
    | not below | it is above −m               | it is below −m              | two-sided at −m          | 95 %     |
    | equal     | it is within (−m, m)         | it is wholly outside        | the larger one-sided     | 90 %     |

    For "equal" these are two one-sided tests (TOST). If the claim is contradicted, p is the one-sided p of the side on
    which d is.

    claims   the number of primary claims: p is multiplied by it, and the level of the interval divided by it

    >>> e = Estimate(value=2.0, error=0.5, freedom=4.0)  # T = 4 at margin 0: p = 0.016
    >>> found = decide_claim("above", e)
    >>> found.outcome, round(found.p, 3), round(found.low, 2), round(found.high, 2)
    ('holds', 0.016, 0.61, 3.39)
    >>> decide_claim("above", e, claims=4).outcome, decide_claim("equal", e, margin=0.5).outcome
    ('not decided', 'contradicted')
    """
    if not estimate.tested:
        return Decision("not decided", untested="no test")
    if relation == "equal":
        inside, outside = equivalence_p(estimate, margin), min(estimate.above(margin), estimate.below(-margin))
        holds, contradicted = claims * inside < level, claims * outside < level
        p, interval = outside if contradicted else inside, estimate.interval(2 * level / claims)
    else:
        bound = margin if relation == "above" else -margin
        p, interval = estimate.p(bound), estimate.interval(level / claims)
        decided, above = claims * p < level, estimate.value > bound
        holds = decided and above != (relation == "below")
        contradicted = decided and not holds
    outcome: Outcome = "holds" if holds else "contradicted" if contradicted else "not decided"
    return Decision(outcome, min(1.0, float(claims * p)), float(interval[0]), float(interval[1]))


def equivalence_p(estimate: Estimate, margin: float) -> Any:
    """Return the p of |d| < margin: the larger one-sided p of the two tests against −margin and margin (TOST).

    >>> round(float(equivalence_p(Estimate(0.2, 0.4, 8.0), margin=1.0)), 3)  # P(t_8 > (1 − 0.2) / 0.4)
    0.04
    """
    return np.maximum(estimate.above(-margin), estimate.below(margin))


def decide_mean(
    relation: Relation, difference: float, std: float, runs: int, margin: float = 0.0, claims: int = 1
) -> Decision:
    """Decide a claim about a mean of several runs minus a fixed number, by Student's t over runs.

    Without a spread over runs, the mean alone decides. Then there is no interval.

    >>> found = decide_mean("equal", 0.01, std=0.02, runs=4, margin=0.05)  # T = (0.05 − 0.01) / 0.01, 3 degrees
    >>> found.outcome, round(found.p, 3)
    ('holds', 0.014)
    >>> decide_mean("equal", 0.01, std=0.0, runs=1, margin=0.05)
    Decision(outcome='holds', p=None, low=None, high=None, untested='one run')
    """
    error = standard_error((std, runs))
    if runs > 1 and error > 1e-12 * max(1.0, abs(difference)):
        return decide_claim(relation, Estimate(difference, error, runs - 1.0), margin, claims)
    outcome: Outcome = "holds" if mean_holds(relation, difference, margin) else "contradicted"
    return Decision(outcome, untested="no spread" if runs > 1 else "one run")


def mean_holds(relation: Relation, difference: float, margin: float) -> bool:
    """Whether a claim holds by the difference alone, without an interval.

    >>> mean_holds("above", 0.5, margin=0), mean_holds("equal", 0.5, margin=0.4)
    (True, False)
    """
    if relation == "equal":
        return abs(difference) <= margin
    if relation == "below":
        return difference < -margin
    return difference > (margin if relation == "above" else -margin)


def margin_of(tolerance: float, published_std: float | None, sigmas: float = 2.0) -> float:
    """Return the margin of a laboratory's claim, max(tolerance, sigmas · published_std).

    >>> round(margin_of(0.03, None), 6), round(margin_of(0.03, 0.1), 6)
    (0.03, 0.2)
    """
    # Published figures have two digits, so a difference often equals the tolerance. The factor absorbs rounding.
    return max(tolerance, sigmas * (published_std or 0.0)) * (1 + 1e-9)
