"""Contrastive losses find the dictionary of sparse-coding data, non-contrastive ones stop at bad minima.

Source: "Contrasting the landscape of contrastive and non-contrastive learning", Theorems 1-3, Tables 1, 2 and 4,
Figures 1-18. Findings, and deviations from the paper: docs/labs/landscape.md.

Data: x = Mz + ε with an orthonormal dictionary M (p × d), sparse z ∈ {−1, 0, 1}^d and Gaussian ε. Two views are two
independent random masks of x.

Models: the encoder is W (m × p), with batch normalization and a symmetric ReLU where the tables have them. "CL" trains
one encoder by NT-Xent. "NCL" trains two encoders alternately, each towards the stopped output of the other (Eqn. 4).
The simplified SimSiam trains one encoder and a predictor.

Measure: max_i |cos(W_i*, M_*j)|, and of that the maximum, median and minimum over the columns j (Eqn. 11).

`data` has the codes and the measure, `models` the encoders, `losses` the losses, `training` the batched SGD, `tables`
the rows of the paper, `theorems` the exact settings of Theorems 1-3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from lightning_ssl.base.checks import require
from lightning_ssl.labs.lab import Result, require_bounds
from lightning_ssl.labs.landscape import tables as paper
from lightning_ssl.labs.landscape.data import permuted_counts
from lightning_ssl.labs.landscape.figures import draw
from lightning_ssl.labs.landscape.losses import IMPORTANCES
from lightning_ssl.labs.landscape.tables import STUDIES, Row
from lightning_ssl.labs.landscape.theorems import theorem_claims
from lightning_ssl.labs.landscape.training import Setting, recorded_epochs, train_all

# A smaller problem that runs in seconds. It shows the paper's orderings; its values are not those of the tables.
QUICK = {
    "epochs": 110, "samples": 384, "batch": 64, "p": 30, "d": 8, "m": 24, "tau": 0.5, "noise": None, "latents": None,
    "lr": 1.0, "sigmas": (0.3, 0.02), "importance_epochs": 20, "importance_batch": 32,
}  # fmt: skip


def run(
    *,
    tables: tuple[str, ...] = ("1", "2", "4"),
    recipe: Literal["released", "text"] = "released",
    sparsities: tuple[float, ...] = (0.1, 0.2, 0.3),
    sigmas: tuple[float, ...] = (0.14, 0.02, 0.002),
    epochs: int = 8000,
    samples: int = 1000,
    batch: int = 512,
    lr: float = 0.025,
    tau: float = 0.2,
    mask: float = 0.5,
    mask_table1: float = 0.9,
    p: int = 50,
    d: int = 10,
    m: int = 50,
    noise: float | None = None,
    latents: str | None = None,
    importances: tuple[str, ...] = tuple(IMPORTANCES),
    importance_epochs: int = 300,
    importance_batch: int = 128,
    workers: int = 1,
    seeds: int = 5,
    quick: bool = False,
    progress: bool = False,
) -> Result:
    """Train the models of Tables 1, 2 and 4 and compare how well they find the dictionary.

    Args:
        tables: studies to run: 1, 2, 4, figures (4–7, 16), importance (every α in place of NT-Xent)
        recipe: released (as the authors' programs do it) or text (as the paper describes it)
        sparsities: Pr(z_i ≠ 0)
        sigmas: noise of the warm starts of Table 4
        epochs: passes over the samples
        samples: number of samples
        batch: samples per step
        lr: learning rate of plain SGD
        tau: temperature of NT-Xent
        mask: probability that an augmentation removes an entry
        mask_table1: the same, for Table 1
        p: dimension of x
        d: number of dictionary columns
        m: number of neurons
        noise: standard deviation of ε; by default √(log d)/d (released) or log(d)/d (text)
        latents: permuted, bernoulli or one_hot; by default that of the recipe
        importances: importances of the importance study
        importance_epochs: epochs of the importance study
        importance_batch: samples per step of the importance study
        workers: processes that train models in parallel; a script with more than one needs a __main__ guard
        seeds: runs per model, sparsity and start
        quick: a smaller problem that runs in seconds
        progress: show a progress bar
    """
    settings = {name: value for name, value in locals().items() if name != "progress"}
    _check(settings)
    used = dict(settings)
    if quick:
        used |= QUICK | {"sparsities": sparsities[:1], "mask_table1": mask, "importances": importances[:2]}
        used["seeds"] = min(seeds, 3)
    rows = paper.table_rows(used)
    arrays = _train_rows(rows, used, importance_tau=tau, progress=progress)
    paths = {row: arrays[row.key] for row in rows}  # (T, sparsities, S, 3)
    final = {row: path[-1] for row, path in paths.items()}  # (sparsities, S, 3)
    claims = paper.ordering_claims(final, used["sparsities"])
    if not quick and (p, d, m) == (50, 10, 50):
        claims += paper.cell_claims(final, used["sparsities"]) + paper.direction_claims(paths)
    claims += theorem_claims()
    notes = paper.make_notes(claims, arrays, used["sparsities"])
    return Result("landscape", settings, arrays, claims, notes, partial(draw, rows=rows))


def _check(s: dict[str, Any]) -> None:
    for name, known in (("tables", STUDIES), ("importances", tuple(IMPORTANCES))):
        require(s[name] != () and set(s[name]) <= set(known), name, s[name], f"some of {', '.join(known)}")
    kinds = (None, "permuted", "bernoulli", "one_hot")
    require(s["latents"] in kinds, "latents", s["latents"], "permuted, bernoulli or one_hot")
    require(all(0 < b <= 1 for b in s["sparsities"]), "sparsities", s["sparsities"], "probabilities in (0, 1]")
    for name in ("mask", "mask_table1"):
        require(0 <= s[name] < 1, name, s[name], "a probability in [0, 1)")
    require(s["p"] >= s["d"], "p", s["p"], f"at least d = {s['d']}: the dictionary is orthonormal")
    require(2 <= s["batch"] <= s["samples"], "batch", s["batch"], f"2 to samples = {s['samples']}")
    require_bounds(s, "lr", "tau", epochs=1, seeds=1, importance_epochs=1, workers=1, d=1, m=1)


def _train_rows(rows: Sequence[Row], used: dict[str, Any], importance_tau: float, progress: bool) -> dict[str, Tensor]:
    """Train the models of all rows: the arrays of the result, with the max-cosines (T, sparsities, S, 3) of each row.

    Sparsities with the same codes (see `sparse_codes`) give the same runs and are trained once.
    """
    setting = Setting(**{each.name: used[each.name] for each in fields(Setting)})
    shorter = replace(setting, epochs=used["importance_epochs"], batch=used["importance_batch"])
    kinds = [permuted_counts(setting.d, x) if setting.codes == "permuted" else (x,) for x in used["sparsities"]]
    distinct = list(dict.fromkeys(kinds))
    sparsities = [used["sparsities"][kinds.index(kind)] for kind in distinct]
    # The longest trainings come first, so that the processes end at about the same time.
    order = sorted(rows, key=lambda row: (row.importance is not None, row.model.objective != "pairs"))
    jobs = []
    for row in order:
        importance = IMPORTANCES[row.importance](importance_tau) if row.importance else None
        jobs.append((row, sparsities, range(used["seeds"]), shorter if importance else setting, importance))
    trained = dict(zip(order, train_all(jobs, used["workers"], progress), strict=True))
    arrays = {
        "sparsities": torch.tensor(used["sparsities"]),
        "epochs": torch.tensor(recorded_epochs(setting.epochs)),
        "importance_epochs": torch.tensor(recorded_epochs(shorter.epochs)),
    }
    return arrays | {row.key: trained[row][:, [distinct.index(kind) for kind in kinds]] for row in rows}
