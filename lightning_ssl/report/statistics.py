"""Confidence intervals, tests against a baseline, Holm's correction, and a verdict for each data set.

A seed is one observation. If two groups share at least two seeds, they are compared by a paired t-test over those
seeds, otherwise by Welch's t-test. The p-values of one data set are Holm-corrected. One seed gives no interval and no
test, and the verdict says so.

Five seeds are a small sample, and a t-test assumes normal differences. p is the probability of a difference at least
this large if the losses were equal and only the seed varied. It says nothing about other data sets, longer training or
other hyperparameters.

Two results whose difference is 0.00 in the two decimals that are shown are a tie. A tie is no lead, whatever its p.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lightning_ssl.report.groups import Group, Grouping
from lightning_ssl.runs.labels import Scalar

LEVEL = 0.05  # a corrected p below it is called significant


@dataclass(frozen=True)
class Spread:
    """Mean, standard deviation (n − 1) and 95 % interval of a sample; None where n = 1 does not define them."""

    n: int
    mean: float
    std: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """Return mean ± t_{0.975, n−1} s/√n, or None for an empty sample."""
        n = len(values)
        if n == 0:
            return None
        mean = math.fsum(values) / n
        if n == 1:
            return cls(1, mean, None, None, None)
        std = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (n - 1))
        half = t_quantile(n - 1) * std / math.sqrt(n)
        return cls(n, mean, std, mean - half, mean + half)


@dataclass
class Comparison:
    """The difference of two groups' means, its 95 % interval and its two-sided p; None where there is no test."""

    difference: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_holm: float | None = None
    test: str = "one seed: no test"
    pairs: int = 0


def compare(a: Mapping[Scalar, float], b: Mapping[Scalar, float]) -> Comparison | None:
    """Compare a − b, where a and b map a seed to a result; return None if one is empty.

    The test is a paired t-test over the common seeds if there are at least two, otherwise Welch's t-test.
    """
    if not a or not b:
        return None
    common = [seed for seed in a if seed in b]
    if len(common) >= 2:
        spread = Spread.of([a[seed] - b[seed] for seed in common])
        assert spread is not None
        assert spread.std is not None
        p = p_value(spread.mean, spread.std / math.sqrt(spread.n), spread.n - 1)
        return Comparison(spread.mean, spread.low, spread.high, p, None, "paired t", spread.n)
    one, two = Spread.of(list(a.values())), Spread.of(list(b.values()))
    assert one is not None
    assert two is not None
    if one.std is None or two.std is None:
        if common:  # the difference for one seed is still paired, but has no standard error
            return Comparison(a[common[0]] - b[common[0]], test="one common seed: no test", pairs=1)
        return Comparison(one.mean - two.mean)
    u, v = one.std**2 / one.n, two.std**2 / two.n
    error = math.sqrt(u + v)
    difference = one.mean - two.mean
    if error == 0:
        return Comparison(difference, p=None, test="no spread: no test")
    freedom = (u + v) ** 2 / (u**2 / (one.n - 1) + v**2 / (two.n - 1))
    half = t_quantile(freedom) * error
    p = p_value(difference, error, freedom)
    return Comparison(difference, difference - half, difference + half, p, None, "Welch t")


def holm(comparisons: Sequence[Comparison | None]) -> int:
    """Set `p_holm` of every comparison that has a p; return how many there are.

    With m tests and p_1 ≤ … ≤ p_m, p_holm of the k-th is min(1, max_{j ≤ k} (m − j + 1) p_j).
    """
    tested = sorted((c for c in comparisons if c is not None and c.p is not None), key=lambda c: c.p or 0.0)
    largest = 0.0
    for index, comparison in enumerate(tested):
        assert comparison.p is not None
        largest = max(largest, min(1.0, (len(tested) - index) * comparison.p))
        comparison.p_holm = largest
    return len(tested)


