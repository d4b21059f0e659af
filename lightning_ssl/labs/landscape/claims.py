"""The claims: the paper's orderings, the cells of its tables and the directions of its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from lightning_ssl.comparison.claims import margin_of, mean_holds
from lightning_ssl.labs.lab import Claim
from lightning_ssl.labs.landscape.data import METRICS
from lightning_ssl.labs.landscape.tables import Row, published_cells

TOLERANCE = 0.05


def ordering_claims(final: dict[Row, Tensor], sparsities: Sequence[float]) -> list[Claim]:
    """Check the orderings that the paper reads from its tables, all of the minimum max-cosine.

    `final` has the max-cosines of every row at the end of training, (sparsities, S, 3).
    """
    minimum = {row.name: value[..., 2] for row, value in final.items() if row.table in "124"}
    pairs = [("cl_basic", "ncl_basic"), ("simplified_simclr", "simplified_simsiam")]
    warm = [row.name for row in final if row.table == "4"]
    pairs += [(warmer, warm[0]) for warmer in warm[1:]]
    claims = []
    for better, worse in pairs:
        if better in minimum and worse in minimum:
            for k, sparsity in enumerate(sparsities):
                gains = minimum[better][k] - minimum[worse][k]
                name, rule = f"{better} over {worse}, β={sparsity:g}, minimum", "the mean difference is positive"
                claims.append(Claim.of_mean(name, gains, "≥", 0.0, rule))
    return claims


def cell_claims(final: dict[Row, Tensor], sparsities: Sequence[float]) -> list[Claim]:
    """Compare the max-cosines at the end with every published cell."""
    claims = []
    for row, values in final.items():
        for k, sparsity in enumerate(sparsities):
            for j, (paper, paper_std) in enumerate(published_cells(row, sparsity) or []):
                name = f"Table {row.table} {row.name} β={sparsity:g} {METRICS[j]}"
                cell = Claim.near(name, values[k, :, j], paper, tolerance=TOLERANCE)
                claims.append(replace(cell, paper_std=paper_std))
    return claims


def direction_claims(paths: dict[Row, Tensor]) -> list[Claim]:
    """Check the text on Figures 4–7 and 16: the minimum max-cosine rises or falls, mean over sparsities."""
    expected = {"fig 4": "falls", "fig 5": "rises", "fig 7": "rises", "fig 16": "rises"}
    claims = []
    for row, path in paths.items():
        direction = expected.get(row.name.partition(":")[0])
        if row.table == "figures" and direction:
            gains = (path[-1] - path[0])[..., 2].mean(0)
            rule = "the minimum max-cosine moves as the paper says"
            relation = "≥" if direction == "rises" else "≤"
            claims.append(Claim.of_mean(f"{row.name}, {direction}", gains, relation, 0.0, rule))
    return claims


def make_notes(claims: list[Claim], arrays: dict[str, Tensor], sparsities: Sequence[float]) -> list[str]:
    """Count the cells that agree, and list the max-cosines of every importance."""
    notes = []
    cells = [claim for claim in claims if claim.name.startswith("Table ")]
    if cells:
        near = sum(claim.agrees for claim in cells)
        spread = sum(mean_holds("equal", c.difference, margin_of(TOLERANCE, c.paper_std)) for c in cells)
        notes.append(
            f"{near} of {len(cells)} published cells within ±{TOLERANCE:g}; "
            f"{spread} within that or two of the paper's standard deviations"
        )
    for name, value in arrays.items():
        if name.startswith("importance "):
            last = value[-1].mean(1)  # (sparsities, 3)
            metrics = "; ".join(
                f"β={s:g} " + "/".join(f"{v:.2f}" for v in row)
                for s, row in zip(sparsities, last.tolist(), strict=True)
            )
            notes.append(f"α = {name.partition(' ')[2]}: maximum/median/minimum max-cosine {metrics}")
    return notes
