"""Seeds added until the question is answered: three looks, with fewer losses after each.

A look needs as many complete blocks as its number of seeds. If a run failed, it is repeated, or all losses that race
get one more seed. After the last look the headline is its `best`, which is about the losses in `racing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lightning_ssl.base.checks import require
from lightning_ssl.comparison.best import FEWEST_FOR_A_WINNER, Best, best
from lightning_ssl.comparison.claims import equivalence_p
from lightning_ssl.comparison.pairs import Pairs, compare_pairs

LOOKS = (5, 8, 12)  # seeds
LOOK_LEVEL = 0.022  # at each of three looks: together 0.05
Outcome = Literal["wins", "equivalent", "alone", "undecided", "continue"]


@dataclass(frozen=True)
class Look:
    """What a look at S seeds found. Losses are given by their index among all losses of the start.

    | outcome    | meaning                                                              |
    |------------|----------------------------------------------------------------------|
    | wins       | one loss wins                                                        |
    | alone      | one loss can be the best, but it does not win                        |
    | equivalent | the survivors are equivalent                                         |
    | undecided  | it is the last look                                                  |
    | continue   | the survivors get more seeds                                         |

    racing     the losses that are compared, in the order of the rows of `pairs` and `best`
    survivors  those that can be the best
    """

    seeds: int
    racing: tuple[int, ...]
    survivors: tuple[int, ...]
    outcome: Outcome
    pairs: Pairs
    best: Best


def planned_looks(most: int = LOOKS[-1]) -> tuple[int, ...]:
    """Return the numbers of seeds at which to look, up to `most` seeds. A page at another number is interim.

    >>> planned_looks(), planned_looks(10), planned_looks(5)
    ((5, 8, 12), (5, 8, 10), (5,))
    """
    allowed = f"from {FEWEST_FOR_A_WINNER} to {LOOKS[-1]}"  # the level is for looks at most as far apart as LOOKS
    require(FEWEST_FOR_A_WINNER <= most <= LOOKS[-1], "max-seeds", most, allowed)
    return (*(seeds for seeds in LOOKS if seeds < most), most)


def look(
    x: Any,
    racing: Sequence[int],
    losses: int,
    most: int = LOOKS[-1],
    within: float | None = None,
    grain: float | None = None,
) -> Look:
    """Look at the losses that still race, at level 0.022. The survivors go on, or the race is decided.

    x        results (len(racing), S): complete blocks of the losses that survived the look before
    losses   K at the start
    most     seeds of the last look
    within   D: the race ends if all survivors are equivalent within D points; None: it does not

    >>> a, b, c = [70.0, 71.0, 72.0, 71.0, 71.5], [70.5, 70.0, 72.5, 71.5, 71.0], [60.0, 61.5, 61.0, 62.0, 61.0]
    >>> found = look([a, b, c], racing=[0, 1, 4], losses=5)
    >>> found.survivors, found.outcome
    ((0, 1), 'continue')
    >>> look([a, b, c], racing=[0, 1, 4], losses=5, within=2.0).outcome
    'equivalent'
    """
    pairs = compare_pairs(x, grain)
    require(pairs.seeds >= FEWEST_FOR_A_WINNER, "seeds of a look", pairs.seeds, f"at least {FEWEST_FOR_A_WINNER}")
    found = best(pairs, losses, LOOK_LEVEL)
    members = found.members
    assert members is not None
    survivors = tuple(racing[k] for k in np.flatnonzero(members).tolist())
    outcome: Outcome = "undecided" if pairs.seeds >= most else "continue"
    if found.winner >= 0:
        outcome = "wins"
    elif len(survivors) == 1:
        outcome = "alone"
    elif within is not None and are_equivalent(pairs, members, within):
        outcome = "equivalent"
    return Look(pairs.seeds, tuple(racing), survivors, outcome, pairs, found)


def are_equivalent(pairs: Pairs, members: np.ndarray, within: float, level: float = LOOK_LEVEL) -> bool:
    """Whether every two members differ by less than `within`: each pair passes both one-sided tests.

    No correction is needed, because every pair must pass.
    """
    p = equivalence_p(pairs.differences, within)[np.ix_(members, members)]
    return bool((p[~np.eye(len(p), dtype=bool)] < level).all())
