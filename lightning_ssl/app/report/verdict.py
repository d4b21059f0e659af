"""The rows of the comparison table, and a verdict for each data set in words. compared.py has the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from lightning_ssl.app.report.compared import Compared, Difference, compare
from lightning_ssl.app.report.formats import counted, duration, list_names, p_text, signed
from lightning_ssl.app.report.groups import Group, Grouping, unfinished
from lightning_ssl.app.report.images import choice_on_test_images
from lightning_ssl.app.report.published import Published, published
from lightning_ssl.app.report.tuning import Confirmation
from lightning_ssl.app.runs.run_record import RunRecord
from lightning_ssl.base import machine
from lightning_ssl.comparison.best import FEWEST_FOR_A_SET, FEWEST_FOR_A_WINNER, ranks
from lightning_ssl.comparison.estimate import shows_zero
from lightning_ssl.comparison.planning import difference_shown, more_seeds, variance_of_pilot
from lightning_ssl.comparison.spread import Spread

NAMED = 6  # losses that a headline names
LISTED = 8  # seeds, or losses, that a note lists
DIFFERENCES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)  # points, for which the seeds that are needed are told


@dataclass
class Row:
    """A row of the comparison table.

    spread       of the results that are compared, or of all results of a group that is not compared
    difference   group − baseline; None if one of them is not compared
    rank         by the mean, among the compared groups
    can_be_best  None if there are too few seeds to tell
    reason       why the group is not compared; empty if it is
    """

    group: Group
    spread: Spread | None
    baseline: Group | None
    difference: Difference | None
    rank: int | None
    published: Published | None
    can_be_best: bool | None
    wins: bool
    reason: str

    @property
    def best_text(self) -> str:
        """The column "can be the best"."""
        if self.wins:
            return "wins"
        return "–" if self.can_be_best is None else "yes" if self.can_be_best else "no"


def rows(compared: Compared, groups: Sequence[Group], baseline: str | None = None) -> list[Row]:
    """Return the table of a data set: the compared groups, best first, then the others.

    baseline   label or title of the baseline group; None for InfoNCE with the same settings
    """
    shown = [*compared.groups, *(group for group in groups if compared.index(group) is None)]
    reasons = {id(group): reason for group, reason in compared.listed}
    places = [*ranks([float(row.mean()) for row in compared.x]), *[None] * len(shown)]
    table: list[Row] = []
    for k, group in enumerate(shown):
        at, other = compared.index(group), baseline_of(group, shown, baseline)
        to = None if other is None or other is group else compared.index(other)
        values = compared.x[k].tolist() if at is not None else [*group.results.values()]
        spread = Spread.of(values) if values else None
        reason = reasons.get(id(group), "")
        table.append(
            Row(
                group,
                spread,
                other,
                None if at is None or to is None else compared.difference(at, to),
                places[k],
                published(group),
                at in compared.members if at is not None and compared.members is not None else None,
                at is not None and at == compared.winner,
                reason,
            )
        )
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
    """What the results on a data set say, in words, and what it takes to decide."""

    data: str
    headline: str
    reason: str
    winner: Group | None = None
    next: str = ""

    @property
    def line(self) -> str:
        return ". ".join(filter(None, (self.headline, self.reason, self.next)))


@dataclass(frozen=True)
class Results:
    """What a report shows: runs, groups, the comparison and the verdict of each data set, the table, and notes.

    tuning   what the runs confirm; None if no setting was tuned
    """

    runs: list[RunRecord]
    grouping: Grouping
    compared: list[Compared]
    rows: list[Row]
    verdicts: list[Verdict]
    notes: list[str]
    tuning: Confirmation | None

    @property
    def chosen_on_test_images(self) -> str | None:
        """The warning about settings that are chosen on test images; None where they were tuned on others."""
        return None if self.tuning else choice_on_test_images(self.grouping)

    @property
    def line(self) -> str:
        """The result in one line for each data set."""
        return "\n".join(verdict.line for verdict in self.verdicts) or "no run could be read"


def results_of(
    runs: list[RunRecord], grouping: Grouping, baseline: str | None = None, tuning: Confirmation | None = None
) -> Results:
    """Compare the groups of each data set. `baseline` as in `rows`."""
    refused = tuning.problems[0] if tuning and tuning.problems else ""
    compared = [replace(compare(*each, grouping.metric), refused=refused) for each in grouping.by_data.items()]
    table = [row for each in compared for row in rows(each, grouping.by_data[each.data], baseline)]
    verdicts = [verdict(each, grouping.by_data[each.data]) for each in compared]
    return Results(runs, grouping, compared, table, verdicts, [], tuning)


def verdict(compared: Compared, groups: Sequence[Group]) -> Verdict:
    """Return the headline of a data set with its reason, and what it takes to decide."""
    data = compared.data
    if not compared.groups and not compared.listed:
        state = unfinished([run for group in groups for run in group.runs]) or "none finished"
        return Verdict(data, "No result yet", f"No run on {data} has finished ({state})")
    if not compared.groups:
        named = list_names([group.title for group, _ in compared.listed])
        return Verdict(data, "Not compared", f"{named} have no seed in common on {data}")
    first = result_text(compared, 0)
    if compared.pairs is None:
        title = compared.groups[0].title
        if not compared.listed:
            return Verdict(data, f"Only {title} has a result", first)
        others = list_names([f"{group.title} ({reason})" for group, reason in compared.listed])
        return Verdict(data, f"Only {title} has {FEWEST_FOR_A_SET} seeds", f"{first}. Not compared: {others}")
    if compared.winner is not None:
        winner = compared.groups[compared.winner]
        return Verdict(data, f"{winner.title} wins", won(compared, compared.winner), winner)
    if compared.refused:
        return Verdict(data, f"Not decided: {compared.refused}", f"Highest mean: {compared.groups[0].title}, {first}")
    if compared.members is None:
        return Verdict(data, *without_set(compared), next=to_decide(compared))
    return Verdict(data, *with_set(compared), next=to_decide(compared))


def won(compared: Compared, k: int) -> str:
    """Say what the winner is better than."""
    result, others = result_text(compared, k), [j for j in range(len(compared.groups)) if j != k]
    ahead = f"{signed(compared.difference(k, others[0]).value)} over {compared.groups[others[0]].title}"
    if compared.open_ended:
        return f"{result}, {ahead}; every other loss was left out at a look"
    if len(others) == 1:
        return f"{result}, {ahead} ({p_text(compared.headline_p)})"
    bound = p_text(compared.headline_p, "≤")
    return f"{result}, {ahead}, the next; better than each of the {len(others)} others ({bound}, each tested alone)"


def without_set(compared: Compared) -> tuple[str, str]:
    """Headline and reason with one or two seeds."""
    seeds, first = len(compared.seeds), result_text(compared, 0)
    why = "One seed gives no test" if seeds == 1 else "Two seeds give differences with intervals, and no set"
    value = compared.difference(0, 1).value
    if shows_zero(value):
        means = compared.x.mean(1)
        tied = [group.title for group, mean in zip(compared.groups, means, strict=True) if shows_zero(means[0] - mean)]
        return "Not decided", f"{list_names(tied)} have the same mean, {first}. {why}"
    headline = f"{compared.groups[0].title} has the highest mean, not tested ({counted(seeds, 'seed')})"
    return headline, f"{first}, {signed(value)} to {compared.groups[1].title}. {why}"


def with_set(compared: Compared) -> tuple[str, str]:
    """Headline and reason where no group wins."""
    assert compared.members is not None
    members, seeds = compared.members, len(compared.seeds)
    interim = f"Interim, at {seeds} seeds: " if compared.interim else ""
    titles = [compared.groups[k].title for k in members]
    if len(members) == 1:
        only = f"{'only' if interim else 'Only'} {titles[0]} can be the best (95 %)"
        return interim + only, ". ".join(filter(None, (result_text(compared, members[0]), without_a_win(compared))))
    those = ("losses", "groups")[bool(compared.groups[0].settings)]
    headline = (
        f"{interim}{'the' if interim else 'The'} {those} that can be the best (95 %): {list_names(titles, NAMED)}"
    )
    excluded = compared.losses - len(members)
    reason = f"Highest mean: {compared.groups[0].title}, {result_text(compared, 0)}"
    reason += f". {excluded} of {compared.losses} {those} cannot be the best" if excluded else ""
    if compared.look is not None and compared.look.outcome == "equivalent" and not compared.interim:
        reason += f". They are equivalent within {counted(compared.look.within or 0, 'point')}"
    return headline, reason


def without_a_win(compared: Compared) -> str:
    """Say why the only group that can be the best does not win; empty if it has too few seeds."""
    if compared.look is not None and (compared.interim or compared.open_ended):
        return f"No loss wins between two looks; the last was at {counted(compared.look.seeds, 'seed')}"
    if len(compared.seeds) < FEWEST_FOR_A_WINNER:
        return ""
    assert compared.pairs is not None
    assert compared.members is not None
    (k,) = compared.members
    p = compared.pairs.differences.p()[k]
    closest = max((j for j in range(len(p)) if j != k), key=lambda j: p[j])
    return f"It does not win, because the difference to {compared.groups[closest].title} alone is not significant"


def to_decide(compared: Compared) -> str:
    """Say how many seeds it takes to decide, and for how long they train; empty if the sweep adds or needs no more.

    Every loss needs them, because losses are compared on the seeds that all of them have.
    """
    if compared.pairs is None or (compared.look is not None and compared.look.outcome not in ("undecided", "alone")):
        return ""
    seeds, alone = len(compared.seeds), compared.members is not None and len(compared.members) == 1
    if seeds < FEWEST_FOR_A_SET or (alone and seeds < FEWEST_FOR_A_WINNER):
        more, aim = FEWEST_FOR_A_WINNER - seeds, f" (a loss wins from {FEWEST_FOR_A_WINNER} seeds on)"
    else:
        x = compared.x if alone else compared.x[compared.members]
        shown = float(difference_shown(variance_of_pilot(x), compared.losses, seeds))
        smaller = [each for each in DIFFERENCES if each <= shown / 2]
        if not smaller:
            return ""
        points = 1.0 if 1.0 < shown <= 5.0 else smaller[-1]
        more = int(more_seeds(x, points, losses=compared.losses))
        aim = f" for a difference of {counted(points, 'point')} (power 80 %)"
    return f"To decide: about {counted(more, 'more seed')} each{aim}{time_of(compared.groups, more)}"


def time_of(groups: Sequence[Group], seeds: int) -> str:
    """The time that more seeds of these groups take, one run after the other, as the finished runs took."""
    runs = [[run.number("duration") for run in group.runs if run.finished] for group in groups]
    means = [fmean(known) for times in runs if (known := [seconds for seconds in times if seconds is not None])]
    if len(means) < len(groups):
        return ""
    machines = {run.summary.get("machine") for group in groups for run in group.runs if run.finished}
    where = "on this machine" if machines == {machine.describe()} else "as these runs took"
    return f": {duration(seeds * sum(means))} {where}"


def result_text(compared: Compared, k: int) -> str:
    """Return mean, standard deviation, data set and number of seeds in words."""
    spread = Spread.of(compared.x[k].tolist())
    std = "" if spread.std is None else f" ± {spread.std:.2f}"
    return f"{spread.mean:.2f} %{std} on {compared.data} ({counted(spread.n, 'seed')})"


def seed_notes(compared: Compared) -> list[str]:
    """Which seeds are compared, which are not and why, and whether seeds were added after looking."""
    on, notes = compared.data, []
    if compared.dropped:
        lacking: dict[str, list[str]] = {}
        for seed, groups in compared.dropped.items():
            lacking.setdefault(list_names([group.title for group in groups]), []).append(str(seed)[-60:])
        reasons = "; ".join(f"{list_names(seeds, LISTED)} ({titles})" for titles, seeds in lacking.items())
        kept = f"Losses on {on} are compared on the {counted(len(compared.seeds), 'seed')} that all of them have"
        notes.append(f"{kept}. Left out, with the losses that lack them: {reasons}.")
    if compared.groups and compared.listed:
        named = [f"{group.title} ({reason})" for group, reason in compared.listed]
        notes.append(f"Listed and not compared on {on}: {list_names(named, LISTED)}.")
    if compared.look is not None:
        when = "after every seed" if compared.open_ended else f"at the level {compared.level:g} of three looks"
        text = f"The sweep on {on} adds seeds until it is decided, and tests {when}. It last looked at"
        text += f" {counted(compared.look.seeds, 'seed')}{', which decided' * compared.look.decided}."
        notes.append(text + " This page is interim: it has another number of seeds." * compared.interim)
    return notes
