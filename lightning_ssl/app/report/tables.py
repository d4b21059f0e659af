"""Write the comparison as text: summary.csv, pairs.csv, runs.csv, a Markdown table and a LaTeX table.

Names, labels and errors come from run folders and are untrusted; formats.py escapes every cell.

Every accuracy and every difference of accuracies is in percent, and its column says so.
"""

from __future__ import annotations

import shlex
from itertools import combinations

from lightning_ssl.app.config.labels import Scalar, format_value
from lightning_ssl.app.report.compared import Difference
from lightning_ssl.app.report.formats import Cell, latex_cell, md_cell, md_table, p_digits, percent, signed, to_csv
from lightning_ssl.app.report.groups import count_statuses, setting_name
from lightning_ssl.app.report.verdict import Results
from lightning_ssl.app.runs.run_record import RunRecord
from lightning_ssl.app.runs.status import STATUSES
from lightning_ssl.comparison.estimate import shows_zero

NUMBERS = ["seeds", "accuracy (%)", "can be the best", "Δ (%)", "95 % interval (%)", "p", "published (%)"]
# The columns of summary.csv with fields of a row's spread, difference and published accuracy.
SPREAD = {"mean (%)": "mean", "std (%)": "std"}
DIFFERENCE = {"difference (%)": "value", "difference_low95 (%)": "low", "difference_high95 (%)": "high", "p": "p"}
PAIRS = "Its interval and p are corrected for all pairs of losses on the same data."
PUBLISHED = {"published (%)": "mean", "published_std (%)": "std", "published_in": "source"}


def summary_csv(results: Results) -> str:
    """Return one line per group, with all digits."""
    lines, metric = [], results.grouping.metric
    for row in results.rows:
        group, count = row.group, count_statuses(row.group.runs)
        line: dict[str, Cell] = {"data": group.data, "rank": row.rank, "loss": group.label}
        line |= {key: value_cell(value) for key, value in group.settings.items()}
        line |= {"metric": metric, "seeds": row.spread.n if row.spread else 0}
        line |= {title: getattr(row.spread, name, None) for title, name in SPREAD.items()}
        line |= {"can_be_best": row.best_text, "not_compared": row.reason}
        line["baseline"] = row.baseline.title if row.baseline else None
        line |= {title: getattr(row.difference, name, None) for title, name in DIFFERENCE.items()}
        line |= {title: getattr(row.published, name, None) for title, name in PUBLISHED.items()}
        lines.append(line | {status: count.get(status, 0) for status in STATUSES})
    return to_csv(lines)


def pairs_csv(results: Results) -> str:
    """Return one line per pair of compared groups, with all digits: the difference loss − other."""
    lines: list[dict[str, Cell]] = []
    for compared in results.compared:
        for i, j in combinations(range(len(compared.groups)), 2):
            found = compared.difference(i, j)
            line: dict[str, Cell] = {"data": compared.data, "loss": compared.groups[i].title}
            line |= {"other": compared.groups[j].title, "seeds": len(compared.seeds)}
            lines.append(line | {title: getattr(found, name) for title, name in DIFFERENCE.items()})
    return to_csv(lines)


def runs_csv(results: Results) -> str:
    """Return one line per run, including failed and broken runs, with a column for every parameter of the losses."""
    lines, grouping = [], results.grouping
    parameters = sorted({key for group in grouping.groups for key, _ in group.loss})
    for run in results.runs:
        group = grouping.group_of.get(run.folder)
        values = {**dict(group.loss), **group.settings} if group else {}
        line: dict[str, Cell] = {"run": run.name, "data": getattr(group, "data", None)}
        line |= {"loss": getattr(group, "label", None), "seed": None if run.seed is None else str(run.seed)}
        line |= {key: value_cell(values[key]) if key in values else None for key in (*parameters, *grouping.swept)}
        line |= {"status": run.status, f"{grouping.metric} (%)": percent(run.last(grouping.metric))}
        line |= {f"best {grouping.metric} (%)": percent(run.best(grouping.metric))}
        line |= {"epoch": run.number("epoch"), "step": run.number("step"), "seconds": run.number("duration")}
        line |= {"images_per_second": run.number("images_per_second")}
        line |= {key: str(run.summary.get(key) or "") for key in ("started", "version")}
        lines.append(line | {"command": command_of(run), "error": run.error, "problems": "; ".join(run.problems)})
    return to_csv(lines)


