"""The page of a reproduction, NAME.md, and the table of its runs, NAME.csv.

Text of run folders is untrusted; it is escaped by the functions of app/report/formats.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lightning_ssl.app.config.labels import label_of
from lightning_ssl.app.report.differences import natural, value_list
from lightning_ssl.app.report.formats import Cell, md_cell, md_table, percent, signed, to_csv
from lightning_ssl.app.reproduce.recipe import EARLY, Claim
from lightning_ssl.app.reproduce.results import EVALUATION, MOMENTS, PROBE, Measured, Table
from lightning_ssl.app.reproduce.verdicts import RULE, Judgement
from lightning_ssl.app.runs.run_record import RunRecord
from lightning_ssl.app.sweep.scales import Scale
from lightning_ssl.app.sweep.screen import format_duration
from lightning_ssl.base import machine
from lightning_ssl.comparison.claims import VERDICTS
from lightning_ssl.comparison.spread import Spread

SOURCES = (
    "Statements of the papers are in our words, with their place. “table:” means that the table shows it, no sentence "
    "does, “ours:” that it is a consequence or a question of ours. “Text against table” means that the published "
    "figures contradict the statement. The treatment is what the rows of a claim compute: what the text of the paper "
    "says (text), what its released code does (code), or something else (ours). Published is left − right of the means."
)
# Settings that decide the size of a run.
SIZES = (
    "model.backbone",
    "trainer.max_epochs",
    "trainer.limit_train_batches",
    "data.batch_size",
    "model.optimization.lr",
)


def runs_csv(table: Table) -> str:
    """One line per run, with all digits; failed runs too."""
    return to_csv([csv_line(each) for each in table.measured])


def csv_line(each: Measured) -> dict[str, Cell]:
    run = each.run
    return {
        "run": run.name,
        "row": each.row.title if each.row else None,
        "data": each.data,
        "loss": label_of(run.settings) if run.settings else None,
        "seed": None if run.seed is None else str(run.seed),
        "status": run.status,
        f"{PROBE} at {EARLY:.0%} of training (%)": each.early,
        **{f"{name} (%)": percent(run.last(name)) for name in (PROBE, "knn/top1", EVALUATION)},
        "seconds": run.number("duration"),
        "images_per_second": run.number("images_per_second"),
        "version": str(run.summary.get("version") or ""),
        "error": run.error,
    }


def page(table: Table, scale: Scale, command: str, report_command: str, report_table: str, moves: str = "") -> str:
    """NAME.md: the claims with their verdicts, the table, the figure, and how it was made.

    report_command   the command of `lightning-ssl report` for the same runs
    report_table     its table
    moves            the section about longer training
    """
    name = table.reproduction.name
    parts = [f"# {table.reproduction.title}", scale_sentence(table, scale), "## Claims"]
    parts += [claims_table(table), f"{SOURCES}\n\n{md_cell(RULE)}", f"![{name}]({name}.png)", moves, "## Accuracies"]
    parts += [accuracies_table(table, data) for data in table.work.data]
    parts += [metric_sentence(table), *failures(table), "## How it was made", origin(table, command)]
    parts += ["## The same runs in `lightning-ssl report`", f"    {report_command}", report_table]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def scale_sentence(table: Table, scale: Scale) -> str:
    count = {verdict: sum(j.verdict == verdict for j in table.judgements) for verdict in VERDICTS}
    summary = ", ".join(f"{verdict}: {n}" for verdict, n in count.items())
    return md_cell(f"Scale {scale.name}: {scale.summary}. {len(table.judgements)} claims; {summary}.")


def claims_table(table: Table) -> str:
    """One line per claim: the verdict, the statement of the paper, its own figures, ours, and the treatment."""
    several = len(table.work.data) > 1
    head = ["verdict", "statement of the paper", "claim", *["data"] * several, "when", "claimed", "treatment"]
    lines = [[*head, "published", "ours", "95 % interval"]]
    for j in table.judgements:
        verdict = j.verdict + (f" ({j.reason})" if j.reason else "")
        cells = [verdict, statement_text(j), j.claim.text, *[j.data] * several, j.claim.at, claimed(j.claim)]
        cells += [table.reproduction.treatment(j.claim), published_text(j)]
        lines.append([*cells, "–" if j.comparison is None else signed(j.comparison.difference), interval(j)])
    return md_table(lines, text_columns=len(head))


def statement_text(judgement: Judgement) -> str:
    """The statement that a claim tests, with its place and its marks."""
    statement = judgement.claim.statement
    source = "" if statement.source == "text" else f"{statement.source}: "
    mark = ". Text against table" if judgement.against_table else ""
    return f"{source}{statement.says} ({statement.place}){mark}"


def claimed(claim: Claim) -> str:
    """The range of left − right that a claim names."""
    text = {"above": "> ", "below": "< −", "equal": "± ", "not below": "> −"}[claim.relation] + f"{claim.margin:g}"
    return text.replace("−0", "0")


def published_text(judgement: Judgement) -> str:
    """The published means of both sides and their difference."""
    if judgement.published is None:
        return "–"
    left, right = judgement.published
    return f"{left:.2f} − {right:.2f} = {signed(left - right)}"


def interval(judgement: Judgement) -> str:
    c = judgement.comparison
    if c is None or c.low is None or c.high is None:
        return "–"
    return f"[{signed(c.low)}, {signed(c.high)}]"


def accuracies_table(table: Table, data: str) -> str:
    """Published accuracy and ours, early and late, for each row with runs or published figures on this data."""
    accuracies = [f"{whose} {at} (%)" for at in MOMENTS for whose in ("published", "ours")]
    lines = [["row", "loss", "treatment", "seeds", *accuracies]]
    for row in table.reproduction.rows.values():
        values = {at: table.values(row.key, data, at) for at in MOMENTS}
        treatment = row.treatment + (f": {row.reading}" if row.reading else "")
        cells = [row.title, row.loss, treatment, str(len(values["late"]))]
        for at in MOMENTS:
            paper = table.published(row.key, data, at)
            cells.append("–" if paper is None else f"{paper[0]:.2f} ± {paper[1]:.2f}")
            cells.append(spread_text(values[at].values()))
        lines.append(cells)
    networks = sorted({str(each.run.settings.get("model.backbone")) for each in table.measured if each.data == data})
    where = f"On {data}" + (f" with {md_cell(', '.join(networks))}." if networks else ".")
    where += f" Published on {table.work.published_on}." if table.work.published_on else ""
    meaning = "± is the standard deviation over seeds, in brackets the 95 % interval of the mean."
    return f"{where} {meaning}\n\n{md_table(lines, text_columns=3)}"


def spread_text(values: Collection[float]) -> str:
    if not values:
        return "–"
    spread = Spread.of(values)
    if spread.std is None:
        return f"{spread.mean:.2f}"
    return f"{spread.mean:.2f} ± {spread.std:.2f} [{spread.low:.2f}, {spread.high:.2f}]"


def metric_sentence(table: Table) -> str:
    late = "the linear evaluation of the papers' protocol (`linear/adam_top1`)"
    if table.late_metric == PROBE:
        late = "the online probe (`online/top1`) at the end, because not every finished run has a linear evaluation"
    return (
        f"Early is the online probe at {EARLY:.0%} of the training, late is {late}. Both are measured on test images, "
        "as in the papers. The published figures are a linear evaluation after 100 and after 500 epochs of ResNets."
    )


def failures(table: Table) -> list[str]:
    """A list of the runs without a result."""
    lines = []
    for each in table.measured:
        if not each.run.finished:
            lines.append(f"- {md_cell(each.run.name)}: {each.run.status}. {md_cell(each.run.error or '')}".rstrip())
        elif each.row is None:
            lines.append(f"- {md_cell(each.run.name)}: it belongs to no row, {md_cell(label_of(each.run.settings))}")
    return ["Runs that are not counted:\n\n" + "\n".join(lines)] if lines else []


def origin(table: Table, command: str) -> str:
    """Command, commit, machine and duration."""
    runs = [each.run for each in table.measured]
    versions = ", ".join(sorted({str(run.summary.get("version") or "unknown") for run in runs}))
    seconds = [run.number("duration") or 0.0 for run in runs]
    started = sorted(str(run.summary.get("started")) for run in runs if run.summary.get("started"))
    finished = sum(run.finished for run in runs)
    lines = [
        ("command", f"`{command}`"),
        ("runs", f"{len(runs)}, {finished} finished"),
        ("setting of the runs", md_cell(setting_text(runs))),
        ("version of the runs", md_cell(versions)),
        ("first run started", md_cell(started[0]) if started else "–"),
        ("sum of the times of all runs", format_duration(sum(seconds))),
        ("machine", md_cell(machines(runs))),
    ]
    return facts_table(lines)


def facts_table(lines: Sequence[tuple[str, str]]) -> str:
    """A table without a header: how a result came about."""
    return "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in lines)])


def setting_text(runs: Sequence[RunRecord]) -> str:
    """The values of the settings that decide the size of the runs."""
    values = {key: sorted({run.settings.get(key) for run in runs}, key=natural) for key in SIZES}
    return "; ".join(value_list(key, found) for key, found in values.items() if found != [None])


def machines(runs: Sequence[RunRecord]) -> str:
    """The machines that trained the runs."""
    found = sorted({str(run.summary["machine"]) for run in runs if run.summary.get("machine")})
    return "; ".join(found) or f"not recorded; this page was written on {machine.describe()}"


def summary_lines(table: Table) -> list[str]:
    """The verdicts for the terminal."""
    several = len(table.work.data) > 1
    lines = []
    for j in table.judgements:
        difference = "" if j.comparison is None else signed(j.comparison.difference)
        found = " ".join(word for word in (difference, j.reason or interval(j)) if word)
        where = f" on {j.data}" if several else ""
        lines.append(f"  {j.verdict.ljust(13)}  {j.claim.text}{where}, {j.claim.at}: {found}")
    return lines
