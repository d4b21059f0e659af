"""Hidden nodes of a deep ReLU network learn the latent variables of a tree without supervision.

Source: "Understanding Self-supervised Learning with Dual Deep Networks", Section 6 and Appendix C, Theorems 5
and 6, Lemmas 6 to 9, Tables 4 and 6, Figures 11, 13 and 14. Findings, and deviations from the paper: docs/labs/hltm.md.

Data: in a symmetric binary latent tree of depth L every latent z_μ ∈ {0, 1} equals its parent with probability
(1 + ρ)/2. The 2^L leaves are the input. Two views of a sample share only the root z_0. A negative has a root of its own
(equal to the anchor's in half of the cases).

Network: it has the shape of the tree. Latent μ has |N_μ| nodes, whose inputs are the nodes of its two children. The
loss brings two views together and moves negatives apart.

Measures, before training, after one epoch and at the end: the largest |corr(z_μ, f̃_j)| among the nodes j ∈ N_μ (Table
6; Table 4 is its root rows), and in training the Frobenius norm of the covariance operator
OP_μ = V_{z0}[E[f_ch ⊗ J_μᵀ | z_0]].

`tree` has the data, `networks` the networks and losses, `training` the training and both measures, `theorems` Theorems
5 and 6, `lucky` the number of nodes that Theorem 5 requires (Lemma 8, Figure 11, Eqn. 165), `categorical` trees with
categorical latents (Lemmas 6, 7 and 9).
"""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor

from lightning_ssl.base.checks import require
from lightning_ssl.labs.hltm import claims
from lightning_ssl.labs.hltm.categorical import categorical_claims
from lightning_ssl.labs.hltm.claims import FIGURE_OPERATORS, PAPER_SAMPLES, PAPER_WIDTHS
from lightning_ssl.labs.hltm.figures import draw
from lightning_ssl.labs.hltm.lucky import lucky_claims
from lightning_ssl.labs.hltm.theorems import theorem_claims
from lightning_ssl.labs.hltm.training import train
from lightning_ssl.labs.hltm.tree import find_latent
from lightning_ssl.labs.lab import Result, laboratory

TABLE6_LATENTS = ("root", "s0", "s1", "s101", "s0111")
QUICK = {"seeds": 4, "trials": 4, "epochs": 2, "samples": 32_000}


@laboratory(quick=QUICK, maybe_empty=("latents", "operators", "other_depths"), delta_lower=0, batch=0)
def run(
    *,
    depth: int = 5,
    widths: tuple[int, ...] = PAPER_WIDTHS,
    delta_lower: tuple[float, ...] = (0.7, 0.8, 0.9),
    epochs: int = 50,
    samples: int = PAPER_SAMPLES,
    batch: int = 128,
    lr: float = 0.1,
    tau: float = 0.1,
    loss: Literal["nce", "batch_nce", "simple"] = "nce",
    signed: bool = True,
    fresh: bool = True,
    bias: bool = True,
    normalize: bool = True,
    latents: tuple[str, ...] | None = None,
    operators: tuple[str, ...] | None = None,
    other_depths: tuple[int, ...] = (3, 4),
    seeds: int = 10,
    trials: int = 30,
    first_seed: int = 0,
    quick: bool = False,
    progress: bool = False,
) -> Result:
    """Train tree-shaped networks on latent trees and compare with Table 6 and Figures 13 and 14.

    Args:
        depth: layers L of the tree; it has 2^L leaves
        widths: nodes |N_μ| per latent
        delta_lower: ρ ~ Uniform[δ, 1] for each δ
        epochs: an epoch is `samples` triples; the last is compared with the paper's "converged" from 20 epochs on
        samples: triples (anchor, positive, negative) per epoch
        batch: triples per step
        lr: learning rate of plain gradient descent
        tau: temperature of the loss
        loss: nce (Eqn. 2), batch_nce (as in the released program) or simple (r₊ − r₋)
        signed: give ρ a random sign
        fresh: draw new samples in every epoch instead of repeating those of the first
        bias: nodes have biases
        normalize: l2-normalize the output
        latents: latents whose correlation is measured, root or s and a path of 0 (left) and 1 (right); by default those
            of Table 6
        operators: latents whose operator norm is measured; by default those of Figures 13 and 14
        other_depths: depths compared with `depth` in the norm of the operators (middle δ, largest width)
        seeds: trials of the correlations (10 in the paper); each has its own tree, weights and samples
        trials: trials of the operator norms (30 in the paper), at least `seeds`; the correlations use the first `seeds`
        first_seed: seed of the first trial
        quick: four trials of one δ, in seconds
        progress: show a progress bar
    """
    settings = dict(locals())
    require(depth <= 16, "depth", depth, "at most 16: a tree has 2^depth leaves")
    require(max(delta_lower) <= 1, "delta_lower", delta_lower, "numbers between 0 and 1")
    require(samples >= batch >= 1, "batch", batch, f"between 1 and samples={samples}")
    if quick:
        settings |= {"delta_lower": delta_lower[len(delta_lower) // 2 :][:1], "other_depths": ()}
    for argument, of_paper in (("latents", TABLE6_LATENTS), ("operators", FIGURE_OPERATORS)):
        if settings[argument] is None:
            settings[argument] = tuple(name for name in of_paper if len(name) <= depth or name == "root")
        for name in settings[argument]:
            find_latent(name, depth, argument)
    arrays = _train_depths(settings, progress)
    cells = claims.table6_claims(arrays["correlation"], settings)
    growth = [*claims.correlation_claims(arrays["correlation"], widths), *claims.operator_claims(arrays, settings)]
    theorems, theorem_note = theorem_claims(settings)
    lucky, lucky_notes, figure11 = lucky_claims()
    theorems += [*lucky, *categorical_claims(seeds, first_seed)]
    notes = [*claims.table6_notes(cells, settings), theorem_note, *lucky_notes]
    notes += claims.operator_notes(arrays["operator_norm"], settings)
    return Result("hltm", settings, arrays | figure11, [*cells, *growth, *theorems], notes, draw)


def _train_depths(settings: dict[str, Any], progress: bool) -> dict[str, Tensor]:
    """Train on trees of `depth` and, for the operator norms alone, of `other_depths`."""
    s, deltas = settings | {"seeds": max(settings["seeds"], settings["trials"])}, settings["delta_lower"]
    corr, norm = train(s["depth"], s["widths"], deltas, s["latents"], s["operators"], s, progress)
    arrays = {"correlation": corr[:, :, :, : settings["seeds"]], "operator_norm": norm}
    widest, middle = max(s["widths"]), deltas[len(deltas) // 2]
    for depth in s["other_depths"]:
        present = [name for name in s["operators"] if len(name) <= depth]
        if present:
            arrays[f"operator_norm_depth_{depth}"] = train(depth, (widest,), (middle,), (), present, s, progress)[1]
    return arrays
