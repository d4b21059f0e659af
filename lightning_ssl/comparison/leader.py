"""The ranks of several losses, and whether the first is significantly better than every other one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from lightning_ssl.comparison.differences import Comparison, Results, compare, correct, shows_zero

Outcome = Literal["no result", "alone", "tied", "untested", "behind", "leads", "wins"]


@dataclass(frozen=True)
class Rival:
    """A loss that the leader is compared with: its index, and leader − rival, Holm-corrected for all rivals."""

    index: int
    comparison: Comparison


@dataclass(frozen=True)
class Lead:
    """The loss with the best mean, its rivals (next best first), and the outcome. Losses are given by their index.

    | outcome   | meaning                                                            | decisive rivals              |
    |-----------|--------------------------------------------------------------------|------------------------------|
    | no result | no loss has a result                                               |                              |
    | alone     | one loss has a result                                              |                              |
    | tied      | other means are equal to the best in the decimals that are shown   | those with the same mean     |
    | untested  | at least one difference has no test                                | those without a test         |
    | behind    | the leader is not ahead of a rival on the seeds that both have     | the best such rival          |
    | leads     | at least one difference is not significant                         | the one with the largest p   |
    | wins      | every difference is significant                                    | the one with the largest p   |
    """

    outcome: Outcome
    leader: int | None = None
    rivals: tuple[Rival, ...] = ()
    decisive: tuple[Rival, ...] = ()

    @property
    def beaten(self) -> list[Rival]:
        """The rivals that are significantly worse."""
        return [rival for rival in self.rivals if rival.comparison.significant]


def lead(losses: Sequence[Results]) -> Lead:
    """Compare the loss with the best mean with every other loss that has a result.

    >>> found = lead([{0: 60.0, 1: 61.0, 2: 60.5}, {}, {0: 70.0, 1: 71.0, 2: 70.6}])
    >>> found.outcome, found.leader, [rival.index for rival in found.decisive]
    ('wins', 2, [0])
    """
    order = ranking(losses)
    if not order:
        return Lead("no result")
    first, *others = order
    if not others:
        return Lead("alone", first)
    comparisons = correct([compare(losses[first], losses[k]) for k in others])
    rivals = tuple(Rival(k, c) for k, c in zip(others, comparisons, strict=True) if c is not None)

    def outcome(name: Outcome, decisive: Sequence[Rival]) -> Lead:
        return Lead(name, first, rivals, tuple(decisive))

    if tied := [rival for rival in rivals if is_tie(losses[first], losses[rival.index])]:
        return outcome("tied", tied)
    if untested := [rival for rival in rivals if rival.comparison.p is None]:
        return outcome("untested", untested)
    # A mean is over all seeds of a loss, a paired comparison over the common seeds: the leader may be behind there.
    for rival in rivals:
        if rival.comparison.difference <= 0 or shows_zero(rival.comparison.difference):
            return outcome("behind", [rival])
    closest = max(rivals, key=lambda rival: rival.comparison.p_holm or 0.0)
    return outcome("wins" if all(rival.comparison.significant for rival in rivals) else "leads", [closest])


def ranking(losses: Sequence[Results]) -> list[int]:
    """Return the indices of the losses that have results, best mean first."""
    return sorted((k for k, results in enumerate(losses) if results), key=lambda k: -fmean(losses[k].values()))


def ranks(losses: Sequence[Results]) -> list[int | None]:
    """Return the rank of each loss; None without results. A loss that ties with the one before has its rank.

    >>> ranks([{0: 60.0}, {}, {0: 70.0}, {0: 70.001}])
    [3, None, 1, 1]
    """
    order = ranking(losses)
    found: list[int | None] = [None] * len(losses)
    for place, k in enumerate(order):
        tie = place > 0 and is_tie(losses[order[place - 1]], losses[k])
        found[k] = found[order[place - 1]] if tie else place + 1
    return found


def is_tie(one: Results, two: Results) -> bool:
    """Whether the difference of two means is 0.00 in the two decimals that are shown."""
    return shows_zero(fmean(one.values()) - fmean(two.values()))
