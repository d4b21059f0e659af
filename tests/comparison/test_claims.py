"""The rules by which a claim holds."""

import pytest
from helpers.closeness import close
from hypothesis import given
from hypothesis import strategies as st

from lightning_ssl.comparison.claims import decide, margin_of, mean_by_seed, mean_holds

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
def test_above_and_below_never_both_hold_and_neither_holds_with_equal(a, b, margin):
    low, high = sorted((a, b))
    verdicts = [decide(relation, low, high, margin) for relation in ("above", "below", "equal")]
    assert verdicts.count("holds") <= 1


def test_the_mean_alone_decides_a_claim_of_a_laboratory():
    assert mean_holds("equal", -0.5, 0.5)
    assert not mean_holds("above", 0.0, 0.0)
    assert not mean_holds("equal", float("nan"), 0.5)


def test_the_margin_is_the_wider_of_tolerance_and_standard_deviations():
    close((margin_of(0.03, None), margin_of(0.03, 0.01)), (0.03, 0.03), gain=1e8)  # a factor 1 + 1e-9
    close((margin_of(0.03, 0.1), margin_of(0.03, 0.1, sigmas=1.0)), (0.2, 0.1), gain=1e8)


@pytest.mark.parametrize("paper", [0.63, 0.07, 0.29])
def test_a_difference_of_two_digits_equal_to_the_tolerance_is_within_the_margin(paper):
    assert mean_holds("equal", paper + 0.03 - paper, margin_of(0.03, None))


def test_several_losses_have_a_mean_for_each_seed_that_all_of_them_have():
    assert mean_by_seed([{0: 1.0}, {}]) == {}
