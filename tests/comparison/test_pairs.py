"""All pairs of losses against slow loops and against scipy where the procedures coincide, and the cases without a test.

T is a quotient, so its rounding error grows with the size of the results over their standard error.
"""

import numpy as np
import pytest
from helpers.closeness import close
from helpers.studies import decision_oracles as oracles
from helpers.studies.scattered import SHAPES, scattered
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lightning_ssl.comparison.estimate import Estimate, shows_zero
from lightning_ssl.comparison.pairs import compare_pairs, contrast, pooled


def gain_of(x, error):
    """Growth of rounding: the largest result over the smallest standard error, squared in a variance."""
    return (np.abs(x).max() / error) ** 2


@pytest.mark.parametrize("grain", [None, 0.01, 2.0])
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("shape", SHAPES)
def test_pairs_equal_the_slow_loops(shape, number, grain):
    x = scattered(*shape, number)
    found = compare_pairs(x, grain)
    assert found.pool.out.tolist() == oracles.standing_out(x.tolist())
    i, j = np.nonzero(~np.eye(len(x), dtype=bool))
    if not len(i):
        return
    slow = [oracles.pair(x.tolist(), *pair, grain or 0.0) for pair in zip(i.tolist(), j.tolist(), strict=True)]
    difference, v, freedom, t = np.array(slow).T
    e, error = found.differences, np.sqrt(v / shape[1])
    gain = gain_of(x, error.min())
    close(e.value[i, j], difference, terms=x.size, scale=np.abs(x).max())
    close(e.freedom[i, j], freedom)
    close(e.error[i, j], error, terms=x.size, gain=gain)
    close((e.value / e.error)[i, j], t, terms=x.size, gain=gain)
    close(e.above()[i, j], stats.t.sf(t, freedom), terms=x.size, scale=1.0, gain=gain)
    close(e.p()[i, j], 2 * stats.t.sf(np.abs(t), freedom), terms=x.size, scale=1.0, gain=gain)


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[0] > 2])
def test_a_contrast_equals_the_slow_loops_and_that_of_two_losses_is_their_pair(shape, number):
    x = scattered(*shape, number)
    c = [0.5, 0.5, -1.0, *[0.0] * (len(x) - 3)]
    value, v, freedom = oracles.contrast(x.tolist(), c)
    found, error = contrast(x, c), np.sqrt(v / shape[1])
    close(found.value, value, terms=x.size, scale=np.abs(x).max())
    close((found.error, found.freedom), (error, freedom), terms=x.size, scale=freedom, gain=gain_of(x, error))
    c = [1.0, -1.0, *[0.0] * (len(x) - 2)]
    two, pair = contrast(x, c, 0.01), compare_pairs(x, 0.01).differences
    close(two.value, pair.value[0, 1], terms=x.size, scale=np.abs(x).max())
    close(two.error, pair.error[0, 1], terms=x.size, gain=gain_of(x, pair.error[0, 1]))
    assert two.freedom == pair.freedom[0, 1]


@pytest.mark.parametrize("shape", [(3, 1), (4, 5), (7, 3)])
def test_leading_dimensions_are_independent_comparisons(shape):
    x = np.stack([scattered(*shape, number) for number in range(6)])
    together = compare_pairs(x.reshape(2, 3, *shape), 0.01)
    for number, each in enumerate(x):
        alone, index = compare_pairs(each, 0.01), divmod(number, 3)
        for name in ("value", "error", "freedom"):
            many, one = (getattr(found.differences, name) for found in (together, alone))
            close(many[index], one, terms=x.size, scale=100.0, gain=10.0)
        close(
            contrast(x.reshape(2, 3, *shape), [1, -1] + [0] * (shape[0] - 2)).error[index],
            contrast(each, [1, -1] + [0] * (shape[0] - 2)).error,
            terms=x.size,
            gain=100.0,
        )


# ------------------------------------------------------------------------------------- where other procedures coincide


@pytest.mark.parametrize("number", range(6))
def test_two_losses_are_compared_by_the_paired_t_test(number):
    x = scattered(2, 5, number)
    e, theirs = compare_pairs(x).differences, stats.ttest_rel(*x)
    gain = gain_of(x, e.error[0, 1])
    close(e.p()[0, 1], theirs.pvalue, terms=10, scale=1.0, gain=gain)
    low, high = e.interval()
    close((low[0, 1], high[0, 1]), tuple(theirs.confidence_interval(0.95)), terms=10, scale=100.0, gain=gain)


