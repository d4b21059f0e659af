"""The claims of the paper about the runs of its tables and figures, and the notes of a result.

`Runs` has the max-cosines (T, S, 3) of each row by sparsities. Sparsities with the same data are one measurement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from lightning_ssl import papers
from lightning_ssl.comparison.claims import margin_of, mean_holds
from lightning_ssl.labs.lab import Claim
from lightning_ssl.labs.landscape.data import METRICS
from lightning_ssl.labs.landscape.recipes import CHOSEN, DISTANCES, RECIPES
from lightning_ssl.labs.landscape.tables import BASIC, Row, published_cells

TOLERANCE = 0.05
Sparsities = tuple[float, ...]
Runs = dict[Row, dict[Sparsities, Tensor]]
ORDERINGS = [
    ("cl_linear", "ncl_linear"),
    ("cl_basic", "ncl_basic"),
    ("cl_basic", "ncl_basic_2l"),
    ("simplified_simclr", "simplified_simsiam"),
]
"""Rows of Tables 1 and 2 of which the paper says that the first has the higher minimum max-cosine (Appendix A.2.1)."""


def ordering_claims(runs: Runs) -> list[Claim]:
    """Check the orderings that the paper reads from its tables, all of the minimum max-cosine at the end."""
    warm = [row.name for row in runs if row.table == "4"]
    return _orderings(runs, [*ORDERINGS, *((warmer, warm[0]) for warmer in warm[1:])])


def mask_claims(runs: Runs) -> list[Claim]:
    """Check Section 4.2: independent masks (Eqn. 3) outperform dependent ones (Eqn. 2)."""
    return _orderings(runs, [(name, f"{name}, dependent masks") for name in BASIC])


def cell_claims(runs: Runs) -> list[Claim]:
    """Compare the max-cosines at the end with every published cell."""
    claims = []
    for row, sparsities, path in _each(runs, "124"):
        for j, (paper, paper_std) in enumerate(published_cells(row, sparsities) or []):
            name = f"Table {row.table} {row.name} {label(sparsities)} {METRICS[j]}"
            cell = Claim.near(name, path[-1, :, j], paper, tolerance=TOLERANCE)
            claims.append(replace(cell, paper_std=paper_std))
    return claims


def figure_claims(runs: Runs) -> list[Claim]:
    """Check the text and the captions of the figures, all of the minimum max-cosine, mean over sparsities."""
    rows = [row for row in runs if row.table == "figures"]
    published = papers.load("landscape")["figures"]
    claims = []
    for row in rows:
        said = published.get(row.name.partition(":")[0])
        if said is None:
            continue
        minimum = _minimum(runs[row])
        marks = {what: f" ({mark})" for what, mark in said.get("mark", {}).items()}
        direction = said["is"]
        name, gains = f"{row.name}: {direction}{marks.get(direction, '')}", minimum[-1] - minimum[0]
        rule = "the minimum max-cosine moves as the paper says"
        claims.append(Claim.of_mean(name, gains, {"rises": "≥", "falls": "≤"}[direction], 0.0, rule))
        for moment, step in (("start", 0), ("end", -1)):
            if moment in said:
                name = f"{row.name}: {moment}{marks.get(moment, '')}"
                claims.append(Claim.near(name, minimum[step], said[moment], tolerance=TOLERANCE))
    pairs = [(f"fig {k}: cl", f"fig {k}: ncl") for k in (1, 8, 9)]
    for higher, lower in [*pairs, ("fig 5", "fig 6")]:
        above, below = ([row.name for row in rows if row.name.startswith(each)] for each in (higher, lower))
        claims += _orderings(runs, list(zip(above, below, strict=True)))
    return claims


def distance(runs: Runs, recipe: str) -> tuple[float, int, int]:
    """Mean |ours − published| over the distinct cells of Table 2 under a recipe, the cells within ±0.05, and all."""
    gaps = []
    for row, sparsities, path in _each(runs, ("recipes",)):
        if row.name.startswith(f"{recipe}: "):
            for j, (paper, _) in enumerate(published_cells(row, sparsities) or []):
                gaps.append(abs(float(path[-1, :, j].mean()) - paper))
    near = sum(gap <= margin_of(TOLERANCE, None) for gap in gaps)
    return (sum(gaps) / len(gaps) if gaps else float("nan")), near, len(gaps)


def make_notes(claims: list[Claim], runs: Runs, recipes: tuple[str, ...]) -> list[str]:
    """Count the cells that agree, list what was tried, and the max-cosines without a published figure."""
    notes = []
    cells = [claim for claim in claims if claim.name.startswith("Table ")]
    if cells:
        near = sum(claim.agrees for claim in cells)
        spread = sum(mean_holds("equal", c.difference, margin_of(TOLERANCE, c.paper_std)) for c in cells)
        notes.append(
            f"{near} of {len(cells)} distinct published cells within ±{TOLERANCE:g}; "
            f"{spread} within that or two of the paper's standard deviations"
        )
        notes.append("sparsities with the same codes are one cell, beside the mean of their published figures")
        state = "chosen" if DISTANCES.keys() == RECIPES.keys() else "until all are measured"
        notes.append(f"{len(RECIPES)} recipes are listed and Table 2 alone decides between them; {state}: {CHOSEN}")
        for recipe in RECIPES:
            found = f"distance {DISTANCES[recipe]:.4f}" if recipe in DISTANCES else "not measured yet"
            notes.append(f"recipe {recipe} ({_changes(recipe)}): {found}")
    for recipe in recipes if any(row.table == "recipes" for row in runs) else ():
        gap, near, count = distance(runs, recipe)
        notes.append(
            f"recipe {recipe} ({_changes(recipe)}): distance {gap:.4f}, {near} of {count} cells within ±{TOLERANCE:g}"
        )
    for row in (row for row in runs if row.table == "warm"):
        start, end = _minimum(runs[row])[[0, -1]].mean(1).tolist()
        notes.append(f"{row.name}: minimum max-cosine {start:.2f} → {end:.2f}, mean over sparsities")
    for row, sparsities, path in _each(runs, ("importance",)):
        values = "/".join(f"{v:.2f}" for v in path[-1].mean(0).tolist())
        notes.append(f"α = {row.name}, {label(sparsities)}: maximum/median/minimum max-cosine {values}")
    return notes


def label(sparsities: Sparsities) -> str:
    return "β=" + ", ".join(f"{sparsity:g}" for sparsity in sparsities)


def _changes(recipe: str) -> str:
    return ", ".join(f"{key}={value}" for key, value in RECIPES[recipe].items()) or "the defaults"


def _minimum(paths: dict[Sparsities, Tensor]) -> Tensor:
    """The minimum max-cosines, mean over sparsities with data of their own: (T, S)."""
    return torch.stack([path[..., 2] for path in paths.values()]).mean(0)


def _each(runs: Runs, tables: str | tuple[str, ...]) -> Iterator[tuple[Row, Sparsities, Tensor]]:
    for row, by_sparsity in runs.items():
        if row.table in tables:
            for sparsities, path in by_sparsity.items():
                yield row, sparsities, path


def _orderings(runs: Runs, pairs: list[tuple[str, str]]) -> list[Claim]:
    """Claim for each pair and distinct data that the first row ends with the higher minimum max-cosine."""
    rows = {row.name: row for row in runs if row.table not in ("recipes", "importance")}
    claims = []
    for better, worse in pairs:
        if better in rows and worse in rows:
            for sparsities, path in runs[rows[better]].items():
                gains = (path - runs[rows[worse]][sparsities])[-1, :, 2]
                name, rule = f"{better} over {worse}, {label(sparsities)}, minimum", "the mean difference is positive"
                claims.append(Claim.of_mean(name, gains, "≥", 0.0, rule))
    return claims
