"""The headline against a slow loop, its rules, and ranks."""

import numpy as np
import pytest
from helpers.closeness import close
from helpers.studies import decision_oracles as oracles
from helpers.studies.scattered import SHAPES, scattered
from hypothesis import given
from hypothesis import strategies as st

from lightning_ssl.comparison.best import best, ranks
from lightning_ssl.comparison.pairs import compare_pairs


def headline(x, *arguments):
    """Winner or None, and the set or None, as the oracle gives them."""
    found = best(compare_pairs(x), *arguments)
    winner = int(found.winner)
    return None if winner < 0 else winner, None if found.members is None else {*np.flatnonzero(found.members).tolist()}


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("shape", SHAPES)
def test_the_headline_equals_the_slow_loops(shape, number):
    x = scattered(*shape, number)
    assert headline(x) == oracles.headline(x.tolist())
    assert headline(x, 20, 0.022) == oracles.headline(x.tolist(), 20, 0.022)


def test_the_cases_include_winners_sets_of_one_and_larger_sets():
    """So the comparison with the slow loops covers each outcome."""
    found = [headline(scattered(*shape, number)) for shape in SHAPES if shape[0] > 1 for number in range(6)]
    sizes = [len(members) for winner, members in found if members is not None and winner is None]
    assert sum(winner is not None for winner, _ in found) > 5
    assert min(sizes) == 1
    assert sum(size > 1 for size in sizes) > 5


def test_a_batch_has_a_headline_for_each_comparison():
    x = np.stack([scattered(4, 5, number) for number in range(6)])
    found = best(compare_pairs(x))
    for number, each in enumerate(x):
        alone = best(compare_pairs(each))
        assert found.winner[number] == alone.winner
        assert found.members[number].tolist() == alone.members.tolist()


FAR = np.array([[90.0, 91.0, 92.5, 91.0, 90.5], [70.0, 71.5, 72.0, 71.0, 70.0], [60.0, 61.0, 62.0, 61.5, 60.0]])


def test_two_seeds_give_no_set_and_fewer_than_five_no_winner():
    assert headline(FAR[:, :2]) == (None, None)
    assert headline(FAR[:, :1]) == (None, None)
    assert headline(FAR[:, :3]) == headline(FAR[:, :4]) == (None, {0})  # a set with one member is not a win
    assert headline(FAR) == (0, {0})


def test_one_loss_alone_does_not_win():
    assert headline(FAR[:1]) == (None, {0})


def test_a_winner_beats_every_rival_without_a_correction():
    """T = 2.73 with six degrees of freedom: p = 0.034 against each, and 0.10 in the family of three pairs."""
    a = np.array([1.0, -1.0, 0.0, 1.0, -1.0])
    x = np.array([a, -a, -a]) + np.array([[2.3], [0.0], [0.0]])
    pairs = compare_pairs(x)
    assert pairs.differences.p()[0, 1] < 0.05 < pairs.p()[0, 1]
    assert headline(x) == (0, {0})


def test_a_lead_that_shows_as_zero_neither_wins_nor_excludes():
    x = np.array([70.0, 71.0, 72.0, 73.0, 74.0])
    for lead, expected in ((0.004, (None, {0, 1})), (0.006, (0, {0}))):
        pairs = compare_pairs([x + lead, x], grain=0.001)
        assert pairs.p()[0, 1] < 0.05
        found = best(pairs)
        assert (None if found.winner < 0 else int(found.winner), {*np.flatnonzero(found.members)}) == expected


def test_without_a_spread_nobody_wins():
    x = np.array([70.0, 71.0, 72.0, 73.0, 74.0])
    assert headline([x + 1, x]) == (None, {0, 1})


def test_losses_that_were_excluded_before_still_count():
    pairs = compare_pairs(scattered(3, 5, 1))
    few, many = best(pairs), best(pairs, losses=12)
    close(many.p, np.minimum(1, few.p / 2 * 11), gain=10.0)
    assert (few.p < 1).any()


@given(st.integers(0, 1000), st.sampled_from([(2, 3), (3, 5), (5, 4), (7, 5)]))
def test_the_set_has_the_loss_with_the_best_mean_and_only_it_if_it_wins(number, shape):
    x = scattered(*shape, number)
    found, leader = best(compare_pairs(x)), x.mean(1).argmax()
    assert found.members[leader]
    assert found.p[leader] == 1
    if found.winner >= 0:
        assert found.winner == leader
        assert found.members.sum() == 1
    else:
        assert ((found.p >= 0.05) == found.members).all()


@given(st.integers(0, 1000), st.permutations(range(5)))
def test_the_order_of_losses_does_not_change_the_set(number, order):
    x = scattered(5, 5, number)
    winner, members = headline(x)
    moved, those = headline(x[list(order)])
    assert {order[k] for k in those} == members
    assert winner == (None if moved is None else order[moved])


def test_means_that_show_alike_share_the_rank_and_a_loss_without_results_has_none():
    assert ranks([60.0, None, 70.0, 70.004, 65.0]) == [4, None, 1, 1, 3]
    assert ranks([None]) == [None]
    assert ranks([0.0, -1.0]) == [1, 2]
