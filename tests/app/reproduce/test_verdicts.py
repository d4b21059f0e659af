"""The verdict on a claim from the results of its rows."""

from dataclasses import replace

import pytest
from helpers.closeness import close

from lightning_ssl.app.reproduce.recipe import Claim, Reproduction, Row, Statement, Work
from lightning_ssl.app.reproduce.verdicts import family_of, judge
from lightning_ssl.comparison.looks import LOOK_LEVEL
from lightning_ssl.comparison.pairs import compare_pairs

TEXT = Statement("one is better", "Section 1", "text")
ABOVE = Claim("one is better", ("one",), "above", ("two",), "late", TEXT)
WORK = Work(["mine"], ["cifar10"])
ONE, TWO, THREE = [51.0, 61.2, 71.4], [50.0, 60.0, 70.0], [40.3, 50.0, 60.1]


def results_of(**rows):
    return {(row, "late"): dict(enumerate(values)) for row, values in rows.items()}


def judged(results, *claims, work=WORK):
    rows = {key: Row(key, key, key, "text") for key in ("one", "two", "three", "four")}
    return judge(Reproduction("mine", "mine", {}, rows, claims), work, "cifar10", results)


def test_seeds_are_matched_so_that_a_common_effect_of_the_seed_cancels():
    (found,) = judged(results_of(one=ONE, two=[*TWO, 99.0]), ABOVE)
    assert (found.seeds, found.verdict, found.kind) == (3, "holds", "secondary")
    close(found.difference, 1.2, scale=61.2)
    (noisy,) = judged(results_of(one=[51.0, 60.1, 71.4], two=TWO), ABOVE)
    assert noisy.verdict == "not decided"


def test_the_variance_is_pooled_over_the_rows_that_have_all_seeds_of_the_claim():
    (found,) = judged(results_of(one=ONE, two=TWO, three=THREE, four=[30.0]), ABOVE)
    low, high = compare_pairs([ONE, TWO, THREE]).differences.interval()
    close((found.decision.low, found.decision.high), (low[0, 1], high[0, 1]), scale=61.2)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ({"one": ONE}, "no finished runs"),
        ({"one": ONE[:1], "two": TWO}, "1 common seed: no test"),
        ({"one": ONE[:2], "two": TWO}, "2 common seeds: no test"),
        ({"one": [70.0] * 3, "two": [60.0] * 3}, "no spread: no test"),
    ],
)
def test_without_a_test_a_claim_is_not_decided_and_the_reason_is_given(rows, reason):
    (found,) = judged(results_of(**rows), ABOVE)
    assert (found.verdict, found.reason, found.decision.p, found.decision.low) == ("not decided", reason, None, None)


def test_rows_without_a_common_seed_are_not_compared():
    (found,) = judged({("one", "late"): {0: 1.0}, ("two", "late"): {1: 2.0}}, ABOVE)
    assert (found.difference, found.reason) == (None, "no common seed")


def test_the_mean_of_several_rows_is_over_the_seeds_that_all_have():
    claim = replace(ABOVE, left=("one", "three"))
    (found,) = judged(results_of(one=[*ONE, 80.0], two=[*TWO, 81.0], three=THREE), claim)
    assert found.seeds == 3
    close(found.difference, (sum(ONE) + sum(THREE)) / 6 - 60.0, scale=61.2)


def test_a_secondary_claim_keeps_its_level_and_primary_ones_share_the_level_of_a_look():
    primary = replace(ABOVE, primary=True)
    other = replace(primary, right=("three",))
    results = results_of(one=ONE, two=TWO, three=THREE)
    (secondary,) = judged(results, ABOVE)
    (alone,) = judged(results, primary)
    shared, _ = judged(results, primary, other)
    assert (secondary.level, alone.level, shared.level) == (0.05, LOOK_LEVEL, LOOK_LEVEL)
    close(alone.decision.p, secondary.decision.p)
    close(shared.decision.p, 2 * alone.decision.p)
    width = [found.decision.high - found.decision.low for found in (secondary, alone, shared)]
    assert width == sorted(width)
    assert width[0] < width[1] < width[2]


def test_claims_about_the_same_runs_are_one_comparison():
    """Neither another relation nor exchanged sides make a new comparison; another moment does."""
    primary = replace(ABOVE, primary=True)
    mirrored = replace(primary, left=("two",), right=("one",), relation="below")
    early = replace(primary, at="early")
    reproduction = Reproduction("mine", "mine", {}, {}, (primary, mirrored, early))
    assert len(family_of(reproduction, WORK)) == 2
    assert len(family_of(reproduction, Work(["mine"], ["cifar10", "cifar100"]))) == 4
    first, second = judged(results_of(one=ONE, two=TWO), primary, mirrored)
    assert (first.verdict, second.verdict) == ("holds", "holds")
    close(first.decision.p, second.decision.p)


def test_a_secondary_claim_about_the_runs_of_a_primary_one_has_its_level():
    """Otherwise "better" could hold where "not worse" is not decided."""
    primary = replace(ABOVE, primary=True, relation="not below", margin=0.4)
    other = replace(primary, primary=True, right=("three",))
    _, _, same = judged(results_of(one=ONE, two=TWO, three=THREE), primary, other, ABOVE)
    assert (same.kind, same.level) == ("same runs", LOOK_LEVEL)


def test_p_is_below_the_level_exactly_where_a_claim_is_decided():
    relations = [("above", 0.0), ("below", 0.0), ("equal", 0.5), ("not below", 0.5)]
    for shift in (-2.0, -1.2, -0.5, 0.0, 0.05, 0.5, 1.2, 2.0):
        claims = [replace(ABOVE, relation=relation, margin=m, primary=m > 0) for relation, m in relations]
        one = [x + shift for x in (50.01, 60.0, 69.98, 80.0, 90.03)]
        for found in judged(results_of(one=one, two=[50.0, 60.01, 70.0, 79.98, 90.0]), *claims):
            assert (found.decision.p < found.level) == (found.verdict != "not decided"), (shift, found)


def test_a_claim_with_another_number_of_seeds_than_a_look_is_interim():
    spread = [0.1, -0.1, 0.2, 0.0, 0.3, 0.1, -0.2, 0.15]
    interim = {
        count: judged(results_of(one=[50 + x for x in spread[:count]], two=[50.0] * count), ABOVE)[0].is_interim
        for count in (2, 3, 5, 7, 8)
    }
    assert interim == {2: False, 3: True, 5: False, 7: True, 8: False}


@pytest.mark.parametrize(
    ("difference", "verdict"), [(-0.3, "holds"), (0.5, "holds"), (-2.0, "contradicted"), (-1.0, "not decided")]
)
def test_comparable_or_better_is_not_below_by_more_than_the_margin(difference, verdict):
    claim = replace(ABOVE, relation="not below", margin=1.0)
    one = [x + difference + 0.1 * (-1) ** k for k, x in enumerate(TWO)]
    assert judged(results_of(one=one, two=TWO), claim)[0].verdict == verdict
