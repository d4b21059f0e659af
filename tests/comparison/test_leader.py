"""Ranks of losses and what is known about the first, on results made by hand."""

import pytest

from lightning_ssl.comparison.leader import lead, ranks


def seeds(*values):
    return dict(enumerate(values))


BEST, SECOND = seeds(70.0, 71.0, 70.6), seeds(69.9, 70.6, 71.0)
FAR = seeds(60.0, 61.0, 60.5)


@pytest.mark.parametrize(
    ("losses", "outcome", "leader", "decisive"),
    [
        ([], "no result", None, []),
        ([{}, {}], "no result", None, []),
        ([{}, BEST], "alone", 1, []),
        ([FAR, BEST, seeds(70.004, 71.0, 70.6), {}], "tied", 2, [1]),
        ([BEST, seeds(70.0)], "untested", 0, [1]),
        ([BEST, FAR, seeds(69.0, 70.0, 69.6)], "untested", 0, [2]),  # a constant difference has no p
        ([seeds(80.0, 80.1, 79.9, 95.0), seeds(81.0, 81.12, 80.91)], "behind", 0, [1]),
        ([SECOND, BEST, FAR], "leads", 1, [0]),
        ([FAR, BEST, seeds(50.0, 51.0, 50.7)], "wins", 1, [0]),
    ],
)
def test_the_outcome_and_the_rivals_that_decide_it(losses, outcome, leader, decisive):
    found = lead(losses)
    assert (found.outcome, found.leader) == (outcome, leader)
    assert [rival.index for rival in found.decisive] == decisive


def test_a_leader_can_beat_some_rivals_only():
    found = lead([SECOND, BEST, FAR])
    assert [rival.index for rival in found.rivals] == [0, 2]  # next best first
    assert [rival.index for rival in found.beaten] == [2]


def test_the_closest_rival_is_the_one_with_the_largest_p_not_with_the_smallest_difference():
    near, noisy = seeds(69.0, 70.01, 69.59), seeds(60.0, 71.5, 64.0)  # BEST minus these: 1 ± 0.01, 5.4 ± 5.3
    found = lead([BEST, near, noisy])
    assert (found.outcome, [rival.index for rival in found.decisive]) == ("leads", [2])


def test_the_differences_of_a_leader_are_corrected_for_all_rivals():
    alone, among = lead([BEST, FAR]), lead([BEST, SECOND, FAR])
    p = alone.rivals[0].comparison.p
    assert alone.rivals[0].comparison.p_holm == p
    assert among.rivals[1].comparison.p_holm == 2 * p


def test_losses_that_tie_share_the_rank_and_a_loss_without_results_has_none():
    assert ranks([seeds(60.0), {}, seeds(70.0, 70.0), seeds(70.004), seeds(65.0)]) == [4, None, 1, 1, 3]
