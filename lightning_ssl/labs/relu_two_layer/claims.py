"""The claims on the path and on the ends, and the notes."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_ssl.labs.lab import Claim
from lightning_ssl.labs.relu_two_layer.training import SETTLED, End, Problem


def path_claims(problem: Problem, path_gap: Tensor, revived: Tensor) -> list[Claim]:
    """Theorem 4 along the path, and Lemmas 13 and 14."""
    # The sign of an eigenvector is free: "has a negative entry" means entries of both signs.
    top, modes = problem.eigenvectors[:, :, -1], problem.x_alpha.shape[1]
    both_signs = torch.minimum(top.amax(1), -top.amin(1))
    off_diagonal = problem.x_alpha.masked_fill(torch.eye(modes, dtype=torch.bool), -torch.inf).amax((1, 2))
    return [
        Claim.at_most("Thm 4: largest gap of ReLU and sticky paths", path_gap, 1e-9),
        Claim.at_most("Thm 4: weights that left zero again", revived.double(), 0.0),
        Claim.at_most("Lemma 14: largest off-diagonal entry of X_α", off_diagonal, 0.0),
        Claim.at_least("Lemma 13: top eigenvector, smaller of largest + and −", both_signs, 1e-6),
    ]


def end_claims(end: End, hidden: tuple[int, ...]) -> list[Claim]:
    """Theorems 5 and 6, Figure 3 and our condition, at the ends."""

    def share(name: str, happened: Tensor, paper: float) -> Claim:
        return Claim.near(name, happened.double(), paper, tolerance=0)

    one_hot, neither = (end.rank == 1) & (end.modes_seen == 1), (end.rank == 1) & (end.modes_seen > 1)
    counted = end.settled & end.positive
    claims = []
    for k, nodes in enumerate(hidden):
        if nodes == 1:
            claims.append(share("Thm 5: K=1, share of ends at e_m", one_hot[:, k], 1.0))
        elif bool(counted[:, k].any()):
            name = f"Thm 6: K={nodes}, share rank one but not one-hot"
            claims.append(share(name, neither[:, k][counted[:, k]], 0.0))
    if max(hidden) > 1:
        several = float(((end.rank > 1) & counted)[:, [n > 1 for n in hidden]].double().mean())
        name, rule = "Fig 3: share of ends of rank > 1, all K > 1", "happens for at least one seed"
        claims.append(Claim(name, several, 0.0, 0.0, None, rule, several > 0, ">"))
        unexplained = (end.rank > 1) & end.positive & (end.lam_min >= 0)
        claims.append(share("ours: share of rank > 1 although λ_min ≥ 0", unexplained, 0.0))
    return claims


def make_notes(end: End, hidden: tuple[int, ...], augmentation: tuple[float, ...]) -> list[str]:
    """Shares of settled runs, of negative λ_min and of ranks above one."""
    notes = [
        f"{float(end.settled.double().mean()):.1%} of runs are settled (tangential gradient < {SETTLED:g} ‖X_α‖), "
        f"{float((~end.positive).double().mean()):.1%} end with E ≤ 0; "
        "Theorem 6 and Figure 3 count settled runs with E > 0"
    ]
    for g, strength in enumerate(augmentation):
        by_width = ", ".join(f"K={n}: {float((end.rank[g, k] > 1).double().mean()):.1%}" for k, n in enumerate(hidden))
        negative = float((end.lam_min[g, 0] < 0).double().mean())
        above = float((end.reached[g] > end.best_one_hot[g] + 1e-6).double().mean())
        notes.append(
            f"augmentation {strength:g}: λ_min(X_α) < 0 for {negative:.0%} of seeds; rank > 1: {by_width}; "
            f"energy above the best one-hot end: {above:.1%} of runs"
        )
    return notes
