"""`lightning-ssl report`: from folders to the page and what stands beside it. Its --help imports no torch."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_ssl.checks import require
from lightning_ssl.commands.parser import Parser

if TYPE_CHECKING:
    from lightning_ssl.report.compose import Built

EXAMPLES = """examples:
  lightning-ssl report runs                          every run below runs/; writes runs/report.html
  lightning-ssl report runs/table1 runs/more --out page.html --open
  lightning-ssl report runs/quickstart --watch       rebuilds while the sweep runs; Ctrl-C ends it
  lightning-ssl report runs --baseline "AlphaCL Entropy τ=0.5"
  lightning-ssl report runs --metric knn/top1

Beside page.html, in the folder page/: summary.csv (a line per loss), runs.csv (a line per run), table.md, table.tex
(booktabs), and every figure as PNG and SVG. A result is the last value of online/top1 of a run that finished, or of the
linear evaluation where every finished run has one; never the best on the way."""


def watch(arguments: argparse.Namespace, options: dict[str, Any]) -> Built | None:
    """Build when something changed, until Ctrl-C; then once more in full, without the reloading."""
    from lightning_ssl.report.compose import build
    from lightning_ssl.report.read import FILES, Reader, run_folders, stamp_of

    options = {**options, "reader": Reader()}
    refresh = max(5, round(arguments.every))
    seen, built, said = None, None, ""
    try:
        while True:
            there = [Path(folder) for folder in arguments.folders if Path(folder).is_dir()]  # a sweep may make it yet
            found = [path for folder in there for path in run_folders(folder)]
            state = [(path, *(stamp_of(path / file) for file in FILES)) for path in found]
            words = said if state == seen else "waiting for the first run …"
            if found and state != seen:
                try:
                    built = build(arguments.folders, arguments.out, figures=False, refresh=refresh, **options)
                    finished = sum(run.finished for run in built.runs)
                    words = f"{finished} of {len(built.runs)} finished; {built.line.splitlines()[0]}"
                except ValueError as error:  # such as a metric that no run has logged yet
                    words = str(error)
            seen = state
            if words != said:
                print(f"{time.strftime('%H:%M:%S')}  {words}", flush=True)
                said = words
            if arguments.open and built is not None:
                show(built.page)
                arguments.open = False
            time.sleep(arguments.every)
    except KeyboardInterrupt:
        return None if built is None else build(arguments.folders, arguments.out, **options)


def show(page: Path) -> None:
    import webbrowser

    webbrowser.open(page.resolve().as_uri())


def main(argv: Sequence[str] | None = None) -> int:
    """Build the page; ends with its path and the winner in one line."""
    try:
        arguments = parser().parse_args(argv)
    except SystemExit:  # --help, which is printed by now
        return 0
    from lightning_ssl.report.compose import build

    require(arguments.every > 0, "every", arguments.every, "above 0 seconds")
    options = {"metric": arguments.metric, "baseline": arguments.baseline, "title": arguments.title}
    if arguments.watch:
        built = watch(arguments, options)
        if built is None:
            return 0
    else:
        built = build(arguments.folders, arguments.out, **options)
        if arguments.open:
            show(built.page)
    print(built.page)
    print(built.line)
    return 0


def parser() -> Parser:
    top = Parser(
        prog="lightning-ssl report",
        description="A page that compares the losses of many runs, with tables and figures beside it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("folders", nargs="+", metavar="DIR", help="folders with runs at any depth")
    top.add_argument("--out", metavar="PAGE.html", help="where to write (default: DIR/report.html of the first DIR)")
    top.add_argument("--open", action="store_true", help="open the page in the browser")
    top.add_argument("--watch", action="store_true", help="rebuild whenever a run writes something, until Ctrl-C")
    top.add_argument("--every", type=float, default=10.0, metavar="S", help="seconds between looks (default: 10)")
    top.add_argument("--metric", help="what a result is (default: linear/… where every run has it, else online/top1)")
    top.add_argument("--baseline", metavar="LOSS", help="label of the group to take differences to (default: InfoNCE)")
    top.add_argument("--title", help="heading of the page")
    return top