@pytest.mark.parametrize("number", range(6))
def test_welch_coincides_if_one_of_two_losses_has_no_spread(number):
    """Its degrees of freedom are then S − 1, and s²_12 is the spread of the other loss."""
    x = scattered(2, 5, number)
    x[1] = 70.0
    theirs = stats.ttest_ind_from_stats(x[0].mean(), x[0].std(ddof=1), 5, 70.0, 0.0, 5, equal_var=False)
    e = compare_pairs(x).differences
    gain = gain_of(x, e.error[0, 1])
    close((e.value / e.error)[0, 1], theirs.statistic, terms=10, gain=gain)
    close(e.p()[0, 1], theirs.pvalue, terms=10, scale=1.0, gain=gain)


@pytest.mark.parametrize("number", [1, 2, 4, 5])
@pytest.mark.parametrize("shape", [(3, 4), (4, 5), (7, 3)])
def test_the_pooled_variance_is_that_of_tukey_and_of_dunnett_after_the_effect_of_each_seed_is_removed(shape, number):
    """Without it, the squares within losses are (S−1)(K−1) MSE; tukey_hsd and dunnett divide them by K(S−1)."""
    losses, seeds = shape
    x = scattered(*shape, number)
    pool = pooled(x)
    assert not pool.out.any()
    within = pool.mse * (losses - 1) / losses
    y = x - x.mean(0)
    interval = stats.tukey_hsd(*y).confidence_interval(0.95)
    half = stats.studentized_range.ppf(0.95, losses, losses * (seeds - 1)) * np.sqrt(within / seeds)
    np.testing.assert_allclose((interval.high - interval.low)[0, 1] / 2, half, rtol=1e-6)  # of the quantile
    t = stats.dunnett(*y[1:], control=y[0]).statistic
    close(t, (x[1:].mean(1) - x[0].mean()) / np.sqrt(2 * within / seeds), terms=x.size, gain=gain_of(x, 0.1))


# ----------------------------------------------------------------------------------------------------- undefined cases


def test_one_seed_has_a_difference_and_no_test():
    found = compare_pairs([[70.0], [69.0], [71.0]], grain=0.01)
    e = found.differences
    assert e.value[0].tolist() == [0, 1, -1]
    assert not e.tested.any()
    assert (found.p() == 1).all()
    assert np.isinf(found.interval()).all()
    assert not found.significant().any()
    assert not contrast([[70.0], [69.0]], [1, -1]).tested


def test_without_a_common_seed_nothing_is_tested():
    found = compare_pairs(np.empty((2, 0)))
    assert not found.differences.tested.any()
    assert not found.significant().any()


def test_two_seeds_have_differences_and_intervals():
    found = compare_pairs([[70.0, 71.0], [69.0, 69.5], [60.0, 62.0]])
    low, high = found.interval()
    off_diagonal = ~np.eye(3, dtype=bool)
    assert np.isfinite(low[off_diagonal]).all()
    assert (low < high)[off_diagonal].all()


def test_nothing_is_pooled_if_fewer_than_two_losses_do_not_stand_out():
    """With 40 seeds, two of three losses can stand out: F = 1 / ((1 + 0.05²)/2) = 1.995, and F_.95(39, 78) = 1.55."""
    a, b = np.tile([1.0, -1.0], 20), np.tile([1.0, 1.0, -1.0, -1.0], 10)
    found = compare_pairs([a, b, 0.05 * a])
    assert found.pool.out.tolist() == [True, True, False]
    assert found.pool.kept == 1
    assert found.pool.mse == 0
    assert (found.differences.freedom == 39).all()


def test_a_loss_that_stands_out_is_neither_pooled_nor_shrunk():
    x = scattered(4, 5, 1)
    x[0] = [60.0, 80.0, 65.0, 75.0, 70.0]
    found, others = compare_pairs(x), compare_pairs(x[1:])
    assert found.pool.out.tolist() == [True, False, False, False]
    close(found.pool.mse, others.pool.mse, terms=20, gain=1e4)
    assert found.differences.freedom[0].tolist() == [4, 4, 4, 4]
    assert found.differences.freedom[1, 2] == 4 + min(4, 4 * (3 - 2) / 2)
    close(found.differences.error[1:, 1:], others.differences.error, terms=20, gain=1e4)


