"""The claims of a reproduction with their verdicts, by the rule of `comparison.claims.decide`.

`verdict_of` is the only place where a claim meets the rule, for our runs and for the published figures. The difference
of a claim is left − right, in points of accuracy, with its 95 % interval over seeds: Student's t of the differences of
matched seeds, or Welch's t if fewer than two seeds match. Without an interval a claim is not decided.
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
    "With the margin m of the claim, “above” holds if the whole interval is above m, “below” if it is below −m, "
    "“equal” if it is within [−m, m], and “not below” if it is above −m. A claim does not hold if the whole interval "
    "is on the other side, and is not decided at this scale otherwise. Intervals are not corrected for the number of "
    "claims."
)
Results = Mapping[tuple[str, Moment], Mapping[Scalar, float]]
"""(row, moment) → seed → accuracy in percent."""


@dataclass(frozen=True)
class Judgement:
    """A claim on a data set, the difference that was measured, the published means, and the verdict."""

    claim: Claim
    data: str
    comparison: Comparison | None
    published: tuple[float, float] | None
    """Of the left and of the right side; None if one of them is not published."""
    verdict: Verdict
    reason: str = ""
    """Why it is not decided, if there is no interval."""
    against_table: bool = False
    """Whether the published figures contradict the claim."""


def judge(reproduction: Reproduction, claim: Claim, data: str, results: Results, published_on: str) -> Judgement:
    """Judge a claim by the results on one data set."""
    sides = ([results.get((row, claim.at), {}) for row in rows] for rows in (claim.left, claim.right))
    comparison = compare(*map(mean_by_seed, sides))
    verdict: Verdict = "not decided"
    reason: str = "no finished runs" if comparison is None else comparison.test
    if comparison is not None and comparison.low is not None and comparison.high is not None:
        verdict, reason = verdict_of(claim, comparison.low, comparison.high), ""
    published = published_means(reproduction, claim, published_on)
    return Judgement(claim, data, comparison, published, verdict, reason, published_on in claim.against_table)


def verdict_of(claim: Claim, low: float, high: float) -> Verdict:
    """The verdict on a claim by the interval [low, high] of left − right."""
    if claim.relation == "not below":
        return decide("above", low, high, -claim.margin)
    return decide(claim.relation, low, high, claim.margin)


def published_means(reproduction: Reproduction, claim: Claim, data: str) -> tuple[float, float] | None:
    """The published means of both sides; None if one of them is not published."""
    sides = []
    for rows in (claim.left, claim.right):
        cells = [reproduction.published(row, data, claim.at) for row in rows]
        means = [cell[0] for cell in cells if cell is not None]
        if len(means) < len(cells):
            return None
        sides.append(fmean(means))
    return sides[0], sides[1]


def published_verdict(reproduction: Reproduction, claim: Claim, data: str) -> Verdict | None:
    """The verdict of the published means themselves, without an interval; None if one is not published."""
    means = published_means(reproduction, claim, data)
    return None if means is None else verdict_of(claim, *2 * [means[0] - means[1]])
