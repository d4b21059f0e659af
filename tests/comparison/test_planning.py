"""Plans: the smallest number of seeds by trying each, the reverse, and the pilot."""

import numpy as np
import pytest
from helpers.closeness import close
from helpers.studies import decision_oracles as oracles
from helpers.studies.scattered import scattered
from scipy import stats

from lightning_ssl.base.checks import UserError
from lightning_ssl.comparison.planning import difference_shown, more_seeds, seeds_needed, variance_of_pilot


@pytest.mark.parametrize("power", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("difference", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("losses", [2, 3, 4, 12])
def test_the_plan_is_the_smallest_number_of_seeds_that_satisfies_the_inequality(losses, difference, power):
    variances = np.array([0.1, 0.72, 4.0])
    expected = [oracles.seeds_needed(v, losses, difference, power) for v in variances]
    assert seeds_needed(variances, losses, difference, power).tolist() == expected


@pytest.mark.parametrize("losses", [2, 4, 12])
def test_a_number_of_seeds_shows_the_difference_for_which_it_is_planned(losses):
    for seeds in (6, 9, 30):
        shown = difference_shown(0.72, losses, seeds)
        assert seeds_needed(0.72, losses, 1.001 * shown) == seeds
        assert seeds_needed(0.72, losses, 0.999 * shown) == seeds + 1


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (7, 5)])
def test_the_variance_of_a_pilot_is_a_bound_from_the_residuals_of_all_its_losses(shape):
    x, freedom = scattered(*shape, 3), (shape[0] - 1) * (shape[1] - 1)
    bound = 2 * oracles.residual_variance(x.tolist()) * freedom / stats.chi2.ppf(0.2, freedom)
    close(variance_of_pilot(x), bound, terms=x.size, gain=1e4)
    stacked = variance_of_pilot(np.stack([x, 2 * x]))
    close(stacked, np.array([bound, 4 * bound]), terms=x.size, gain=1e4)


def test_more_seeds_are_those_beyond_the_pilot():
    x = scattered(4, 5, 1)
    needed = seeds_needed(variance_of_pilot(x), 4, 1.0)
    assert more_seeds(x, 1.0) == needed - 5 > 0
    assert more_seeds(x, 100.0) == 0
    assert more_seeds(x, 1.0, losses=12) > more_seeds(x, 1.0)


def test_identical_losses_need_the_fewest_seeds_that_can_win():
    assert more_seeds(np.ones((2, 3)), 1.0) == 2


def test_what_cannot_be_planned_is_refused():
    for arguments, text in [
        ((1.0, 2, 0.0), "difference=0.0"),
        ((1.0, 2, 1e-6), "difference=1e-06: difference must be large enough for 10000 seeds"),
        ((1.0, 2, 1.0, 1.0), "power=1.0: power must be between 0 and 1"),
    ]:
        with pytest.raises(UserError, match=text):
            seeds_needed(*arguments)
    with pytest.raises(UserError, match="seeds of the pilot=1"):
        variance_of_pilot([[1.0], [2.0]])
    with pytest.raises(UserError, match="losses of the pilot=1"):
        variance_of_pilot([[1.0, 2.0]])
