"""The e-process against integration over effect and scale, and the race with it."""

import numpy as np
import pytest
from helpers.closeness import close
from helpers.studies import decision_oracles as oracles
from helpers.studies.scattered import scattered
from hypothesis import given
from hypothesis import strategies as st

from lightning_ssl.comparison.evalue import e_values, seeds_until_dropped


@pytest.mark.parametrize("lead", [-1.0, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_the_evidence_is_the_ratio_of_likelihoods_integrated_over_effect_and_scale(seeds, lead):
    d = lead + np.random.default_rng(seeds).standard_normal(seeds)
    found = e_values(np.stack([70 + d, np.full(seeds, 70.0)]))
    np.testing.assert_allclose(found[0, 1], oracles.likelihood_ratio(d.tolist()), rtol=1e-7)  # of the quadrature
    np.testing.assert_allclose(found[1, 0], oracles.likelihood_ratio((-d).tolist()), rtol=1e-7)


def test_without_a_difference_or_a_spread_the_evidence_is_one():
    x = np.array([70.0, 71.0, 72.0])
    assert (e_values([x, x]) == 1).all()
    assert (e_values([x + 1, x]) == 1).all()
    assert (e_values([x[:1] + 1, x[:1]]) == 1).all()  # one seed
    assert e_values([x + 1, x], grain=0.01)[0, 1] > 1


def test_the_grain_is_the_smallest_spread():
    """R = 2 · 0.6²/6 = 0.12 in place of 0: the same as differences 1 ± √0.06."""
    x = np.array([70.0, 70.0, 70.0])
    known = e_values([x + 1, x], grain=0.6)
    spread = e_values([x + 1 + np.sqrt(0.06) * np.array([1, 0, -1]), x])
    close(known[0, 1], spread[0, 1], terms=6, gain=1e6)


@given(st.integers(0, 1000), st.floats(0.1, 10))
def test_effects_of_seeds_and_the_unit_do_not_change_the_evidence(number, unit):
    x = scattered(4, 5, number)
    expected = e_values(x)
    found = e_values(unit * (x + np.array([3.0, -2.0, 1.0, 0.0, 5.0])))
    np.testing.assert_allclose(found, expected, rtol=1e-6)  # rounding of differences near 0, in a spread


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("losses", [2, 4, 7])
def test_a_loss_is_dropped_at_the_first_crossing_by_a_loss_that_remains(losses, number):
    x = scattered(losses, 14, number)
    dropped = [0] * losses
    for n in range(3, 15):
        e = e_values(x[:, :n])
        remain = [k for k in range(losses) if not dropped[k]]
        for i in remain:
            if any(e[j, i] >= (losses - 1) / 0.05 for j in remain):
                dropped[i] = n
    assert seeds_until_dropped(x).tolist() == dropped
    missing = x.copy()  # a dropped loss gets no more seeds
    for k, n in enumerate(dropped):
        missing[k, n or 14 :] = np.nan
    assert seeds_until_dropped(missing).tolist() == dropped


def test_the_cases_include_losses_that_are_dropped_one_after_the_other():
    found = [seeds_until_dropped(scattered(7, 14, number)).tolist() for number in range(8)]
    assert max(len({n for n in each if n}) for each in found) > 2
