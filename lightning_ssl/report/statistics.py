"""How sure one can be: intervals, paired tests against a baseline, Holm's correction, and a verdict in words.

A seed is one observation. Two losses that ran with the same seeds are compared by the differences seed by seed (a
paired t-test); where fewer than two seeds match, by Welch's test of the two samples. p-values of one table are
corrected for their number after Holm. With one seed there is no interval and no test, and the words say so.

Five seeds are few, and a t-test takes differences to be normal; it says how surprising the order of the losses would be
if seeds were all there is to chance. It knows nothing of other data sets, budgets or tuning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lightning_ssl.report.groups import Group, Grouping
from lightning_ssl.runs.labels import Scalar

LEVEL = 0.05


@dataclass(frozen=True)
class Spread:
    """Mean, standard deviation (n − 1) and 95 % interval of a sample; None where n is too small to tell."""

    n: int
    mean: float
    std: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """mean ± t_{0.975, n−1} s/√n; None of nothing."""
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
    """One group against another: the difference of means, its 95 % interval and how surprising it would be."""

    difference: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_holm: float | None = None
    test: str = "one seed: no test"
    pairs: int = 0


def compare(a: Mapping[Scalar, float], b: Mapping[Scalar, float]) -> Comparison | None:
    """a − b by matching seeds where at least two match, otherwise by Welch's test; None where one is empty."""
    if not a or not b:
        return None
    matched = [seed for seed in a if seed in b]
    if len(matched) >= 2:
        spread = Spread.of([a[seed] - b[seed] for seed in matched])
        assert spread is not None
        assert spread.std is not None
        p = p_value(spread.mean, spread.std / math.sqrt(spread.n), spread.n - 1)
        return Comparison(spread.mean, spread.low, spread.high, p, None, "paired t", spread.n)
    one, two = Spread.of(list(a.values())), Spread.of(list(b.values()))
    assert one is not None
    assert two is not None
    if one.std is None or two.std is None:
        # The same seed is still a fair comparison, only one without a measure of chance.
        if matched:
            return Comparison(a[matched[0]] - b[matched[0]], test="one common seed: no test", pairs=1)
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
    """Write Holm's corrected p beside each; returns of how many. The smallest counts m-fold, the next (m−1)-fold, …"""
    tested = sorted((c for c in comparisons if c is not None and c.p is not None), key=lambda c: c.p or 0.0)
    running = 0.0
    for rank, comparison in enumerate(tested):
        assert comparison.p is not None
        running = max(running, min(1.0, (len(tested) - rank) * comparison.p))
        comparison.p_holm = running
    return len(tested)


def p_value(difference: float, error: float, freedom: float) -> float | None:
    """Two-sided p of Student's t; None where there is a difference and no spread to judge it by."""
    if error <= 1e-12 * max(1.0, abs(difference)):
        return 1.0 if difference == 0 else None
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(difference) / error))


