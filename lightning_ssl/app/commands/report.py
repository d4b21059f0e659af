"""`lightning-ssl report`: compare the losses of many runs on one HTML page.

examples:
  lightning-ssl report runs                          all runs below runs/; writes runs/report.html
  lightning-ssl report runs/table1 runs/more --out page.html --open
  lightning-ssl report runs/quickstart --watch       rebuilds the page during a sweep; Ctrl-C ends it
  lightning-ssl report runs --baseline "AlphaCL Entropy τ=0.5"
  lightning-ssl report runs --metric knn/top1
  lightning-ssl report docs/results/runs/table1-cpu.jsonl.gz --out table1.html      an archive of runs

With --out page.html, the folder page/ contains summary.csv (a line per loss), pairs.csv (a line per pair of losses),
runs.csv (a line per run), table.md, table.tex (booktabs), and every figure as PNG and SVG. Accuracies are in percent
everywhere. A result is the last value of online/top1 of a finished run, or of the linear evaluation if every finished
run has one. It is never the best value during training.

A loss wins from five seeds on, if it is better than every other loss on the seeds that all of them have. Otherwise the
headline names the losses that can be the best, at 95 %, and says how many more seeds it takes to decide.

Groups are made by the loss, by the parameters of a sweep, and by the settings of model, data, optimizer and length of
training that differ. Other differences, such as callbacks or settings of the probe, are named in a note. Runs on
different data (data.name, data.options, data.split, data.holdout) are not ranked together. The page says which images
an accuracy comes from, and warns where the best of several settings is chosen on test images.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_ssl.app.commands.parser import Command
from lightning_ssl.base.checks import require
from lightning_ssl.base.untrusted import printable

if TYPE_CHECKING:
    from lightning_ssl.app.report.compose import Built


def run(
    folders: Sequence[str],
    *,
    out: str | None = None,
    open: bool = False,
    watch: bool = False,
    every: float = 10.0,
    metric: str | None = None,
    baseline: str | None = None,
    title: str | None = None,
    force: bool = False,
) -> int:
    """Compare the losses of many runs: writes an HTML page, tables and figures.

    Args:
        folders: folders that contain runs at any depth, or archives
        out: PAGE.html, the file to write (default: report.html in the first of the folders)
        open: open the page in the browser
        watch: rebuild the page whenever a run changes, until Ctrl-C
        every: seconds between two checks
        metric: metric that is the result (default: linear/… if every finished run has it, else online/top1)
        baseline: label of the baseline group (default: InfoNCE)
        title: heading of the page
        force: replace any regular file at --out, and files in its folder
    """
    from lightning_ssl.app.report.compose import build, page_path
    from lightning_ssl.app.runs.run_record import Reader
    from lightning_ssl.app.sweep.state import recorded

    require(0 < every <= 86_400, "every", every, "above 0 seconds, and at most a day (86400)")
    reader = Reader(recorded)
    build_page = partial(build, folders, out, metric=metric, baseline=baseline, title=title, force=force, reader=reader)
    if watch:
        for folder in folders:  # one that does not exist yet is waited for
            require(Path(folder).is_dir() or not Path(folder).exists(), "folder", folder, "a folder that holds runs")
        page_path(folders, out, force)
        built = keep_building(build_page, folders, every, open)
        if built is None:
            return 0
    else:
        built = build_page()
        if open:
            open_in_browser(built.page)
    print(built.page)
    print(printable(built.line))
    return 0


COMMAND = main = Command("report", run, __doc__)


def keep_building(build: Callable[..., Built], folders: Sequence[str], every: float, open: bool) -> Built | None:
    """Rebuild the page without PNG and SVG whenever a run changes, until Ctrl-C; then build everything once.

    The page reloads itself until then. Return None if no page was built.
    """
    previous, built, message, printed = None, None, "", ""
    try:
        while True:
            state = file_stamps(folders)
            if not state:
                message = "waiting for the first run …"
            elif state != previous:
                try:
                    built = build(figures=False, refresh=max(5, round(every)))
                    finished = sum(run.finished for run in built.runs)
                    message = f"{finished} of {len(built.runs)} finished; {built.line.splitlines()[0]}"
                except ValueError as error:  # for example a metric that no run has logged yet
                    message = str(error)
            previous = state
            if message != printed:
                print(f"{time.strftime('%H:%M:%S')}  {printable(message)}", flush=True)
                printed = message
            if open and built is not None:
                open_in_browser(built.page)
                open = False
            time.sleep(every)
    except KeyboardInterrupt:
        return None if built is None else build()


def file_stamps(folders: Sequence[str]) -> list[tuple[object, ...]]:
    """Return each run folder with time and size of its files. A folder may not exist yet: a sweep creates it later."""
    from lightning_ssl.app.runs import find
    from lightning_ssl.app.runs.run_record import stamps

    existing = [folder for folder in folders if Path(folder).is_dir()]
    return [(run.path, *stamps(run.path)) for run in find(*existing)]


def open_in_browser(page: Path) -> None:
    import webbrowser

    webbrowser.open(page.resolve().as_uri())
