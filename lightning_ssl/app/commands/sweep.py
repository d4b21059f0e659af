"""`lightning-ssl sweep FILE`: run a W&B sweep file on this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from lightning_ssl.app.commands.parser import Parser, whole_number
from lightning_ssl.app.config import packaged
from lightning_ssl.base.checks import MAX_SEED, require, require_line
from lightning_ssl.base.machine import available_cores

EXAMPLES = """examples:
  lightning-ssl sweep sweeps/quickstart.yaml --workers 2     four losses, four seeds each, a few minutes
  lightning-ssl sweep sweeps/bayes.yaml --count 20           a random or bayes search needs a number of trials
  lightning-ssl sweep sweeps/table1.yaml --dry-run           print the trials and their commands
  lightning-ssl sweep sweeps/table1.yaml --status            print the progress
  lightning-ssl sweep sweeps/table1.yaml --name try --count 2 -- --trainer.max_epochs=1

The same command resumes a sweep that was stopped or killed. It keeps finished trials and resumes the others. Flags
after `--` are added to every trial's command. `wandb sweep` and `wandb agent` run the same file on a cluster."""


def parser() -> Parser:
    """Build the command line. It imports neither torch nor wandb."""
    top = Parser(
        prog="lightning-ssl sweep",
        description="Run a W&B sweep file on this machine, without a server and without an account.",
        epilog=EXAMPLES,
        usage="lightning-ssl sweep FILE [--count N] [--workers K] [--dry-run] [--runs DIR] … [-- FLAGS]",
    )
    top.add_argument("file", metavar="FILE", help="a W&B sweep file, such as those in sweeps/")
    top.add_argument(
        "--count",
        type=whole_number(1, 100_000),  # MAX_TRIALS of app/sweep/plan.py, which imports numpy
        help="total number of trials (default: the whole grid, or run_cap)",
    )
    top.add_argument(
        "--workers",
        type=whole_number(1, 1024),
        default=1,
        help="trials that run at a time; they share the cores (default: 1)",
    )
    top.add_argument("--dry-run", action="store_true", help="print the trials and their commands, run nothing")
    top.add_argument("--status", action="store_true", help="print the progress of the sweep, run nothing")
    top.add_argument("--runs", default="runs", metavar="DIR", help="parent of the sweep's folder (default: runs)")
    top.add_argument(
        "--name", help="name of the sweep and its folder (default: `name` in the file, or the file's name)"
    )
    top.add_argument(
        "--seed", type=whole_number(0, MAX_SEED), default=0, help="seed of a random or bayes search (default: 0)"
    )
    top.add_argument("--gpus", metavar="LIST", help="GPUs such as 0,1,2,3; each worker uses one of them")
    top.add_argument("--retry", action="store_true", help="run failed trials again")
    return top


def main(argv: Sequence[str]) -> int:
    """Run, resume or show a sweep. The exit code is 0 if no trial failed, 1 if one failed, 130 if interrupted."""
    words, extra_flags = list(argv), []
    if "--" in words:
        cut = words.index("--")
        words, extra_flags = words[:cut], words[cut + 1 :]
    arguments = parser().parse_args(words)
    require(not (arguments.dry_run and arguments.status), "status", True, "given without --dry-run")
    require_line("runs", arguments.runs)
    gpus = [] if arguments.gpus is None else [gpu.strip() for gpu in arguments.gpus.split(",")]
    valid = all(re.fullmatch(r"\d+|(GPU|MIG)-[\w/-]+", gpu) for gpu in gpus)
    require(valid, "gpus", arguments.gpus, "numbers of GPUs, such as 0,1,2,3, or their names")

    # OpenMP reads it when torch is imported. The parent process of all trials imports torch once, so it is set here.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, available_cores() // arguments.workers)))

    # Imported here: --help must not wait for numpy and W&B's packages.
    from lightning_ssl.app.sweep import plan, screen
    from lightning_ssl.app.sweep.engine import Engine, preview

    count = arguments.count or (screen.NO_LIMIT if arguments.status else None)  # --status needs no --count
    file = Path(packaged.find("sweeps", arguments.file))
    sweep = plan.read(file, arguments.name, arguments.seed, count, extra_flags)
    folder = Path(arguments.runs) / sweep.name
    if arguments.dry_run:
        screen.print_trials(preview(sweep, folder))
        return 0
    if arguments.status:
        screen.print_status(sweep, folder)
        return 0
    return Engine(sweep, folder, arguments.workers, gpus, arguments.retry).run()
