"""Builds the report: reads runs, groups them, tests differences, writes the page, its tables and its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lightning_ssl.app.report import figures as drawing
from lightning_ssl.app.report import page, tables
from lightning_ssl.app.report.differences import value_list
from lightning_ssl.app.report.formats import counted, list_names
from lightning_ssl.app.report.groups import Grouping, unfinished
from lightning_ssl.app.report.images import measured_on
from lightning_ssl.app.report.tuning import confirmation_of
from lightning_ssl.app.report.verdict import Results, results_of, seed_notes
from lightning_ssl.app.runs.archive import is_archive
from lightning_ssl.app.runs.run_record import Reader
from lightning_ssl.base.checks import UserError, require
from lightning_ssl.base.files import Content, require_own_folder, require_replaceable, write_all

MARKER = b"lightning-ssl report"  # in the page and in the witness of its folder
WITNESS = ".generator"


@dataclass(frozen=True)
class Built(Results):
    """The content of a report, and its files."""

    page: Path
    files: list[Path]


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
    force: bool = False,
) -> Built:
    """Read every run below `folders`, which can be archives too, and write the page, its tables and its figures.

    metric     the metric to compare; by default the linear evaluation if every finished run has one, else `online/top1`
    baseline   label or title of the group that differences are taken to; by default InfoNCE of the same setting
    figures    whether to draw PNG and SVG files, which takes most of the time
    refresh    seconds after which the page reloads itself
    reader     a reader to use again, so that unchanged runs are not read twice
    force      replace files that no report wrote
    """
    results = read_results(folders, metric=metric, baseline=baseline, reader=reader)
    target = page_path(folders, out, force)
    beside = target.with_suffix("")
    grouping = results.grouping

    texts = {
        "summary.csv": tables.summary_csv(results),
        "pairs.csv": tables.pairs_csv(results),
        "runs.csv": tables.runs_csv(results),
        "table.md": tables.markdown(results),
        "table.tex": tables.latex(results),
    }
    files: dict[Path, Content] = {beside / name: encoded(text) for name, text in texts.items()}
    if figures:
        files |= drawing.draw(results, beside)
    downloads = [(file.name, f"{beside.name}/{file.name}") for file in files]
    heading = title or "Comparison of losses on " + (list_names(grouping.data_names) or "nothing readable")
    html = page.render(results, heading, downloads, refresh)
    write_all({beside / WITNESS: MARKER + b"\n", **files, target: encoded(html)})
    return Built(**vars(results), page=target, files=[target, *files])


def read_results(
    folders: Sequence[str | Path],
    *,
    metric: str | None = None,
    baseline: str | None = None,
    reader: Reader | None = None,
) -> Results:
    """Read every run below `folders` and compare the groups, without writing anything. Arguments as in `build`."""
    require(len(folders) > 0, "folders", list(folders), "at least one folder")
    runs = (reader or Reader()).runs(folders)
    if not runs:
        where = ", ".join(str(folder) for folder in folders)
        raise UserError(f"folder={where!r}: no run below it (a run holds config.yaml, metrics.jsonl, summary.json)")
    tuning = confirmation_of(folders, runs)
    if tuning is not None:
        runs = tuning.runs
    grouping = Grouping.of(runs, metric or (tuning.metric if tuning else None))
    if metric is not None:
        known = sorted({key for run in runs for key in (*run.metrics, *run.linear())})
        require(metric in known, "metric", metric, "one that these runs logged: " + (", ".join(known) or "none"))
    if baseline is not None:
        titles = sorted({name for group in grouping.groups for name in (group.label, group.title)})
        require(baseline in titles, "baseline", baseline, "one of " + "; ".join(titles))
    results = results_of(runs, grouping, baseline, tuning)
    results.notes.extend(notes_of(results))
    return results


def page_path(folders: Sequence[str | Path], out: str | Path | None, force: bool = False) -> Path:
    """The page to write. One that cannot be written is refused."""
    first = Path(folders[0])
    target = Path(out) if out is not None else (first.parent if is_archive(first) else first) / "report.html"
    require(target.suffix in (".html", ".htm"), "out", str(target), "the name of an .html file")
    require_replaceable(target, MARKER, force)
    require_own_folder(target.with_suffix(""), WITNESS, MARKER, force)
    return target


def encoded(text: str) -> bytes:
    """Encode as UTF-8. A lone surrogate, which JSON can contain, becomes a question mark."""
    return text.encode("utf-8", errors="replace")


def notes_of(results: Results) -> list[str]:
    """What a reader must know to judge the table."""
    grouping, runs = results.grouping, results.runs
    notes = [] if results.tuning is None else results.tuning.notes
    notes += [note for note in (measured_on(grouping), results.chosen_on_test_images) if note is not None]
    notes += [note for compared in results.compared for note in seed_notes(compared)]
    if left := unfinished(runs):
        notes.append(f"Shown but not counted as results: {left}.")
    differences = grouping.differences
    notes += [note for note in (grouping.separation, differences.note()) if note is not None]
    if differences.recipe:
        named = ", ".join(value_list(key, values) for key, values in differences.recipe.items())
        notes.append(f"Differs between losses: {named}. This compares recipes, not losses alone.")
    finished = [run for run in runs if run.finished]
    linear = sum(bool(run.linear()) for run in finished)
    if 0 < linear < len(finished) and not grouping.metric.startswith("linear/"):
        evaluated = f"{linear} of {len(finished)} finished runs have a linear evaluation"
        notes.append(f"{evaluated}; the table uses {grouping.metric}, which all of them have.")
    short = [group for group in grouping.groups if group.results and len(group.results) < len(group.runs)]
    notes += [f"{each.title}: {counted(len(each.results), 'seed')} of {len(each.runs)} runs." for each in short[:10]]
    notes += grouping.notes[:10]
    if n := len(runs) - len(grouping.group_of):
        notes.append(f"{n} folder{'s' * (n > 1)} without a readable configuration; see the table of all runs.")
    return notes
