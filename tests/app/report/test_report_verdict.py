"""The verdict in words, and that nothing on a page contradicts it."""

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from helpers.run_folders import config_of
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_ssl.app.config.labels import flatten
from lightning_ssl.app.report import tables
from lightning_ssl.app.report.compared import Compared
from lightning_ssl.app.report.compose import notes_of
from lightning_ssl.app.report.figure_data import figure_data
from lightning_ssl.app.report.groups import Group, Grouping
from lightning_ssl.app.report.page import templates
from lightning_ssl.app.report.verdict import results_of
from lightning_ssl.app.runs.looks import TakenLook, write_looks
from lightning_ssl.app.runs.run_record import RunRecord
from lightning_ssl.base import machine
from lightning_ssl.comparison.looks import LOOK_LEVEL

TITLES = {
    "direct": "AlphaCL Direct p=4 τ=0.5",
    "infonce": "SimCLR InfoNCE τ=0.5",
    "square": "AlphaCL Square τ=5",
    "quadratic": "AlphaCL Quadratic",
    "entropy": "AlphaCL Entropy τ=0.5",
}


def run_of(folder, loss, seed, accuracy, **summary):
    settings = flatten(config_of("direct" if loss == "nearly" else loss, seed))
    if loss == "nearly":
        settings["model.importance.p"] = 5.0
    if accuracy is None:
        return RunRecord(folder / f"{loss}{seed}", f"{loss}{seed}", "failed", settings=settings)
    summary = {"last": {"online/top1": accuracy / 100}, "duration": 1800.0, **summary}
    return RunRecord(folder / f"{loss}{seed}", f"{loss}{seed}", "finished", settings=settings, summary=summary)


def results(table, folder=Path("runs"), **summary):
    """The results of a page: loss → accuracies in percent of seeds 0, 1, …; None: failed."""
    runs = [run_of(folder, loss, seed, x, **summary) for loss, row in table.items() for seed, x in enumerate(row)]
    found = results_of(runs, Grouping.of(runs))
    found.notes.extend(notes_of(found))
    return found


def verdict_of(table, **summary):
    (found,) = results(table, **summary).verdicts
    return found


# -- the cases --------------------------------------------------------------------------------------------------------

WIN = {"direct": [70.1, 70.4, 70.2, 70.5, 70.0], "infonce": [69.0, 69.2, 69.3, 69.1, 69.0]}
EVEN = {"direct": [71.0, 69.0, 70.5, 70.0, 70.2], "infonce": [69.0, 71.0, 70.0, 70.3, 69.8]}
BAD = [40.0, 40.1, 40.5, 40.2, 40.0]


def test_a_loss_wins_if_it_beats_every_other_loss():
    found = verdict_of({**WIN, "square": BAD})
    assert found.headline == "AlphaCL Direct p=4 τ=0.5 wins"
    assert found.winner.title == TITLES["direct"]
    assert found.reason.startswith(
        "70.24 % ± 0.21 on shapes (5 seeds), +1.12 over SimCLR InfoNCE τ=0.5, the next; better"
    )
    assert re.search(r"better than each of the 2 others \(p [<≤] [\d.]+, each tested alone\)$", found.reason)
    assert found.next == ""


def test_without_a_winner_the_losses_that_can_be_the_best_are_named():
    found = verdict_of({**EVEN, "quadratic": BAD})
    assert found.winner is None
    names = "AlphaCL Direct p=4 τ=0.5 and SimCLR InfoNCE τ=0.5"
    assert found.headline == f"The losses that can be the best (95 %): {names}"
    assert found.reason.endswith("1 of 3 losses cannot be the best")
    assert re.fullmatch(
        r"To decide: about \d+ more seeds each for a difference of 1 point \(power 80 %\): [\d.]+ h as these runs took",
        found.next,
    )


def test_the_time_is_that_of_this_machine_if_the_runs_are_from_it():
    assert verdict_of(EVEN, machine=machine.describe()).next.endswith("h on this machine")
    assert verdict_of(EVEN, machine="another").next.endswith("h as these runs took")
    assert verdict_of(EVEN, duration=None).next.endswith("(power 80 %)")


@pytest.mark.parametrize("seeds", [3, 4])
def test_one_loss_that_can_be_the_best_does_not_win_below_five_seeds(seeds):
    found = verdict_of({loss: row[:seeds] for loss, row in {**WIN, "square": BAD}.items()})
    assert (found.winner, found.headline) == (None, "Only AlphaCL Direct p=4 τ=0.5 can be the best (95 %)")
    more = 5 - seeds
    words = f"{more} more seed{'s' * (more > 1)}"
    assert found.next.startswith(f"To decide: about {words} each (a loss wins from 5 seeds on): ")


