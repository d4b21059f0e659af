"""Results drawn from many scenarios, and the decisions on them: what `decide.py` counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lightning_ssl.comparison.best import best
from lightning_ssl.comparison.evalue import seeds_until_dropped
from lightning_ssl.comparison.looks import LOOK_LEVEL, LOOKS
from lightning_ssl.comparison.pairs import compare_pairs

CHUNK = 2_000  # repetitions in one array
DEVIATION = 0.6  # of a result, in points
EFFECT = 1.2  # lead of the better loss, in points
FAR = 5.0  # points that the other losses are behind two tied best ones

# ----------------------------------------------------------------------------------------------------------- generators

Shape = tuple[int, int, int]  # repetitions, losses, seeds
Draw = Callable[[np.random.Generator, Shape], np.ndarray]


def shared(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """An effect of the seed that is common to all losses: correlation 0.5."""
    common = rng.standard_normal((shape[0], 1, shape[2]))
    return DEVIATION * np.sqrt(0.5) * (rng.standard_normal(shape) + common)


def archive(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Spreads as different as in the archive of runs: 0.5 √(4/χ²₄), clipped to [0.1, 2.5]."""
    spread = np.clip(0.5 * np.sqrt(4 / rng.chisquare(4, shape[:2])), 0.1, 2.5)
    return spread[..., None] * rng.standard_normal(shape)


def bimodal(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """15 % of the results are at −3, standardized."""
    x = rng.standard_normal(shape) - 3.0 * (rng.random(shape) < 0.15)
    return DEVIATION * (x + 0.45) / np.sqrt(1 + 9 * 0.15 * 0.85)


def one_unlike(first: float, others: float) -> Draw:
    """The first loss has another spread than all others."""

    def draw(rng: np.random.Generator, shape: Shape) -> np.ndarray:
        x = others * rng.standard_normal(shape)
        x[:, 0] *= first / others
        return x

    return draw


GENERATORS: dict[str, Draw] = {
    "normal": lambda rng, shape: DEVIATION * rng.standard_normal(shape),
    "shared": shared,
    "archive-like": archive,
    "heavy": lambda rng, shape: DEVIATION / np.sqrt(3) * rng.standard_t(3, shape),
    "bimodal": bimodal,
    "loud": one_unlike(2.0, 0.5),
    "quiet": one_unlike(0.2, 1.0),
}
Configuration = Literal["equal", "two tied", "one better"]
CONFIGURATIONS: tuple[Configuration, ...] = ("equal", "two tied")  # in which an error is counted


def draw(name: str, configuration: Configuration, losses: int, seeds: int, repetitions: int) -> Iterator[np.ndarray]:
    """Draw results in chunks (repetitions, K, S). The scenario determines the random numbers."""
    rng = np.random.default_rng([*f"{name} {configuration} {losses} {seeds}".encode()])
    for start in range(0, repetitions, CHUNK):
        x = GENERATORS[name](rng, (min(CHUNK, repetitions - start), losses, seeds))
        if configuration == "two tied":
            x[:, 2:] -= FAR
        elif configuration == "one better":
            x[:, 0] += EFFECT
        yield x


# ------------------------------------------------------------------------------------------------------------ decisions


@dataclass(frozen=True)
class Decided:
    """What was decided in each repetition: the winner (R,) or −1, the members (R, K), and the runs (R, K)."""

    winner: np.ndarray
    members: np.ndarray
    runs: np.ndarray


def at_once(x: np.ndarray) -> Decided:
    """The headline with all seeds. With three seeds there is no winner: a set of one loss is taken instead."""
    found = best(compare_pairs(x))
    assert found.members is not None
    winner = found.winner
    if x.shape[-1] == 3:
        winner = np.where(found.members.sum(1) == 1, found.members.argmax(1), -1)
    return Decided(winner, found.members, np.full(x.shape[:2], x.shape[2]))


def race(x: np.ndarray) -> Decided:
    """Looks at 5, 8 and 12 seeds, at which losses that cannot be the best leave: `looks.look` for many repetitions.

    Repetitions in which the same number of losses still race are compared in one array.
    """
    losses = x.shape[1]
    racing, runs = np.ones(x.shape[:2], bool), np.zeros(x.shape[:2], int)
    winner = np.full(len(x), -1)
    for seeds in LOOKS:
        count = np.where(winner < 0, racing.sum(1), 0)
        for size in range(2, losses + 1):
            rows = np.flatnonzero(count == size)[:, None]  # (R', 1)
            columns = np.argsort(~racing[rows[:, 0]], 1, kind="stable")[:, :size]  # (R', size)
            if not len(rows):
                continue
            found = best(compare_pairs(x[rows, columns, :seeds]), losses, LOOK_LEVEL)
            runs[rows, columns] = seeds
            racing[rows, columns] = found.members
            wins = found.winner >= 0
            winner[rows[wins, 0]] = columns[wins, found.winner[wins]]
    return Decided(winner, racing, runs)


def open_ended(x: np.ndarray) -> Decided:
    """The e-process after each seed from the third. The loss that remains alone wins, and no more seeds are run."""
    dropped = seeds_until_dropped(x)
    members = dropped == 0
    winner = np.where(members.sum(1) == 1, members.argmax(1), -1)
    end = np.where(winner < 0, x.shape[2], dropped.max(1))
    return Decided(winner, members, np.where(members, end[:, None], dropped))


Procedure = Callable[[np.ndarray], Decided]


def excluded(
    procedure: Procedure, name: str, configuration: Configuration, losses: int, seeds: int, repetitions: int
) -> tuple[float, float, float]:
    """Percent of repetitions in which a given tied best loss is excluded, and with a winner; mean runs per loss.

    The losses after the first have one distribution, so their rates are averaged. "loud" and "quiet" have another first
    loss. The larger rate is returned.
    """
    found = [procedure(x) for x in draw(name, configuration, losses, seeds, repetitions)]
    best_losses = 2 if configuration == "two tied" else losses
    lost = np.concatenate([~each.members[:, :best_losses] for each in found]).mean(0)
    rates = (lost[0], lost[1:].mean()) if name in ("loud", "quiet") else (lost.mean(),)
    winner = np.concatenate([each.winner for each in found])
    runs = np.concatenate([each.runs for each in found])
    return 100 * float(max(rates)), 100 * float((winner >= 0).mean()), float(runs.mean())


def power_of(procedure: Procedure, name: str, losses: int, seeds: int, repetitions: int) -> tuple[float, float]:
    """Percent of repetitions in which the better loss wins, and the runs per loss."""
    found = [procedure(x) for x in draw(name, "one better", losses, seeds, repetitions)]
    won = np.concatenate([each.winner for each in found]) == 0
    return 100 * float(won.mean()), float(np.concatenate([each.runs for each in found]).mean())
