"""Build the report page: one HTML file that contains its style, its scripts and its data, and opens without a network.

This module builds plain data, and the templates in `templates/` make HTML of it. The tables are HTML, so they can be
read, searched and copied without JavaScript; page.js sorts and filters them and draws the figures.

Text from run folders is untrusted. Three measures keep it from becoming code:
1. Jinja2 escapes every value (autoescape).
2. The figures' data is JSON without the characters that HTML interprets (`script_json`), and page.js escapes every name
   that it gives to Plotly, which interprets markup.
3. The page's Content-Security-Policy allows the two scripts whose hashes it lists, and no request to a server.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lightning_ssl.comparison.differences import LEVEL
from lightning_ssl.facts import Metric, Panel
from lightning_ssl.report.differences import natural
from lightning_ssl.report.figure_data import SINGLE_RUN_PANELS, figure_data
from lightning_ssl.report.figures import DARK, LIGHT, group_styles
from lightning_ssl.report.groups import Group, Grouping, accuracy, setting_name
from lightning_ssl.report.images import choice_on_test_images
from lightning_ssl.report.published import published
from lightning_ssl.report.tables import command_of, winners
from lightning_ssl.report.verdict import Row, Verdict, p_digits, p_text, signed
from lightning_ssl.runs.labels import Scalar, format_value
from lightning_ssl.runs.panels import PANELS, RESULTS
from lightning_ssl.runs.record import RunRecord
from lightning_ssl.runs.status import STATUSES


def render(
    grouping: Grouping,
    rows: Sequence[Row],
    verdicts: Sequence[Verdict],
    runs: Sequence[RunRecord],
    notes: Sequence[str],
    title: str,
    downloads: Sequence[tuple[str, str]] = (),
    refresh: int | None = None,
) -> str:
    """Return the HTML of the page.

    downloads   (file name, path relative to the page) of the files that the page links to
    refresh     seconds after which the page reloads itself; None for a page that does not
    """
    package = files("lightning_ssl.report")
    css, js = ((package / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    plotly = plotly_js()
    template = templates().get_template("page.html")
    return template.render(
        policy=content_security_policy([plotly, js]),
        title=title,
        light=LIGHT,
        dark=DARK,
        # Markup is safe for these three: they are files of this package and of plotly and contain no text of a run.
        css=Markup(css),
        js=Markup(js),
        plotly=Markup(plotly),
        data=script_json(figure_data(grouping, rows, refresh)),
        verdicts=verdicts,
        cautions=cautions(grouping),
        data_sets=grouping.data_sets,
        run_count=len(runs),
        group_count=len(grouping.groups),
        statuses={status: n for status in STATUSES if (n := sum(run.status == status for run in runs))},
        comparison=comparison_table(grouping, rows, verdicts),
        explanation=explanation(grouping, rows),
        panels=[(panel, logged_metrics(panel, grouping)) for panel in PANELS],
        single_run_panels=SINGLE_RUN_PANELS,
        runs=run_table(grouping, runs),
        notes=notes,
        downloads=downloads,
        built=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )


@cache
def templates() -> Environment:
    """Return the Jinja2 environment: values are escaped, and an unknown variable is an error."""
    return Environment(
        loader=PackageLoader("lightning_ssl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def content_security_policy(scripts: Sequence[str]) -> str:
    """Return a policy that allows these scripts alone.

    'unsafe-eval' is needed by plotly's parallel coordinates, which compile code for their shaders. 'unsafe-inline'
    applies to styles only: the page's style is inside the page, and Plotly sets styles on the elements that it draws.
    """
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes} 'unsafe-eval'; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    )


def plotly_js() -> str:
    """Return plotly.js from the plotly package. The smaller bundles have no parallel coordinates."""
    script = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    return script.replace("</script", "<\\/script")


def script_json(value: Any) -> Markup:
    """Return JSON for a script element: <, >, & and line separators are written as \\u escapes.

    Markup is safe here: without < the text cannot close its element, and without & it contains no HTML entity.
    """
    encoded = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    return Markup(encoded)


# ---------------------------------------------------------------------------------------------------------------------
# Tables


@dataclass(frozen=True)
class Column:
    """A column of a sortable table. A text column is left-aligned and sorts in ascending order first."""

    title: str
    is_text: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Cell:
    """A number in a table: `strong` in bold, then `text`, then `small` on a second line.

    sort    the value that the column sorts by; None sorts last
    kind    CSS class
    hint    text shown while the pointer is on `text`
    """

    text: str = ""
    sort: float | str | None = None
    strong: str = ""
    small: str = ""
    kind: str = ""
    hint: str = ""


MISSING = Cell("–")


@dataclass(frozen=True)
class ComparisonRow:
    """A group in the comparison table."""

    index: int
    """Position in the groups of the figures' data."""
    group: Group
    rank: int | None
    wins: bool
    """Whether it is significantly better than every other group of its data set."""
    colour: str
    settings: list[Cell]
    numbers: list[Cell]
    statuses: dict[str, int]
    seeds: int


