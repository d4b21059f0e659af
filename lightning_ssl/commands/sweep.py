"""`lightning-ssl sweep FILE`: run a W&B sweep file on this machine."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from lightning_ssl.checks import require
from lightning_ssl.commands.parser import Parser

EXAMPLES = """examples:
  lightning-ssl sweep sweeps/quickstart.yaml --workers 2     four losses, four seeds each, a few minutes
  lightning-ssl sweep sweeps/bayes.yaml --count 20           a search without an end of its own needs one
  lightning-ssl sweep sweeps/table1.yaml --dry-run           the trials and their commands, and nothing else
  lightning-ssl sweep sweeps/table1.yaml --status            how far it is
  lightning-ssl sweep sweeps/table1.yaml --name try --count 2 -- --trainer.max_epochs=1

The same command continues a sweep that was stopped, killed or cut off: finished trials are kept, others are resumed.
What stands after `--` is added to every command. `wandb sweep` and `wandb agent` run the same file on a cluster."""


def parser() -> Parser:
    """The command line, which needs neither torch nor wandb."""
    top = Parser(
        prog="lightning-ssl sweep",
        description="Run a W&B sweep file on this machine: no server, no account.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="lightning-ssl sweep FILE [--count N] [--workers K] [--dry-run] [--runs DIR] … [-- FLAGS]",
    )
    top.add_argument("file", metavar="FILE", help="a W&B sweep file, such as those in sweeps/")
    top.add_argument("--count", type=int, help="trials of the sweep in all (default: the whole grid, or run_cap)")
    top.add_argument("--workers", type=int, default=1, help="trials at a time, sharing the cores (default: 1)")
    top.add_argument("--dry-run", action="store_true", help="show the trials and their commands, run nothing")
    top.add_argument("--status", action="store_true", help="show how far the sweep is, run nothing")
    top.add_argument("--runs", default="runs", metavar="DIR", help="where the sweep's folder is (default: runs)")
    top.add_argument("--name", help="of the sweep and its folder (default: `name` in the file, or the file's own)")
    top.add_argument("--seed", type=int, default=0, help="of a random or bayes search (default: 0)")
    top.add_argument("--gpus", metavar="LIST", help="one of these per trial, in turn: 0,1,2,3")
    top.add_argument("--retry", action="store_true", help="run failed trials again")
    return top


def main(argv: Sequence[str]) -> int:
    """Run, continue or show a sweep; 0 when every trial went well, 1 when one failed, 130 when stopped."""
    words, extra = list(argv), []
    if "--" in words:
        cut = words.index("--")
        words, extra = words[:cut], words[cut + 1 :]
    try:
        arguments = parser().parse_args(words)
    except SystemExit:  # --help, which is printed by now
        return 0
    require(arguments.workers >= 1, "workers", arguments.workers, "at least 1")
    require(arguments.count is None or arguments.count >= 1, "count", arguments.count, "at least 1")
    gpus = [gpu.strip() for gpu in (arguments.gpus or "").split(",") if gpu.strip()]

    # A trial's OpenMP is set up when torch is imported, which happens once for all trials: before the engine begins.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // arguments.workers)))

    from lightning_ssl.sweep import plan, screen
    from lightning_ssl.sweep.engine import Engine, preview

    count = arguments.count or (screen.ENDLESS if arguments.status else None)  # to look on asks for no end
    asked = plan.read(Path(arguments.file), arguments.name, arguments.seed, count, extra)
    folder = Path(arguments.runs) / asked.name
    if arguments.dry_run:
        screen.print_trials(preview(asked, folder))
        return 0
    if arguments.status:
        screen.print_status(asked, folder)
        return 0
    return Engine(asked, folder, arguments.workers, gpus, arguments.retry).run()


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
