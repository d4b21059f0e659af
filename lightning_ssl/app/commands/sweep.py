"""`lightning-ssl sweep FILE`: run a W&B sweep file on this machine.

examples:
  lightning-ssl sweep sweeps/quickstart.yaml --workers 2     four losses, five seeds each, a few minutes
  lightning-ssl sweep sweeps/bayes.yaml --count 20           a random or bayes search needs a number of trials
  lightning-ssl sweep sweeps/table1.yaml --dry-run           print the trials and their commands
  lightning-ssl sweep sweeps/table1.yaml --status            print the progress
  lightning-ssl sweep sweeps/table1.yaml --name try --count 2 -- --trainer.max_epochs=1
  lightning-ssl sweep sweeps/table1.yaml --until decided --difference 1      add seeds until the losses are decided
  lightning-ssl sweep sweeps/table1.yaml --until decided --write-next next.yaml       the same with agents of W&B

With --until decided, the losses of a grid are compared after 5, 8 and 12 seeds. Losses that cannot be the best get no
more seeds. The sweep ends when one loss wins, or when the others are equivalent within --difference points. A best loss
is left out with a probability of at most 5 %. --open-ended compares after every seed from the third on.

The same command resumes a sweep that was stopped or killed. It keeps finished trials and resumes the others. Flags
after `--` are added to every trial's command. `wandb sweep` and `wandb agent` run the same file on a cluster.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from lightning_ssl.app.commands.parser import Command
from lightning_ssl.app.config import packaged
from lightning_ssl.base.checks import MAX_SEED, require, require_line
from lightning_ssl.base.machine import available_cores


def main(argv: Sequence[str]) -> int:
    """Run, resume or show a sweep. The exit code is 0 if no trial failed, 1 if one failed, 130 if interrupted."""
    end = list(argv).index("--") if "--" in argv else len(argv)
    return run(argv[end + 1 :], **COMMAND.parse(argv[:end]))


def run(
    extra_flags: Sequence[str],
    /,
    file: str,
    *,
    count: int | None = None,
    workers: int = 1,
    dry_run: bool = False,
    status: bool = False,
    runs: str = "runs",
    name: str | None = None,
    seed: int = 0,
    gpus: str | None = None,
    retry: bool = False,
    until: Literal["decided"] | None = None,
    difference: float | None = None,
    max_seeds: int | None = None,
    open_ended: bool = False,
    write_next: str | None = None,
) -> int:
    """Run a W&B sweep file on this machine, without a server and without an account.

    Args:
        file: a W&B sweep file, such as those in sweeps/
        count: total number of trials (default: the whole grid, or run_cap)
        workers: trials that run at a time; they share the cores
        dry_run: print the trials and their commands, run nothing
        status: print the progress of the sweep, run nothing
        runs: parent of the sweep's folder
        name: name of the sweep and its folder (default: `name` in the file, or the file's name)
        seed: seed of a random or bayes search
        gpus: GPUs such as 0,1,2,3; each worker uses one of them
        retry: run failed trials again
        until: add seeds until one loss wins, or the losses that can be the best are equivalent
        difference: points below which losses are equivalent (default: no test of equivalence)
        max_seeds: seeds of the last look (default: 12, or 20 with --open-ended)
        open_ended: look after every seed
        write_next: NEXT.yaml: look at runs of agents of W&B below RUNS, and write the sweep file of the next seeds
    """
    require(not (dry_run and status), "status", True, "given without --dry-run")
    if until is None:
        given = {"difference": difference, "max-seeds": max_seeds, "open-ended": open_ended, "write-next": write_next}
        for flag, value in given.items():
            require(value in (None, False), flag, value, "given with --until decided")
    else:
        require(count is None, "count", count, "given without --until decided, which runs whole grids")
        require(write_next is None or not (dry_run or status), "write-next", write_next, "given alone: it runs nothing")
    require_line("runs", runs)
    devices = devices_of(gpus)
    share_cores(workers)

    # Imported here: --help must not wait for numpy and W&B's packages.
    from lightning_ssl.app.study import agents, race, rounds
    from lightning_ssl.app.sweep import plan, screen
    from lightning_ssl.app.sweep.engine import Engine, preview

    limit = count or (screen.NO_LIMIT if status or until else None)  # they need no --count
    sweep = plan.read(Path(packaged.find("sweeps", file)), name, seed, limit, extra_flags)
    folder = Path(runs) / sweep.name
    if status:
        screen.print_status(rounds.with_extra_trials(sweep, folder), folder)
        for line in race.look_lines(folder):
            print(line)
        return 0
    if until:
        rule = rounds.Rule.of(max_seeds, difference, open_ended)
        rounds.require_race(sweep, file)
        if write_next is not None:
            return agents.decide(sweep, Path(runs), rule, Path(write_next))
        contest = race.Race(sweep, folder, rule)
        if not dry_run:
            return contest.run(workers, devices, retry)
        planned = contest.next_round()
        screen.print_trials(preview(planned[0], folder) if planned else ())
        return 0
    if dry_run:
        screen.print_trials(preview(sweep, folder))
        return 0
    return Engine(sweep, folder, workers, devices, retry).run()


def devices_of(gpus: str | None) -> list[str]:
    """The GPUs of `--gpus`."""
    devices = [] if gpus is None else [gpu.strip() for gpu in gpus.split(",")]
    valid = all(re.fullmatch(r"\d+|(GPU|MIG)-[\w/-]+", gpu) for gpu in devices)
    require(valid, "gpus", gpus, "numbers of GPUs, such as 0,1,2,3, or their names")
    return devices


def share_cores(workers: int) -> None:
    """Set the threads of each of several trainings, unless the user chose them.

    OpenMP reads it when torch is imported: in the parent process of all trainings, once.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, available_cores() // workers)))


# 100,000 is MAX_TRIALS of app/sweep/plan.py, which imports numpy
COMMAND = Command("sweep", run, __doc__, {"count": (1, 100_000), "workers": (1, 1024), "seed": (0, MAX_SEED)})
