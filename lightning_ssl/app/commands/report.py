"""`lightning-ssl report`: compare the losses of many runs on one HTML page. --help does not import torch."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_ssl.app.commands.parser import Parser
from lightning_ssl.base.checks import require
from lightning_ssl.base.untrusted import printable

if TYPE_CHECKING:
    from lightning_ssl.app.report.compose import Built

EXAMPLES = """examples:
  lightning-ssl report runs                          all runs below runs/; writes runs/report.html
  lightning-ssl report runs/table1 runs/more --out page.html --open
  lightning-ssl report runs/quickstart --watch       rebuilds the page during a sweep; Ctrl-C ends it
  lightning-ssl report runs --baseline "AlphaCL Entropy τ=0.5"
  lightning-ssl report runs --metric knn/top1
  lightning-ssl report docs/results/runs/table1-cpu.jsonl.gz --out table1.html      an archive of runs

With --out page.html, the folder page/ contains summary.csv (a line per loss), runs.csv (a line per run), table.md,
table.tex (booktabs), and every figure as PNG and SVG. Accuracies are in percent everywhere. A result is the last value
of online/top1 of a finished run, or of the linear evaluation if every finished run has one. It is never the best value
during training.

Groups are made by the loss, by the parameters of a sweep, and by the settings of model, data, optimizer and length of
training that differ. Other differences, such as callbacks or settings of the probe, are named in a note. Runs on
different data (data.name, data.options, data.split, data.holdout) are not ranked together. The page says which images
an accuracy comes from, and warns where the best of several settings is chosen on test images."""


def main(argv: Sequence[str] | None = None) -> int:
    """Build the page; print its path and the verdict of each data set."""
    arguments = parser().parse_args(argv)
    from lightning_ssl.app.report.compose import build
    from lightning_ssl.app.runs.run_record import Reader
    from lightning_ssl.app.sweep.state import recorded

    require(0 < arguments.every <= 86_400, "every", arguments.every, "above 0 seconds, and at most a day (86400)")
    options = {
        "metric": arguments.metric,
        "baseline": arguments.baseline,
        "title": arguments.title,
        "force": arguments.force,
        "reader": Reader(recorded),
    }
    if arguments.watch:
        built = watch(arguments, options)
        if built is None:
            return 0
    else:
        built = build(arguments.folders, arguments.out, **options)
        if arguments.open:
            open_in_browser(built.page)
    print(built.page)
    print(printable(built.line))
    return 0


def watch(arguments: argparse.Namespace, options: dict[str, Any]) -> Built | None:
    """Rebuild the page without PNG and SVG whenever a run changes, until Ctrl-C; then build everything once.

    The page reloads itself until then. Return None if no page was built.
    """
    from lightning_ssl.app.report.compose import build, page_path

    for folder in arguments.folders:  # one that does not exist yet is waited for
        require(Path(folder).is_dir() or not Path(folder).exists(), "folder", folder, "a folder that holds runs")
    page_path(arguments.folders, arguments.out, arguments.force)
    refresh = max(5, round(arguments.every))
    previous, built, message, printed = None, None, "", ""
    try:
        while True:
            state = file_stamps(arguments.folders)
            if not state:
                message = "waiting for the first run …"
            elif state != previous:
                try:
                    built = build(arguments.folders, arguments.out, figures=False, refresh=refresh, **options)
                    finished = sum(run.finished for run in built.runs)
                    message = f"{finished} of {len(built.runs)} finished; {built.line.splitlines()[0]}"
                except ValueError as error:  # for example a metric that no run has logged yet
                    message = str(error)
            previous = state
            if message != printed:
                print(f"{time.strftime('%H:%M:%S')}  {printable(message)}", flush=True)
                printed = message
            if arguments.open and built is not None:
                open_in_browser(built.page)
                arguments.open = False
            time.sleep(arguments.every)
    except KeyboardInterrupt:
        return None if built is None else build(arguments.folders, arguments.out, **options)


def file_stamps(folders: Sequence[str]) -> list[tuple[object, ...]]:
    """Return each run folder with time and size of its files. A folder may not exist yet: a sweep creates it later."""
    from lightning_ssl.app.runs import find
    from lightning_ssl.app.runs.run_record import stamps

    existing = [folder for folder in folders if Path(folder).is_dir()]
    return [(run.path, *stamps(run.path)) for run in find(*existing)]


def open_in_browser(page: Path) -> None:
    import webbrowser

    webbrowser.open(page.resolve().as_uri())


def parser() -> Parser:
    top = Parser(
        prog="lightning-ssl report",
        description="Compare the losses of many runs: writes an HTML page, tables and figures.",
        epilog=EXAMPLES,
    )
    top.add_argument("folders", nargs="+", metavar="DIR", help="folders that contain runs at any depth, or archives")
    top.add_argument("--out", metavar="PAGE.html", help="file to write (default: report.html in the first DIR)")
    top.add_argument("--open", action="store_true", help="open the page in the browser")
    top.add_argument("--watch", action="store_true", help="rebuild the page whenever a run changes, until Ctrl-C")
    top.add_argument("--every", type=float, default=10.0, metavar="S", help="seconds between two checks (default: 10)")
    top.add_argument(
        "--metric", help="metric that is the result (default: linear/… if every finished run has it, else online/top1)"
    )
    top.add_argument("--baseline", metavar="LOSS", help="label of the baseline group (default: InfoNCE)")
    top.add_argument("--title", help="heading of the page")
    top.add_argument("--force", action="store_true", help="replace any regular file at --out, and files in its folder")
    return top