def value_cell(value: Scalar) -> Cell:
    """Return a number with all digits, and words for other values."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else format_value(value)


def text_table(results: Results) -> list[list[str]]:
    """Return the lines of the Markdown and LaTeX tables, header first; a dash marks a missing value."""
    grouping = results.grouping
    several = len(grouping.data_sets) > 1
    lines = [["data"] * several + ["loss", *map(setting_name, grouping.swept), *NUMBERS]]
    for row in results.rows:
        s, d, paper = row.spread, row.difference, row.published
        accuracy = "–" if s is None else f"{s.mean:.2f}" + ("" if s.std is None else f" ± {s.std:.2f}")
        difference = "baseline" if row.baseline is row.group else "–" if d is None else signed(d.value)
        interval, p = ("–", "–") if d is None or d.p is None else (interval_text(d), p_digits(d.p))
        from_paper = "–" if paper is None else f"{paper.mean:.2f} ± {paper.std:.2f}"
        texts = [row.group.label, *(format_value(row.group.settings[key]) for key in grouping.swept)]
        numbers = [str(s.n if s else 0), accuracy, row.best_text, difference, interval, p, from_paper]
        lines.append([row.group.data] * several + texts + numbers)
    return lines


def interval_text(difference: Difference) -> str:
    """Return the interval of a difference; one that a winner's difference ends at 0 excludes it."""
    low, high = difference.low or 0.0, difference.high or 0.0
    ends = [signed(low), signed(high)]
    if difference.significant:
        ends = ["> 0" if shows_zero(low) else ends[0], "< 0" if shows_zero(high) else ends[1]]
    return f"{ends[0]} … {ends[1]}"


def legend(results: Results) -> list[str]:
    """Say what Δ is the difference to, what its p and interval are corrected for, and what bold means."""
    notes = []
    baselines = {id(row.baseline): row.baseline for row in results.rows if row.baseline and row.difference}.values()
    if len({group.title for group in baselines}) == 1:
        notes.append(f"Δ is the difference to the baseline, {next(iter(baselines)).title}.")
    elif baselines:
        labels = {group.label for group in baselines}
        named = labels if len(labels) == 1 else [f"{group.title} on {group.data}" for group in baselines]
        notes.append(f"Δ is the difference to the baseline with the same data and settings: {'; '.join(named)}.")
    else:
        notes.append("There is no baseline with results on the same data and with the same settings, hence no Δ.")
    if any(row.difference and row.difference.p is not None for row in results.rows):
        notes.append(PAIRS)
    if any(verdict.winner for verdict in results.verdicts):
        notes.append("Bold: better than every other loss on the same data.")
    return notes


def markdown(results: Results) -> str:
    """Return a Markdown table and the notes below it; a group that wins on its data set is bold."""
    lines = text_table(results)
    bold = {k for k, row in enumerate(results.rows, 1) if row.wins}
    table = md_table(lines, text_columns=len(lines[0]) - len(NUMBERS), bold=bold)
    below = [*legend(results), *(verdict.line for verdict in results.verdicts), *results.notes]
    return "\n".join([table, "", *(md_cell(note) + "  " for note in below)]) + "\n"


def latex(results: Results) -> str:
    """Return a booktabs table for \\input; a group that wins on its data set is bold, a rule separates data sets."""
    (titles, *table), rows = text_table(results), results.rows
    notes = [*(verdict.line for verdict in results.verdicts), *legend(results)]
    lines = [f"% {latex_cell(note)}" for note in notes]
    lines += [r"% \usepackage{booktabs}, and \usepackage[T1]{fontenc} for special characters in names"]
    lines += [rf"\begin{{tabular}}{{{'l' * (len(titles) - len(NUMBERS))}{'r' * len(NUMBERS)}}}", r"\toprule"]
    lines += [" & ".join(map(latex_cell, titles)) + r" \\", r"\midrule"]
    for k, (row, cells) in enumerate(zip(rows, table, strict=True)):
        if k and row.group.data != rows[k - 1].group.data:
            lines.append(r"\midrule")
        texts = [rf"\textbf{{{text}}}" if row.wins else text for text in map(latex_cell, cells)]
        # After \\ LaTeX reads a leading bracket as an optional argument.
        lines.append(" & ".join("{}" + text if text.startswith("[") else text for text in texts) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def command_of(run: RunRecord) -> str:
    """Return the run's command line, quoted for a shell."""
    command = run.summary.get("command")
    if isinstance(command, list):
        return shlex.join(map(str, command))
    return str(command or "")
