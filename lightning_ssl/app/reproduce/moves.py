"""How the claims of a table move between its scales: the section of NAME.md about longer training."""

from __future__ import annotations

from collections.abc import Sequence

from lightning_ssl.app.report.formats import md_cell, md_table
from lightning_ssl.app.reproduce.results import Table
from lightning_ssl.app.reproduce.verdicts import Judgement, seeds_text
from lightning_ssl.app.reproduce.writing import difference, interval
from lightning_ssl.app.sweep.scales import Scale
from lightning_ssl.comparison.blocks import FEWEST
from lightning_ssl.comparison.looks import LOOKS


def section(table: Table, longer: Sequence[tuple[Scale, Table]]) -> str:
    """The claims of a table beside the same claims at each longer scale; empty without runs at such a scale."""
    parts = []
    for scale, other in longer:
        if other.measured:
            heading = f"## From {steps(table)} to {steps(other)} steps"
            parts += [heading, md_cell(count_sentence(table, scale, other)), moves_table(table, other)]
    return "\n\n".join(parts)


def steps(table: Table) -> str:
    """The number of steps of the finished runs."""
    found = {run.number("step") for run in (each.run for each in table.measured) if run.finished}
    return " or ".join(f"{number:,.0f}" for number in sorted(number for number in found if number)) or "unknown"


def count_sentence(table: Table, scale: Scale, longer: Table) -> str:
    """How many runs there are at the longer scale, of which rows, and whether some are still missing."""
    finished = sum(each.run.finished for each in longer.measured)
    rows = table.reproduction.rows
    here, there = (
        {key: max(len(each.values(key, data, "late")) for data in each.work.data) for key in rows}
        for each in (table, longer)
    )
    counts = "; ".join(f"{rows[key].title}: {number}" for key, number in there.items())
    sentence = f"Finished runs at the scale {scale.name} ({scale.summary}): {finished}. Seeds of each row: {counts}. "
    fewer = sum(there[key] < here[key] for key in rows)
    if fewer:
        sentence += f"{fewer} of {len(rows)} rows have fewer seeds than above: this comparison is not complete. "
    if any(j.is_interim for j in longer.judgements):
        sentence += (
            f"Interim: the claims have {seeds_text(longer.judgements)} seeds, and the first look is at {LOOKS[0]}. "
        )
    return sentence + f"A claim with fewer than {FEWEST} common seeds has no test and is not decided."


def moves_table(table: Table, longer: Table) -> str:
    """One line per claim with runs: our difference and the verdict at both lengths of training."""
    later = {(j.claim, j.data): j for j in longer.judgements}
    columns = [f"{what} at {steps(each)} steps" for each in (table, longer) for what in ("ours", "verdict")]
    lines = [["claim", "data", "when", *columns]]
    for j in table.judgements:
        found = later.get((j.claim, j.data))
        if found is not None and (j.difference is not None or found.difference is not None):
            lines.append([j.claim.text, j.data, j.claim.at, *outcome(j), *outcome(found)])
    return md_table(lines, text_columns=len(lines[0]))


def outcome(j: Judgement) -> tuple[str, str]:
    return f"{difference(j)} {interval(j)}".removesuffix(" –"), j.verdict + (f" ({j.reason})" if j.reason else "")
