"""`lightning-ssl plan FILE`: how many seeds, runs and hours a sweep needs to show a difference between losses.

examples:
  lightning-ssl plan sweeps/table1.yaml --difference 1                    seeds for a difference of one point
  lightning-ssl plan sweeps/table1.yaml --pilot runs/pilot                with the spread and the time of your own runs
  lightning-ssl plan sweeps/table1.yaml --hours 8 --workers 2             the difference that a night can show
  lightning-ssl plan sweeps/table1.yaml --seeds 5 -- --config=configs/scale/cpu.yaml

Without --pilot, the spread is that of the sweeps in docs/results: of short trainings on CIFAR-10. Train two or three
losses with three seeds first, and give their folder as the pilot. The power holds for a number of seeds that is fixed
beforehand. `lightning-ssl sweep FILE --until decided` needs fewer runs where some losses are far behind.

Flags after `--` are added to every run, as in `lightning-ssl sweep`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lightning_ssl.app.commands.parser import Command
from lightning_ssl.app.config import packaged
from lightning_ssl.base.checks import require
from lightning_ssl.base.untrusted import printable


def run(
    extra_flags: Sequence[str],
    /,
    file: str,
    *,
    difference: float | None = None,
    power: float = 0.8,
    pilot: Sequence[str] = (),
    hours: float | None = None,
    seeds: int | None = None,
    workers: int = 1,
    scale: str = "cpu",
    images_per_second: float | None = None,
) -> int:
    """Print how many seeds, runs and hours a sweep needs to show a difference, or which difference a budget can show.

    Args:
        file: a W&B sweep file with a grid, such as those in sweeps/
        difference: difference in points between the best loss and all others (default: 1)
        power: probability that the best loss wins
        pilot: folder or archive of finished runs, for the spread and the time of a run; can be given several times
        hours: a budget of time: print the difference that it can show
        seeds: a budget of seeds: print the difference that it can show
        workers: runs at a time
        scale: cpu, night or paper: the speed if there is no pilot
        images_per_second: speed of one worker if there is no pilot
    """
    budgets = [
        key for key, value in (("difference", difference), ("hours", hours), ("seeds", seeds)) if value is not None
    ]
    require(len(budgets) < 2, " and ".join(budgets), "given", "given alone")

    # Late: --help must not wait for numpy.
    from lightning_ssl.app.study.planning import study
    from lightning_ssl.app.study.rounds import require_race
    from lightning_ssl.app.sweep import plan, screen
    from lightning_ssl.app.sweep.scales import scale_named

    sweep = plan.read(Path(packaged.find("sweeps", file)), count=screen.NO_LIMIT, extra_flags=extra_flags)
    require_race(sweep, file)
    found = study(sweep, pilot, scale_named(scale).at(images_per_second), power)
    if hours is not None:
        seeds = found.seeds_in(hours, workers)
    lines = found.lines_for(difference or 1.0, workers) if seeds is None else found.lines_within(seeds, workers)
    print(printable("\n".join([f"{sweep.name}: {lines[0]}", *lines[1:]])))
    return 0


LIMITS = {
    "difference": (0.001, 100), "power": (0.01, 0.999), "hours": (0.001, 1e6), "seeds": (2, 10_000),
    "workers": (1, 1024), "images_per_second": (0.001, 1e9),
}  # fmt: skip
COMMAND = main = Command("plan", run, __doc__, LIMITS, extra=True)
