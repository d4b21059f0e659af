"""The claims on X_α and on the ends, and the notes."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_ssl.labs.lab import Claim
from lightning_ssl.labs.relu_two_layer.network import classify, energy, sticky_gradients

# A run whose tangential gradient is below this times ‖X_α‖ is at a fixed point.
SETTLED = 1e-6

Arrays = dict[str, Tensor]


def signs_of(x_alpha: Tensor, top: Tensor) -> list[Claim]:
    """Lemmas 13 and 14, of X_α (…, M, M) and its top eigenvector (…, M)."""
    # The sign of an eigenvector is free: "has a negative entry" means entries of both signs.
    both_signs = torch.minimum(top.amax(-1), -top.amin(-1))
    off_diagonal = x_alpha.masked_fill(torch.eye(x_alpha.shape[-1], dtype=torch.bool), -torch.inf).amax((-2, -1))
    return [
        Claim.at_most("Lemma 14: largest off-diagonal entry of X_α", off_diagonal, 0.0),
        Claim.at_least("Lemma 13: top eigenvector, smaller of largest + and −", both_signs, 1e-6),
    ]


def measure_end(w1: Tensor, w2: Tensor, x_alpha: Tensor, eigenvalues: Tensor) -> Arrays:
    """Measure energy, rank, modes and convergence of every run; X_α is (strengths, 1, seeds, M, M).

    reached       energy over λ_max
    best_one_hot  largest X_mm over λ_max
    settled       at a fixed point of the constrained ascent
    positive      E > 0, as Theorem 6 assumes; impossible where λ_max < 0
    """
    lam_min, lam_max = eigenvalues[..., 0], eigenvalues[..., -1]
    end = energy(w1, w2, x_alpha)
    # At a fixed point of the constrained ascent each gradient is radial.
    tangential = [
        (g - (g * w).sum((-2, -1), keepdim=True) * w).norm(dim=(-2, -1))
        for w, g in zip((w1, w2), sticky_gradients(w1, w2, x_alpha), strict=True)
    ]
    residual = torch.maximum(*tangential) / torch.maximum(lam_max, -lam_min)
    rank, modes_seen = classify(w1)
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


def end_claims(end: Arrays, hidden: tuple[int, ...]) -> list[Claim]:
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


def make_notes(end: Arrays, hidden: tuple[int, ...], augmentation: tuple[float, ...]) -> list[str]:
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