def p_value(difference: float, error: float, freedom: float) -> float | None:
    """Return the two-sided p of Student's t; None if the standard error is 0 and the difference is not."""
    if error <= 1e-12 * max(1.0, abs(difference)):
        return 1.0 if difference == 0 else None
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(difference) / error))


def t_quantile(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))


@dataclass
class Row:
    """A row of the comparison table: a group, its spread and its comparison with the baseline."""

    group: Group
    spread: Spread | None
    baseline: Group | None
    comparison: Comparison | None
    rank: int | None


def rows(grouping: Grouping, baseline: str | None = None) -> list[Row]:
    """Return the comparison table, best group first within each data set.

    baseline   label or title of the baseline group; None for InfoNCE with the same settings
    """
    table = []
    for data in grouping.data_sets:
        groups = [group for group in grouping.groups if group.data == data]
        lines: list[Row] = []
        for place, group in enumerate(groups, 1):
            against = baseline_of(group, groups, baseline)
            comparison = None
            if against is not None and against is not group:
                comparison = compare(group.results, against.results)
            spread = Spread.of(list(group.results.values()))
            rank = place if spread else None
            if lines and is_tie(group, lines[-1].group):
                rank = lines[-1].rank
            lines.append(Row(group, spread, against, comparison, rank))
        holm([line.comparison for line in lines])
        table += lines
    return table


def baseline_of(group: Group, groups: Sequence[Group], named: str | None) -> Group | None:
    """Return the baseline with the group's swept settings; if there are several, the first, which is the best."""
    for other in groups:
        chosen = named in (other.label, other.title) if named is not None else other.infonce
        if chosen and other.results and (other.settings == group.settings or named == other.title):
            return other
    return None


@dataclass(frozen=True)
class Verdict:
    """The best group of a data set, and whether it is significantly better than every other group (`clear`).

    `winner` is None if there is no result, and if the best groups have the same mean.
    """

    data: str
    winner: Group | None
    clear: bool
    headline: str
    reason: str

    @property
    def line(self) -> str:
        return f"{self.headline}: {self.reason}"


@dataclass(frozen=True)
class Rival:
    """A group that the leader is compared with."""

    group: Group
    comparison: Comparison

    @property
    def p(self) -> float:
        """The corrected p; 1 without a test."""
        return 1.0 if self.comparison.p_holm is None else self.comparison.p_holm


def verdict(grouping: Grouping, data: str) -> Verdict:
    """Compare the leader with every other group of the data set, Holm-corrected, and put the result into words."""
    groups = [group for group in grouping.groups if group.data == data]
    ranked = [group for group in groups if group.results]
    if not ranked:
        count = {status: sum(g.statuses().get(status, 0) for g in groups) for status in ("running", "failed", "broken")}
        state = ", ".join(f"{n} {status}" for status, n in count.items() if n) or "none finished"
        return Verdict(data, None, False, "No result yet", f"no run on {data} has finished ({state})")
    leader = ranked[0]
    result = result_text(leader)
    if len(ranked) == 1:
        return Verdict(data, leader, False, f"Only {leader.title} has a result", result)
    rivals = []
    for other in ranked[1:]:
        comparison = compare(leader.results, other.results)
        assert comparison is not None
        rivals.append(Rival(other, comparison))
    tied = [rival.group for rival in rivals if is_tie(leader, rival.group)]
    if tied:
        names = list_names([group.title for group in (leader, *tied)])
        return Verdict(data, None, False, "No clear winner", f"{names} have the same mean, {result}")
    tested = holm([rival.comparison for rival in rivals])
    if tested < len(rivals):
        return untested_verdict(leader, rivals)
    # A mean is over all seeds of a group, a paired comparison over the common seeds: the leader may be behind there.
    for rival in rivals:
        difference = rival.comparison.difference
        if difference <= 0 or rounds_to_zero(difference):
            state = "has the same mean" if rounds_to_zero(difference) else f"is ahead by {-difference:.2f}"
            where = "on the common seeds " if rival.comparison.pairs else ""
            reason = f"{leader.title} leads with {result}, but {where}{rival.group.title} {state}"
            return Verdict(data, leader, False, "No clear winner", reason)
    return tested_verdict(leader, rivals)