@pytest.mark.parametrize("size", [2, 3])
def test_a_difference_without_a_spread_has_no_test_unless_the_grain_is_known(size):
    x = np.array([70.1, 71.3, 72.7, 69.9, 70.3]) - np.arange(size)[:, None]
    unknown, known = compare_pairs(x), compare_pairs(x, grain=0.1)
    assert not unknown.differences.tested.any()
    assert unknown.p()[0, 1] == 1
    close(known.differences.error[0, 1], np.sqrt(0.1**2 / 6 / 5))
    assert known.significant()[0, 1]


def test_identical_results_differ_by_nothing():
    x = [[70.0, 71.0, 72.0], [70.0, 71.0, 72.0]]
    for grain in (None, 0.01):
        e = compare_pairs(x, grain).differences
        assert (e.value[0, 1], e.p()[0, 1], e.above()[0, 1]) == (0, 1, 0.5)


def test_a_difference_that_shows_as_zero_is_not_significant():
    x = np.array([70.0, 71.0, 72.0, 73.0, 74.0])
    near, far = (compare_pairs([x + lead, x], grain=0.001) for lead in (0.004, 0.006))
    assert near.p()[0, 1] < 0.05
    assert (near.significant()[0, 1], far.significant()[0, 1]) == (False, True)


@given(st.floats(-0.1, 0.1))
def test_a_difference_is_zero_if_two_decimals_show_zero(difference):
    assert shows_zero(difference) == (f"{abs(difference):.2f}" == "0.00")
    assert shows_zero(np.array([0.005, -0.005, 0.00499, np.nan])).tolist() == [False, False, True, False]


# ------------------------------------------------------------------------------------------ p and interval, invariances


@given(st.floats(-20, 20), st.floats(0.01, 10), st.floats(1, 40), st.sampled_from([0.05, 0.022, 0.01]))
def test_p_and_interval_never_contradict_each_other(value, error, freedom, level):
    e = Estimate(value, error, freedom)
    for margin in (0.0, 1.0):
        p, (low, high) = e.p(margin), e.interval(level)
        if abs(p - level) > 1e-9:  # both are rounded
            assert (p < level) == (not low <= margin <= high)
        close(e.above(margin) + e.below(margin), 1.0)
        close(p, 2 * min(e.above(margin), e.below(margin)), gain=4.0)


@pytest.mark.parametrize("shape", [(2, 3), (4, 5), (7, 3)])
def test_the_corrected_p_and_interval_of_a_pair_agree_at_the_level_of_the_family(shape):
    for number in range(20):
        found = compare_pairs(scattered(*shape, number), 0.01)
        low, high = found.interval()
        assert found.family == shape[0] * (shape[0] - 1) / 2
        assert ((found.p() < 0.05) == ((low > 0) | (high < 0))).all()


@given(st.integers(0, 1000), st.permutations(range(5)), st.floats(0.1, 10), st.lists(st.floats(-9, 9), min_size=5))
def test_the_order_of_losses_the_unit_and_a_constant_for_each_loss_do_not_change_t(number, order, unit, constants):
    x = scattered(5, 4, number)
    e, constants = compare_pairs(x).differences, np.array(constants[:5])
    value = e.value - (constants[:, None] - constants)  # the constants are subtracted again
    moved = compare_pairs(unit * (x - constants[:, None])[list(order)]).differences
    expected = (value / e.error)[np.ix_(order, order)]
    close(moved.value / moved.error, expected, terms=20, gain=gain_of(x, e.error.min()))


@given(st.integers(0, 1000), st.lists(st.floats(-9, 9), min_size=4, max_size=4))
def test_an_effect_of_each_seed_changes_p_only_through_which_spreads_stand_out(number, effects):
    """F compares the spreads of the results themselves, and these include the effect of the seed."""
    x = scattered(5, 4, number)
    before, after = compare_pairs(x), compare_pairs(x + np.array(effects))
    gain = 10 * gain_of(x, before.differences.error.min())
    close(after.differences.value, before.differences.value, terms=20, scale=100.0)
    same = before.pool.out == after.pool.out
    if same.all():
        close(after.p(), before.p(), terms=20, scale=10.0, gain=gain)
    close(compare_pairs(x[:2] + np.array(effects)).p(), compare_pairs(x[:2]).p(), terms=20, scale=1.0, gain=gain)
