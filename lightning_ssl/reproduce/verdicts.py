"""The rule by which a claim holds, does not hold, or is not decided.

The difference of a claim is left − right, in points of accuracy, with its 95 % interval over seeds: Student's t of the
differences of matched seeds, or Welch's t if fewer than two seeds match. With the margin m ≥ 0 of the claim:

| claim              | holds                          | does not hold                        |
|--------------------|--------------------------------|--------------------------------------|
| left above right   | the interval is above m        | the interval is below m              |
| left below right   | the interval is below −m       | the interval is above −m             |
| left equal right   | the interval is within [−m, m] | the interval is outside of [−m, m]   |

In every other case, and without an interval, the claim is not decided at this scale. Intervals are not corrected for
the number of claims: of 20 claims about equal losses, one is expected to be decided wrongly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from lightning_ssl.report.statistics import Comparison, compare
from lightning_ssl.reproduce.recipe import Claim, Moment, Relation, Reproduction
from lightning_ssl.runs.labels import Scalar

Verdict = Literal["holds", "does not hold", "not decided"]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "not decided")
RULE = (
    "The difference of a claim is left − right in points, with its 95 % interval over matched seeds (Student's t). "
    "With the margin m of the claim, “above” holds if the whole interval is above m, “below” if it is below −m, and "
    "“equal” if it is within [−m, m]. A claim does not hold if the whole interval is on the other side, and is not "
    "decided at this scale otherwise. Intervals are not corrected for the number of claims."
)
Results = Mapping[tuple[str, Moment], Mapping[Scalar, float]]
"""(row, moment) → seed → accuracy in percent."""


@dataclass(frozen=True)
class Judgement:
    """A claim on a data set, the difference that was measured, the published one, and the verdict."""

    claim: Claim
    data: str
    comparison: Comparison | None
    published: float | None
    verdict: Verdict
    reason: str = ""
    """Why it is not decided, if there is no interval."""


def judge(reproduction: Reproduction, claim: Claim, data: str, results: Results, published_on: str) -> Judgement:
    """Judge a claim by the results on one data set."""
    left, right = (mean_by_seed(results, rows, claim.at) for rows in (claim.left, claim.right))
    comparison = compare(left, right)
    published = published_difference(reproduction, claim, published_on)
    if comparison is None:
        return Judgement(claim, data, None, published, "not decided", "no finished runs")
    if comparison.low is None or comparison.high is None:
        return Judgement(claim, data, comparison, published, "not decided", comparison.test)
    verdict = decide(claim.relation, comparison.low, comparison.high, claim.margin)
    return Judgement(claim, data, comparison, published, verdict)


def decide(relation: Relation, low: float, high: float, margin: float) -> Verdict:
    """Apply the rule to the interval [low, high] of left − right."""
    if relation == "below":
        return decide("above", -high, -low, margin)
    if relation == "above":
        return "holds" if low > margin else "does not hold" if high < margin else "not decided"
    if -margin <= low and high <= margin:
        return "holds"
    return "does not hold" if low > margin or high < -margin else "not decided"


def mean_by_seed(results: Results, rows: Iterable[str], at: Moment) -> dict[Scalar, float]:
    """The mean of several rows for each seed that all of them have."""
    found = [results.get((row, at), {}) for row in rows]
    return {
        seed: math.fsum(row[seed] for row in found) / len(found) for seed in found[0] if all(seed in r for r in found)
    }


def published_difference(reproduction: Reproduction, claim: Claim, data: str) -> float | None:
    """The difference of the published means; None if one of them is not published."""
    sides = []
    for rows in (claim.left, claim.right):
        cells = [reproduction.published(row, data, claim.at) for row in rows]
        means = [cell[0] for cell in cells if cell is not None]
        if len(means) < len(cells):
            return None
        sides.append(math.fsum(means) / len(means))
    return sides[0] - sides[1]
