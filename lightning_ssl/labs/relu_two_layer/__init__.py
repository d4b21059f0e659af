"""Two ReLU layers on an orthogonal mixture: weights stick at zero, one node picks a mode, several may keep more.

Source: "Understanding Deep Contrastive Learning via Coordinate-wise Optimization", Lemmas 3, 13 and 14,
Theorems 4 to 6, Figure 3. Findings beyond the paper: docs/labs/relu_two_layer.md.

Data (Assumption 1): x[i] = a_i e_{m(i)} with a_i > 0, and the augmented view is γ_i x[i]. The network is
z = W_2 max(W_1 x, 0) under ‖W_1‖_F = ‖W_2‖_F = 1, and α is fixed. Checks, for every seed:

- Lemma 3 and Theorem 4: with W_1 ≥ 0 the ReLU network's own gradient is that of the linear network on the positive
  entries and zero on the others. Two simulations have the same path: one through samples and ReLU gates, one through
  X_α with weights that stick at zero.
- Lemmas 13, 14: all off-diagonal entries of X_α are negative, and its top eigenvector has entries of both signs.
- Theorem 5: one hidden node ends at e_m. The histogram shows how m depends on the diagonal of X_α.
- Theorem 6: several nodes end with rank(W_1) > 1 or at v e_mᵀ; a rank-one end that is not one-hot does not occur.
- Ours: rank(W_1) > 1 with positive energy needs λ_min(X_α) < 0. The default sweeps `augmentation` across that border.

Conventions. X_α = C_α[x, x] is a mean over anchors of one view, the energy is tr(W_2 W_1 X_α W_1ᵀ W_2ᵀ). A step that
would make a weight negative sets it to zero; by Lemma 3 this changes no output. Networks of different widths share one
batch: a node whose weights are all zero has no gradient, so narrower networks are padded with zero nodes. Steps are
divided by the run's larger layer gradient, as in `deep_linear`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from lightning_ssl.base.checks import require
from lightning_ssl.labs.deep_linear.data import fixed_alpha, mean_covariance
from lightning_ssl.labs.lab import Claim, Result, laboratory, per_seed
from lightning_ssl.labs.relu_two_layer import network
from lightning_ssl.labs.relu_two_layer.figures import draw

# A run whose tangential gradient is below this times ‖X_α‖ is at a fixed point.
SETTLED = 1e-6


@laboratory(quick={"steps": 1500, "seeds": 15}, modes=2, augmentation=0)
def run(
    *,
    modes: int = 8,
    hidden: tuple[int, ...] = (1, 2, 5, 10),
    outputs: int = 10,
    samples: int = 80,
    augmentation: tuple[float, ...] = (0.5, 1.0, 1.25, 1.5, 1.75),
    alpha: Literal["uniform", "entropy", "random"] = "uniform",
    tau: float = 0.5,
    init: Literal["positive", "gaussian"] = "positive",
    steps: int = 5000,
    lr: float = 0.1,
    seeds: int = 120,
    first_seed: int = 0,
    quick: bool = False,
    progress: bool = False,
) -> Result:
    """Check Theorems 4 to 6 for every augmentation, number of hidden nodes and seed in one batch.

    Args:
        modes: M, the modes of the mixture
        hidden: numbers of hidden nodes K
        outputs: output width
        samples: anchors from which X_α is made, every mode at least once
        augmentation: strengths; views differ by factors up to exp(±augmentation)
        alpha: the fixed importance: uniform, entropy (softmax over input distances) or random
        tau: temperature of alpha=entropy
        init: positive (all weights start above zero) or gaussian (about half start at zero)
        steps: projected gradient steps
        lr: step over the run's larger layer gradient
        seeds: runs per augmentation and number of hidden nodes
        first_seed: seed of the first run
        quick: fewer steps and seeds, in seconds
        progress: show a progress bar
    """
    require(samples > modes, "samples", samples, f"more than modes={modes}")
    views = [network.mixture(modes, samples, strength, seeds, first_seed) for strength in augmentation]
    x1, x2 = (torch.stack(view)[:, None] for view in zip(*views, strict=True))  # (A, 1, S, N, M)
    noise = per_seed(lambda g: torch.rand(samples, samples, generator=g).double(), seeds, first_seed, 3)
    fixed = fixed_alpha(x1, alpha, tau, noise.expand(len(x1), 1, -1, -1, -1))
    x_alpha = mean_covariance(x1, x2, fixed)  # (A, 1, S, M, M)
    start = network.initial(modes, hidden, outputs, init, seeds, first_seed)
    w1, w2 = (w.repeat(len(x1), 1, 1, 1, 1) for w in start)  # (A, K, S, ·, ·)
    # Samples are slower than X_α, so three seeds have to do.
    few = (each[:, :, :3].expand(-1, len(hidden), -1, -1, -1).flatten(0, 2) for each in (w1, w2, x1, x2, fixed))
    path_gap = network.compare_paths(min(steps, 100), lr, *few)
    w1, w2, revived, path = network.train(w1, w2, x_alpha, steps, lr, progress)
    eigenvalues, eigenvectors = torch.linalg.eigh(x_alpha)
    end = measure_end(w1, w2, x_alpha, eigenvalues)
    claims = [
        Claim.at_most("Thm 4: largest gap of ReLU and sticky paths", path_gap, 1e-9),
        Claim.at_most("Thm 4: weights that left zero again", revived.double(), 0.0),
        *signs_of(x_alpha, eigenvectors[..., -1]),
        *end_claims(end, hidden),
    ]
    # The example that is drawn: of the widest networks, the one with the largest second singular value.
    widest = (torch.tensor(hidden) == max(hidden))[:, None]
    second = torch.linalg.svdvals(w1)[..., min(1, modes - 1, max(hidden) - 1)]
    example = int((second * (end["settled"] & end["positive"] & widest)).argmax())
    nodes = hidden[example // seeds % len(hidden)]
    first, top = (w.flatten(0, 2)[example] for w in (w1, w2))
    path["energy"] = path["energy"] / end["lam_max"][:, None, :, None]
    arrays = end | path | {"example_w1": first[:nodes], "example_w2_gram": (top.mT @ top)[:nodes, :nodes]}
    return Result("relu_two_layer", {}, arrays, claims, make_notes(end, hidden, augmentation), draw)


def signs_of(x_alpha: Tensor, top: Tensor) -> list[Claim]:
    """Lemmas 13 and 14, of X_α (…, M, M) and its top eigenvector (…, M)."""
    # The sign of an eigenvector is free: "has a negative entry" means entries of both signs.
    both_signs = torch.minimum(top.amax(-1), -top.amin(-1))
    off_diagonal = x_alpha.masked_fill(torch.eye(x_alpha.shape[-1], dtype=torch.bool), -torch.inf).amax((-2, -1))
    return [
        Claim.at_most("Lemma 14: largest off-diagonal entry of X_α", off_diagonal, 0.0),
        Claim.at_least("Lemma 13: top eigenvector, smaller of largest + and −", both_signs, 1e-6),
    ]


def measure_end(w1: Tensor, w2: Tensor, x_alpha: Tensor, eigenvalues: Tensor) -> dict[str, Tensor]:
    """Measure energy, rank, modes and convergence of every run; X_α is (strengths, 1, seeds, M, M).

    reached       energy over λ_max
    best_one_hot  largest X_mm over λ_max
    settled       at a fixed point of the constrained ascent
    positive      E > 0, as Theorem 6 assumes; impossible where λ_max < 0
    """
    lam_min, lam_max = eigenvalues[..., 0], eigenvalues[..., -1]
    end = network.energy(w1, w2, x_alpha)
    # At a fixed point of the constrained ascent each gradient is radial.
    tangential = [
        (g - (g * w).sum((-2, -1), keepdim=True) * w).norm(dim=(-2, -1))
        for w, g in zip((w1, w2), network.sticky_gradients(w1, w2, x_alpha), strict=True)
    ]
    residual = torch.maximum(*tangential) / torch.maximum(lam_max, -lam_min)
    rank, modes_seen = network.classify(w1)
    diagonal, kept = x_alpha.diagonal(dim1=-2, dim2=-1).expand_as(w1[..., 0, :]), w1.amax(-2).argmax(-1)
    return {
        "rank": rank,
        "modes_seen": modes_seen,
        "settled": residual < SETTLED,
        "positive": end > 0,
        "reached": end / lam_max,
        "best_one_hot": diagonal.amax(-1) / lam_max,
        "lam_min": lam_min[:, 0],
        "lam_max": lam_max[:, 0],
        "kept_mode": kept,
        "kept_place": (diagonal > diagonal.gather(-1, kept[..., None])).sum(-1),
    }


def end_claims(end: dict[str, Tensor], hidden: tuple[int, ...]) -> list[Claim]:
    """Theorems 5 and 6, Figure 3 and our condition, at the ends."""

    def share(name: str, happened: Tensor, paper: float) -> Claim:
        return Claim.near(name, happened.double(), paper, tolerance=0)

    one, several, counted = end["rank"] == 1, end["rank"] > 1, end["settled"] & end["positive"]
    claims = []
    for k, nodes in enumerate(hidden):
        if nodes == 1:
            claims.append(share("Thm 5: K=1, share of ends at e_m", (one & (end["modes_seen"] == 1))[:, k], 1.0))
        elif bool(counted[:, k].any()):
            neither = (one & (end["modes_seen"] > 1))[:, k][counted[:, k]]
            claims.append(share(f"Thm 6: K={nodes}, share rank one but not one-hot", neither, 0.0))
    if max(hidden) > 1:
        happens = float((several & counted)[:, [n > 1 for n in hidden]].double().mean())
        name, rule = "Fig 3: share of ends of rank > 1, all K > 1", "happens for at least one seed"
        claims.append(Claim(name, happens, 0.0, 0.0, None, rule, happens > 0, ">"))
        unexplained = several & end["positive"] & (end["lam_min"] >= 0)[:, None]
        claims.append(share("ours: share of rank > 1 although λ_min ≥ 0", unexplained, 0.0))
    return claims


def make_notes(end: dict[str, Tensor], hidden: tuple[int, ...], augmentation: tuple[float, ...]) -> list[str]:
    """Shares of settled runs, of negative λ_min and of ranks above one."""

    def mean(happened: Tensor) -> float:
        return float(happened.double().mean())

    notes = [
        f"{mean(end['settled']):.1%} of runs are settled (tangential gradient < {SETTLED:g} ‖X_α‖), "
        f"{mean(~end['positive']):.1%} end with E ≤ 0; Theorem 6 and Figure 3 count settled runs with E > 0"
    ]
    for g, strength in enumerate(augmentation):
        by_width = ", ".join(f"K={n}: {mean(end['rank'][g, k] > 1):.1%}" for k, n in enumerate(hidden))
        notes.append(
            f"augmentation {strength:g}: λ_min(X_α) < 0 for {mean(end['lam_min'][g] < 0):.0%} of seeds; rank > 1: "
            f"{by_width}; energy above the best one-hot end: "
            f"{mean(end['reached'][g] > end['best_one_hot'][g] + 1e-6):.1%} of runs"
        )
    return notes
