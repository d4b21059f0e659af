"""The parts of docs/results that are made from the archived runs and from the results of the labs.

`write` fills the parts of index.md, inverse.md and README.md that stand between `<!-- made: NAME -->` and
`<!-- end -->`:

    cd docs && python -m generators

The questions and remarks stand beside the claims in lightning_ssl/papers/reproductions. docs/_generated/results.md has
the verdicts of the labs. The figure of inverse.md and the results in the pages of the labs are here too. Every figure
is rounded once, from all its digits.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from matplotlib.figure import Figure

from generators.figures import axes
from lightning_ssl import Entropy, Importance, Inverse
from lightning_ssl.app.config.labels import Scalar
from lightning_ssl.app.report.formats import md_cell, md_table, p_digits
from lightning_ssl.app.reproduce import recipe
from lightning_ssl.app.reproduce.moves import steps
from lightning_ssl.app.reproduce.results import Table, tabulate
from lightning_ssl.app.reproduce.verdicts import Judgement, estimate_of
from lightning_ssl.app.reproduce.writing import claimed, claims_table, conclusion
from lightning_ssl.app.runs.run_record import Reader
from lightning_ssl.base.palette import line_style
from lightning_ssl.comparison.claims import OUTCOMES
from lightning_ssl.comparison.estimate import Estimate
from lightning_ssl.comparison.spread import Spread
from lightning_ssl.losses import ReleasedInverse

SCALE = "cpu"
PAGES = ("index.md", "inverse.md", "../../README.md")  # from docs/results
ANSWERS = {"holds": "yes", "contradicted": "no", "not decided": "not decided"}
INFONCE, QUADRATIC = "infonce", "quadratic"  # rows of Table 1


def write(results: Path) -> None:
    """Fill the parts of the pages of a folder of results."""
    for name, text in pages(results).items():
        if (results / name).read_text(encoding="utf-8") != text:
            (results / name).write_text(text, encoding="utf-8")


def pages(results: Path) -> dict[str, str]:
    """The pages with their parts filled."""
    tables = tables_of(results)
    table1 = tables["table1"]
    parts: dict[str, Callable[[], str]] = {
        "table1": lambda: accuracies(table1),
        "conclusions": lambda: conclusions(tables),
        "runs": lambda: runs_table(list(tables.values())),
        "questions": lambda: questions_table(list(tables.values())),
        "claims": lambda: "\n\n".join(
            f"### [{table.reproduction.title}]({name}.md)\n\n{claims_table(table)}" for name, table in tables.items()
        ),
        "inverse": lambda: differences_table(table1, [QUADRATIC, *rows_like(table1, "inverse")]),
        "nearest": lambda: nearest(table1, rows_like(table1, "inverse")),
        "inverse-claims": lambda: claims_table(with_rows(table1, rows_like(table1, "inverse"))),
        "square": lambda: differences_table(table1, rows_like(table1, "square")),
    }
    return {name: filled((results / name).read_text(encoding="utf-8"), parts) for name in PAGES}


def filled(text: str, parts: dict[str, Callable[[], str]]) -> str:
    """The text with every part made anew. A part without a function is an error."""
    pattern = re.compile(r"(<!-- made: ([\w-]+) -->\n).*?(\n<!-- end -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}\n{parts[match[2]]()}\n{match[3]}", text)


def tables_of(results: Path) -> dict[str, Table]:
    """The tables with a page in the folder, from the archived runs at CPU scale."""
    found = {}
    for reproduction in map(recipe.load, recipe.names()):
        if reproduction.lab is None and (results / f"{reproduction.name}.md").is_file():
            work = reproduction.works[SCALE]
            archives = [results / "runs" / f"{sweep}-{SCALE}.jsonl.gz" for sweep in work.sweeps]
            runs = Reader().runs([file for file in archives if file.is_file()])
            found[reproduction.name] = tabulate(reproduction, work, runs)
    return found


def runs_table(tables: Sequence[Table]) -> str:
    """The runs of each table on each data set, and those of versions with uncommitted changes."""
    lines = [["table", "data", "network", "steps", "batch size", "runs", "seeds of a row"]]
    uncommitted = set()
    for table in tables:
        for data in table.work.data:
            runs = [each.run for each in table.measured if each.data == data and each.run.finished]
            seeds = {len(table.values(row, data, "late")) for row in table.reproduction.rows}
            values = [
                ", ".join(sorted({str(run.settings.get(key)) for run in runs})) or "–"
                for key in ("model.backbone", "data.batch_size")
            ]
            trained = steps(replace(table, measured=[each for each in table.measured if each.data == data]))
            count = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
            lines.append(
                [short_title(table), data, values[0], trained if runs else "–", values[1], str(len(runs)), count]
            )
            uncommitted |= {run.name for run in runs if str(run.summary.get("version")).endswith("-dirty")}
    text = md_table(lines, text_columns=3)
    if uncommitted:
        names = md_cell(", ".join(sorted(uncommitted)))
        text += f"\n\nRuns from a checkout with uncommitted changes, whose version ends in `-dirty`: {names}."
    return text


def short_title(table: Table) -> str:
    """The part of the title before its question."""
    return re.split("[:?]", table.reproduction.title)[0]


def conclusions(tables: dict[str, Table]) -> str:
    """What follows from each table, in plain words."""
    lines = (f"- [{short_title(table)}]({name}.md): {md_cell(conclusion(table))}" for name, table in tables.items())
    return "\n".join(lines)


def accuracies(table: Table) -> str:
    """The late accuracies of the rows of the paper's text, and the verdicts on the primary claims: for README.md."""
    (data,), rows = table.work.data, table.reproduction.rows
    spreads = {rows[key].title: Spread.of(found.values()) for key, found in late(table).items() if found}
    shown = sorted(
        (row.title for row in rows.values() if row.treatment == "text" and row.title in spreads),
        key=lambda title: spreads[title].mean,
    )
    cells = [f"{spreads[title].mean:.1f} ± {spreads[title].std or 0.0:.1f}" for title in shown]
    primary = [j for j in table.judgements if j.kind == "primary"]
    lines = [["claim of the text", "claimed", "verdict", "difference", "p"]]
    for j in primary:
        p = "–" if j.decision.p is None else p_digits(j.decision.p)
        difference = interval_text(j.difference, j.decision.low, j.decision.high)
        lines.append([f"{j.claim.text} ({j.claim.at})", claimed(j.claim), j.verdict, difference, p])
    parts = (
        f"{sum(each.run.finished for each in table.measured)} runs on {data}, {steps(table)} steps each. Linear "
        "evaluation, top-1 %, mean ± standard deviation over seeds:",
        md_table([shown, cells], text_columns=0),
        "The claims that the text of the paper makes about these rows, with the difference in points. Intervals and p "
        f"are corrected for the number of these claims; a claim is decided where p is below {primary[0].level:g}.",
        md_table(lines, text_columns=3),
    )
    return "\n\n".join(parts)