def test_two_seeds_give_differences_and_no_set():
    found = results({loss: row[:2] for loss, row in WIN.items()})
    assert found.verdicts[0].headline == "AlphaCL Direct p=4 τ=0.5 has the highest mean, not tested (2 seeds)"
    assert "Two seeds give differences with intervals, and no set" in found.line
    assert [row.can_be_best for row in found.rows] == [None, None]
    assert found.rows[0].difference.p is not None


def test_one_seed_gives_no_test():
    found = results({loss: row[:1] for loss, row in WIN.items()})
    assert found.verdicts[0].headline == "AlphaCL Direct p=4 τ=0.5 has the highest mean, not tested (1 seed)"
    assert "One seed gives no test. To decide: about 4 more seeds each" in found.line
    assert (found.rows[0].difference.value, found.rows[0].difference.p) == (pytest.approx(1.1), None)


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_tie_is_named(seeds):
    found = results({"direct": [70.0, 71.0][:seeds], "infonce": [70.002, 71.002][:seeds], "square": BAD[:seeds]})
    assert found.verdicts[0].headline == "Not decided"
    assert found.verdicts[0].reason.startswith(
        "SimCLR InfoNCE τ=0.5 and AlphaCL Direct p=4 τ=0.5 have the same mean, 7"
    )
    assert [row.rank for row in found.rows] == [1, 1, 3]


def test_a_tie_does_not_win_at_any_number_of_seeds():
    direct = [70.0 + 0.1 * seed for seed in range(8)]
    found = results({"direct": direct, "infonce": [x + 0.002 for x in direct], "square": [60.0] * 8})
    assert found.verdicts[0].winner is None
    assert [row.best_text for row in found.rows] == ["yes", "yes", "no"]


def test_one_loss_and_no_result_have_their_sentences():
    assert verdict_of({"direct": [70.0, 71.0]}).line == (
        "Only AlphaCL Direct p=4 τ=0.5 has a result. 70.50 % ± 0.71 on shapes (2 seeds)"
    )
    failed = verdict_of({"direct": [None, None]})
    assert failed.line == "No result yet. No run on shapes has finished (2 failed)"


def test_a_loss_with_fewer_than_three_seeds_is_listed_and_does_not_cut_the_seeds_of_the_others():
    found = results({**WIN, "square": [71.0, 72.0]})
    assert found.verdicts[0].headline == "AlphaCL Direct p=4 τ=0.5 wins"
    (row,) = [row for row in found.rows if row.group.label == TITLES["square"]]
    assert (row.rank, row.can_be_best, row.reason, row.spread.n) == (None, None, "2 seeds", 2)
    assert "Listed and not compared on shapes: AlphaCL Square τ=5 (2 seeds)." in found.notes
    alone = verdict_of({"direct": WIN["direct"], "square": [71.0]})
    assert alone.headline == "Only AlphaCL Direct p=4 τ=0.5 has 3 seeds"
    assert alone.reason.endswith("Not compared: AlphaCL Square τ=5 (1 seed)")


def test_seeds_that_are_not_compared_are_named_with_the_loss_that_lacks_them():
    found = results({**WIN, "square": [40.0, None, 41.0, 40.5]})
    assert len(found.compared[0].seeds) == 3
    (note,) = [note for note in found.notes if "Left out" in note]
    assert note == (
        "Losses on shapes are compared on the 3 seeds that all of them have. "
        "Left out, with the losses that lack them: 1 and 4 (AlphaCL Square τ=5)."
    )
    assert [row.spread.n for row in found.rows] == [3, 3, 3]


def test_losses_without_a_common_seed_are_not_compared():
    found = results({"direct": [70.0, 71.0, 72.0], "infonce": [None] * 3 + [70.0, 71.0, 72.0]})
    assert found.verdicts[0].line.startswith("Not compared. ")
    assert "have no seed in common on shapes" in found.line
    assert [row.rank for row in found.rows] == [None, None]


# -- seeds that are added after looking -------------------------------------------------------------------------------

THREE = {**EVEN, "square": BAD}


def look(seeds=5, survivors=("direct", "infonce"), compared=("direct", "infonce", "square"), **values):
    values = {"decided": False, "outcome": "continue", "losses": 3, **values}
    results = {TITLES[loss]: {} for loss in compared}
    return TakenLook("shapes", seeds, [TITLES[loss] for loss in survivors], results=results, **values)


