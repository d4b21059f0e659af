"""The rows of the paper's tables and figures: which model, mask and start each one has, and its published cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lightning_ssl import papers
from lightning_ssl.labs.landscape.models import Model

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


def table_rows(
    tables: Sequence[str],
    sigmas: Sequence[float],
    mask: float,
    mask_table1: float,
    p: int,
    importances: Sequence[str] = (),
) -> list[Row]:
    """List the rows of the given tables. A mask of 0.9 removes nine of ten entries."""
    keep, basic = 1 - mask, MODELS["ncl_basic"]
    predictor = replace(basic, head=True)
    rows = [
        *(Row("1", name, MODELS[name], 1 - mask_table1) for name in ("simplified_simclr", "simplified_simsiam")),
        *(Row("2", name, model, keep) for name, model in MODELS.items() if not name.startswith("simplified")),
        *(Row("4", f"ncl_basic σ={sigma:g}", basic, keep, sigma) for sigma in sigmas),
        Row("figures", "fig 4: warm start", basic, keep, p**-0.5),
        Row("figures", "fig 5: warm start, predictor", predictor, keep, p**-0.5),
        Row("figures", "fig 6: predictor", predictor, keep),
        Row("figures", "fig 7: warm start, row-normalized", replace(basic, unit="row"), 0.1, 1 / p),
        Row("figures", "fig 16: warm start, column-normalized", replace(basic, unit="column"), 0.25, 1 / p),
        *(Row("importance", name, MODELS["cl_basic"], keep) for name in importances),
    ]
    return [row for row in rows if row.table in tables]


def published_cells(row: Row, sparsity: float) -> list[tuple[float, float]] | None:
    """The paper's [mean, std] of maximum, median and minimum for one row and sparsity; None if it has none."""
    published = papers.load("landscape")
    if row.table == "4":
        return published["table4"].get(sparsity, {}).get(row.sigma)
    return published.get(f"table{row.table}", {}).get(row.name, {}).get(sparsity)
