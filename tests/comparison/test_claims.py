"""The rules by which a claim holds."""

import numpy as np
import pytest
from helpers.closeness import close
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lightning_ssl.comparison.claims import (
    OUTCOMES,
    Decision,
    decide_claim,
    decide_mean,
    equivalence_p,
    margin_of,
    mean_holds,
)
from lightning_ssl.comparison.estimate import Estimate


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


RELATIONS = ("above", "below", "equal", "not below")


def by_interval(relation, low, high, margin):
    """The outcome by the table of `decide_claim`, from the interval alone."""
    if relation == "equal":
        inside, outside = -margin < low and high < margin, low > margin or high < -margin
        return "holds" if inside else "contradicted" if outside else "not decided"
    bound = margin if relation == "above" else -margin
    side = "above" if low > bound else "below" if high < bound else None
    if side is None:
        return "not decided"
    return "holds" if (side == "above") == (relation != "below") else "contradicted"


@given(
    st.sampled_from(RELATIONS),
    st.floats(-5, 5),
    st.floats(0.01, 3),
    st.floats(1, 40),
    st.sampled_from([0.0, 0.5, 2.0]),
    st.integers(1, 38),
)
def test_outcome_p_and_interval_of_a_claim_never_contradict_each_other(relation, value, error, freedom, margin, claims):
    found = decide_claim(relation, Estimate(value, error, freedom), margin, claims)
    assert found.outcome in OUTCOMES
    if abs(found.p - 0.05) > 1e-9:  # p and interval are rounded
        assert (found.p < 0.05) == (found.outcome != "not decided")
        assert found.outcome == by_interval(relation, found.low, found.high, margin)


@given(st.floats(-5, 5), st.floats(0.01, 3), st.floats(0, 2))
def test_of_above_and_its_opposites_at_most_one_holds(value, error, margin):
    estimate = Estimate(value, error, 4.0)
    held = [relation for relation in RELATIONS if decide_claim(relation, estimate, margin).outcome == "holds"]
    assert not {"above", "below"} <= {*held}
    assert not {"below", "not below"} <= {*held}
    assert margin > 0 or "equal" not in held


@pytest.mark.parametrize("number", range(5))
def test_p_of_a_claim_is_that_of_the_t_tests_of_scipy(number):
    """Equivalence is two one-sided tests: the larger p."""
    rng = np.random.default_rng(number)
    d = rng.normal(0.5, 0.6, 5)
    estimate = Estimate(d.mean(), stats.sem(d), 4.0)
    gain = (np.abs(d).max() / estimate.error) ** 2
    close(decide_claim("above", estimate, 0.2).p, stats.ttest_1samp(d, 0.2).pvalue, terms=5, scale=1.0, gain=gain)
    close(decide_claim("below", estimate, 0.2).p, stats.ttest_1samp(d, -0.2).pvalue, terms=5, scale=1.0, gain=gain)
    one_sided = [stats.ttest_1samp(d, end, alternative=side).pvalue for end, side in ((-1, "greater"), (1, "less"))]
    close(equivalence_p(estimate, 1.0), max(one_sided), terms=5, scale=1.0, gain=gain)


def test_equivalence_takes_the_interval_of_ninety_percent_and_superiority_that_of_ninety_five():
    estimate = Estimate(0.0, 1.0, 8.0)
    for relation, quantile in (("equal", 0.95), ("above", 0.975)):
        found = decide_claim(relation, estimate, 1.0)
        close((found.low, found.high), (-stats.t.ppf(quantile, 8), stats.t.ppf(quantile, 8)))


def test_p_and_interval_are_corrected_for_the_number_of_claims():
    estimate = Estimate(3.0, 1.0, 8.0)
    one, ten = (decide_claim("above", estimate, 0.0, claims) for claims in (1, 10))
    assert (one.outcome, ten.outcome) == ("holds", "not decided")
    close(ten.p, 10 * one.p)
    close(ten.high - 3.0, stats.t.ppf(1 - 0.025 / 10, 8))
    assert decide_claim("above", estimate, 3.0, claims=10).p == 1.0


def test_a_claim_about_losses_without_a_test_is_not_decided():
    assert decide_claim("above", Estimate(3.0, np.inf, 1.0)) == Decision("not decided", untested="no test")


@pytest.mark.parametrize(
    ("relation", "difference", "outcome"),
    [
        ("equal", 0.04, "holds"),
        ("equal", -0.06, "contradicted"),
        ("above", 0.06, "holds"),
        ("above", 0.04, "contradicted"),
        ("below", -0.06, "holds"),
        ("not below", -0.04, "holds"),
        ("not below", -0.06, "contradicted"),
    ],
)
def test_one_run_of_a_laboratory_decides_by_its_value_and_has_no_interval(relation, difference, outcome):
    assert decide_mean(relation, difference, 0.0, 1, 0.05) == Decision(outcome, untested="one run")
    assert decide_mean(relation, difference, 0.0, 5, 0.05) == Decision(outcome, untested="no spread")
    assert mean_holds(relation, difference, 0.05) is (outcome == "holds")


def test_the_mean_of_several_runs_of_a_laboratory_is_a_claim_with_student_s_t():
    found = decide_mean("equal", 0.01, std=0.02, runs=4, margin=0.05, claims=2)
    assert found == decide_claim("equal", Estimate(0.01, 0.01, 3.0), margin=0.05, claims=2)