def test_a_page_of_the_last_look_has_the_level_of_a_look(tmp_path):
    write_looks(tmp_path, [look()])
    found = results(THREE, tmp_path)
    (compared,) = found.compared
    assert (compared.level, compared.interim, compared.losses) == (LOOK_LEVEL, False, 3)
    assert "The sweep on shapes adds seeds until it is decided, and tests at the level 0.022 of three looks." in str(
        found.notes
    )
    assert found.verdicts[0].next == ""
    write_looks(tmp_path, [look(outcome="undecided")])
    assert verdict_of(THREE, folder=tmp_path).next.startswith("To decide: about ")


def test_equivalent_losses_are_named_so(tmp_path):
    write_looks(tmp_path, [look(within=3.0, decided=True, outcome="equivalent")])
    assert verdict_of(THREE, folder=tmp_path).reason.endswith("They are equivalent within 3 points")


def test_a_page_at_another_number_of_seeds_is_interim_and_names_no_winner(tmp_path):
    write_looks(tmp_path, [look()])
    more = {loss: [*WIN[loss], WIN[loss][1], WIN[loss][3]] for loss in WIN}
    found = results({**more, "square": BAD}, tmp_path)
    (compared,) = found.compared
    assert (len(compared.groups), compared.losses, len(compared.seeds), compared.interim) == (2, 3, 7, True)
    assert found.verdicts[0].headline.startswith("Interim, at 7 seeds: only AlphaCL Direct p=4 τ=0.5 can be the best")
    assert "No loss wins between two looks; the last was at 5 seeds" in found.verdicts[0].reason
    assert "This page is interim" in " ".join(found.notes)
    (row,) = [row for row in found.rows if row.group.label == TITLES["square"]]
    assert row.reason == "left out before the last look"


def test_after_the_second_look_its_losses_are_compared(tmp_path):
    write_looks(tmp_path, [look(5), look(8, ["direct"], ["direct", "infonce"], decided=True, outcome="wins")])
    more = {loss: [*WIN[loss], *WIN[loss][:3]] for loss in WIN}
    found = results({**more, "square": BAD}, tmp_path)
    assert found.verdicts[0].headline == "AlphaCL Direct p=4 τ=0.5 wins"
    assert (len(found.compared[0].groups), found.compared[0].losses) == (2, 3)


def test_looks_after_every_seed_give_no_p_for_a_fixed_number_of_seeds(tmp_path):
    write_looks(tmp_path, [look(5, ["direct"], rates="open-ended", decided=True, outcome="wins")])
    found = results({**WIN, "square": BAD}, tmp_path)
    assert found.verdicts[0].headline == "AlphaCL Direct p=4 τ=0.5 wins"
    assert [row.best_text for row in found.rows] == ["wins", "no", "no"]
    assert all(row.difference.p is None for row in found.rows if row.difference)


def test_the_looks_of_a_sweep_do_not_apply_to_runs_of_another(tmp_path):
    write_looks(tmp_path, [look()])
    runs = [run_of(tmp_path, loss, seed, x) for loss in WIN for seed, x in enumerate(WIN[loss])]
    runs += [run_of(tmp_path / "other", "square", seed, x) for seed, x in enumerate(BAD)]
    assert results_of(runs, Grouping.of(runs)).compared[0].look is None


# -- no contradiction -------------------------------------------------------------------------------------------------


@st.composite
def random_tables(draw):
    """Accuracies of up to five losses, with ties, gaps, very different spreads and differences that show as 0.00."""
    numbers = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    seeds, gaps = draw(st.integers(1, 8)), draw(st.booleans())
    common = draw(st.sampled_from([0.0, 1.0])) * numbers.standard_normal(seeds)
    table = {}
    for loss in draw(st.lists(st.sampled_from([*TITLES]), min_size=1, max_size=5, unique=True)):
        mean, spread = draw(st.sampled_from([60.0, 60.8, 61.5, 64.0])), draw(st.sampled_from([0.0, 0.1, 0.6, 2.0]))
        x = mean + common + spread * numbers.standard_normal(seeds)
        row = x.round(draw(st.sampled_from([0, 1, 4]))).tolist()
        table[loss] = [None if gaps and numbers.random() < 0.15 else value for value in row]
    if "square" in table and draw(st.booleans()):
        table["nearly"] = [None if x is None else x + numbers.uniform(0.003, 0.004) for x in table["square"]]
    return table


def excludes_zero(text):
    """Whether an interval excludes 0, as it is shown."""
    low, high = text.split(" … ")
    return low == "> 0" or high == "< 0" or float(low) > 0 or float(high) < 0


