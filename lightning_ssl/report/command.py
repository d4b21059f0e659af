"""`lightning-ssl report`: from folders to the page and what stands beside it. Its --help imports no torch."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_ssl.validation import Parser, require

if TYPE_CHECKING:
    from lightning_ssl.report.groups import Grouping
    from lightning_ssl.report.read import Reader, Run
    from lightning_ssl.report.statistics import Row, Verdict

EXAMPLES = """examples:
  lightning-ssl report runs                          every run below runs/; writes runs/report.html
  lightning-ssl report runs/table1 runs/more --out page.html --open
  lightning-ssl report runs/quickstart --watch       rebuilds while the sweep runs; Ctrl-C ends it
  lightning-ssl report runs --baseline "AlphaCL Entropy τ=0.5"
  lightning-ssl report runs --metric knn/top1

Beside page.html, in the folder page/: summary.csv (a line per loss), runs.csv (a line per run), table.md, table.tex
(booktabs), and every figure as PNG and SVG. A result is the last value of online/top1 of a run that finished, or of the
linear evaluation where every finished run has one; never the best on the way."""


@dataclass(frozen=True)
class Built:
    """What was written, and what it says."""

    page: Path
    files: list[Path]
    runs: list[Run]
    grouping: Grouping
    rows: list[Row]
    verdicts: list[Verdict]

    @property
    def line(self) -> str:
        """The answer in one line for each data set."""
        return "\n".join(verdict.line for verdict in self.verdicts) or "no run could be read"


def build(
    folders: Sequence[str | Path],
    out: str | Path | None = None,
    *,
    metric: str | None = None,
    baseline: str | None = None,
    title: str | None = None,
    figures: bool = True,
    refresh: int | None = None,
    reader: Reader | None = None,
) -> Built:
    """Read every run below `folders` and write the page, its tables and its figures; returns what was found.

    metric     what a result is; by default the linear evaluation where all have one, else `online/top1`
    baseline   label or title of the group to take differences to; by default InfoNCE of the same setting
    figures    whether to draw PNG and SVG too, which takes most of the time
    refresh    seconds after which the page loads itself again
    reader     keeps what it has read from one build to the next
    """
    from lightning_ssl.report import figures as drawing
    from lightning_ssl.report import page, tables
    from lightning_ssl.report.groups import Grouping
    from lightning_ssl.report.read import Reader
    from lightning_ssl.report.statistics import rows, verdict
    from lightning_ssl.runs import write_whole

    require(len(folders) > 0, "folders", list(folders), "at least one folder")
    runs = (reader or Reader()).runs(folders)
    if not runs:
        where = ", ".join(str(folder) for folder in folders)
        raise ValueError(f"folder={where!r}: no run below it (a run holds config.yaml, metrics.csv, summary.json)")
    grouping = Grouping.of(runs, metric)
    if metric is not None:
        known = sorted({key for run in runs for key in (*run.metrics, *run.linear())})
        require(metric in known, "metric", metric, "one that these runs logged: " + (", ".join(known) or "none"))
    if baseline is not None:
        titles = sorted({name for group in grouping.groups for name in (group.label, group.title)})
        require(baseline in titles, "baseline", baseline, "one of " + "; ".join(titles))
    table = rows(grouping, baseline)
    verdicts = [verdict(grouping, data) for data in grouping.data_sets]
    notes = notes_of(grouping, runs)

    target = Path(out) if out is not None else Path(folders[0]) / "report.html"
    require(target.suffix in (".html", ".htm"), "out", str(target), "the name of an .html file")
    require(not target.is_dir(), "out", str(target), "a file, not a folder")
    beside = target.with_suffix("")
    texts = {
        "summary.csv": tables.summary_csv(grouping, table),
        "runs.csv": tables.runs_csv(grouping, runs),
        "table.md": tables.markdown(grouping, table, [v.line for v in verdicts] + notes),
        "table.tex": tables.latex(grouping, table, [v.line for v in verdicts]),
    }
    files = []
    for name, text in texts.items():
        files.append(beside / name)
        write_whole(beside / name, encoded(text))
    if figures:
        for stem in drawing.draw(grouping, table, beside):
            files += [beside / f"{stem}.png", beside / f"{stem}.svg"]
    downloads = [(file.name, f"{beside.name}/{file.name}") for file in files]
    heading = title or "Comparison of losses on " + (", ".join(grouping.data_sets) or "nothing readable")
    write_whole(target, encoded(page.render(grouping, table, verdicts, runs, notes, heading, downloads, refresh)))
    return Built(target, [target, *files], runs, grouping, table, verdicts)


def encoded(text: str) -> bytes:
    """UTF-8; half of a surrogate pair, which JSON can smuggle in, becomes a question mark."""
    return text.encode("utf-8", errors="replace")


def notes_of(grouping: Grouping, runs: Sequence[Run]) -> list[str]:
    """What a reader must know before believing the table."""
    from lightning_ssl.report.groups import shown
    from lightning_ssl.report.read import STATUSES

    notes = []
    others = [status for status in STATUSES if status != "finished"]
    count = {status: sum(run.status == status for run in runs) for status in others}
    left = ", ".join(f"{n} {status}" for status, n in count.items() if n)
    if left:
        notes.append(f"Not counted among the results, but shown: {left}.")
    for key, values in grouping.recipe.items():
        few = ", ".join(shown(value) for value in values[:4]) + (" …" if len(values) > 4 else "")
        notes.append(f"{key} differs between losses ({few}): the comparison is of recipes there, not of losses alone.")
    linear = sum(bool(run.linear()) for run in runs if run.finished)
    finished = sum(run.finished for run in runs)
    if 0 < linear < finished and not grouping.metric.startswith("linear/"):
        notes.append(
            f"{linear} of {finished} finished runs have a linear evaluation; the table uses {grouping.metric}, "
            "which all of them have."
        )
    short = [group for group in grouping.groups if group.results and len(group.results) < len(group.runs)]
    for group in short[:10]:
        notes.append(f"{group.title}: {len(group.results)} seeds count of {len(group.runs)} runs.")
    notes += grouping.notes[:10]
    if n := len(grouping.homeless):
        notes.append(f"{n} folder{'s' * (n > 1)} without a readable configuration: see every run, above.")
    return notes


def watch(arguments: argparse.Namespace, options: dict[str, Any]) -> Built | None:
    """Build when something changed, until Ctrl-C; then once more in full, without the reloading."""
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
