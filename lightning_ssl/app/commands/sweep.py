"""`lightning-ssl sweep FILE`: run a W&B sweep file on this machine.

examples:
  lightning-ssl sweep sweeps/quickstart.yaml --workers 2     four losses, four seeds each, a few minutes
  lightning-ssl sweep sweeps/bayes.yaml --count 20           a random or bayes search needs a number of trials
  lightning-ssl sweep sweeps/table1.yaml --dry-run           print the trials and their commands
  lightning-ssl sweep sweeps/table1.yaml --status            print the progress
  lightning-ssl sweep sweeps/table1.yaml --name try --count 2 -- --trainer.max_epochs=1

The same command resumes a sweep that was stopped or killed. It keeps finished trials and resumes the others. Flags
after `--` are added to every trial's command. `wandb sweep` and `wandb agent` run the same file on a cluster.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

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
    """
    require(not (dry_run and status), "status", True, "given without --dry-run")
    require_line("runs", runs)
    devices = devices_of(gpus)
    share_cores(workers)

    # Imported here: --help must not wait for numpy and W&B's packages.
    from lightning_ssl.app.sweep import plan, screen
    from lightning_ssl.app.sweep.engine import Engine, preview

    limit = count or (screen.NO_LIMIT if status else None)  # --status needs no --count
    sweep = plan.read(Path(packaged.find("sweeps", file)), name, seed, limit, extra_flags)
    folder = Path(runs) / sweep.name
    if dry_run:
        screen.print_trials(preview(sweep, folder))
        return 0
    if status:
        screen.print_status(sweep, folder)
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
