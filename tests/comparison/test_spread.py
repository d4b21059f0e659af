"""Mean, standard deviation, interval against scipy and numpy."""

import numpy as np
from helpers.closeness import close
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lightning_ssl.comparison.spread import Spread, interval, spread_by_epoch

samples = st.lists(st.floats(0, 100), min_size=2, max_size=8).filter(lambda x: np.std(x) > 1e-3)


@given(samples)
def test_interval_equals_student_t(x):
    spread = Spread.of(x)
    low, high = stats.t.interval(0.95, len(x) - 1, np.mean(x), stats.sem(x))
    close((spread.mean, spread.std), (np.mean(x), np.std(x, ddof=1)), terms=len(x), scale=max(x))
    quantile = stats.t.ppf(0.975, len(x) - 1)  # factor of the standard deviation
    close((spread.low, spread.high), (low, high), terms=len(x), scale=max(x), gain=quantile)


def test_one_value_has_no_deviation_and_no_interval():
    assert Spread.of([70.0]) == Spread(1, 70.0, None, None, None)


def test_an_interval_without_a_degree_of_freedom_is_the_estimate():
    assert interval(70.0, 3.0, 0) == (70.0, 70.0)


def test_curves_have_the_mean_and_deviation_of_the_finite_values_of_each_epoch():
    epochs = np.array([1, 2, 3, 1, 2, 3, 1, 3])
    values = np.array([1.0, 4.0, np.inf, 2.0, np.nan, np.nan, 6.0, -np.inf])
    found, mean, std = spread_by_epoch(epochs, values)
    assert found.tolist() == [1, 2]  # epoch 3 has no finite value
    close(mean, np.array([3.0, 4.0]))
    close(std, np.array([np.std([1, 2, 6], ddof=1), 0.0]), scale=6, terms=3)
