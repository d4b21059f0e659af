"""The claims of a reproduction with their verdicts, by `comparison.claims.decide_claim`.

The difference of a claim is left − right, in points of accuracy, over the seeds that all its rows have. Its variance
is the one of `comparison.pairs.contrast`: its own, shrunk towards the pooled variance of all rows of the table that
have these seeds.

The primary claims of a table on all its data sets are one family. Their level is that of one of three looks, at 5, 8
and 12 seeds, and is divided by the number of comparisons of the family. Claims about the same runs are one comparison.
The other claims are secondary: each has the level 0.05, without a correction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from lightning_ssl.app.config.labels import Scalar
from lightning_ssl.app.reproduce.recipe import Claim, Moment, Reproduction, Work
from lightning_ssl.comparison.blocks import FEWEST
from lightning_ssl.comparison.claims import Decision, Outcome, decide_claim, mean_holds
from lightning_ssl.comparison.estimate import LEVEL, Estimate
from lightning_ssl.comparison.looks import LOOK_LEVEL, LOOKS
from lightning_ssl.comparison.pairs import contrast

Kind = Literal["primary", "same runs", "secondary"]
"""A claim of the family, another claim about the runs of one, or any other claim."""
KINDS: tuple[Kind, ...] = ("primary", "same runs", "secondary")
Results = Mapping[tuple[str, Moment], Mapping[Scalar, float]]
"""(row, moment) → seed → accuracy in percent."""
Compared = tuple[frozenset[frozenset[str]], Moment, str]
"""The rows of the two sides of a claim in any order, the moment and the data set: which runs a claim is about."""


@dataclass(frozen=True)
class Judgement:
    """A claim on a data set with its verdict.

    kind           whether the claim belongs to the family of the primary claims
    level          the error rate: of the whole family, or of this claim alone if it is secondary
    seeds          S, the number of seeds that all rows of the claim have
    difference     left − right in points; None without a common seed
    decision       the verdict, with p and interval at the level
    reason         why there is no test
    published      the published means of the left and of the right side; None if one of them is not published
    against_table  whether the published figures contradict the claim
    """

    claim: Claim
    data: str
    kind: Kind
    level: float
    seeds: int
    difference: float | None
    decision: Decision
    reason: str
    published: tuple[float, float] | None
    against_table: bool

    @property
    def verdict(self) -> Outcome:
        return self.decision.outcome

    @property
    def is_interim(self) -> bool:
        """Whether there is a test at another number of seeds than those of the looks."""
        return not self.reason and self.seeds not in LOOKS


def compared_by(claim: Claim, data: str) -> Compared:
    """The runs that a claim is about: a claim with the sides exchanged has the same ones."""
    return frozenset((frozenset(claim.left), frozenset(claim.right))), claim.at, data


def claims_on(reproduction: Reproduction, work: Work, data: str) -> list[Claim]:
    """The claims that are made on a data set."""
    return [claim for claim in reproduction.claims if claim.is_made_on(work.published_on or data)]


def family_of(reproduction: Reproduction, work: Work) -> set[Compared]:
    """The comparisons of the primary claims on all data sets of a scale, whether they have runs or not."""
    return {
        compared_by(claim, data) for data in work.data for claim in claims_on(reproduction, work, data) if claim.primary
    }


def judge(reproduction: Reproduction, work: Work, data: str, results: Results) -> list[Judgement]:
    """Judge the claims that are made on one data set, by the results on it."""
    family = family_of(reproduction, work)
    judgements = []
    for claim in claims_on(reproduction, work, data):
        kind: Kind = "primary" if claim.primary else "same runs" if compared_by(claim, data) in family else "secondary"
        level, size = (LEVEL, 1) if kind == "secondary" else (LOOK_LEVEL, len(family))
        rows = {row: results.get((row, claim.at), {}) for row in reproduction.rows}
        seeds, estimate, reason = estimate_of(claim.left, claim.right, rows)
        decision = Decision("not decided", untested="no test")
        if not reason and estimate is not None:
            decision = decide_claim(claim.relation, estimate, claim.margin, size, level)
            reason = "no spread: no test" if decision.untested else ""
        difference = None if estimate is None else float(estimate.value)
        published_on = work.published_on or data
        published = published_means(reproduction, claim, published_on)
        against = published_on in claim.against_table
        judgements.append(Judgement(claim, data, kind, level, seeds, difference, decision, reason, published, against))
    return judgements


def estimate_of(
    left: Sequence[str], right: Sequence[str], rows: Mapping[str, Mapping[Scalar, float]]
) -> tuple[int, Estimate | None, str]:
    """The number of common seeds of the rows of two sides, the estimated left − right, and why there is no test.

    rows   row → seed → accuracy, of all rows of the table. Those that have all common seeds give the pooled variance,
           so that no other row can remove a seed.
    """
    sides = (*left, *right)
    if not all(rows[row] for row in sides):
        return 0, None, "no finished runs"
    seeds = [seed for seed in rows[sides[0]] if all(seed in rows[row] for row in sides)]
    if not seeds:
        return 0, None, "no common seed"
    pool = [row for row, values in rows.items() if all(seed in values for seed in seeds)]
    weights = [(row in left) / len(left) - (row in right) / len(right) for row in pool]
    estimate = contrast([[rows[row][seed] for seed in seeds] for row in pool], weights)
    few = len(seeds) < FEWEST
    return len(seeds), estimate, f"{len(seeds)} common seed{'s' * (len(seeds) > 1)}: no test" if few else ""


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


def published_holds(reproduction: Reproduction, claim: Claim, data: str) -> bool | None:
    """Whether a claim holds by the published means themselves, without an interval; None if one is not published."""
    means = published_means(reproduction, claim, data)
    return None if means is None else mean_holds(claim.relation, means[0] - means[1], claim.margin)


def seeds_text(judgements: Sequence[Judgement]) -> str:
    """The numbers of seeds of the claims with a test, such as "3 to 5"."""
    found = sorted({j.seeds for j in judgements if not j.reason})
    return "none" if not found else f"{found[0]}" if len(found) == 1 else f"{found[0]} to {found[-1]}"