@dataclass(frozen=True)
class RunRow:
    """A run in the table of all runs, with the details that the page shows when it is opened."""

    run: RunRecord
    title: str
    data: str
    seed: Cell
    numbers: list[Cell]
    started: str
    command: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A sortable table. `filters` are (attribute of the rows, title, values) of the drop-down lists above it."""

    columns: list[Column]
    rows: Sequence[ComparisonRow | RunRow]
    filters: list[tuple[str, str, list[str]]]
    several_data_sets: bool = False


def comparison_table(grouping: Grouping, rows: Sequence[Row], verdicts: Sequence[Verdict]) -> Table:
    """Return the table that compares the groups, with a filter for each swept setting."""
    several = len(grouping.data_sets) > 1
    columns = [Column("loss", True), *([Column("data", True)] if several else [])]
    columns += [Column(setting_name(key), True) for key in grouping.swept]
    columns += [
        Column("accuracy %", hint="mean ± standard deviation of the final values over seeds"),
        Column("95 % interval", hint="Student's t interval of the mean over seeds"),
        Column("seeds", hint="number of seeds with a final result"),
        Column("Δ baseline", hint="difference to the baseline with the same settings, and its 95 % interval"),
        Column("p", hint="two-sided, Holm-corrected for all comparisons on this data set"),
        Column("published", hint="accuracy in the papers, for the same settings"),
        Column("runs", True),
    ]
    styles = group_styles(grouping.groups)
    index = {id(group): k for k, group in enumerate(grouping.groups)}
    wins = winners(verdicts)
    lines = []
    for row in rows:
        place = index[id(row.group)]
        lines.append(comparison_row(row, place, styles[place][0], wins=id(row.group) in wins))
    filters = [("data", "data set", grouping.data_sets)] if several else []
    for k, key in enumerate(grouping.swept):
        values = sorted({repr(g.settings[key]): g.settings[key] for g in grouping.groups}.values(), key=natural)
        filters.append((f"s{k}", setting_name(key), [format_value(v) for v in values]))
    return Table(columns, lines, filters, several)


def comparison_row(row: Row, index: int, colour: str, wins: bool) -> ComparisonRow:
    group, paper = row.group, published(row.group)
    entry = MISSING
    if paper is not None:
        entry = Cell(f"{paper.mean:.2f} ± {paper.std:.2f}", paper.mean, small=paper.source, kind="wrap")
    return ComparisonRow(
        index,
        group,
        row.rank,
        wins,
        colour,
        settings=[Cell(format_value(value), sort_key(value)) for value in group.settings.values()],
        numbers=[*result_cells(row), *difference_cells(row), entry],
        statuses={status: n for status in STATUSES if (n := group.statuses().get(status))},
        seeds=row.spread.n if row.spread else 0,
    )


def result_cells(row: Row) -> list[Cell]:
    """Return accuracy, interval and number of seeds."""
    s = row.spread
    if s is None:
        return [MISSING, MISSING, Cell("0", 0)]
    if s.std is None or s.low is None or s.high is None:
        return [Cell(strong=f"{s.mean:.2f}", sort=s.mean), Cell(small="one seed"), Cell("1", 1)]
    return [
        Cell(f" ± {s.std:.2f}", s.mean, strong=f"{s.mean:.2f}"),
        Cell(f"{s.low:.2f} … {s.high:.2f}", s.low),
        Cell(str(s.n), s.n),
    ]


def difference_cells(row: Row) -> list[Cell]:
    """Return the difference to the baseline and its p. A significant difference is green or red."""
    c = row.comparison
    if row.baseline is row.group:
        return [Cell(small="baseline", sort=0), MISSING]
    if c is None:
        return [MISSING, MISSING]
    interval = "" if c.low is None or c.high is None else f"{signed(c.low)} … {signed(c.high)}"
    difference = signed(c.difference)
    if c.p_holm is None or c.p is None:
        return [Cell(difference, c.difference, small=interval), Cell(small=c.test)]
    sign = ("up" if c.difference > 0 else "down") if c.significant else ""
    test = c.test + (f", n = {c.pairs}" if c.pairs else "")
    return [
        Cell(strong=difference, sort=c.difference, small=interval, kind=sign),
        Cell(p_digits(c.p_holm), c.p_holm, small=test, hint=f"{test}; {p_text(c.p)} before correction"),
    ]


def run_table(grouping: Grouping, runs: Sequence[RunRecord]) -> Table:
    """Return the table of all runs."""
    titles = {run.folder: group.title for group in grouping.groups for run in group.runs}
    sets = {run.folder: group.data for group in grouping.groups for run in group.runs}
    several = len(grouping.data_sets) > 1
    columns = [Column("run", True), Column("loss", True), *([Column("data", True)] if several else [])]
    columns += [Column("seed"), Column("status", True)]
    columns += [
        Column("final %", hint="last value of a finished run"),
        Column("last %", hint="last value logged so far, whatever the status of the run"),
        Column(
            "best %",
            hint="highest value during training; selected on the images it is measured on, so it is not a result",
        ),
        Column("epochs"),
        Column("duration"),
        Column("images/s"),
        Column("started", True),
    ]
    lines = [run_row(run, titles.get(run.folder, ""), sets.get(run.folder, ""), grouping.metric) for run in runs]
    statuses = [status for status in STATUSES if any(run.status == status for run in runs)]
    return Table(columns, lines, [("status", "status", statuses)], several)


def run_row(run: RunRecord, title: str, data: str, metric: str) -> RunRow:
    final = accuracy(run, metric)
    epoch, seconds, speed = (run.number(key) for key in ("epoch", "duration", "images_per_second"))
    tags = run.summary.get("tags")
    facts = {
        "version": run.summary.get("version"),
        "group": run.summary.get("group"),
        "tags": ", ".join(map(str, tags)) if isinstance(tags, list) else tags,
    }
    return RunRow(
        run,
        title,
        data,
        seed=Cell("–" if run.seed is None else str(run.seed), sort_key(run.seed)),
        numbers=[
            MISSING if final is None else Cell(strong=f"{final:.2f}", sort=final),
            percent_cell(run.last(metric)),
            percent_cell(run.best(metric)),
            MISSING if epoch is None else Cell(f"{epoch:g}", epoch),
            MISSING if seconds is None else Cell(duration_text(seconds), seconds),
            MISSING if speed is None else Cell(f"{speed:,.0f}", speed),
        ],
        started=str(run.summary.get("started") or ""),
        command=command_of(run),
        facts={key: value for key, value in facts.items() if value},
    )


def percent_cell(share: float | None) -> Cell:
    return MISSING if share is None or not math.isfinite(share) else Cell(f"{100 * share:.2f}", share)


def sort_key(value: Scalar) -> float | str | None:
    """Return a value for `data-sort`: numbers sort as numbers, other values as text."""
    return value if isinstance(value, int | float | str) or value is None else str(value)


def duration_text(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


# ---------------------------------------------------------------------------------------------------------------------
# Text and figures


def explanation(grouping: Grouping, rows: Sequence[Row]) -> dict[str, Any]:
    """Return what the text below the comparison table depends on."""
    evaluators = {each.key.partition("/")[0]: f"the {each.title.partition(',')[0]}" for each in RESULTS.values()}
    evaluators["linear"] = "the linear evaluation"
    baselines = [row.baseline for row in rows if row.baseline is not None]
    return {
        "metric": grouping.metric,
        "evaluator": evaluators.get(grouping.metric.partition("/")[0], "the metric"),
        "baseline": "InfoNCE" if all(group.infonce for group in baselines) else "the baseline",
        "compared": any(row.comparison is not None for row in rows),
        "has_infonce": any(row.group.infonce for row in rows),
        "has_single_seed": any(row.spread is not None and row.spread.n == 1 for row in rows),
        "has_published": any(published(row.group) for row in rows),
        "level": f"{LEVEL:g}",
    }


def cautions(grouping: Grouping) -> list[str]:
    """Return what a reader must know beside the headline.

    Why data sets are separate, whether measurements differ, whether something was chosen on test images.
    """
    differences = grouping.differences
    found = [grouping.separation, differences.note() if differences.disturbs(grouping.metric) else None]
    found.append(choice_on_test_images(grouping))
    return [text for text in found if text is not None]


def logged_metrics(panel: Panel, grouping: Grouping) -> list[Metric]:
    """Return the panel's metrics that at least one run has logged."""
    runs = [run for group in grouping.groups for run in group.runs]
    return [metric for metric in panel.metrics if any(metric.key in run.metrics for run in runs)]
