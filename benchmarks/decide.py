"""Error rates and power of the procedure that decides between losses, by simulation with the package's functions.

    lightning-ssl bench decide [--repetitions 20000] [--only NAME] [--json FILE]

Results of K losses with S seeds are drawn, the procedure decides, and wrong or right decisions are counted. An error is
at most 6 % in every scenario, where 5 % is nominal, and no power is more than 3 points below its table.

A share p of R repetitions has the standard error √(p (1 − p)/R). With fewer repetitions than 20,000, every bar is wider
by three standard errors of R repetitions minus three of 20,000. Powers are measured with a quarter of the repetitions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from bars import Bar, conclude, require_new
from scenarios import (
    CHUNK,
    CONFIGURATIONS,
    DEVIATION,
    EFFECT,
    GENERATORS,
    at_once,
    draw,
    excluded,
    open_ended,
    power_of,
    race,
)
from scipy.special import chdtri

from lightning_ssl.app.commands.parser import Command
from lightning_ssl.comparison.claims import equivalence_p
from lightning_ssl.comparison.estimate import LEVEL
from lightning_ssl.comparison.looks import LOOKS
from lightning_ssl.comparison.pairs import compare_pairs
from lightning_ssl.comparison.planning import ASSURANCE, seeds_needed, variance_of_pilot

FULL = 20_000  # repetitions
WORST_ERROR = 6.0  # percent
POWER_LOSS = 3.0  # points
WORST_BIAS = 0.013  # standard deviations of a result
LOSSES, SEEDS = (2, 3, 4, 7, 12), (3, 4, 5, 8, 10)

# "A wins" in percent; with S = 3 the set is A alone. A is better by EFFECT. By generator and K, for S = 3, 5, 8, 10.
POWER_SEEDS, POWER_LOSSES = (3, 5, 8, 10), (2, 4, 7, 12)
POWERS = {
    "normal": ((29, 66, 93, 97), (14, 56, 88, 95), (4, 41, 81, 92), (0, 29, 71, 88)),
    "shared": ((48, 91, 100, 100), (39, 91, 100, 100), (20, 86, 99, 100), (4, 78, 99, 100)),
    "archive-like": ((30, 64, 87, 92), (14, 48, 72, 82), (4, 28, 58, 72), (0, 15, 43, 57)),
}
RACE_POWERS = {
    "normal": (98, 96, 93, 90),
    "shared": (100, 100, 100, 100),
    "archive-like": (92, 82, 72, 57),
    "heavy": (98, 94, 90, 83),
    "bimodal": (98, 96, 94, 91),
    "loud": (37, 26, 24, 21),
    "quiet": (91, 77, 55, 31),
}
OPEN_POWERS = {4: 99, 7: 93}
OPEN_SEEDS, OPEN_LOSSES = 20, (2, 4, 7)
LOUD_BEHIND = {4: 62, 7: 50}
EQUIVALENT, PLANNED = 56, 92


def noise(percent: float, repetitions: int, full: int = FULL) -> float:
    """By how much a bar is wider than at full size, in points: 3 √(p (1 − p)) (1/√R − 1/√full)."""
    p = percent / 100
    return 300 * float(np.sqrt(p * (1 - p))) * max(0.0, repetitions**-0.5 - full**-0.5)


def error_bar(name: str, rates: Sequence[float], repetitions: int, full: int = FULL, worst: float = WORST_ERROR) -> Bar:
    """A line of a table of errors: the largest rate against its bar."""
    detail = " / ".join(f"{rate:.1f}" for rate in rates)
    return Bar(name, float(max(rates)), round(worst + noise(worst, repetitions, full), 2), detail, at_least=False)


def power_bar(name: str, found: Sequence[float], table: Sequence[float], repetitions: int, more: Sequence[str]) -> Bar:
    """A line of a table of powers: the smallest difference from the table against −3. The table is in brackets."""
    margin = min(f - t + noise(t, repetitions, FULL // 4) for f, t in zip(found, table, strict=True))
    detail = " / ".join(f"{f:.0f} ({t}){text}" for f, t, text in zip(found, table, more, strict=True))
    return Bar(name, float(margin), -POWER_LOSS, detail)


def errors(repetitions: int) -> Iterator[Bar]:
    """Worst errors over K and the two configurations."""
    for name in GENERATORS:
        lost, wins = [], []
        for seeds in SEEDS:
            cases = [
                excluded(at_once, name, configuration, losses, seeds, repetitions)
                for configuration in CONFIGURATIONS
                for losses in LOSSES
            ]
            lost.append(max(case[0] for case in cases))
            wins.append(max(case[1] for case in cases))
        yield error_bar(f"{name}: given best excluded, S = 3 4 5 8 10, %", lost, repetitions)
        yield error_bar(f"{name}: false winner, S = 5 8 10, %", wins[2:], repetitions)


def powers(repetitions: int) -> Iterator[Bar]:
    """How often the better loss wins."""
    for name, table in POWERS.items():
        for losses, row in zip(POWER_LOSSES, table, strict=True):
            found = [power_of(at_once, name, losses, seeds, repetitions // 4)[0] for seeds in POWER_SEEDS]
            what = f"{name}, K = {losses}: power minus table, S = 3 5 8 10, points"
            yield power_bar(what, found, row, repetitions // 4, [""] * len(row))
    found = [loud_behind(losses, repetitions // 4) for losses in LOUD_BEHIND]
    what = "a loud loss 10 points behind, S = 5, K = 4 7, points"
    yield power_bar(what, found, [*LOUD_BEHIND.values()], repetitions // 4, ["", ""])


def loud_behind(losses: int, repetitions: int) -> float:
    """How often the better loss wins beside a loss with a standard deviation of 2 that is 10 points behind."""
    won = []
    for x in draw("normal", "one better", losses, 5, repetitions):
        x[:, -1] = x[:, -1] * 2.0 / DEVIATION - 10.0
        won.append(at_once(x).winner == 0)
    return 100 * np.concatenate(won).mean()


def races(repetitions: int) -> Iterator[Bar]:
    """Looks at 5, 8 and 12 seeds. Runs per loss are in square brackets."""
    for name, table in RACE_POWERS.items():
        cases = [
            [excluded(race, name, configuration, losses, LOOKS[-1], repetitions) for configuration in CONFIGURATIONS]
            for losses in POWER_LOSSES
        ]
        equal = [case[0][2] for case in cases]
        lost = error_bar(
            f"{name}, looks: given best excluded, K = 2 4 7 12, %",
            [max(each[0] for each in case) for case in cases],
            repetitions,
        )
        yield replace(lost, detail=f"{lost.detail} [all equal: {min(equal):.1f}–{max(equal):.1f}]")
        wins = [max(each[1] for each in case) for case in cases]
        yield error_bar(f"{name}, looks: false winner, K = 2 4 7 12, %", wins, repetitions)
        found = [power_of(race, name, losses, LOOKS[-1], repetitions // 4) for losses in POWER_LOSSES]
        what = f"{name}, looks: power minus table, K = 2 4 7 12, points"
        yield power_bar(what, [f[0] for f in found], table, repetitions // 4, [f" [{f[1]:.1f}]" for f in found])


def open_races(repetitions: int) -> Iterator[Bar]:
    """The e-process from 3 to 20 seeds. Runs per loss are in square brackets."""
    repetitions //= 4
    for name in GENERATORS:
        lost = [
            max(
                excluded(open_ended, name, configuration, losses, OPEN_SEEDS, repetitions)[0]
                for configuration in CONFIGURATIONS
            )
            for losses in OPEN_LOSSES
        ]
        yield error_bar(f"{name}, e-process: given best excluded, K = 2 4 7, %", lost, repetitions, FULL // 4)
    found = [power_of(open_ended, "normal", losses, OPEN_SEEDS, repetitions) for losses in OPEN_POWERS]
    what = "normal, e-process: power minus table, K = 4 7, points"
    runs = [f" [{f[1]:.1f}]" for f in found]
    yield power_bar(what, [f[0] for f in found], [*OPEN_POWERS.values()], repetitions, runs)


def equivalence(repetitions: int) -> Iterator[Bar]:
    """Two one-sided tests with a margin of 1 point and five seeds."""
    for name in GENERATORS:
        rates = []
        for losses in LOSSES:
            passed = []
            for x in draw(name, "equal", losses, 5, repetitions):
                x[:, 0] += 1.0
                passed.append(equivalence_p(compare_pairs(x).differences, 1.0)[:, 0, 1] < LEVEL)
            rates.append(100 * np.concatenate(passed).mean())
        yield error_bar(f"{name}: false equivalence, K = 2 3 4 7 12, %", rates, repetitions)
    found = []
    for losses in (4, 7):
        tests = (compare_pairs(x).differences for x in draw("normal", "equal", losses, 5, repetitions // 4))
        found.append(100 * np.concatenate([equivalence_p(e, 1.0)[:, 0, 1] < LEVEL for e in tests]).mean())
    what = "normal: power of equivalence minus table, K = 4 7, points"
    yield power_bar(what, found, [EQUIVALENT] * 2, repetitions // 4, ["", ""])


def planning(repetitions: int) -> Iterator[Bar]:
    """How often seeds planned from a pilot have 80 % power, for a lead of 1.2 points."""
    seeds = range(5, 41)  # more seeds have a power of 100 %
    curves = [
        np.array([power_of(at_once, "normal", losses, s, repetitions // 4)[0] for s in seeds])
        for losses in POWER_LOSSES
    ]
    for size in (3, 5):
        bound: list[np.ndarray] = []
        plain: list[np.ndarray] = []
        for losses, curve in zip(POWER_LOSSES, curves, strict=True):
            pilots = np.concatenate([*draw("normal", "equal", losses, size, repetitions)])
            variance = variance_of_pilot(pilots)
            half = variance * chdtri((size - 1) * (losses - 1), ASSURANCE) / ((size - 1) * (losses - 1))  # 2 MSE
            for found, v in ((bound, variance), (plain, half)):
                needed = np.minimum(seeds_needed(v, losses, EFFECT), seeds[-1])
                found.append(curve[needed - seeds[0]])
        shares = [100 * float((power >= 80).mean()) for power in bound]
        detail = " / ".join(f"{share:.0f}" for share in shares)
        bar = 100 * ASSURANCE - POWER_LOSS - noise(100 * ASSURANCE, repetitions)
        yield Bar(f"pilot of {size}: plans with 80 % power, K = 2 4 7 12, %", min(shares), bar, detail)
        more = [f" [plugged in: {power.mean():.0f}]" for power in plain]
        what = f"pilot of {size}: mean power minus table, K = 2 4 7 12, points"
        yield power_bar(what, [power.mean() for power in bound], [PLANNED] * 4, repetitions // 4, more)


def tuning(repetitions: int) -> Iterator[Bar]:
    """The best of M settings of two equal losses, chosen on tuning seeds and compared on five fresh ones."""
    biases = []
    for settings in (1, 5, 10):
        better, reused, bias = [], [], []
        rng = np.random.default_rng(settings)
        for start in range(0, repetitions, CHUNK):
            tuned, fresh = rng.standard_normal((2, min(CHUNK, repetitions - start), 2, settings, 5))
            choice = tuned.mean(-1).argmax(-1)[..., None, None]
            x, same = (np.take_along_axis(each, choice, 2)[:, :, 0] for each in (fresh, tuned))
            same[:, 1] = tuned[:, 1, 0]  # the baseline is not tuned
            better.append(2 * compare_pairs(x).differences.above()[:, 0, 1] < LEVEL)
            reused.append(2 * compare_pairs(same).differences.above()[:, 0, 1] < LEVEL)
            bias.append(x[:, 0].mean(-1))
        rate, old = (100 * np.concatenate(each).mean() for each in (better, reused))
        bar = error_bar(f"best of {settings}, fresh seeds: false better, %", [rate], repetitions, worst=WORST_ERROR / 2)
        yield replace(bar, detail=f"{rate:.1f} [same seeds, baseline not tuned: {old:.1f}]")
        biases.append(float(np.concatenate(bias).mean()))
    deviation = (5 * repetitions) ** -0.5 - (5 * FULL) ** -0.5  # of a mean of five results, beyond full size
    detail = " / ".join(f"{each:.3f}" for each in biases)
    bar = WORST_BIAS + 3 * max(0.0, deviation)
    yield Bar("bias of the fresh mean, M = 1 5 10, sd", max(map(abs, biases)), bar, detail, at_least=False)


TABLES = {
    "errors": errors,
    "powers": powers,
    "looks": races,
    "e-process": open_races,
    "equivalence": equivalence,
    "planning": planning,
    "tuning": tuning,
}
Table = Literal["errors", "powers", "looks", "e-process", "equivalence", "planning", "tuning"]


def run(*, repetitions: int = FULL, only: Table | None = None, json: str | None = None) -> int:
    """Error rates and power of the procedure that decides between losses, by simulation.

    Args:
        repetitions: of each scenario; powers are measured with a quarter of it
        only: one table
        json: write the figures to a new file
    """
    require_new(json)
    bars = []
    for name, table in TABLES.items():
        if only in (None, name):
            print(f"{name}: {(table.__doc__ or '').splitlines()[0]}")
            for bar in table(repetitions):
                bars.append(bar)
                print(bar, flush=True)
    return conclude(bars, json)


main = Command("bench decide", run, __doc__, {"repetitions": (100, 10_000_000)})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
