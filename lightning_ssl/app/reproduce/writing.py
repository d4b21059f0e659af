"""The page of a reproduction, NAME.md, and the table of its runs, NAME.csv.

Text of run folders is untrusted; it is escaped by the functions of app/report/formats.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lightning_ssl.app.config.labels import label_of
from lightning_ssl.app.report.differences import natural, value_list
from lightning_ssl.app.report.formats import Cell, md_cell, md_table, p_digits, percent, signed, to_csv
from lightning_ssl.app.reproduce.recipe import EARLY, Claim
from lightning_ssl.app.reproduce.results import EVALUATION, MOMENTS, PROBE, Measured, Table
from lightning_ssl.app.reproduce.verdicts import Judgement, Kind, family_of, seeds_text
from lightning_ssl.app.runs.run_record import RunRecord
from lightning_ssl.app.sweep.scales import Scale
from lightning_ssl.app.sweep.screen import format_duration
from lightning_ssl.base import machine
from lightning_ssl.comparison.claims import OUTCOMES
from lightning_ssl.comparison.estimate import LEVEL
from lightning_ssl.comparison.looks import LOOK_LEVEL, LOOKS
from lightning_ssl.comparison.spread import Spread

SOURCES = (
    "Statements of the papers are in our words, with their place. “table:” means that the table shows it, no sentence "
    "does, “ours:” that it is a consequence or a question of ours. “Text against table” means that the published "
    "figures contradict the statement. The treatment is what the rows of a claim compute: what the text of the paper "
    "says (text), what its released code does (code), or something else (ours). Published is left − right of the means."
)
RULE = (
    "Ours is left − right in points, over the seeds that all rows of the claim have. Its variance is its own, shrunk "
    "towards the pooled variance of all rows with these seeds, or its own alone if the spread of one of its rows "
    "stands out. With the margin m, “above” holds if the whole interval is above m, “below” if it is below −m, “not "
    "below” if it is above −m, and “equal” if it is within (−m, m). A claim is contradicted if the whole interval is "
    "on the other side, for “equal” outside, and not decided otherwise. p and interval agree: a claim is decided "
    "exactly where p is below the level in the last column. The confidence of the interval is 1 − level, and 1 − 2 · "
    "level for “equal” (two one-sided tests)."
)
LOOKS_TEXT = f"{', '.join(map(str, LOOKS[:-1]))} and {LOOKS[-1]}"
LEVELS: dict[Kind, str] = {
    "primary": f"{LOOK_LEVEL:g}, primary",
    "same runs": f"{LOOK_LEVEL:g}, same runs",
    "secondary": f"{LEVEL:g}, secondary, not corrected",
}
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
    parts = [f"# {table.reproduction.title}", scale_sentence(table, scale), md_cell(conclusion(table)), "## Claims"]
    parts += [claims_table(table), md_cell(family_sentences(table)), f"{SOURCES}\n\n{md_cell(RULE)}"]
    parts += [f"![{name}]({name}.png)", moves, "## Accuracies"]
    parts += [accuracies_table(table, data) for data in table.work.data]
    parts += [metric_sentence(table), *failures(table), "## How it was made", origin(table, command)]
    parts += ["## The same runs in `lightning-ssl report`", f"    {report_command}", report_table]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def scale_sentence(table: Table, scale: Scale) -> str:
    return md_cell(f"Scale {scale.name}: {scale.summary}.")


def conclusion(table: Table) -> str:
    """What follows for the primary claims, in plain words, or for the secondary ones if no claim is primary."""
    parts = []
    if any(j.is_interim for j in table.judgements):
        parts.append(f"Interim, with {seeds_text(table.judgements)} seeds (the looks are at {LOOKS_TEXT}).")
    primary, several = [j for j in table.judgements if j.kind == "primary"], len(table.work.data) > 1
    if primary:
        parts.append(f"{len(primary)} primary claim{'s' * (len(primary) > 1)}; {counts(primary)}.")
    else:
        parts.append("No sentence of a paper makes a claim about these rows, so no claim is primary.")
        parts.append(f"{len(table.judgements)} secondary claims, not corrected; {counts(table.judgements)}.")
    for outcome in OUTCOMES:
        found = [j for j in primary or table.judgements if j.verdict == outcome]
        about = ([*[j.data] * several, j.claim.at, *[j.reason] * bool(j.reason)] for j in found)
        names = (f"{j.claim.text} ({', '.join(words)})" for j, words in zip(found, about, strict=True))
        parts += [f"{outcome.capitalize()}: {'; '.join(names)}."] if found else []
    return " ".join(parts)


def counts(judgements: Sequence[Judgement]) -> str:
    """How many claims have each verdict."""
    return ", ".join(f"{outcome}: {sum(j.verdict == outcome for j in judgements)}" for outcome in OUTCOMES)


def family_sentences(table: Table) -> str:
    """The number of seeds, and the two kinds of claims with their error rates."""
    size = len(family_of(table.reproduction, table.work))
    parts = [f"Seeds of the claims: {seeds_text(table.judgements)}."]
    if size > 1:
        parts.append(
            f"The primary claims are {size} comparisons: p is multiplied by {size}, and the level of the interval is "
            f"divided by {size} (Bonferroni)."
        )
    if size:
        parts.append(
            f"The level {LOOK_LEVEL:g} of the primary claims is that of each of three looks, at {LOOKS_TEXT} seeds. So "
            f"the primary claims of this table together have an error rate of {100 * LEVEL:g} %, also if seeds are "
            "added. “Same runs” marks a claim about the runs of a primary one: it is judged like that one, and adds no "
            "comparison. The primary claims were named from the text of the paper when the runs of the archive were "
            "known."
        )
    own = f"A secondary claim has an error rate of {100 * LEVEL:g} % of its own, and does not count for the table."
    return " ".join([*parts, own])


def claims_table(table: Table) -> str:
    """One line per claim: the verdict, the statement of the paper, its own figures, ours, and the level."""
    several = len(table.work.data) > 1
    head = ["verdict", "statement of the paper", "claim", *["data"] * several, "when", "claimed", "treatment"]
    lines = [[*head, "published", "ours", "interval", "p", "seeds", "level"]]
    for j in table.judgements:
        verdict = j.verdict + (f" ({j.reason})" if j.reason else "")
        cells = [verdict, statement_text(j), j.claim.text, *[j.data] * several, j.claim.at, claimed(j.claim)]
        cells += [table.reproduction.treatment(j.claim), published_text(j), difference(j), interval(j)]
        cells += ["–" if j.decision.p is None else p_digits(j.decision.p), str(j.seeds), LEVELS[j.kind]]
        lines.append(cells)
    return md_table(lines, text_columns=len(head))


def statement_text(judgement: Judgement) -> str:
    """The statement that a claim tests, with its place and its marks."""
    statement = judgement.claim.statement
    source = "" if statement.source == "text" else f"{statement.source}: "
    mark = ". Text against table" if judgement.against_table else ""
    return f"{source}{statement.says} ({statement.place}){mark}"


def claimed(claim: Claim) -> str:
    """The range of left − right that a claim names."""
    m = f"{claim.margin:g}"
    minus = f"−{m}" if claim.margin else "0"
    return {"above": f"> {m}", "below": f"< {minus}", "equal": f"± {m}", "not below": f"> {minus}"}[claim.relation]


def published_text(judgement: Judgement) -> str:
    """The published means of both sides and their difference."""
    if judgement.published is None:
        return "–"
    left, right = judgement.published
    return f"{left:.2f} − {right:.2f} = {signed(left - right)}"


def difference(judgement: Judgement) -> str:
    return "–" if judgement.difference is None else signed(judgement.difference)


def interval(judgement: Judgement) -> str:
    low, high = judgement.decision.low, judgement.decision.high
    return "–" if low is None or high is None else f"[{signed(low)}, {signed(high)}]"


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
        found = " ".join(word for word in (difference(j), j.reason or interval(j)) if word != "–")
        where = f" on {j.data}" if several else ""
        lines.append(f"  {j.verdict.ljust(12)}  {j.kind.ljust(9)}  {j.claim.text}{where}, {j.claim.at}: {found}")
    return lines
