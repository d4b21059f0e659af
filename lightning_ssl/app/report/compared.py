"""The comparison of the groups on one data set: the numbers of the table, the matrix, the figures and the verdict.

A page makes two families of statements, each with an error rate of 5 % of its own: the headline, and the differences of
all pairs. They agree. If A wins, the headline says that A is better than every other group. So the differences of A
have the headline's p where it is smaller, and their intervals end at 0.

The page of a sweep with `--until decided` compares the groups of its last look, with the level of a look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lightning_ssl.app.config.labels import Scalar
from lightning_ssl.app.report.formats import counted
from lightning_ssl.app.report.groups import Group
from lightning_ssl.app.report.images import images_measured
from lightning_ssl.app.runs.looks import TakenLook, read_looks
from lightning_ssl.comparison.best import Best, best
from lightning_ssl.comparison.blocks import blocks
from lightning_ssl.comparison.estimate import LEVEL, Estimate, shows_zero
from lightning_ssl.comparison.looks import LOOK_LEVEL
from lightning_ssl.comparison.pairs import Pairs, compare_pairs


@dataclass(frozen=True)
class Difference:
    """A difference of two means in points, with p and interval corrected for all pairs; None without a test."""

    value: float
    low: float | None = None
    high: float | None = None
    p: float | None = None

    @property
    def significant(self) -> bool:
        """Whether p is below 0.05. Then the interval excludes 0."""
        return self.p is not None and self.p < LEVEL


@dataclass(frozen=True)
class Compared:
    """The groups of a data set, and the differences of those that are compared.

    groups   compared, on the same seeds; best mean first
    listed   groups with results that are not compared, each with the reason
    seeds    the seeds that every compared group has
    dropped  every other seed → the compared groups that lack it
    x        results (K, S) in percent
    losses   K at the start: with those that an earlier look left out
    look     the last look of a sweep whose seeds are added until it is decided
    grain    100 / number of images that accuracy is measured on; None: unknown
    refused  why no group may win, nor be told apart from those that can be the best; empty: nothing is refused
    """

    data: str
    groups: list[Group]
    listed: list[tuple[Group, str]]
    seeds: tuple[Scalar, ...]
    dropped: dict[Scalar, list[Group]]
    x: np.ndarray
    losses: int
    look: TakenLook | None
    grain: float | None
    refused: str = ""

    @property
    def interim(self) -> bool:
        """Whether seeds are added after looking, and their number now is not that of the last look."""
        return self.look is not None and len(self.seeds) != self.look.seeds

    @property
    def open_ended(self) -> bool:
        """Whether the sweep looks after every seed. Then there is no test for a fixed number of seeds."""
        return self.look is not None and self.look.rates == "open-ended"

    @property
    def level(self) -> float:
        """The level of the headline: 0.05, or that of a look."""
        return LEVEL if self.look is None else LOOK_LEVEL

    @cached_property
    def pairs(self) -> Pairs | None:
        """The differences of all pairs; None for fewer than two groups."""
        return compare_pairs(self.x, self.grain) if len(self.groups) > 1 else None

    @cached_property
    def best(self) -> Best | None:
        """The group that wins, or those that can be the best. No group wins between two looks."""
        if self.pairs is None:
            return None
        if self.look is not None and self.open_ended:
            members = np.array([group.title in self.look.survivors for group in self.groups])
            wins = self.look.outcome == "wins" and not self.interim
            return Best(np.array(members.argmax() if wins else -1), members, np.where(members, 1.0, 0.0))
        found = best(self.pairs, self.losses, self.level)
        if self.refused:
            return Best(np.array(-1), None, found.p)
        if not self.interim:
            return found
        return Best(np.array(-1), None if found.members is None else found.p >= self.level, found.p)

    @property
    def winner(self) -> int | None:
        """The index of the group that wins."""
        return None if self.best is None or self.best.winner < 0 else int(self.best.winner)

    @property
    def members(self) -> list[int] | None:
        """The indices of the groups that can be the best; None if there are too few seeds for a set."""
        found = None if self.best is None else self.best.members
        return None if found is None else np.flatnonzero(found).tolist()

    @property
    def headline_p(self) -> float:
        """The largest p of the winner's differences, each tested alone: all of them must be below 0.05."""
        assert self.pairs is not None
        assert self.winner is not None
        p = np.delete(self.pairs.differences.p()[self.winner], self.winner)
        return float(p.max()) * LEVEL / self.level

    @cached_property
    def table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """p, low and high of all pairs (K, K)."""
        assert self.pairs is not None
        e, family = self.pairs.differences, self.losses * (self.losses - 1) / 2
        p = np.minimum(1.0, np.where(shows_zero(e.value), 1.0, e.p()) * family * LEVEL / self.level)
        low, high = intervals(e, self.level / family)
        if self.winner is not None:
            mine = np.arange(len(self.groups)) == self.winner
            p = np.where(mine | mine[:, None], np.minimum(p, self.headline_p), p)
            low = np.where(mine[:, None], np.maximum(low, 0.0), low)
            high = np.where(mine, np.minimum(high, 0.0), high)
        return p, low, high

    def difference(self, i: int, j: int) -> Difference:
        """Return group i − group j."""
        assert self.pairs is not None
        e = self.pairs.differences
        if self.open_ended or not e.tested[i, j]:
            return Difference(float(e.value[i, j]))
        p, low, high = self.table
        return Difference(float(e.value[i, j]), float(low[i, j]), float(high[i, j]), float(p[i, j]))

    @cached_property
    def to_the_best(self) -> list[tuple[float, float, float] | None]:
        """Each mean minus the best of the other means, and its interval, which agrees with the set (Hsu, 1984):

            high_i = min_j high_ij if i can be the best, else 0;   low_i = min_j low_ij over the j that can be the best

        The intervals cover together, from the same one-sided intervals as the set. None without a set or a test.
        """
        if self.pairs is None or self.members is None or self.open_ended:
            return [None] * len(self.groups)
        e, members = self.pairs.differences, np.isin(np.arange(len(self.groups)), self.members)
        low, high = intervals(e, 2 * self.level / max(self.losses - 1, 2))
        itself = np.eye(len(members), dtype=bool)
        value = np.where(itself, np.inf, e.value).min(1)
        high = np.where(itself, np.inf, high).min(1)
        low = np.where(itself | ~members, np.inf, low).min(1)
        low = np.where(members & (members.sum() == 1), 0.0, np.minimum(low, 0.0))
        found = np.stack([value, low, np.where(members, np.maximum(high, 0.0), 0.0)], 1).tolist()
        return [(d, a, b) if math.isfinite(b - a) else None for d, a, b in found]

    def index(self, group: Group) -> int | None:
        """The place of a group among the compared ones; None if it is not compared."""
        return next((k for k, each in enumerate(self.groups) if each is group), None)


