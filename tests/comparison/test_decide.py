"""Error rates and power of the procedure, by the benchmark `decide` with fewer repetitions.

Its random numbers depend on the scenario only. Every bar is wider than at full size by three standard errors of the
smaller number of repetitions, 3 √(p (1 − p)) (1/√R − 1/√20000).
"""

import sys

import numpy as np
import pytest
from helpers import ROOT
from helpers.closeness import close
from helpers.studies.scattered import scattered

sys.path.insert(0, str(ROOT / "benchmarks"))

import decide
import scenarios

from lightning_ssl.comparison.looks import LOOKS, look


@pytest.mark.slow
@pytest.mark.parametrize("table", decide.TABLES)
def test_every_bar_is_reached(table):
    assert [str(bar) for bar in decide.TABLES[table](repetitions=2000) if not bar.reached] == []


def test_one_scenario_has_its_error_rate_and_its_power():
    lost, wins, _ = scenarios.excluded(scenarios.at_once, "normal", "two tied", 4, 5, repetitions=4000)
    assert decide.error_bar("", [lost, wins], 4000).reached
    assert wins > 5 - 3 - decide.noise(5, 4000)  # nominal: a test that never decides has no error
    power, _ = scenarios.power_of(scenarios.at_once, "normal", 4, 5, repetitions=1000)
    assert decide.power_bar("", [power], [56], 1000, [""]).reached


def test_a_bar_is_wider_by_the_binomial_error_of_fewer_repetitions_only():
    assert decide.noise(5, decide.FULL) == 0
    close(decide.noise(50, 5000), 300 * 0.5 * (1 / np.sqrt(5000) - 1 / np.sqrt(20_000)))


def test_an_error_above_its_bar_and_a_power_below_its_table_are_missed():
    assert not decide.error_bar("", [5.0, 6.1], decide.FULL).reached
    assert not decide.power_bar("", [50.0, 40.0], [50, 44], decide.FULL // 4, ["", ""]).reached


@pytest.mark.parametrize("losses", [2, 4, 7])
def test_many_races_at_once_equal_look_after_look(losses):
    x = np.stack([scattered(losses, LOOKS[-1], number) for number in range(12)])
    found = scenarios.race(x)
    for number, each in enumerate(x):
        racing, runs, winner = list(range(losses)), np.zeros(losses, int), -1
        for seeds in LOOKS:
            runs[racing] = seeds
            seen = look(each[racing, :seeds], racing, losses)
            racing = list(seen.survivors)
            if seen.outcome in ("wins", "alone"):
                winner = racing[0] if seen.outcome == "wins" else -1
                break
        assert found.winner[number] == winner
        assert np.flatnonzero(found.members[number]).tolist() == racing
        assert found.runs[number].tolist() == runs.tolist()


@pytest.mark.parametrize("name", scenarios.GENERATORS)
def test_a_generator_has_its_spread_and_its_correlation(name):
    """Means of 20,000 results of three losses: the standard error of a spread is 5 % at most."""
    x = np.concatenate([*scenarios.draw(name, "equal", 3, 4, 20_000)])
    spread = {"loud": [2.0, 0.5, 0.5], "quiet": [0.2, 1.0, 1.0]}.get(name, [0.6] * 3)
    assert np.abs(x.mean((0, 2))).max() < 0.05
    if name != "archive-like":
        np.testing.assert_allclose(x.std((0, 2)), spread, rtol=0.1)
    correlation = np.corrcoef(x[:, 0, 0], x[:, 1, 0])[0, 1]
    assert abs(correlation - (0.5 if name == "shared" else 0.0)) < 0.05


def test_the_spreads_like_those_of_the_archive_have_its_median_and_its_range():
    x = scenarios.archive(np.random.default_rng(0), (20_000, 1, 200))
    spread = x.std(-1, ddof=1)
    assert 0.5 < np.median(spread) < 0.6
    assert spread.min() > 0.08
    assert spread.max() < 3.2
