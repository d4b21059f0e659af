"""Contrastive losses find the dictionary of sparse-coding data, non-contrastive ones stop at bad minima.

Source: "Contrasting the landscape of contrastive and non-contrastive learning", Theorems 1-3, Corollary 1, Tables 1, 2
and 4, Figures 1-18. Findings, and deviations from the paper: docs/labs/landscape.md.

Data: x = Mz + ε with an orthonormal dictionary M (p × d), sparse z ∈ {−1, 0, 1}^d and Gaussian ε. Two views are two
independent random masks of x (Eqn. 3), or the two halves of one (Eqn. 2).

Models: the encoder is W (m × p), with batch normalization and a symmetric ReLU where the tables have them. "CL" trains
one encoder by NT-Xent. "NCL" trains two encoders alternately, each towards the stopped output of the other (Eqn. 4).
The simplified SimSiam trains one encoder and a predictor.

Measure: max_i |cos(W_i*, M_*j)|, and of that the maximum, median and minimum over the columns j (Eqn. 11).

`data` has the codes and the measure, `models` the encoders, `losses` the losses, `training` the batched SGD, `recipes`
what a run does where the text is open, `tables` the rows of the paper, `claims` what it says of them, `theorems` the
exact settings of Theorems 1-3 and Corollary 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from lightning_ssl.base.checks import require
from lightning_ssl.labs.lab import Result, laboratory
from lightning_ssl.labs.landscape import claims as paper
from lightning_ssl.labs.landscape.claims import Runs
from lightning_ssl.labs.landscape.figures import TITLES, draw
from lightning_ssl.labs.landscape.losses import IMPORTANCES
from lightning_ssl.labs.landscape.recipes import CHOSEN, RECIPES, Setting, setting_of
from lightning_ssl.labs.landscape.tables import STUDIES, Row, table_rows
from lightning_ssl.labs.landscape.theorems import theorem_claims
from lightning_ssl.labs.landscape.training import recorded_epochs, train_all

# A smaller problem that runs in seconds. It shows the paper's orderings; its values are not those of the tables.
QUICK = {
    "epochs": 110, "samples": 384, "batch": 64, "p": 30, "d": 8, "m": 24, "tau": 0.5, "noise": None, "latents": None,
    "lr": 1.0, "sigmas": (0.3, 0.02), "importance_epochs": 20, "importance_batch": 32,
}  # fmt: skip


@laboratory(quick={"seeds": 3}, batch=2, sigmas=0, mask=0, mask_table1=0, noise=0)
def run(
    *,
    tables: tuple[str, ...] | None = None,
    recipe: str = CHOSEN,
    recipes: tuple[str, ...] = tuple(RECIPES),
    sparsities: tuple[float, ...] = (0.1, 0.2, 0.3),
    sigmas: tuple[float, ...] = (0.14, 0.02, 0.002),
    epochs: int | None = None,
    samples: int | None = None,
    batch: int = 512,
    lr: float = 0.025,
    tau: float = 0.2,
    mask: float = 0.5,
    mask_table1: float = 0.9,
    p: int = 50,
    d: int = 10,
    m: int = 50,
    noise: float | None = None,
    latents: Literal["permuted", "bernoulli", "one_hot"] | None = None,
    importances: tuple[str, ...] = tuple(IMPORTANCES),
    importance_epochs: int = 300,
    importance_batch: int = 128,
    workers: int = 1,
    seeds: int = 5,
    quick: bool = False,
    progress: bool = False,
) -> Result:
    """Train the models of Tables 1, 2 and 4 and of the figures, and compare how well they find the dictionary.

    Args:
        tables: studies to run: 1, 2, 4, figures (1, 4–9, 13–16), masks (Eqn. 2 against Eqn. 3), warm (warm starts by
            masks), recipes (Table 2 under each), importance (every α in place of NT-Xent); by default 1, 2, 4, figures
            and masks, and 1, 2, 4 of a quick run
        recipe: what a run does where the text is open or differs from the released programs
        recipes: those of the study of this name
        sparsities: Pr(z_i ≠ 0)
        sigmas: noise of the warm starts of Table 4
        epochs: passes over the samples; by default those of the recipe
        samples: number of samples; by default that of the recipe
        batch: samples per step
        lr: learning rate of plain SGD
        tau: temperature of NT-Xent
        mask: probability that an augmentation removes an entry
        mask_table1: the same, for Table 1
        p: dimension of x
        d: number of dictionary columns
        m: number of neurons
        noise: standard deviation of ε; by default that of the recipe
        latents: permuted, bernoulli or one_hot; by default that of the recipe
        importances: importances of the importance study
        importance_epochs: epochs of the importance study
        importance_batch: samples per step of the importance study
        workers: processes that train models in parallel; a script with more than one needs a __main__ guard
        seeds: runs per model, sparsity and start
        quick: a smaller problem that runs in seconds
        progress: show a progress bar
    """
    if tables is None:
        tables = ("1", "2", "4") if quick else ("1", "2", "4", "figures", "masks")
    settings = dict(locals())
    _check(settings)
    used = dict(settings)
    if quick:
        used |= QUICK | {"sparsities": sparsities[:1], "mask_table1": mask, "importances": importances[:2]}
        used |= {"recipes": recipes[:2]}
    rows = table_rows(used)
    runs = _train_rows(rows, used, importance_tau=tau, progress=progress)
    claims = paper.ordering_claims(runs)
    if not quick and (p, d, m) == (50, 10, 50):
        claims += paper.cell_claims(runs) + paper.figure_claims(runs) + paper.mask_claims(runs)
    claims += theorem_claims()
    notes = [f"setting: {', '.join(f'{k}={v}' for k, v in vars(setting_of(**used)).items())}"]
    notes += paper.make_notes(claims, runs, used["recipes"])
    drawn = partial(draw, rows=rows) if any(row.table in TITLES for row in rows) else None
    return Result("landscape", settings, _arrays(runs, used), claims, notes, drawn)


def _check(s: dict[str, Any]) -> None:
    for name, known in (("tables", STUDIES), ("importances", tuple(IMPORTANCES)), ("recipes", tuple(RECIPES))):
        require(bool(s[name]) and set(s[name]) <= set(known), name, s[name], f"some of {', '.join(known)}")
    require(s["recipe"] in RECIPES, "recipe", s["recipe"], f"one of {', '.join(RECIPES)}")
    require(max(s["sparsities"]) <= 1, "sparsities", s["sparsities"], "probabilities in (0, 1]")
    for name in ("mask", "mask_table1"):
        require(s[name] < 1, name, s[name], "a probability in [0, 1)")
    require(s["p"] >= s["d"], "p", s["p"], f"at least d = {s['d']}: the dictionary is orthonormal")
    samples = setting_of(**s).samples
    require(s["batch"] <= samples, "batch", s["batch"], f"2 to samples = {samples}")


def _train_rows(rows: Sequence[Row], used: dict[str, Any], importance_tau: float, progress: bool) -> Runs:
    """Train the models of all rows. Rows and sparsities with the same runs are trained once."""
    base, keys = setting_of(**used), {}
    # The longest trainings come first, so that the processes end at about the same time.
    for row in sorted(rows, key=lambda row: (row.importance is not None, row.model.objective != "pairs")):
        # All recipes are measured at the sparsities that have data of their own under every one of them.
        sparsities = used["sparsities"]
        if row.table == "recipes":
            sparsities = tuple(group[0] for group in Setting().same_data(sparsities))
        setting = row.setting(base)
        treatment = (row.model, row.keep, row.sigma, row.dependent, row.importance)
        keys[row] = (*treatment, setting, tuple(setting.same_data(sparsities)))
    distinct = {key: row for row, key in keys.items()}
    jobs = []
    for (*_, setting, groups), row in distinct.items():
        importance = IMPORTANCES[row.importance](importance_tau) if row.importance else None
        jobs.append((row, [group[0] for group in groups], range(used["seeds"]), setting, importance))
    trained = dict(zip(distinct, train_all(jobs, used["workers"], progress), strict=True))
    return {row: {group: trained[keys[row]][:, k] for k, group in enumerate(keys[row][-1])} for row in rows}


def _arrays(runs: Runs, used: dict[str, Any]) -> dict[str, Tensor]:
    """The max-cosines (T, sparsities, S, 3) of each row; sparsities with the same data have the same values."""
    arrays = {
        "sparsities": torch.tensor(used["sparsities"]),
        "epochs": torch.tensor(recorded_epochs(setting_of(**used).epochs)),
        "importance_epochs": torch.tensor(recorded_epochs(used["importance_epochs"])),
    }
    for row, paths in runs.items():
        arrays[row.key] = torch.stack([path for group, path in paths.items() for _ in group], 1)
    return arrays
