"""The rule of the verdicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_ssl.reproduce.recipe import Claim, Reproduction, Row
from lightning_ssl.reproduce.verdicts import decide, judge, mean_by_seed

points = st.floats(-50, 50)
margins = st.floats(0, 10)


@pytest.mark.parametrize(
    ("relation", "low", "high", "margin", "verdict"),
    [
        ("above", 0.1, 2.0, 0, "holds"),
        ("above", -0.1, 2.0, 0, "not decided"),
        ("above", -2.0, -0.1, 0, "does not hold"),
        ("above", 0.1, 2.0, 5, "does not hold"),
        ("above", 4.0, 6.0, 5, "not decided"),
        ("below", -9.0, -5.1, 5, "holds"),
        ("below", -9.0, -4.9, 5, "not decided"),
        ("below", -4.9, 3.0, 5, "does not hold"),
        ("equal", -1.0, 1.0, 1, "holds"),
        ("equal", -0.2, 1.1, 1, "not decided"),
        ("equal", 1.1, 1.4, 1, "does not hold"),
        ("equal", -3.0, -1.1, 1, "does not hold"),
    ],
)
def test_the_interval_decides(relation, low, high, margin, verdict):
    assert decide(relation, low, high, margin) == verdict


@given(points, points, margins)
def test_below_is_above_with_the_sides_exchanged(a, b, margin):
    low, high = sorted((a, b))
    assert decide("below", low, high, margin) == decide("above", -high, -low, margin)


@given(points, points, margins)
def test_above_and_below_never_both_hold_and_neither_holds_with_equal(a, b, margin):
    low, high = sorted((a, b))
    verdicts = [decide(relation, low, high, margin) for relation in ("above", "below", "equal")]
    assert verdicts.count("holds") <= 1


def reproduction_of(claim):
    rows = {key: Row(key, key, key) for key in ("one", "two", "three")}
    return Reproduction("mine", "mine", None, {}, rows, (claim,))


def test_seeds_are_matched_so_that_a_common_effect_of_the_seed_cancels():
    claim = Claim("one is better", ("one",), "above", ("two",), "late")
    results = {("one", "late"): {0: 50.2, 1: 60.3, 2: 70.1}, ("two", "late"): {0: 50.0, 1: 60.0, 2: 70.0, 3: 99.0}}
    judgement = judge(reproduction_of(claim), claim, "cifar10", results, "cifar10")
    assert judgement.comparison.pairs == 3
    assert judgement.comparison.difference == pytest.approx(0.2)
    assert judgement.verdict == "not decided"  # 0.2 ± 0.25
    sure = {**results, ("one", "late"): {0: 50.2, 1: 60.21, 2: 70.2}}
    assert judge(reproduction_of(claim), claim, "cifar10", sure, "cifar10").verdict == "holds"


def test_several_rows_stand_for_their_mean_over_the_seeds_they_share():
    results = {("one", "late"): {0: 1.0, 1: 3.0}, ("two", "late"): {1: 5.0, 2: 7.0}}
    assert mean_by_seed(results, ("one", "two"), "late") == {1: 4.0}
    assert mean_by_seed(results, ("one", "three"), "late") == {}


@pytest.mark.parametrize(
    ("results", "reason"),
    [({}, "no finished runs"), ({("one", "early"): {0: 1.0}, ("two", "early"): {0: 2.0}}, "one common seed: no test")],
)
def test_without_an_interval_a_claim_is_not_decided_and_the_reason_is_given(results, reason):
    claim = Claim("one is better", ("one",), "above", ("two",), "early")
    judgement = judge(reproduction_of(claim), claim, "cifar10", results, "cifar10")
    assert (judgement.verdict, judgement.reason) == ("not decided", reason)