def questions_table(tables: Sequence[Table]) -> str:
    """The answer of the claims that have a question, on the data sets with runs."""
    lines = ["| question | answer at this scale |", "|---|---|"]
    for table in tables:
        answers: dict[str, list[str]] = {}
        remarks = {claim.question: claim.remark for claim in table.reproduction.claims}
        for j in table.judgements:
            if j.claim.question and j.difference is not None:
                answers.setdefault(j.claim.question, []).append(answer(j, several=len(table.work.data) > 1))
        for question, found in answers.items():
            lines.append(f"| {md_cell(question)} | {' '.join([*found, remarks[question]]).rstrip()} |")
    return "\n".join(lines)


def answer(j: Judgement, several: bool) -> str:
    """The verdict as a word, our difference with its interval, and the published one."""
    where = f"{j.claim.at.capitalize()} on {j.data}" if several else j.claim.at.capitalize()
    mark = "" if j.kind == "primary" else " (secondary)" if j.kind == "secondary" else " (runs of a primary claim)"
    difference = interval_text(j.difference, j.decision.low, j.decision.high)
    text = f"{where}: {ANSWERS[j.verdict]}{mark}, {difference}"
    return (
        md_cell(text if j.published is None else f"{text}; the paper {points(j.published[0] - j.published[1])}") + "."
    )


def interval_text(difference: float | None, low: float | None, high: float | None) -> str:
    """A difference with its interval, in points."""
    if difference is None:
        return "–"
    return points(difference) + ("" if low is None or high is None else f" [{points(low)}, {points(high)}]")


def points(value: float) -> str:
    """A difference with one digit.

    >>> points(-10.34), points(0.04)
    ('−10.3', '0.0')
    """
    return "0.0" if abs(value) < 0.05 else f"{value:+.1f}".replace("-", "−")


def rows_like(table: Table, key: str) -> list[str]:
    """The rows with the published figures of a row: its formula and its other readings."""
    rows = table.reproduction.rows
    return [name for name, row in rows.items() if row.published == rows[key].published]


def with_rows(table: Table, keys: Sequence[str]) -> Table:
    """The table with the claims about some rows only."""
    kept = [j for j in table.judgements if {*j.claim.left, *j.claim.right} & set(keys)]
    return replace(table, judgements=kept)


