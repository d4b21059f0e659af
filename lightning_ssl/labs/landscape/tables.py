"""The rows of the paper's tables and figures: model, masks and start, and the published cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from lightning_ssl import papers
from lightning_ssl.labs.landscape.models import Model
from lightning_ssl.labs.landscape.recipes import Setting, setting_of

STUDIES = ("1", "2", "4", "figures", "masks", "warm", "recipes", "importance")
MODELS = {
    "ncl_linear": Model("dual", batch_norm=False, activation=False, normalized=False),
    "cl_linear": Model("pairs", batch_norm=False, activation=False),
    "ncl_basic": Model("dual"),
    "ncl_basic_2l": Model("dual", depth=2),
    "cl_basic": Model("pairs"),
    "simplified_simclr": Model("pairs", head=True),
    "simplified_simsiam": Model("siamese", head=True),
}
TABLE_2 = [name for name in MODELS if not name.startswith("simplified")]
BASIC = ("ncl_basic", "cl_basic")


@dataclass(frozen=True)
class Row:
    """One row of a study: the model, the probability that a mask keeps an entry, and the warm start.

    dependent   the second view keeps what the first removes (Eqn. 2); otherwise masks are independent (Eqn. 3)
    changes     fields of `Setting` that this row changes

    In the study of importances, the importance of this name replaces NT-Xent.
    """

    table: str
    name: str
    model: Model
    keep: float
    sigma: float | None = None
    dependent: bool = False
    changes: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def importance(self) -> str | None:
        return self.name if self.table == "importance" else None

    @property
    def key(self) -> str:
        """The name of its array of max-cosines, (T, sparsities, S, 3)."""
        return f"importance {self.name}" if self.importance else f"table {self.table}: {self.name}"

    def setting(self, base: Setting) -> Setting:
        """The setting of this row. A field without effect on the model has its default: equal runs are trained once."""
        unused = {
            "pairs": ["all_layers", "projector"],
            "dual": ["drop_last", "projector"],
            "siamese": ["all_layers", "drop_last"],
        }[self.model.objective]
        if not (self.model.activation and self.model.batch_norm):
            unused += ["symmetric"]
        default = vars(Setting())
        return replace(base, **self.changes | {name: default[name] for name in unused})


def table_rows(settings: dict[str, Any]) -> list[Row]:
    """List the rows of the settings' `tables`. A mask of 0.9 removes nine of ten entries."""
    s, tables = settings, settings["tables"]
    keep, p = 1 - s["mask"], s["p"]
    depth = 2 if setting_of(s["recipe"]).projector else 1
    models = MODELS | {"simplified_simsiam": replace(MODELS["simplified_simsiam"], depth=depth)}
    shorter = {"epochs": s["importance_epochs"], "batch": s["importance_batch"]}
    rows = [
        *(Row("1", name, models[name], 1 - s["mask_table1"]) for name in MODELS if name not in TABLE_2),
        *(Row("2", name, MODELS[name], keep) for name in TABLE_2),
        *(Row("4", f"ncl_basic σ={sigma:g}", MODELS["ncl_basic"], keep, sigma) for sigma in s["sigmas"]),
        *_figure_rows(keep, p),
        *(Row("masks", f"{name}, dependent masks", MODELS[name], keep, dependent=True) for name in BASIC),
        *_warm_rows(),
        *(
            Row("recipes", f"{recipe}: {name}", MODELS[name], keep, changes=vars(setting_of(**s | {"recipe": recipe})))
            for recipe in s["recipes"]
            for name in TABLE_2
        ),
        *(Row("importance", name, MODELS["cl_basic"], keep, changes=shorter) for name in s["importances"]),
    ]
    # The study of masks compares with rows of Table 2.
    wanted = [*tables, *(("2", name) for name in BASIC if "masks" in tables)]
    return [row for row in rows if row.table in wanted or (row.table, row.name) in wanted]


def _figure_rows(keep: float, p: int) -> list[Row]:
    """Figures 1, 4-9 and 13-16, with the sizes, masks and warm starts of their captions.

    Figures 1, 8 and 9 have no batch normalization. Both captions of 8 and 9 say m = 10; that of Figure 8 also says
    "overparametrized", so it has the lab's own m here. A caption without a mask has the default. The predictor of
    Figures 5 and 6 is trained in the text; the released optimizers do not hold it. Both are here.
    """
    basic = MODELS["ncl_basic"]
    predictor, rows, columns = replace(basic, head=True), replace(basic, unit="row"), replace(basic, unit="column")
    plain = [(kind, replace(MODELS[f"{kind}_basic"], batch_norm=False)) for kind in ("ncl", "cl")]
    square = {"p": 20, "d": 20, "m": 20}
    return [
        *(
            Row("figures", f"fig 1: {kind}, one-hot", model, keep, changes={"latents": "one_hot"})
            for kind, model in plain
        ),
        Row("figures", "fig 4: warm start", basic, keep, p**-0.5),
        *(
            Row("figures", f"{name}{kind} predictor", predictor, keep, sigma, changes={"all_layers": trained})
            for kind, trained in (("trained", True), ("fixed", False))
            for name, sigma in (("fig 5: warm start, ", p**-0.5), ("fig 6: ", None))
        ),
        Row("figures", "fig 7: warm start, row-normalized", rows, 0.1, 1 / p),
        *(Row("figures", f"fig 8: {kind}", model, keep) for kind, model in plain),
        *(Row("figures", f"fig 9: {kind}, m = 10", model, keep, changes={"m": 10}) for kind, model in plain),
        Row("figures", "fig 13: row-normalized, m = 10, c = 1", rows, keep, p**-0.5, changes={"m": 10}),
        Row("figures", "fig 14: row-normalized, p = d = m = 20, c = 1.25", rows, keep, 20**-0.625, changes=square),
        Row("figures", "fig 15: column-normalized, p = d = m = 20, c = 1.25", columns, 0.5, 20**-0.625, changes=square),
        Row("figures", "fig 16: warm start, column-normalized", columns, 0.25, 1 / p),
    ]


def _warm_rows() -> list[Row]:
    """Figures 14 and 15 with the masks and the warm starts c of the released configurations."""
    return [
        Row("warm", f"{unit}-normalized, c = {c:g}, mask {mask:g}", replace(MODELS["ncl_basic"], unit=unit), 1 - mask,
            20 ** (-c / 2), changes={"p": 20, "d": 20, "m": 20})
        for unit in ("row", "column") for c in (1, 1.25, 1.5, 2) for mask in (0.25, 0.5, 0.75, 0.9)
    ]  # fmt: skip


def published_cells(row: Row, sparsities: Sequence[float]) -> list[tuple[float, float]] | None:
    """The paper's [mean, std] of maximum, median and minimum for one row; None if it has none.

    Sparsities with the same data are one measurement: its published figures are the means over `sparsities`.
    """
    published = papers.load("landscape")
    table, name = ("2", row.name.partition(": ")[2]) if row.table == "recipes" else (row.table, row.name)
    if table == "4":
        found = [published["table4"].get(sparsity, {}).get(row.sigma) for sparsity in sparsities]
    else:
        found = [published.get(f"table{table}", {}).get(name, {}).get(sparsity) for sparsity in sparsities]
    cells = [cell for cell in found if cell]
    if not cells:
        return None
    return [(fmean(cell[j][0] for cell in cells), fmean(cell[j][1] for cell in cells)) for j in range(3)]
