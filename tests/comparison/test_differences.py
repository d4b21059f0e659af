"""The comparison of two losses against scipy."""

import numpy as np
from helpers.closeness import close
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lightning_ssl.comparison.differences import Comparison, compare

samples = st.lists(st.floats(0, 100), min_size=2, max_size=8).filter(lambda x: np.std(x) > 1e-3)


def p_gain(spread, *xs):
    """Bound the relative error of p: rounding changes the standard error by max/spread eps, and p is at most t^n."""
    return max(len(x) for x in xs) * max(np.max(x) for x in xs) / spread


def test_one_seed_has_no_interval_and_no_test():
    assert compare({0: 70.0}, {0: 69.0}) == Comparison(1.0, test="one common seed: no test", pairs=1)
    assert compare({0: 70.0}, {1: 69.0, 2: 67.0}) == Comparison(2.0, test="one seed: no test")


def test_a_loss_without_a_result_is_not_compared():
    assert compare({}, {0: 69.0}) is None
    assert compare({0: 69.0}, {}) is None


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=2, max_size=8))
def test_common_seeds_are_compared_by_a_paired_t_test(pairs):
    a, b = np.array(pairs).T
    if np.std(a - b) < 1e-3:
        return
    ours = compare({**dict(enumerate(a)), 98: 1.0}, {**dict(enumerate(b)), 99: 2.0})  # two seeds without a partner
    theirs = stats.ttest_rel(a, b)
    assert (ours.test, ours.pairs) == ("paired t", len(pairs))
    close(ours.difference, np.mean(a - b), terms=len(a), scale=np.max(pairs))
    close(ours.p, theirs.pvalue, terms=len(a), gain=p_gain(np.std(a - b), a, b))
    interval, quantile = theirs.confidence_interval(0.95), stats.t.ppf(0.975, len(a) - 1)
    close((ours.low, ours.high), tuple(interval), terms=len(a), scale=np.max(pairs), gain=quantile)


@given(samples, samples)
def test_different_seeds_are_compared_by_welch_t_test(a, b):
    ours = compare(dict(enumerate(a)), {100 + k: v for k, v in enumerate(b)})
    theirs = stats.ttest_ind(a, b, equal_var=False)
    assert ours.test == "Welch t"
    gain = p_gain(min(np.std(a), np.std(b)), a, b)
    close(ours.p, theirs.pvalue, terms=len(a) + len(b), gain=gain)
    interval, quantile = theirs.confidence_interval(0.95), stats.t.ppf(0.975, theirs.df)
    close((ours.low, ours.high), tuple(interval), terms=len(a) + len(b), scale=max(*a, *b), gain=gain * quantile)


def test_equal_runs_have_p_one_and_a_constant_difference_has_no_p():
    assert compare({0: 70.0, 1: 71.0}, {0: 70.0, 1: 71.0}).p == 1.0
    assert compare({0: 71.0, 1: 72.0}, {0: 70.0, 1: 71.0}).p is None
    assert compare({0: 71.0, 1: 71.0}, {2: 70.0, 3: 70.0}) == Comparison(1.0, test="no spread: no test")
