"""Complete blocks: what is compared, and what is left out, is stated."""

from hypothesis import given
from hypothesis import strategies as st

from lightning_ssl.comparison.blocks import blocks


def losses_with(*seeds):
    return [{seed: 10.0 * k + seed for seed in of_loss} for k, of_loss in enumerate(seeds)]


def test_a_seed_that_one_loss_lacks_is_dropped_and_the_loss_is_named():
    found = blocks(losses_with((0, 1, 2, 3), (0, 2, 3, 4), (0, 1, 2, 3)))
    assert found.seeds == (0, 2, 3)
    assert found.x.tolist() == [[0, 2, 3], [10, 12, 13], [20, 22, 23]]
    assert found.dropped == {1: (1,), 4: (0, 2)}


def test_a_loss_with_fewer_than_three_seeds_is_listed_and_cuts_no_block():
    found = blocks(losses_with((0, 1, 2, 3), (5, 6), (), (0, 1, 2, 3)))
    assert (found.compared, found.listed, found.seeds, found.dropped) == ((0, 3), (1, 2), (0, 1, 2, 3), {})


def test_with_two_seeds_or_one_the_losses_with_the_most_seeds_are_compared():
    assert blocks(losses_with((0, 1), (0, 1), (0,))).compared == (0, 1)
    assert blocks(losses_with((0,), (0,), ())).compared == (0, 1)


def test_without_a_result_or_without_a_common_seed_there_is_no_block():
    assert blocks([]).x.shape == (0, 0)
    assert blocks([{}, {}]).listed == (0, 1)
    found = blocks(losses_with((0, 1, 2), (3, 4, 5)))
    assert found.x.shape == (2, 0)
    assert found.dropped == {0: (1,), 1: (1,), 2: (1,), 3: (0,), 4: (0,), 5: (0,)}


@given(st.lists(st.dictionaries(st.integers(0, 9), st.floats(0, 100)), max_size=5))
def test_every_seed_of_a_compared_loss_is_a_block_or_dropped_and_every_loss_compared_or_listed(losses):
    found = blocks(losses)
    assert sorted(found.compared + found.listed) == list(range(len(losses)))
    assert {*found.seeds} | {*found.dropped} == {seed for k in found.compared for seed in losses[k]}
    assert not {*found.seeds} & {*found.dropped}
    assert found.x.tolist() == [[losses[k][seed] for seed in found.seeds] for k in found.compared]
