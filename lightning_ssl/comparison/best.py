"""The headline: the loss that wins, or the losses that can be the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lightning_ssl.comparison.estimate import LEVEL, shows_zero
from lightning_ssl.comparison.pairs import Pairs

FEWEST_FOR_A_SET = 3  # seeds
FEWEST_FOR_A_WINNER = 5


@dataclass(frozen=True)
class Best:
    """The outcome of a headline.

    winner   index of the loss that wins (...); −1 if none does
    members  whether a loss can be the best (..., K); None without a set. The winner is the only member. A set with one
             member is not a win.
    p        p of "this loss is the best" (..., K), corrected for its rivals; a member has p ≥ level if nobody wins
    """

    winner: np.ndarray
    members: np.ndarray | None
    p: np.ndarray


def best(pairs: Pairs, losses: int | None = None, level: float = LEVEL) -> Best:
    """Return the winner, or the set of losses that can be the best.

    "A wins": S ≥ 5 and A beats every rival at two-sided p < level, uncorrected. Otherwise, from S = 3, the set is

        C = {i : max(K−1, 2) · min_j P(t_ν > T_ji) ≥ level}

    which excludes a given best loss with a probability of at most `level`. A rival whose lead shows as 0.00 neither
    wins nor excludes.

    losses   K at the start, if losses were excluded at earlier looks

    >>> from lightning_ssl.comparison.pairs import compare_pairs
    >>> a, b, c = [70.0, 71.0, 72.0, 71.0, 71.5], [70.5, 70.0, 72.5, 71.5, 71.0], [60.0, 61.5, 61.0, 62.0, 61.0]
    >>> found = best(compare_pairs([a, b, c]))
    >>> int(found.winner), found.members.tolist()
    (-1, [True, True, False])
    >>> found = best(compare_pairs([a, c]))
    >>> int(found.winner), found.members.tolist()
    (0, [True, False])
    """
    e = pairs.differences
    counts = ~shows_zero(e.value)
    tail = np.where(counts, e.above(), 0.5)  # (..., j, i): P(t > T_ji), small where j is better than i
    rivals = max((losses or pairs.losses) - 1, 2)
    p = np.minimum(1.0, rivals * tail.min(-2))
    winner = np.full(p.shape[:-1], -1)
    if pairs.seeds < FEWEST_FOR_A_SET:
        return Best(winner, None, p)
    members = p >= level
    if pairs.seeds >= FEWEST_FOR_A_WINNER and pairs.losses > 1:
        itself = np.eye(pairs.losses, dtype=bool)
        wins = np.asarray((itself | (2 * tail < level)).all(-1))  # (..., K)
        winner = np.where(wins.any(-1), wins.argmax(-1), -1)
        members = np.where(wins.any(-1, keepdims=True), wins, members)
    return Best(winner, members, p)


def ranks(means: Sequence[float | None]) -> list[int | None]:
    """Return the rank of each mean; None stays None. A mean that shows like the one before it has the same rank.

    >>> ranks([60.0, None, 70.0, 70.001])
    [3, None, 1, 1]
    """
    known = sorted(((mean, k) for k, mean in enumerate(means) if mean is not None), key=lambda pair: -pair[0])
    found: list[int | None] = [None] * len(means)
    for place, (mean, k) in enumerate(known):
        better, other = known[place - 1]
        found[k] = found[other] if place > 0 and shows_zero(better - mean) else place + 1
    return found