def t_quantile(freedom: float) -> float:
    """The 97.5 % point of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))


@dataclass
class Row:
    """A line of the table: a group, its spread, and how it stands to the baseline."""

    group: Group
    spread: Spread | None
    baseline: Group | None
    comparison: Comparison | None
    rank: int | None


def rows(grouping: Grouping, baseline: str | None = None) -> list[Row]:
    """The table, best first within each data set, with differences to InfoNCE (or to the group named `baseline`)."""
    table = []
    for data in grouping.data_sets:
        groups = [group for group in grouping.groups if group.data == data]
        lines = []
        for rank, group in enumerate(groups, 1):
            against = baseline_of(group, groups, baseline)
            comparison = None
            if against is not None and against is not group:
                comparison = compare(group.results, against.results)
            spread = Spread.of(list(group.results.values()))
            lines.append(Row(group, spread, against, comparison, rank if spread else None))
        holm([line.comparison for line in lines])
        table += lines
    return table


def baseline_of(group: Group, groups: Sequence[Group], named: str | None) -> Group | None:
    """The InfoNCE of the same swept settings; where several ran, the best of them, as groups come best first."""
    for other in groups:
        chosen = named in (other.label, other.title) if named is not None else other.infonce
        if chosen and other.results and (other.settings == group.settings or named == other.title):
            return other
    return None


@dataclass(frozen=True)
class Verdict:
    """Who leads on one data set, and whether that can be told from chance."""

    data: str
    winner: Group | None
    clear: bool
    headline: str
    reason: str

    @property
    def line(self) -> str:
        return f"{self.headline}: {self.reason}"


def verdict(grouping: Grouping, data: str) -> Verdict:
    """The leader against every other group of the data set, Holm-corrected.

    `clear` only when it beats them all; the headline also names those that it clearly beats when it does not.
    """
    groups = [group for group in grouping.groups if group.data == data]
    able = [group for group in groups if group.results]
    if not able:
        count = {status: sum(g.statuses().get(status, 0) for g in groups) for status in ("running", "failed", "broken")}
        state = ", ".join(f"{n} {status}" for status, n in count.items() if n) or "none finished"
        return Verdict(data, None, False, "No result yet", f"no run on {data} has finished ({state})")
    first = able[0]
    spread = Spread.of(list(first.results.values()))
    assert spread is not None
    figure = f"{spread.mean:.2f} %" + ("" if spread.std is None else f" ± {spread.std:.2f}")
    seeds = f"{spread.n} seed{'s' * (spread.n > 1)}"
    if len(able) == 1:
        return Verdict(data, first, False, f"{first.title} alone has a result", f"{figure} on {data} ({seeds})")
    comparisons = [compare(first.results, other.results) for other in able[1:]]
    tested = holm(comparisons)
    lead = f"{figure} on {data} ({seeds})"
    if tested < len(comparisons):
        by = first.mean - able[1].mean  # type: ignore[operator]
        untested = next(other for other, c in zip(able[1:], comparisons, strict=True) if c is None or c.p is None)
        why = f"there is no test against {untested.title}"
        if spread.n == 1:
            why = "with one seed nothing is known of chance"
        elif tested == 0:
            why = "the others have one seed each, so little is known of chance"
        return Verdict(
            data, first, False, f"{first.title} leads", f"{lead}, {by:.2f} ahead of {able[1].title}; {why}: not a proof"
        )
    worst = max(range(len(comparisons)), key=lambda k: comparisons[k].p_holm or 0.0)  # type: ignore[union-attr]
    rival, hardest = able[1 + worst], comparisons[worst]
    assert hardest is not None
    assert hardest.p_holm is not None
    test = f"{hardest.test}{f' over {hardest.pairs} seeds' * (hardest.pairs > 0)}, {p_text(hardest.p_holm)}"
    test += f" after Holm for {tested} comparisons" if tested > 1 else ""
    # Its mean is over all its seeds, a comparison over those that both have: one with fewer may be ahead there.
    behind = [(other, c) for other, c in zip(able[1:], comparisons, strict=True) if c is None or c.difference <= 0]
    if behind:
        rival, there = behind[0]
        by = "" if there is None else f" by {abs(there.difference):.2f}"
        why = f"{first.title} leads with {lead}, but on the seeds that both have {rival.title} is ahead{by}"
        return Verdict(data, first, False, "No clear winner", why)
    if hardest.p_holm < LEVEL:
        return Verdict(
            data,
            first,
            True,
            f"{first.title} wins",
            f"{lead}, {hardest.difference:+.2f} over {rival.title}, the hardest to tell from it ({test})",
        )
    open_question = f"{rival.title} is within chance of it ({hardest.difference:+.2f}, {test})"
    beaten = [(other, c) for other, c in zip(able[1:], comparisons, strict=True) if c and (c.p_holm or 1.0) < LEVEL]
    if beaten:
        other, nearest = min(beaten, key=lambda pair: pair[1].difference)
        names = listed([group.title for group, _ in beaten])
        sure = f"{nearest.difference:+.2f} over {other.title} ({p_text(nearest.p_holm or 0.0)} after Holm)"
        headline = f"{first.title} leads, and is clearly ahead of {names}"
        return Verdict(data, first, False, headline, f"{lead}, {sure}; {open_question}")
    return Verdict(data, first, False, "No clear winner", f"{first.title} leads with {lead}, but {open_question}")


def listed(names: Sequence[str], most: int = 3) -> str:
    """ "A", "A and B", "A, B and C", "A, B, C and 2 others"."""
    shown, rest = list(names[:most]), len(names) - most
    if rest > 0:
        shown.append(f"{rest} other{'s' * (rest > 1)}")
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def p_text(p: float) -> str:
    """Two digits of what can be trusted; smaller than 0.001 is said as that."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}" if p < 0.1 else f"p = {p:.2f}"
