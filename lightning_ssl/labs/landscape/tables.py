"""The rows of the paper's tables and figures: model, mask and start, published cells, and the claims about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from lightning_ssl import papers
from lightning_ssl.comparison.claims import margin_of, mean_holds
from lightning_ssl.labs.lab import Claim
from lightning_ssl.labs.landscape.data import METRICS
from lightning_ssl.labs.landscape.models import Model

TOLERANCE = 0.05
STUDIES = ("1", "2", "4", "figures", "importance")
MODELS = {
    "ncl_linear": Model("dual", batch_norm=False, activation=False, normalized=False),
    "cl_linear": Model("pairs", batch_norm=False, activation=False),
    "ncl_basic": Model("dual"),
    "ncl_basic_2l": Model("dual", depth=2),
    "cl_basic": Model("pairs"),
    "simplified_simclr": Model("pairs", head=True),
    "simplified_simsiam": Model("siamese", head=True),
}


@dataclass(frozen=True)
class Row:
    """One row of a study: the model, the probability that a mask keeps an entry, and the warm start.

    In the study of importances, the importance of this name replaces NT-Xent.
    """

    table: str
    name: str
    model: Model
    keep: float
    sigma: float | None = None

    @property
    def importance(self) -> str | None:
        return self.name if self.table == "importance" else None

    @property
    def key(self) -> str:
        """The name of its array of max-cosines, (T, sparsities, S, 3)."""
        return f"importance {self.name}" if self.importance else f"table {self.table}: {self.name}"


def table_rows(settings: dict[str, Any]) -> list[Row]:
    """List the rows of the settings' `tables`. A mask of 0.9 removes nine of ten entries."""
    s = settings
    keep, basic, p = 1 - s["mask"], MODELS["ncl_basic"], s["p"]
    predictor = replace(basic, head=True)
    rows = [
        *(Row("1", name, MODELS[name], 1 - s["mask_table1"]) for name in ("simplified_simclr", "simplified_simsiam")),
        *(Row("2", name, model, keep) for name, model in MODELS.items() if not name.startswith("simplified")),
        *(Row("4", f"ncl_basic σ={sigma:g}", basic, keep, sigma) for sigma in s["sigmas"]),
        Row("figures", "fig 4: warm start", basic, keep, p**-0.5),
        Row("figures", "fig 5: warm start, predictor", predictor, keep, p**-0.5),
        Row("figures", "fig 6: predictor", predictor, keep),
        Row("figures", "fig 7: warm start, row-normalized", replace(basic, unit="row"), 0.1, 1 / p),
        Row("figures", "fig 16: warm start, column-normalized", replace(basic, unit="column"), 0.25, 1 / p),
        *(Row("importance", name, MODELS["cl_basic"], keep) for name in s["importances"]),
    ]
    return [row for row in rows if row.table in s["tables"]]


def published_cells(row: Row, sparsity: float) -> list[tuple[float, float]] | None:
    """The paper's [mean, std] of maximum, median and minimum for one row and sparsity; None if it has none."""
    published = papers.load("landscape")
    if row.table == "4":
        return published["table4"].get(sparsity, {}).get(row.sigma)
    return published.get(f"table{row.table}", {}).get(row.name, {}).get(sparsity)


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
