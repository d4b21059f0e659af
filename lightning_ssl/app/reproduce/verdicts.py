"""The claims of a reproduction with their verdicts, by the rule of `comparison.claims.decide`.

The difference of a claim is left − right, in points of accuracy, with its 95 % interval over seeds: Student's t of the
differences of matched seeds, or Welch's t if fewer than two seeds match. Without an interval a claim is not decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from lightning_ssl.app.config.labels import Scalar
from lightning_ssl.app.reproduce.recipe import Claim, Moment, Reproduction
from lightning_ssl.comparison.claims import Verdict, decide, mean_by_seed
from lightning_ssl.comparison.differences import Comparison, compare

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
    sides = ([results.get((row, claim.at), {}) for row in rows] for rows in (claim.left, claim.right))
    comparison = compare(*map(mean_by_seed, sides))
    published = published_difference(reproduction, claim, published_on)
    if comparison is None:
        return Judgement(claim, data, None, published, "not decided", "no finished runs")
    if comparison.low is None or comparison.high is None:
        return Judgement(claim, data, comparison, published, "not decided", comparison.test)
    verdict = decide(claim.relation, comparison.low, comparison.high, claim.margin)
    return Judgement(claim, data, comparison, published, verdict)


def published_difference(reproduction: Reproduction, claim: Claim, data: str) -> float | None:
    """The difference of the published means; None if one of them is not published."""
    sides = []
    for rows in (claim.left, claim.right):
        cells = [reproduction.published(row, data, claim.at) for row in rows]
        means = [cell[0] for cell in cells if cell is not None]
        if len(means) < len(cells):
            return None
        sides.append(fmean(means))
    return sides[0] - sides[1]
