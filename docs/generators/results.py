"""docs/_generated/results.md: every claim with its verdict, from the archived runs and from the results of the labs."""

from __future__ import annotations

import csv
from pathlib import Path

from lightning_ssl.reproduce import recipe
from lightning_ssl.reproduce.results import tabulate
from lightning_ssl.reproduce.verdicts import VERDICTS
from lightning_ssl.reproduce.writing import claims_table
from lightning_ssl.runs.record import Reader

SCALE = "cpu"


def page(results: Path) -> str:
    """The claims of every table with a page in the folder, and the number of claims of every laboratory."""
    found = [recipe.load(name) for name in recipe.names() if (results / f"{name}.md").is_file()]
    parts = []
    for reproduction in found:
        if reproduction.lab is None:
            work = reproduction.works[SCALE]
            table = tabulate(
                reproduction, work, Reader().runs([results / "runs" / f"{s}-{SCALE}" for s in work.sweeps])
            )
            parts += [f"### [{reproduction.title}]({reproduction.name}.md)", claims_table(table)]
    rows = [f"| laboratory | claims | {' | '.join(VERDICTS)} |", "|---|" + "---:|" * (1 + len(VERDICTS))]
    for reproduction in found:
        if reproduction.lab is not None:
            with (results / f"{reproduction.name}.csv").open(encoding="utf-8", newline="") as file:
                verdicts = [line["verdict"] for line in csv.DictReader(file)]
            counts = " | ".join(str(verdicts.count(verdict)) for verdict in VERDICTS)
            rows.append(f"| [{reproduction.title}]({reproduction.name}.md) | {len(verdicts)} | {counts} |")
    if len(rows) > 2:
        parts += ["### Laboratories", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"
