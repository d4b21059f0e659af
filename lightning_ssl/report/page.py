"""The page: one HTML file with its style, its script, plotly.js and its data inside, which opens without a network.

Tables are HTML, so that they can be read, searched and copied without the script; the script sorts, filters and draws.
Everything that comes from a run folder passes `text` on its way into HTML, or `data_script` on its way into the script,
and the script escapes it once more for Plotly, which takes names for markup. Should something slip through, the page's
own policy runs no script but the three whose hashes it names, and loads nothing from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.resources import files
from typing import Any

from lightning_ssl.report.curves import PANELS
from lightning_ssl.report.figures import styles
from lightning_ssl.report.groups import Grouping, accuracy, natural, setting_name
from lightning_ssl.report.packing import SINGLE, figure_data
from lightning_ssl.report.published import published
from lightning_ssl.report.read import STATUSES, Run
from lightning_ssl.report.statistics import LEVEL, Row, Verdict, p_text
from lightning_ssl.report.tables import command_of, p_digits
from lightning_ssl.runs.labels import shown


def render(
    grouping: Grouping,
    rows: Sequence[Row],
    verdicts: Sequence[Verdict],
    runs: Sequence[Run],
    notes: Sequence[str],
    title: str,
    downloads: Sequence[tuple[str, str]] = (),
    refresh: int | None = None,
) -> str:
    """The whole page; `downloads` are (words, relative path), `refresh` the seconds until it loads itself again."""
    place = files("lightning_ssl.report")
    css, js = ((place / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    plotly = plotly_js()
    scripts = [plotly, js]
    hashes = " ".join(f"'sha256-{digest(script)}'" for script in scripts)
    # 'unsafe-eval': the drawing of parallel coordinates compiles its shaders' bindings.
    policy = (
        f"default-src 'none'; script-src {hashes} 'unsafe-eval'; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": text(title),
        "css": css,
        "lead": lead(verdicts, runs, grouping),
        "comparison": comparison(grouping, rows),
        "explanation": explanation(grouping, rows),
        "panels": panels(grouping),
        "runs": run_table(grouping, runs),
        "notes": "".join(f"<li>{text(note)}</li>" for note in notes),
        "downloads": " ".join(f'<a href="{text(url_path(path))}">{text(words)}</a>' for words, path in downloads),
        "built": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "data": data_script(figure_data(grouping, rows, refresh)),
        "plotly": plotly,
        "js": js,
    }
    # One pass over the template: what a part contains is never taken for a place to fill.
    page = (place / "page.html").read_text(encoding="utf-8")
    pieces = page.split("{{")
    return pieces[0] + "".join(parts[name] + rest for name, _, rest in (piece.partition("}}") for piece in pieces[1:]))


def text(value: object) -> str:
    """Any text as HTML shows it, in an element or a quoted attribute."""
    return html.escape(str(value), quote=True)


def name(value: object) -> str:
    """A name from a run folder; its direction of writing ends with it."""
    return f"<bdi>{text(value)}</bdi>"


def data_script(value: Any) -> str:
    """JSON that cannot end its script element."""
    encoded = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for mark in "<>&\u2028\u2029":
        encoded = encoded.replace(mark, f"\\u{ord(mark):04x}")
    return encoded


def digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def plotly_js() -> str:
    """plotly.js as the pinned Python package ships it; the whole bundle, for smaller ones lack parallel coordinates."""
    script = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    return script.replace("</script", "<\\/script")


def url_path(path: str) -> str:
    from urllib.parse import quote

    return quote(path)


# ---------------------------------------------------------------------------------------------------------------------
# HTML


def lead(verdicts: Sequence[Verdict], runs: Sequence[Run], grouping: Grouping) -> str:
    """The answer, one card per data set, and how many runs stand behind it."""
    cards = []
    for v in verdicts:
        kind = "clear" if v.clear else "open"
        data = f'<p class="data">{text(v.data)}</p>' if len(verdicts) > 1 else ""
        cards.append(
            f'<div class="verdict {kind}">{data}<p class="headline">{name(v.headline)}</p>'
            f'<p class="reason">{text(v.reason)}.</p></div>'
        )
    count = {status: sum(run.status == status for run in runs) for status in STATUSES}
    chips = "".join(f'<span class="chip {s}">{n} {s}</span>' for s, n in count.items() if n)
    groups = len(grouping.groups)
    total = f"{len(runs)} run{'s' * (len(runs) != 1)} in {groups} group{'s' * (groups != 1)}"
    return "".join(cards) + f'<p class="chips"><span class="chip plain">{total}</span>{chips}</p>'


@dataclass
class Column:
    """A column of a sortable table."""

    title: str
    kind: str = "number"  # or "text": how it is aligned and which way it sorts first
    hint: str = ""


@dataclass
class Cell:
    """What a cell shows, and what it sorts by."""

    html: str
    sort: float | str | None = None
    kind: str = ""


@dataclass
class Line:
    """A row of a sortable table, with attributes for the filters and an optional row of details below it."""

    cells: list[Cell]
    attributes: dict[str, str] = field(default_factory=dict)
    detail: str = ""


def table(key: str, caption: str, columns: Sequence[Column], lines: Sequence[Line]) -> str:
    """A table whose headings are buttons that sort it."""
    heads = "".join(
        f'<th scope="col" class="{c.kind}"{f" title={chr(34)}{text(c.hint)}{chr(34)}" if c.hint else ""}>'
        f'<button type="button" data-column="{k}">{text(c.title)}<span class="arrow" aria-hidden="true"></span>'
        "</button></th>"
        for k, c in enumerate(columns)
    )
    body = []
    for line in lines:
        attributes = "".join(f' data-{k}="{text(v)}"' for k, v in line.attributes.items())
        cells = []
        for k, (cell, column) in enumerate(zip(line.cells, columns, strict=True)):
            sort = "" if cell.sort is None else f' data-sort="{text(cell.sort)}"'
            tag = 'th scope="row"' if k == 0 else "td"
            cells.append(f'<{tag} class="{column.kind} {cell.kind}"{sort}>{cell.html}</{tag.split()[0]}>')
        body.append(f"<tr{attributes}>{''.join(cells)}</tr>")
        if line.detail:
            body.append(f'<tr class="detail" hidden><td colspan="{len(columns)}">{line.detail}</td></tr>')
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}"><table id="{key}">'
        f"<caption>{text(caption)}</caption><thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def comparison(grouping: Grouping, rows: Sequence[Row]) -> str:
    """The table that answers, with a filter for each thing that was swept."""
    many = len(grouping.data_sets) > 1
    columns = [Column("loss", "text"), *([Column("data", "text")] if many else [])]
    columns += [Column(setting_name(key), "text") for key in grouping.swept]
    columns += [
        Column("accuracy %", hint="mean ± standard deviation of the final values over seeds"),
        Column("95 % interval", hint="of the mean, Student's t over seeds"),
        Column("seeds", hint="seeds with a final result"),
        Column("Δ baseline", hint="difference to the baseline of the same setting, with its 95 % interval"),
        Column("p", hint="two-sided; corrected after Holm for all comparisons of this data set"),
        Column("published", hint="of the papers, where the setting is theirs"),
        Column("runs", "text"),
    ]
    given = styles(grouping.groups)
    look = {id(group): style for group, style in zip(grouping.groups, given, strict=True)}
    places = {id(group): k for k, group in enumerate(grouping.groups)}
    lines = []
    for row in rows:
        group, s = row.group, row.spread
        index = places[id(group)]
        colour = look[id(group)][0]
        toggle = (
            f'<label class="toggle"><input type="checkbox" data-group="{index}" aria-label="show in the figures: '
            f'{text(group.title)}"><span class="swatch" style="--c:{colour}"></span></label>'
        )
        medal = f'<span class="rank">{row.rank}</span>' if row.rank else '<span class="rank">–</span>'
        cells = [Cell(f'<span class="loss">{toggle}{medal}{name(group.label)}</span>', group.label)]
        cells += [Cell(name(group.data), group.data)] if many else []
        cells += [Cell(name(shown(v)), sort_key(v)) for v in group.settings.values()]
        cells += spread_cells(row) + comparison_cells(row)
        paper = published(group)
        if paper:
            figure = f"{paper.mean:.2f} ± {paper.std:.2f}<br><small>{text(paper.source)}</small>"
            cells.append(Cell(figure, paper.mean, "wrap"))
        else:
            cells.append(Cell("–"))
        chips = "".join(
            f'<span class="chip {st}">{n} {st}</span>' for st in STATUSES if (n := group.statuses().get(st))
        )
        cells.append(Cell(chips, -(s.n if s else 0), "wrap"))
        attributes = {f"s{k}": shown(v) for k, v in enumerate(group.settings.values())}
        best = {"best": "1"} if row.rank == 1 else {}
        lines.append(Line(cells, {"group": str(index), "data": group.data, **attributes, **best}))
    selects = select("data", "data set", [(d, d) for d in grouping.data_sets]) if many else ""
    for k, key in enumerate(grouping.swept):
        values = sorted({repr(g.settings[key]): g.settings[key] for g in grouping.groups}.values(), key=natural)
        selects += select(f"s{k}", setting_name(key), [(shown(v), shown(v)) for v in values])
    search = '<label>filter <input type="search" id="filter" placeholder="loss, as in Direct"></label>'
    controls = f'<div class="controls">{search}{selects}<output id="matches" aria-live="polite"></output></div>'
    return controls + table("comparison", f"Final accuracy by loss ({grouping.metric})", columns, lines)


def spread_cells(row: Row) -> list[Cell]:
    s = row.spread
    if s is None:
        return [Cell("–"), Cell("–"), Cell("0", 0)]
    if s.std is None or s.low is None or s.high is None:
        return [Cell(f"<b>{s.mean:.2f}</b>", s.mean), Cell("<small>one seed</small>"), Cell("1", 1)]
    return [
        Cell(f"<b>{s.mean:.2f}</b> ± {s.std:.2f}", s.mean),
        Cell(f"{s.low:.2f} … {s.high:.2f}", s.low),
        Cell(str(s.n), s.n),
    ]


def comparison_cells(row: Row) -> list[Cell]:
    c = row.comparison
    if row.baseline is row.group:
        return [Cell("<small>baseline</small>", 0), Cell("–")]
    if c is None:
        return [Cell("–"), Cell("–")]
    sign = "" if c.p_holm is None or c.p_holm >= LEVEL else "up" if c.difference > 0 else "down"
    interval = "" if c.low is None else f"<br><small>{c.low:+.2f} … {c.high:+.2f}</small>"
    if c.p_holm is None or c.p is None:
        return [Cell(f"{c.difference:+.2f}{interval}", c.difference), Cell(f"<small>{text(c.test)}</small>")]
    pairs = f", n = {c.pairs}" if c.pairs else ""
    hint = f"{c.test}{pairs}; {p_text(c.p)} before correction"
    p = f'<span title="{text(hint)}">{text(p_digits(c.p_holm))}</span><br><small>{text(c.test + pairs)}</small>'
    return [Cell(f"<b>{c.difference:+.2f}</b>{interval}", c.difference, sign), Cell(p, c.p_holm)]


def explanation(grouping: Grouping, rows: Sequence[Row]) -> str:
    """What the figures of the table mean, as far as they occur in it."""
    probe = {"online": "the online probe", "linear": "the linear evaluation", "knn": "the nearest neighbours"}.get(
        grouping.metric.partition("/")[0], "the metric"
    )
    others = {row.baseline.title for row in rows if row.baseline is not None and not row.baseline.infonce}
    baseline = "the baseline" if others else "InfoNCE"
    words = [
        f"Accuracy is the <em>last</em> value of {probe} (<code>{text(grouping.metric)}</code>) of runs that finished, "
        "never the best on the way; ± is the standard deviation over seeds, the interval Student's t."
    ]
    if any(row.comparison is not None for row in rows):
        words.append(
            f"Δ is the difference to {baseline} of the same setting (the best one, where several ran), seed by seed "
            "where at least two seeds match (paired t-test), otherwise by Welch's test; p is two-sided and corrected "
            f"after Holm for all comparisons of a data set. Green or red: p &lt; {LEVEL:g}."
        )
    elif not any(row.group.infonce for row in rows):
        words.append("No InfoNCE is among these runs to take differences to; <code>--baseline</code> names another.")
    if any(row.spread is not None and row.spread.n == 1 for row in rows):
        words.append("One seed has no interval and no test: its order may be chance.")
    if any(published(row.group) for row in rows):
        words.append(
            "Published figures are of the papers' linear evaluation over five seeds, shown where data set, backbone, "
            "batch size, optimizer, learning rate, epochs and loss parameters are theirs."
        )
    return " ".join(words)


def panels(grouping: Grouping) -> str:
    """Places for the figures, with what can be chosen in each."""
    parts = []
    for panel in PANELS:
        having = [m for m in panel.metrics if any(m.key in run.metrics for g in grouping.groups for run in g.runs)]
        if not having:
            parts.append(
                f'<figure class="card"><figcaption><h3>{panel.title}</h3><p>{panel.words}</p></figcaption>'
                '<p class="empty">These runs logged nothing of it.</p></figure>'
            )
            continue
        options = "".join(f'<option value="{text(m.key)}">{text(m.name)}</option>' for m in having)
        each = '<label><input type="checkbox" class="single"> every run</label>' if panel.key in SINGLE else ""
        log = '<label><input type="checkbox" class="log"> log</label>' if panel.key != "accuracy" else ""
        parts.append(
            f'<figure class="card" data-panel="{panel.key}"><figcaption><h3>{panel.title}</h3><p>{panel.words}</p>'
            f'<div class="controls"><label>show <select class="metric">{options}</select></label>{each}{log}</div>'
            f'</figcaption><div class="plot" id="plot-{panel.key}"></div></figure>'
        )
    return "".join(parts)


def run_table(grouping: Grouping, runs: Sequence[Run]) -> str:
    """Every run, with its configuration, command line and what went wrong below it."""
    group_of = {run.folder: group for group in grouping.groups for run in group.runs}
    columns = [Column("run", "text"), Column("loss", "text"), Column("seed"), Column("status", "text")]
    columns += [
        Column("final %", hint="last value, of a run that finished"),
        Column("now %", hint="last value so far, whatever became of the run"),
        Column("best %", hint="best on the way: chosen on test images, so not a result"),
        Column("epochs"),
        Column("duration"),
        Column("images/s"),
        Column("started", "text"),
    ]
    lines = []
    for run in runs:
        group = group_of.get(run.folder)
        final, now, best = accuracy(run, grouping.metric), run.last(grouping.metric), run.best(grouping.metric)
        seconds, speed, epoch = run.number("duration"), run.number("images_per_second"), run.number("epoch")
        title = group.title if group else ""
        mark = ' <span class="mark" title="something is wrong with this folder">!</span>' if run.problems else ""
        button = f'<button type="button" class="open" aria-expanded="false">{name(run.name)}</button>{mark}'
        started = str(run.summary.get("started") or "")
        cells = [
            Cell(button, run.name),
            Cell(name(title or "–"), title),
            Cell(name("–" if run.seed is None else run.seed), sort_key(run.seed)),
            Cell(f'<span class="chip {run.status}">{run.status}</span>', run.status),
            Cell("–" if final is None else f"<b>{final:.2f}</b>", final),
            share(now),
            share(best),
            Cell("–" if epoch is None else f"{epoch:g}", epoch),
            Cell("–" if seconds is None else duration(seconds), seconds),
            Cell("–" if speed is None else f"{speed:,.0f}", speed),
            Cell(name(started[:16].replace("T", " ") or "–"), started),
        ]
        lines.append(Line(cells, {"status": run.status}, detail_of(run)))
    statuses = [(s, s) for s in STATUSES if any(run.status == s for run in runs)]
    search = '<label>filter <input type="search" id="run-filter" placeholder="name, loss, seed"></label>'
    controls = f'<div class="controls">{search}{select("status", "status", statuses)}'
    controls += '<output id="run-matches" aria-live="polite"></output></div>'
    return controls + table("runs", "Every run; open one for its configuration and command", columns, lines)


def share(value: float | None) -> Cell:
    return Cell("–") if value is None or not math.isfinite(value) else Cell(f"{100 * value:.2f}", value)


def detail_of(run: Run) -> str:
    """What stands in a run's folder, as text."""
    parts = []
    if run.error:
        parts.append(f'<p class="error"><b>error</b> {name(run.error)}</p>')
    parts += [f'<p class="error"><b>folder</b> {name(problem)}</p>' for problem in run.problems]
    command = command_of(run)
    if command:
        parts.append(f"<p><b>command</b></p><pre>{text(command)}</pre>")
    facts = {
        "version": run.summary.get("version"),
        "group": run.summary.get("group"),
        "tags": ", ".join(map(str, tags)) if isinstance(tags := run.summary.get("tags"), list) else tags,
    }
    parts += [f"<p><b>{key}</b> {name(value)}</p>" for key, value in facts.items() if value]
    if run.config:
        parts.append(f"<p><b>config.yaml</b></p><pre>{text(run.config)}</pre>")
    return "".join(parts) or "<p>The folder holds nothing readable.</p>"


def select(key: str, title: str, values: Sequence[tuple[str, str]]) -> str:
    options = "".join(f'<option value="{text(value)}">{text(words)}</option>' for value, words in values)
    return f'<label>{text(title)} <select data-filter="{key}"><option value="">all</option>{options}</select></label>'


def sort_key(value: Any) -> float | str | None:
    """Numbers sort as numbers, everything else as text."""
    return value if isinstance(value, int | float | str) or value is None else str(value)


def duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "–"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
