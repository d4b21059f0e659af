"""The verdict on a claim from the results of its rows."""

import pytest

from lightning_ssl.app.reproduce.recipe import Claim, Reproduction, Row, Statement
from lightning_ssl.app.reproduce.verdicts import judge, verdict_of

OWN = Statement("one is better", "our question", "ours")


def reproduction_of(claim):
    rows = {key: Row(key, key, key, "text") for key in ("one", "two", "three")}
    return Reproduction("mine", "mine", {}, rows, (claim,))


def test_seeds_are_matched_so_that_a_common_effect_of_the_seed_cancels():
    claim = Claim("one is better", ("one",), "above", ("two",), "late", OWN)
    results = {("one", "late"): {0: 50.2, 1: 60.3, 2: 70.1}, ("two", "late"): {0: 50.0, 1: 60.0, 2: 70.0, 3: 99.0}}
    judgement = judge(reproduction_of(claim), claim, "cifar10", results, "cifar10")
    assert judgement.comparison.pairs == 3
    assert judgement.comparison.difference == pytest.approx(0.2)
    assert judgement.verdict == "not decided"  # 0.2 ± 0.25
    sure = {**results, ("one", "late"): {0: 50.2, 1: 60.21, 2: 70.2}}
    assert judge(reproduction_of(claim), claim, "cifar10", sure, "cifar10").verdict == "holds"


@pytest.mark.parametrize(
    ("results", "reason"),
    [({}, "no finished runs"), ({("one", "early"): {0: 1.0}, ("two", "early"): {0: 2.0}}, "one common seed: no test")],
)
def test_without_an_interval_a_claim_is_not_decided_and_the_reason_is_given(results, reason):
    claim = Claim("one is better", ("one",), "above", ("two",), "early", OWN)
    judgement = judge(reproduction_of(claim), claim, "cifar10", results, "cifar10")
    assert (judgement.verdict, judgement.reason) == ("not decided", reason)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(-0.9, 3.0, "holds"), (-1.1, 3.0, "not decided"), (-3.0, -0.9, "not decided"), (-3.0, -1.1, "does not hold")],
)
def test_comparable_or_better_is_not_below_by_more_than_the_margin(low, high, verdict):
    claim = Claim("one is comparable or better", ("one",), "not below", ("two",), "late", OWN, margin=1)
    assert verdict_of(claim, low, high) == verdict
