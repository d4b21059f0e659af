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
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from lightning_ssl.base.checks import require
from lightning_ssl.labs.lab import Result
from lightning_ssl.labs.landscape.claims import cell_claims, direction_claims, make_notes, ordering_claims
from lightning_ssl.labs.landscape.data import permuted_counts
from lightning_ssl.labs.landscape.figures import draw
from lightning_ssl.labs.landscape.losses import IMPORTANCES, importance_named
from lightning_ssl.labs.landscape.models import Model
from lightning_ssl.labs.landscape.tables import MODELS, STUDIES, Row, table_rows
from lightning_ssl.labs.landscape.theorems import theorem_claims
from lightning_ssl.labs.landscape.training import Condition, Setting, Trained, Variant, train_all

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
    importances: tuple[str, ...] = IMPORTANCES,
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
    used = settings if not quick else settings | QUICK | _quick_subset(settings)
    setting = Setting(**{name: used[name] for name in _SETTING})
    rows = table_rows(tables, used["sigmas"], mask, used["mask_table1"], used["p"])
    trained_importances = used["importances"] if "importance" in tables else ()
    jobs, sparsity_index = _plan(rows, trained_importances, setting, used, importance_tau=tau)
    trained = dict(zip(jobs, train_all(list(jobs.values()), workers, progress), strict=True))
    arrays, paths = _collect(rows, trained_importances, jobs, trained, sparsity_index, used)
    final = {row: path[-1] for row, path in paths.items()}  # (sparsities, S, 3)
    claims = ordering_claims(final, used["sparsities"])
    if not quick and (p, d, m) == (50, 10, 50):
        claims += cell_claims(final, used["sparsities"]) + direction_claims(paths)
    claims += theorem_claims()
    notes = make_notes(claims, arrays, used["sparsities"])
    return Result("landscape", settings, arrays, claims, notes, partial(draw, rows=rows))


_SETTING = ("epochs", "recipe", "samples", "batch", "p", "d", "m", "tau", "noise", "latents")

# What is trained together: a model and the probability that its masks keep an entry, or an importance by name.
Job = tuple[Model, float] | str


def _check(settings: dict[str, Any]) -> None:
    s = settings
    for table in s["tables"]:
        require(table in STUDIES, "tables", table, f"some of {', '.join(STUDIES)}")
    kinds = (None, "permuted", "bernoulli", "one_hot")
    require(s["latents"] in kinds, "latents", s["latents"], "permuted, bernoulli or one_hot")
    require(all(0 < b <= 1 for b in s["sparsities"]), "sparsities", s["sparsities"], "probabilities in (0, 1]")
    for name in ("mask", "mask_table1"):
        require(0 <= s[name] < 1, name, s[name], "a probability in [0, 1)")
    require(s["p"] >= s["d"], "p", s["p"], f"at least d = {s['d']}: the dictionary is orthonormal")
    require(2 <= s["batch"] <= s["samples"], "batch", s["batch"], f"2 to samples = {s['samples']}")
    for name in ("epochs", "seeds", "importance_epochs", "workers", "d", "m"):
        require(s[name] >= 1, name, s[name], "at least 1")
    for name in ("lr", "tau"):
        require(s[name] > 0, name, s[name], "a positive number")
    for name in s["importances"]:
        importance_named(name, s["tau"])


def _quick_subset(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "sparsities": settings["sparsities"][:1],
        "mask_table1": settings["mask"],
        "importances": settings["importances"][:2],
        "seeds": min(settings["seeds"], 3),
    }


def _plan(
    rows: Sequence[Row], importances: Sequence[str], setting: Setting, used: dict[str, Any], importance_tau: float
) -> tuple[dict[Job, dict[str, Any]], list[int]]:
    """List the arguments of `train` for everything that is trained, and where each sparsity is in the results.

    Sparsities with the same codes (see `sparse_codes`) give the same runs and are trained once.
    """
    kinds = [permuted_counts(setting.d, x) if setting.codes == "permuted" else (x,) for x in used["sparsities"]]
    distinct = [used["sparsities"][kinds.index(kind)] for kind in dict.fromkeys(kinds)]
    common = {"seeds": list(range(used["seeds"])), "setting": setting}
    groups: dict[tuple[Model, float], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.model, row.keep), []).append(row)
    jobs: dict[Job, dict[str, Any]] = {}
    # The longest trainings come first, so that the processes end at about the same time.
    for model, keep in sorted(groups, key=lambda group: group[0].objective != "pairs"):
        members = groups[model, keep]
        jobs[model, keep] = common | {
            "model": model,
            "conditions": [Condition(sparsity, keep) for sparsity in distinct],
            "variants": [Variant(used["lr"], sigma) for sigma in dict.fromkeys(row.sigma for row in members)],
            "label": ", ".join(dict.fromkeys(row.name.split(" σ")[0] for row in members)),
        }
    shorter = {"epochs": used["importance_epochs"], "batch": used["importance_batch"]}
    for name in importances:
        jobs[name] = common | {
            "model": MODELS["cl_basic"],
            "conditions": [Condition(sparsity, 1 - used["mask"]) for sparsity in distinct],
            "variants": [Variant(used["lr"])],
            "setting": replace(setting, **shorter),
            "importance": importance_named(name, importance_tau),
            "label": f"α: {name}",
        }
    return jobs, [list(dict.fromkeys(kinds)).index(kind) for kind in kinds]


def _collect(
    rows: Sequence[Row],
    importances: Sequence[str],
    jobs: dict[Job, dict[str, Any]],
    trained: dict[Job, Trained],
    sparsity_index: list[int],
    used: dict[str, Any],
) -> tuple[dict[str, Tensor], dict[Row, Tensor]]:
    """The arrays of the result, and the max-cosines of every row in training, (T, sparsities, S, 3)."""
    arrays: dict[str, Tensor] = {"sparsities": torch.tensor(used["sparsities"])}
    paths: dict[Row, Tensor] = {}
    for row in rows:
        job = row.model, row.keep
        variant = [variant.sigma for variant in jobs[job]["variants"]].index(row.sigma)
        paths[row] = trained[job].cosines[:, :, :, variant][:, sparsity_index]
        arrays["epochs"], arrays[row.key] = trained[job].epochs, paths[row]
    for name in importances:
        arrays[f"importance {name}"] = trained[name].cosines[:, :, :, 0][:, sparsity_index]
    return arrays, paths
