"""docs/_generated/results.md: every claim with its verdict, from the archived runs and from the results of the labs.

The figure of results/inverse.md and the results in the pages of the labs are here too.
"""

from __future__ import annotations

import csv
from pathlib import Path

import torch
from matplotlib.figure import Figure

from generators.figures import axes
from lightning_ssl import Entropy, Importance, Inverse
from lightning_ssl.app.reproduce import recipe
from lightning_ssl.app.reproduce.results import tabulate
from lightning_ssl.app.reproduce.writing import claims_table
from lightning_ssl.app.runs.run_record import Reader
from lightning_ssl.base.palette import line_style
from lightning_ssl.comparison.claims import VERDICTS
from lightning_ssl.losses import ReleasedInverse

SCALE = "cpu"


def page(results: Path) -> str:
    """The claims of every table with a page in the folder, and the number of claims of every laboratory."""
    found = [recipe.load(name) for name in recipe.names() if (results / f"{name}.md").is_file()]
    parts = []
    for reproduction in found:
        if reproduction.lab is None:
            work = reproduction.works[SCALE]
            runs = Reader().runs([results / "runs" / f"{sweep}-{SCALE}.jsonl.gz" for sweep in work.sweeps])
            table = tabulate(reproduction, work, runs)
            parts += [f"### [{reproduction.title}]({reproduction.name}.md)", claims_table(table)]
    rows = [f"| laboratory | claims | {' | '.join(VERDICTS)} |", "|---|" + "---:|" * (1 + len(VERDICTS))]
    for reproduction in found:
        if reproduction.lab is not None:
            counts = count_verdicts(results / f"{reproduction.name}.csv")
            cells = " | ".join(map(str, counts.values()))
            rows.append(f"| [{reproduction.title}]({reproduction.name}.md) | {sum(counts.values())} | {cells} |")
    if len(rows) > 2:
        parts += ["### Laboratories", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def count_verdicts(table: Path) -> dict[str, int]:
    """How many claims of a laboratory have each verdict, from the CSV of its result."""
    with table.open(encoding="utf-8", newline="") as file:
        verdicts = [line["verdict"] for line in csv.DictReader(file)]
    return {verdict: verdicts.count(verdict) for verdict in VERDICTS}


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
