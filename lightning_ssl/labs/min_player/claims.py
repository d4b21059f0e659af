"""The steps of the lab: Theorem 1, Theorem 2 with Corollary 1, propagation through α, and the q axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.utils.data import default_collate

from lightning_ssl.labs.importances import row_statistics
from lightning_ssl.labs.lab import Claim, normal
from lightning_ssl.labs.min_player import descent, players
from lightning_ssl.labs.min_player.descent import Objective, Problem, Weights, alpha_of, energy_of
from lightning_ssl.losses.families import ExponentialFamily, Family
from lightning_ssl.losses.importance import FromFamily
from lightning_ssl.losses.solved import Tsallis

Arrays = dict[str, Tensor]
Findings = tuple[list[Claim], Arrays]


def theorem_1(problem: Problem, table: dict[str, Family]) -> Findings:
    """Theorem 1: the gradients of L and of −E_{sg(α)} at the start, for every loss."""
    of_loss, _ = problem.gradient(problem.start, *(partial(players.family_loss, family) for family in table.values()))
    of_energy, _ = problem.gradient(problem.start, *(energy_of(FromFamily(family)) for family in table.values()))
    gaps = descent.relative_gap(of_energy, of_loss)  # (losses, seeds)
    return _small_gaps("Thm 1: {}, gradient gap", table, gaps), {"theorem1": gaps}


def _small_gaps(claim: str, names: Iterable[str], gaps: Tensor) -> list[Claim]:
    return [Claim.at_most(claim.format(name), gap, 1e-6) for name, gap in zip(names, gaps, strict=True)]


def theorem_2_and_corollary_1(
    problem: Problem, families: dict[str, ExponentialFamily], tau: float
) -> tuple[list[Claim], Arrays, list[str], Tensor]:
    """Theorem 2 at the start, and Corollary 1: the paths of descent on L and of coordinate-wise steps.

    The first loss is InfoNCE with ε = 0. Returns claims, arrays, notes, and the losses along their paths.
    """
    d2 = players.pair_distances(problem.x1, problem.x2, problem.start)
    alphas = [alpha_of(FromFamily(family))(*d2) for family in families.values()]  # Eqn. 4
    solved_alphas = [players.theorem2_alpha(family, *d2) for family in families.values()]
    alpha_gaps = (torch.stack(solved_alphas) - torch.stack(alphas)).abs().amax((2, 3))  # (losses, seeds)
    # Losses differ in Σ_j α_ij, and so in the size of their gradients. The rate of each is lr over its mean row sum.
    rate = problem.lr / torch.stack([alpha.sum(2).mean(1) for alpha in alphas])[..., None, None]
    losses: list[Objective] = [partial(players.family_loss, family) for family in families.values()]
    solved: list[Objective] = [
        partial(descent.stopped_energy, partial(players.theorem2_alpha, family)) for family in families.values()
    ]
    descended, values = problem.descend(losses, "descent on the loss", rate)
    coordinate, _ = problem.descend(solved, "coordinate-wise steps", rate)
    perturbed, _ = problem.descend(losses, "descent, weights rounded", rate, scale=1 + 1e-15)
    propagated, _ = problem.descend([partial(players.propagated_energy, tau)], "propagating through α")
    end_gradients = [problem.gradient([w[-1] for w in descended], *each)[0] for each in (solved, losses)]
    along = descent.path_gaps(coordinate, descended)  # (T + 1, losses, seeds)
    propagated_along = descent.path_gaps(propagated, [w[:, :1] for w in descended])[:, 0]
    gaps, propagated_gap = along.amax(0), propagated_along.amax(0)
    rounding = descent.path_gaps(perturbed, descended)
    moved = descent.path_gaps([w[:1] for w in descended], [w[-1:] for w in descended])
    claims = [
        *_small_gaps("Thm 2: {}, solved α − Eqn. 4", families, alpha_gaps),
        *_small_gaps("Cor 1: {}, gap of paths", families, gaps),
        Claim.at_most("Cor 1: all of these, gradient gap at the end", descent.relative_gap(*end_gradients), 1e-6),
        Claim.at_least("Sec 3.2: propagating through α, gap of paths", propagated_gap, 1e-3),
    ]
    arrays = {
        "theorem2": alpha_gaps,
        "corollary1": gaps,
        "propagated": propagated_gap,
        "gap_path": along.amax(2).T,  # (losses, T + 1), the largest of any seed
        "propagated_path": propagated_along.amax(1)[None],
    }
    notes = [
        f"weights move by up to {float(moved.min()):.2f} to {float(moved.max()):.2f} along the paths compared",
        f"for scale: weights changed by 1e-15 of themselves at the start move a loss's own path by "
        f"{float(rounding.max()):.1e}",
    ]
    return claims, arrays, notes, values


def q_axis(
    problem: Problem, q: Sequence[float], taus: Sequence[float], first_seed: int
) -> tuple[list[Claim], Arrays, Arrays]:
    """Our result: coordinate-wise steps of every regularizer r_q descend its loss L_r.

    Returns claims, arrays, and the energy, loss and α along the paths, each (Q, seeds, T + 1).
    """
    pairs = list(zip(taus, q, strict=True))
    path, _ = problem.descend([energy_of(Tsallis(*pair)) for pair in pairs], "the q axis")
    through, _ = problem.descend([partial(players.min_player_value, *pair) for pair in pairs], "descent on L_r")
    envelope_path = descent.path_gaps(path, through).amax(0)
    claims = [Claim.at_most("ours: all q, gap to the path of descent on L_r", envelope_path, 1e-6)]
    for k, (tau, e) in enumerate(pairs):
        if e in (1, 2):
            theirs, _ = problem.descend([partial(players.closed_form_loss, tau, e)], f"loss of q={e:g}")
            gap = descent.path_gaps([w[:, k : k + 1] for w in path], theirs).amax(0)
            claims.append(Claim.at_most(f"ours: q={e:g}, gap to the path of its closed form", gap, 1e-6))
    direction = [normal(w.shape[1:], len(w), first_seed, 30 + n).double() for n, w in enumerate(problem.start)]
    envelope = torch.stack([problem.envelope_gap(*pair, direction) for pair in pairs])
    claims.append(Claim.at_most("ours: all q, finite difference of L_r − ∇E", envelope, 1e-5))
    return claims, {"envelope": envelope, "envelope_path": envelope_path}, _measure_path(path, problem, pairs)


def _measure_path(path: Weights, problem: Problem, pairs: Sequence[tuple[float, float]]) -> Arrays:
    """Energy, loss, distances and row statistics of α along a path, each (Q, seeds, T + 1)."""
    valid = players.negatives(problem.x1.shape[1])
    rows = []
    for weights in zip(*path, strict=True):
        for (tau, e), *d2 in zip(pairs, *players.pair_distances(problem.x1, problem.x2, weights), strict=True):
            d2_pos, d2_neg = d2
            alpha = alpha_of(Tsallis(tau, e))(d2_pos, d2_neg)
            energy = players.mean_energy(alpha, d2_pos, d2_neg)
            rows.append(
                row_statistics(alpha, valid)
                | {
                    "energy": energy,
                    "loss": players.regularizer(alpha, tau, e, valid).mean(1) - energy,
                    "positive": d2_pos.mean(1),
                    "nearest": d2_neg.masked_fill(~valid, torch.inf).amin(2).mean(1),
                }
            )
    return {name: v.unflatten(0, (-1, len(pairs))).permute(1, 2, 0) for name, v in default_collate(rows).items()}


def path_claims(along: Arrays, q: Sequence[float], falling: Tensor) -> tuple[list[Claim], str]:
    """Every loss falls in every step, and only q > 1 gives zero weights; the claims, and a note on the ends."""
    paths = (along["loss"].movedim(2, 0), falling)
    rise = torch.cat([path.diff(dim=0).clamp_min(0).amax(0).flatten() for path in paths])
    zeros = along["zeros"].amax(2)  # (Q, seeds)
    claims = [Claim.at_most("all losses and q, largest rise in a step", rise, 1e-9)]
    for rule, claim, bound, chosen in (
        ("≤", Claim.at_most, 0.0, [e <= 1 for e in q]),
        (">", Claim.at_least, 1e-3, [e > 1 for e in q]),
    ):
        if any(chosen):
            claims.append(claim(f"ours: q {rule} 1, largest share of zero weights", zeros[chosen], bound))
    end = {name: along[name][:, :, -1].mean(1).tolist() for name in ("entropy", "energy", "nearest")}
    return claims, "end of the q axis (mean over seeds): " + "; ".join(
        f"q={e:g}: entropy {end['entropy'][k]:.3f}, energy {end['energy'][k]:.3f}, nearest pair {end['nearest'][k]:.3f}"
        for k, e in enumerate(q)
    )