def differences_table(table: Table, keys: Sequence[str]) -> str:
    """The late difference of some rows to InfoNCE, ours and published."""
    lines = [["row", "computed", "treatment", "ours", "published"]]
    (data,) = table.work.data
    for key in keys:
        row = table.reproduction.rows[key]
        cells = [table.published(name, data, "late") for name in (key, INFONCE)]
        paper = "–" if cells[0] is None or cells[1] is None else points(cells[0][0] - cells[1][0])
        ours = estimate_text(to_infonce(table, key))
        lines.append([row.title, row.reading or "as its name", row.treatment, ours, paper])
    return md_table(lines, text_columns=3)


def to_infonce(table: Table, key: str) -> Estimate | None:
    """The late difference of a row to InfoNCE over seeds."""
    return estimate_of((key,), (INFONCE,), late(table))[1]


def late(table: Table) -> dict[str, dict[Scalar, float]]:
    """Row → seed → late accuracy, of a table on one data set."""
    (data,) = table.work.data
    return {row: table.values(row, data, "late") for row in table.reproduction.rows}


def estimate_text(estimate: Estimate | None) -> str:
    """A difference with its 95 % interval, not corrected."""
    if estimate is None or not estimate.tested:
        return "–" if estimate is None else points(float(estimate.value))
    low, high = estimate.interval()
    return interval_text(float(estimate.value), float(low), float(high))


def nearest(table: Table, keys: Sequence[str]) -> str:
    """The row whose late accuracy is nearest to that of InfoNCE."""
    found = {key: difference for key in keys if (difference := to_infonce(table, key)) is not None}
    key = min(found, key=lambda key: abs(found[key].value))
    return f"Of these, {table.reproduction.rows[key].title} is nearest to InfoNCE: {estimate_text(found[key])}."


def page(results: Path) -> str:
    """The number of claims of every laboratory with a page in the folder, by verdict."""
    rows = [f"| laboratory | claims | {' | '.join(OUTCOMES)} |", "|---|" + "---:|" * (1 + len(OUTCOMES))]
    for reproduction in map(recipe.load, recipe.names()):
        if reproduction.lab is not None and (results / f"{reproduction.name}.md").is_file():
            counts = count_verdicts(results / f"{reproduction.name}.csv")
            cells = " | ".join(map(str, counts.values()))
            rows.append(f"| [{reproduction.title}]({reproduction.name}.md) | {sum(counts.values())} | {cells} |")
    return "\n".join(rows) + "\n"


def count_verdicts(table: Path) -> dict[str, int]:
    """How many claims of a laboratory have each verdict, from the CSV of its result."""
    with table.open(encoding="utf-8", newline="") as file:
        verdicts = [line["verdict"] for line in csv.DictReader(file)]
    return {verdict: verdicts.count(verdict) for verdict in OUTCOMES}


def of_labs(results: Path) -> dict[str, str]:
    """The figure and the verdicts of the full run of each laboratory, for its page in docs/labs."""
    found = {}
    for reproduction in map(recipe.load, recipe.names()):
        if reproduction.lab is None:
            continue
        name, text = reproduction.name, "The full run has no page yet."
        if (results / f"{name}.md").is_file():
            counts = count_verdicts(results / f"{name}.csv")
            verdicts = ", ".join(f"{verdict}: {count}" for verdict, count in counts.items())
            text = f"![{reproduction.title}](../results/{name}.png)\n\n"
            text += f"[The full run](../results/{name}.md) has {sum(counts.values())} claims; {verdicts}."
        found[reproduction.lab] = text + "\n"
    return found


def inverse() -> Figure:
    """The weights of a row among the 254 negatives of a batch of 128: Inverse of the paper and of the released code."""
    figure, ax = axes(6.4, 3.4)
    d2_neg = torch.linspace(0, 2, 254, dtype=torch.float64)[None]  # of unit vectors: 1 − cos
    rows: dict[str, Importance] = {
        "Inverse(τ = 0.5, γ = 2), solved as in the paper": Inverse(0.5, 2.0),
        "released code, (d2 + τ)^(−1/2)": ReleasedInverse(0.5, 0.5),
        "released code, (d2 + τ)^(−2)": ReleasedInverse(0.5, 2.0),
        "Entropy(τ = 0.5), the weights of InfoNCE": Entropy(0.5),
    }
    for k, (title, importance) in enumerate(rows.items()):
        alpha = importance(torch.zeros(1, dtype=torch.float64), d2_neg)[0]
        colour, style = line_style(k)
        ax.plot(d2_neg[0], len(alpha) * alpha / alpha.sum(), color=colour, linestyle=style, label=title)
    ax.set(xlabel="d2 of the negative", ylabel="K α, rows scaled to sum 1", xlim=(0, 2), ylim=(0, None))
    ax.legend(frameon=False)
    return figure
