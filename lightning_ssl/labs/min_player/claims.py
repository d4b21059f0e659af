"""The steps of the lab: Theorem 1, Theorem 2 with Corollary 1, propagation through α, and the q axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.utils.data import default_collate

from lightning_ssl.labs.importances import batched_alpha, row_statistics
from lightning_ssl.labs.lab import Claim, normal
from lightning_ssl.labs.min_player import descent, players
from lightning_ssl.labs.min_player.descent import Objective, Problem, Weights
from lightning_ssl.losses.families import ExponentialFamily, Family
from lightning_ssl.losses.importance import FromFamily
from lightning_ssl.losses.solved import Tsallis

Arrays = dict[str, Tensor]
Findings = tuple[list[Claim], Arrays]


def theorem_1(problem: Problem, table: dict[str, Family]) -> Findings:
    """Theorem 1: the gradients of L and of −E_{sg(α)} at the start, for every loss."""
    start = problem.repeat(len(table))
    of_loss, _ = descent.gradient(*start, *(partial(players.family_loss, family) for family in table.values()))
    of_energy, _ = descent.gradient(*start, *(problem.energy(FromFamily(family)) for family in table.values()))
    gaps = descent.relative_gap(of_energy, of_loss).view(len(table), problem.seeds)
    return _small_gaps("Thm 1: {}, gradient gap", table, gaps), {"theorem1": gaps}


def _small_gaps(claim: str, names: Iterable[str], gaps: Tensor) -> list[Claim]:
    return [Claim.at_most(claim.format(name), gap, 1e-6) for name, gap in zip(names, gaps, strict=True)]


def theorem_2_and_corollary_1(
    problem: Problem, families: dict[str, ExponentialFamily], tau: float
) -> tuple[list[Claim], Arrays, list[str], Tensor]:
    """Theorem 2 at the start, and Corollary 1: the paths of descent on L and of coordinate-wise steps.

    The first loss is InfoNCE with ε = 0. Returns claims, arrays, notes, and the losses along their paths (R, T).
    """
    d2 = players.pair_distances(problem.x1, problem.x2, problem.start)
    alphas = [batched_alpha(FromFamily(family), *d2, problem.valid) for family in families.values()]  # Eqn. 4
    solved_alphas = [players.theorem2_alpha(family, *d2) for family in families.values()]
    alpha_gaps = (torch.stack(solved_alphas) - torch.stack(alphas)).abs().amax((2, 3))  # (losses, seeds)
    # Losses differ in Σ_j α_ij, and so in the size of their gradients. The rate of each is lr over its mean row sum.
    rate = problem.lr / torch.cat([alpha.sum(2).mean(1) for alpha in alphas])[:, None, None]
    losses: list[Objective] = [partial(players.family_loss, family) for family in families.values()]
    solved: list[Objective] = [
        partial(descent.stopped_energy, partial(players.theorem2_alpha, family)) for family in families.values()
    ]
    descended, values = problem.descend(losses, "descent on the loss", rate)
    coordinate, _ = problem.descend(solved, "coordinate-wise steps", rate)
    perturbed, _ = problem.descend(losses, "descent, weights rounded", rate, scale=1 + 1e-15)
    propagated, _ = problem.descend([partial(players.propagated_energy, tau)], "propagating through α")
    _, x1, x2 = problem.repeat(len(families))
    end_gradients = [descent.gradient([w[-1] for w in descended], x1, x2, *each)[0] for each in (solved, losses)]
    along = descent.path_gaps(coordinate, descended)
    propagated_along = descent.path_gaps(propagated, [w[:, : problem.seeds] for w in descended])
    gaps, propagated_gap = along.amax(0).view(alpha_gaps.shape), propagated_along.amax(0)
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
        "gap_path": along.view(-1, *gaps.shape).amax(2).T,  # (losses, T + 1), the largest of any seed
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
    solved = [problem.energy(Tsallis(tau, e)) for tau, e in pairs]
    values: list[Objective] = [partial(players.min_player_value, tau, e) for tau, e in pairs]
    path, _ = problem.descend(solved, "the q axis")
    through, _ = problem.descend(values, "descent on L_r")
    envelope_path = descent.path_gaps(path, through).amax(0)
    closed = {}
    for k, (tau, e) in enumerate(pairs):
        if e in (1, 2):
            theirs, _ = problem.descend([partial(players.closed_form_loss, tau, e)], f"loss of q={e:g}")
            runs = slice(k * problem.seeds, (k + 1) * problem.seeds)
            closed[e] = descent.path_gaps([w[:, runs] for w in path], theirs).amax(0)
    direction = [normal(w.shape[1:], problem.seeds, first_seed, 30 + n).double() for n, w in enumerate(problem.start)]
    envelope = torch.stack(
        [descent.envelope_gap(problem.start, problem.x1, problem.x2, tau, e, direction) for tau, e in pairs]
    )
    claims = [
        Claim.at_most("ours: all q, gap to the path of descent on L_r", envelope_path, 1e-6),
        *(Claim.at_most(f"ours: q={e:g}, gap to the path of its closed form", g, 1e-6) for e, g in closed.items()),
        Claim.at_most("ours: all q, finite difference of L_r − ∇E", envelope, 1e-5),
    ]
    arrays = {"envelope": envelope, "envelope_path": envelope_path.view(len(q), problem.seeds)}
    return claims, arrays, _measure_path(path, problem, taus, q)


def _measure_path(path: Weights, problem: Problem, taus: Sequence[float], q: Sequence[float]) -> Arrays:
    """Energy, loss, distances and row statistics of α along a path, each (Q, seeds, T + 1)."""
    _, x1, x2 = problem.repeat(len(q))
    valid = problem.valid
    rows = []
    for weights in zip(*path, strict=True):
        d2_pos, d2_neg = players.pair_distances(x1, x2, weights)
        alphas, r = [], []
        for tau, e, pos, neg in zip(taus, q, d2_pos.chunk(len(q)), d2_neg.chunk(len(q)), strict=True):
            alphas.append(batched_alpha(Tsallis(tau, e), pos, neg, valid))
            r.append(players.regularizer(alphas[-1], tau, e, valid).mean(1))
        alpha = torch.cat(alphas)
        energy = players.mean_energy(alpha, d2_pos, d2_neg)
        rows.append(
            row_statistics(alpha, valid)
            | {
                "energy": energy,
                "loss": torch.cat(r) - energy,
                "positive": d2_pos.mean(1),
                "nearest": d2_neg.masked_fill(~valid, torch.inf).amin(2).mean(1),
            }
        )
    return {name: v.T.view(len(q), problem.seeds, -1) for name, v in default_collate(rows).items()}


def path_claims(along: Arrays, q: Sequence[float], falling: Tensor) -> tuple[list[Claim], str]:
    """Every loss falls in every step, and only q > 1 gives zero weights; the claims, and a note on the ends."""
    rise = torch.cat(
        [along["loss"].diff(dim=2).clamp_min(0).amax(2).flatten(), falling.diff(dim=1).clamp_min(0).amax(1)]
    )
    zeros = along["zeros"].amax(2)  # (Q, seeds)
    claims = [Claim.at_most("all losses and q, largest rise in a step", rise, 1e-9)]
    keeping, dropping = [e <= 1 for e in q], [e > 1 for e in q]
    if any(keeping):
        claims.append(Claim.at_most("ours: q ≤ 1, largest share of zero weights", zeros[keeping], 0.0))
    if any(dropping):
        claims.append(Claim.at_least("ours: q > 1, largest share of zero weights", zeros[dropping], 1e-3))
    end = {name: along[name][:, :, -1].mean(1).tolist() for name in ("entropy", "energy", "nearest")}
    return claims, "end of the q axis (mean over seeds): " + "; ".join(
        f"q={e:g}: entropy {end['entropy'][k]:.3f}, energy {end['energy'][k]:.3f}, nearest pair {end['nearest'][k]:.3f}"
        for k, e in enumerate(q)
    )
