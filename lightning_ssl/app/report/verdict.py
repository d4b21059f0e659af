"""The rows of the comparison table, and a verdict for each data set in words. `comparison/` has the numbers.

The p-values of one data set are Holm-corrected. One seed gives no interval and no test, and the verdict says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lightning_ssl.app.report.formats import list_names, p_text, signed
from lightning_ssl.app.report.groups import Group, Grouping, unfinished
from lightning_ssl.app.report.published import Published, published
from lightning_ssl.app.runs.run_record import RunRecord
from lightning_ssl.comparison.differences import Comparison, compare, correct, shows_zero
from lightning_ssl.comparison.leader import Lead, Rival, lead, ranks
from lightning_ssl.comparison.spread import Spread


@dataclass
class Row:
    """A row of the comparison table: a group, its spread and its comparison with the baseline.

    `wins` means significantly better than every other group on the same data.
    """

    group: Group
    spread: Spread | None
    baseline: Group | None
    comparison: Comparison | None
    rank: int | None
    published: Published | None
    wins: bool


def rows(grouping: Grouping, baseline: str | None = None) -> list[Row]:
    """Return the comparison table, best group first within each data set.

    baseline   label or title of the baseline group; None for InfoNCE with the same settings
    """
    table = []
    for data, groups in grouping.by_data.items():
        against = [baseline_of(group, groups, baseline) for group in groups]
        comparisons = correct(
            [
                None if other is None or other is group else compare(group.results, other.results)
                for group, other in zip(groups, against, strict=True)
            ]
        )
        spreads = [Spread.of(group.results.values()) if group.results else None for group in groups]
        places = ranks([group.results for group in groups])
        best = verdict(grouping, data)
        wins = [best.clear and group is best.winner for group in groups]
        table += list(map(Row, groups, spreads, against, comparisons, places, map(published, groups), wins))
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
class Results:
    """What a report shows: every run, the groups, the comparison table, a verdict for each data set, and notes."""

    runs: list[RunRecord]
    grouping: Grouping
    rows: list[Row]
    verdicts: list[Verdict]
    notes: list[str]

    @property
    def line(self) -> str:
        """The result in one line for each data set."""
        return "\n".join(verdict.line for verdict in self.verdicts) or "no run could be read"


def verdict(grouping: Grouping, data: str) -> Verdict:
    """Compare the leader with every other group of the data set, and put the result into words."""
    groups = grouping.by_data[data]
    found = lead([group.results for group in groups])
    if found.leader is None:
        state = unfinished([run for group in groups for run in group.runs]) or "none finished"
        return Verdict(data, None, False, "No result yet", f"no run on {data} has finished ({state})")
    leader = groups[found.leader]
    if found.outcome == "alone":
        return Verdict(data, leader, False, f"Only {leader.title} has a result", result_text(leader))
    if found.outcome == "tied":
        names = list_names([leader.title, *(groups[rival.index].title for rival in found.decisive)])
        return Verdict(data, None, False, "No clear winner", f"{names} have the same mean, {result_text(leader)}")
    words = {"untested": untested, "behind": behind}.get(found.outcome, tested)
    return Verdict(data, leader, found.outcome == "wins", *words(leader, groups, found))


def untested(leader: Group, groups: Sequence[Group], found: Lead) -> tuple[str, str]:
    """Headline and reason where at least one comparison has no test."""
    if len(leader.results) == 1:
        why = "it has one seed, so there is no test"
    else:
        why = f"there is no test against {groups[found.decisive[0].index].title}"
    second = groups[found.rivals[0].index]
    by = (leader.mean or 0.0) - (second.mean or 0.0)
    reason = f"{result_text(leader)}, {by:.2f} ahead of {second.title}; {why} and the lead is not a proof"
    return f"{leader.title} leads", reason


def behind(leader: Group, groups: Sequence[Group], found: Lead) -> tuple[str, str]:
    """Headline and reason where the leader is not ahead of a rival on the seeds that both have."""
    (rival,) = found.decisive
    c = rival.comparison
    state = "has the same mean" if shows_zero(c.difference) else f"is ahead by {-c.difference:.2f}"
    where = "on the common seeds " if c.pairs else ""
    title = groups[rival.index].title
    return "No clear winner", f"{leader.title} leads with {result_text(leader)}, but {where}{title} {state}"


def tested(leader: Group, groups: Sequence[Group], found: Lead) -> tuple[str, str]:
    """Headline and reason where the leader is ahead in every comparison and each has a test.

    The rival with the largest corrected p decides whether the lead is significant.
    """
    result = result_text(leader)
    (closest,) = found.decisive
    several = len(found.rivals) > 1
    c, title = closest.comparison, groups[closest.index].title
    test = c.test + (f" over {c.pairs} seeds" if c.pairs else "") + f", {corrected_p(closest)}"
    test += f", Holm-corrected for {len(found.rivals)} comparisons" if several else ""
    if found.outcome == "wins":
        which = ", the closest competitor" if several else ""
        return f"{leader.title} wins", f"{result}, {signed(c.difference)} over {title}{which} ({test})"
    doubt = f"the difference to {title} is not significant ({signed(c.difference)}; {test})"
    if not found.beaten:
        return "No clear winner", f"{leader.title} leads with {result}, but {doubt}"
    nearest = min(found.beaten, key=lambda rival: rival.comparison.difference)
    names = list_names([groups[rival.index].title for rival in found.beaten])
    by = signed(nearest.comparison.difference)
    gain = f"{by} over {groups[nearest.index].title} ({corrected_p(nearest)}, Holm-corrected)"
    return f"{leader.title} leads and is significantly better than {names}", f"{result}, {gain}; {doubt}"


def result_text(group: Group) -> str:
    """Return mean, standard deviation, data set and number of seeds in words."""
    spread = Spread.of(group.results.values())
    std = "" if spread.std is None else f" ± {spread.std:.2f}"
    return f"{spread.mean:.2f} %{std} on {group.data} ({spread.n} seed{'s' * (spread.n > 1)})"


def corrected_p(rival: Rival) -> str:
    assert rival.comparison.p_holm is not None
    return p_text(rival.comparison.p_holm)
