"""Looks: a race of losses, seed by seed, equals the slow loop; how it ends."""

import numpy as np
import pytest
from helpers.studies import decision_oracles as oracles
from helpers.studies.scattered import scattered

from lightning_ssl.base.checks import UserError
from lightning_ssl.comparison.looks import LOOK_LEVEL, look, planned_looks


def race(x, **options):
    """Look at 5, 8 and 12 seeds. Only the losses that race have results."""
    racing, found = list(range(len(x))), []
    for seeds in planned_looks(x.shape[1]):
        found.append(look(x[racing][:, :seeds], racing, len(x), most=x.shape[1], **options))
        if found[-1].outcome != "continue":
            break
        racing = list(found[-1].survivors)
    return found


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("losses", [2, 4, 7])
def test_a_race_equals_the_slow_loop(losses, number):
    x = scattered(losses, 12, number)
    last = race(x)[-1]
    winner, remaining, seeds = oracles.race(x.tolist(), (5, 8, 12), LOOK_LEVEL, losses)
    assert {*last.survivors} == remaining
    assert (last.outcome == "wins") == (winner is not None)
    assert max(seeds) == last.seeds
    if winner is not None:
        assert last.racing[int(last.best.winner)] == winner


def test_the_cases_include_races_of_one_two_and_three_looks():
    looks = [len(race(scattered(losses, 12, number))) for losses in (2, 4, 7) for number in range(8)]
    assert {*looks} == {1, 2, 3}


X = np.array([[70.0, 71.0, 72.0, 71.0, 71.5], [70.5, 70.0, 72.5, 71.5, 71.0], [60.0, 61.5, 61.0, 62.0, 61.0]])


def test_the_survivors_get_more_seeds_until_the_last_look():
    found = look(X, [3, 1, 0], losses=5)
    assert (found.survivors, found.outcome) == ((3, 1), "continue")
    assert look(X, [3, 1, 0], losses=5, most=5).outcome == "undecided"


def test_a_race_ends_if_the_survivors_are_equivalent():
    assert look(X, [0, 1, 2], losses=3, within=2.0).outcome == "equivalent"
    assert look(X, [0, 1, 2], losses=3, within=0.2).outcome == "continue"
    worse = look(X[[0, 2]], [0, 2], losses=3, within=20.0)  # a winner is told first
    assert worse.outcome == "wins"


def test_a_loss_that_remains_alone_without_a_win_ends_the_race():
    """Loss 0 stands out, so its differences are not shrunk: it beats 1, and 1 excludes 2, but 0 does not beat 2."""
    u = np.array([1.0, -1.0, 0.0, 1.0, -1.0])
    x = np.outer([0.62, 0.5, -0.5, 0.0, 0.0], u) + np.array([[1.57], [1.3], [0.0], [-50.0], [-50.0]])
    found = look(x, range(5), losses=5)
    assert (found.survivors, found.outcome, int(found.best.winner)) == ((0,), "alone", -1)
    p = found.pairs.differences.p()
    assert p[0, 1] < LOOK_LEVEL < p[0, 2]


def test_looks_are_planned_for_five_to_twelve_seeds():
    assert planned_looks(8) == (5, 8)
    for most in (4, 13):
        with pytest.raises(UserError, match=f"max-seeds={most}: max-seeds must be from 5 to 12"):
            planned_looks(most)
    with pytest.raises(UserError, match="at least 5"):
        look(X[:, :4], [0, 1, 2], losses=3)