def shown_p(text):
    """The p that is shown; one that is below a number is half of it."""
    return float(text.removeprefix("< ")) / (2 if text.startswith("<") else 1)


@settings(max_examples=150, deadline=None)
@given(random_tables())
def test_nothing_on_a_page_contradicts_its_headline(table):
    found = results(table)
    (compared,), (verdict,) = found.compared, found.verdicts
    head, *lines = tables.text_table(found)
    shown = {line[0]: dict(zip(head, line, strict=True)) for line in lines}
    pairs = list(csv.DictReader(io.StringIO(tables.pairs_csv(found))))
    members = [title for title, row in shown.items() if row["can be the best"] == "yes"]
    winners = [title for title, row in shown.items() if row["can be the best"] == "wins"]

    # The headline, the table and the figure name the same losses.
    assert winners == ([verdict.headline.removesuffix(" wins")] if verdict.winner else [])
    assert not (winners and members)
    if "can be the best" in verdict.headline:
        named = re.split(
            r", | and ", verdict.headline.removeprefix("Only ").rpartition("%): ")[2].partition(" can be")[0]
        )
        assert set(named) == set(members)
    for group in figure_data(found, None)["groups"]:
        if group["best"] is not None:
            difference, low, high = group["best"]
            assert (high > 0) == (group["title"] in (*members, *winners)) == (not group["outside"])
            assert low <= 0 <= high
            assert low - 1e-9 <= difference <= high + 1e-9

    # p and interval of a pair agree, in the file and as the table shows them.
    for pair in pairs:
        if not pair["p"]:
            continue
        low, high = float(pair["difference_low95 (%)"]), float(pair["difference_high95 (%)"])
        p, value = float(pair["p"]), float(pair["difference (%)"])
        assert (p < 0.05) == (low > 0 or high < 0 or (low == 0 < value) or (high == 0 > value))
        assert low <= value <= high
    for row in shown.values():
        if row["p"] != "–":
            assert (shown_p(row["p"]) < 0.05) == excludes_zero(row["95 % interval (%)"])

    # A winner is significantly better than every other loss; no loss is better than one that can be the best.
    significant = {(a, b) for pair in pairs if pair["p"] and float(pair["p"]) < 0.05 for a, b in [ordered(pair)]}
    if verdict.winner:
        assert len(compared.seeds) >= 5
        assert {b for a, b in significant if a == winners[0]} == {g.title for g in compared.groups} - set(winners)
    assert not {b for _, b in significant} & {*members, *winners}

    # The page shows the same cells.
    html = templates().get_template("pairs.html").render(compared=found.compared, grouping=found.grouping)
    for interval, p in re.findall(r'<td title="p (?:= )?([^"]+)".*?<small>([^<]+)</small>', html):
        p, interval = (text.replace("&lt;", "<").replace("&gt;", ">") for text in (interval, p))
        assert (shown_p(p) < 0.05) == excludes_zero(interval)
    assert json.dumps(figure_data(found, None), allow_nan=False)


def ordered(pair):
    """The better and the worse loss of a line of pairs.csv."""
    return (pair["loss"], pair["other"]) if float(pair["difference (%)"]) > 0 else (pair["other"], pair["loss"])


# -- the intervals ----------------------------------------------------------------------------------------------------

REPETITIONS = 1000
MOST_MISSES = 50 + 3 * 7  # of 1000 at 5 %, and three standard errors


@pytest.mark.parametrize("step", [0.0, 0.8], ids=["equal", "a ladder"])
@pytest.mark.parametrize("losses", [2, 4])
def test_all_intervals_of_a_page_cover_at_once(losses, step):
    numbers, true = np.random.default_rng(losses), -step * np.arange(losses)
    ahead = true - np.array([np.delete(true, k).max() for k in range(losses)])
    to_the_best = pairs = 0
    for _ in range(REPETITIONS):
        x = 70 + true[:, None] + 0.6 * numbers.standard_normal((losses, 5))
        order = np.argsort(-x.mean(1))
        groups = [Group(str(k), "shapes", {}, ()) for k in order]
        found = Compared("shapes", groups, [], (0, 1, 2, 3, 4), {}, x[order], losses, None, None)
        _, low, high = np.array(found.to_the_best).T
        to_the_best += bool(((ahead[order] < low) | (ahead[order] > high)).any())
        _, low, high = found.table
        differences = true[order][:, None] - true[order]
        pairs += bool(((differences < low) | (differences > high)).any())
    assert to_the_best <= MOST_MISSES
    assert pairs <= MOST_MISSES