def is_tie(one: Group, two: Group) -> bool:
    """Whether the difference of two means is 0.00 in the two decimals that are shown."""
    return one.mean is not None and two.mean is not None and rounds_to_zero(one.mean - two.mean)


def rounds_to_zero(difference: float) -> bool:
    return f"{abs(difference):.2f}" == "0.00"


def signed(difference: float) -> str:
    """Return a difference with its sign; zero has none."""
    return "0.00" if rounds_to_zero(difference) else f"{difference:+.2f}"


def untested_verdict(leader: Group, rivals: Sequence[Rival]) -> Verdict:
    """Return the verdict where at least one comparison has no test."""
    if len(leader.results) == 1:
        why = "it has one seed, so there is no test"
    elif all(len(rival.group.results) == 1 for rival in rivals):
        why = "the other losses have one seed each, so there is no test"
    else:
        untested = next(rival for rival in rivals if rival.comparison.p is None)
        why = f"there is no test against {untested.group.title}"
    second = rivals[0].group
    by = (leader.mean or 0.0) - (second.mean or 0.0)
    reason = f"{result_text(leader)}, {by:.2f} ahead of {second.title}; {why} and the lead is not a proof"
    return Verdict(leader.data, leader, False, f"{leader.title} leads", reason)


def tested_verdict(leader: Group, rivals: Sequence[Rival]) -> Verdict:
    """Return the verdict where the leader is ahead in every comparison and each has a test.

    The rival with the largest corrected p decides whether the lead is significant.
    """
    result = result_text(leader)
    closest = max(rivals, key=lambda rival: rival.p)
    c = closest.comparison
    test = c.test + (f" over {c.pairs} seeds" if c.pairs else "") + f", {p_text(closest.p)}"
    test += f", Holm-corrected for {len(rivals)} comparisons" if len(rivals) > 1 else ""
    if closest.p < LEVEL:
        which = ", the closest competitor" if len(rivals) > 1 else ""
        reason = f"{result}, {signed(c.difference)} over {closest.group.title}{which} ({test})"
        return Verdict(leader.data, leader, True, f"{leader.title} wins", reason)
    doubt = f"the difference to {closest.group.title} is not significant ({signed(c.difference)}; {test})"
    beaten = [rival for rival in rivals if rival.p < LEVEL]
    if not beaten:
        reason = f"{leader.title} leads with {result}, but {doubt}"
        return Verdict(leader.data, leader, False, "No clear winner", reason)
    nearest = min(beaten, key=lambda rival: rival.comparison.difference)
    names = list_names([rival.group.title for rival in beaten])
    by = signed(nearest.comparison.difference)
    gain = f"{by} over {nearest.group.title} ({p_text(nearest.p)}, Holm-corrected)"
    headline = f"{leader.title} leads and is significantly better than {names}"
    return Verdict(leader.data, leader, False, headline, f"{result}, {gain}; {doubt}")


def result_text(group: Group) -> str:
    """Return mean, standard deviation, data set and number of seeds in words."""
    spread = Spread.of(list(group.results.values()))
    assert spread is not None
    std = "" if spread.std is None else f" ± {spread.std:.2f}"
    return f"{spread.mean:.2f} %{std} on {group.data} ({spread.n} seed{'s' * (spread.n > 1)})"


def list_names(names: Sequence[str], most: int = 3) -> str:
    """Return "A", "A and B", "A, B and C" or "A, B, C and 2 others"."""
    shown, rest = list(names[:most]), len(names) - most
    if rest > 0:
        shown.append(f"{rest} other{'s' * (rest > 1)}")
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def p_digits(p: float) -> str:
    """Return p with two digits, or "< 0.001"."""
    return "< 0.001" if p < 0.001 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def p_text(p: float) -> str:
    """Return "p = …" or "p < 0.001"."""
    return f"p {p_digits(p)}" if p < 0.001 else f"p = {p_digits(p)}"