def intervals(e: Estimate, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the intervals of differences. One that shows as 0.00 is a tie: its interval has 0 inside."""
    low, high = e.interval(level)
    tie, half = shows_zero(e.value), (high - low) / 2
    return np.where(tie, np.minimum(low, -half), low), np.where(tie, np.maximum(high, half), high)


def compare(data: str, groups: Sequence[Group], metric: str) -> Compared:
    """Compare the groups of a data set on the seeds that all of them have.

    A group with fewer than three seeds is listed and not compared, unless no group has more.
    """
    groups = [group for group in groups if group.results]
    look = look_of(data, groups)
    racing = to_compare(groups, look)
    found = blocks([group.results for group in racing])
    listed = [(group, "left out before the last look") for group in groups if not any(group is each for each in racing)]
    listed += [(racing[k], counted(len(racing[k].results), "seed")) for k in found.listed]
    if not found.seeds:  # such as runs without a seed
        listed += [(racing[k], "no seed in common") for k in found.compared]
    order = sorted(range(len(found.compared) if found.seeds else 0), key=lambda row: -found.x[row].mean())
    images = images_measured(groups[0].runs[0], metric) if groups else None
    return Compared(
        data=data,
        groups=[racing[found.compared[row]] for row in order],
        listed=listed,
        seeds=found.seeds,
        dropped={seed: [racing[k] for k in lacking] for seed, lacking in found.dropped.items()},
        x=found.x[order],
        losses=len(found.compared) if look is None else look.losses,
        look=look,
        grain=None if images is None else 100 / images,
    )


def look_of(data: str, groups: Sequence[Group]) -> TakenLook | None:
    """Return the last look of the sweep to which all runs of the groups belong; None for runs of several sweeps."""
    folders = {run.folder.parent for group in groups for run in group.runs}
    looks = read_looks(folders.pop()) if len(folders) == 1 else []
    several = len({look.data for look in looks}) > 1
    titles = {group.title for group in groups}
    found = [look for look in looks if titles.issuperset(look.survivors) and (look.data == data or not several)]
    return found[-1] if found else None


def to_compare(groups: Sequence[Group], look: TakenLook | None) -> list[Group]:
    """Return the groups that the last look compared, or those that it left once all of them have more seeds."""
    if look is None:
        return list(groups)
    left = [group for group in groups if group.title in look.survivors]
    if len(left) > 1 and len(blocks([group.results for group in left]).seeds) > look.seeds:
        return left
    return [group for group in groups if group.title in look.results]
