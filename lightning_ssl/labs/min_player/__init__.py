"""Descent on a contrastive loss equals solving for α and stepping θ, for every concave regularizer.

Source: "Understanding Deep Contrastive Learning via Coordinate-wise Optimization", Theorems 1 and 2, Corollary 1, and
our Tsallis family. A two-layer network embeds two views of a mixture of classes on the unit sphere; anchors are one
view, as in Eqn. 1. Findings: docs/labs/min_player.md.

Checks, for every seed:

- Theorem 1: for every loss of the (φ, ψ) table, ∇L = −∇E_{sg(α)} with α_ij = φ'(ξ_i) ψ'(d²_i − d²_ij).
- Theorem 2: where ψ is exponential, that α is the min player's: argmin_α E_α − R_H(α) over rows of sum τ⁻¹ ξ_i φ'(ξ_i).
  The row is solved numerically from r' and its inverse, not by its closed form.
- Corollary 1: T steps of "solve α, then one ascent step of E_{sg(α)} in θ" and T steps of descent on L are the same
  path. Propagating through α gives another path.
- Ours: the same for every concave r. By the envelope theorem the min player's value

      L_r(θ) = mean_i max_α Σ_j [ r(α_ij) − α_ij (d²_ij − d²_i) ],   α ≥ 0, Σ_j α_ij = 1

  has ∇L_r = −∇E_{sg(α)} at the solved α. So every regularizer of α-CL, not only Entropy, has a loss that its
  coordinate-wise steps descend: InfoNCE (ε = 0) for q = 1, a sparsemax loss for q = 2. Checked for every q by the path
  of descent on L_r, differentiated through the solved α, and by finite differences of L_r; for q = 1 and 2 also by the
  path of the closed form.

On the q axis every pair keeps weight for q < 1, q = 1 is Entropy, and far pairs are dropped for q > 1. Temperatures are
matched, τ_q = τ K^{q−1}: r'' at uniform weights is then the same for every q; see `importances`.

Conventions: ½ in the energy, means over anchors, float64. Everything is batched over (loss or q) × seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.utils.data import default_collate

from lightning_ssl.labs.importances import matched_tau, row_statistics, sphere_mixture
from lightning_ssl.labs.lab import Claim, Result, laboratory, normal
from lightning_ssl.labs.min_player import descent, players
from lightning_ssl.labs.min_player.descent import Objective, Problem, Weights, alpha_of, energy_of, initial
from lightning_ssl.labs.min_player.figures import draw
from lightning_ssl.losses.families import ExponentialFamily, Family
from lightning_ssl.losses.importance import FromFamily
from lightning_ssl.losses.solved import Tsallis


@laboratory(quick={"steps": 30, "seeds": 3}, q=-math.inf, classes=2, samples=3, inputs=3, outputs=2)
def run(
    *,
    q: tuple[float, ...] = (-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0),
    tau: float = 0.5,
    matched: bool = True,
    classes: int = 4,
    samples: int = 32,
    inputs: int = 12,
    hidden: int = 24,
    outputs: int = 16,
    steps: int = 300,
    lr: float = 0.05,
    seeds: int = 10,
    first_seed: int = 0,
    quick: bool = False,
    progress: bool = False,
) -> Result:
    """Check Theorems 1 and 2, Corollary 1 and the Tsallis axis, with every loss, q and seed batched.

    Args:
        q: Tsallis exponents of the min player's regularizer; 1 is Entropy, 2 Square, 1−γ Inverse
        tau: temperature
        matched: give each q the temperature τ K^(q−1), equally strong at uniform weights
        classes: classes of the points
        samples: samples N, each an anchor with N−1 negatives
        inputs: input dimensions, two thirds of them nuisance
        hidden: hidden width of the encoder
        outputs: width of the embedding
        steps: gradient steps
        lr: learning rate, over the mean row sum of α at the start
        seeds: runs per loss and per q
        first_seed: seed of the first run
        quick: fewer steps and seeds, in seconds
        progress: show a progress bar
    """
    taus = [matched_tau(tau, e, samples - 1) if matched else tau for e in q]
    signal = max(1, inputs // 3)
    points = sphere_mixture(classes, 1, samples, signal, inputs - signal, 0.5, 0.5, seeds, first_seed)
    x1, x2 = points.x1[:, 0].double(), points.x2[:, 0].double()
    problem = Problem(initial(inputs, hidden, outputs, seeds, first_seed), x1, x2, steps, lr, progress)
    table = players.families(tau)
    exponential = {name: family for name, family in table.items() if isinstance(family, ExponentialFamily)}
    result = Result("min_player", {"tau_of_q": taus, "losses": list(exponential)}, {}, [], draw=draw)
    theorem_1(result, problem, table)
    falling = theorem_2_and_corollary_1(result, problem, exponential, tau)
    q_axis(result, problem, list(zip(taus, q, strict=True)), first_seed)
    ends(result, q, falling)
    return result


def theorem_1(result: Result, problem: Problem, table: dict[str, Family]) -> None:
    """Theorem 1: the gradients of L and of −E_{sg(α)} at the start, for every loss."""
    of_loss, _ = problem.gradient(problem.start, *(partial(players.family_loss, family) for family in table.values()))
    of_energy, _ = problem.gradient(problem.start, *(energy_of(FromFamily(family)) for family in table.values()))
    result.arrays["theorem1"] = gaps = descent.relative_gap(of_energy, of_loss)  # (losses, seeds)
    result.claims += _small_gaps("Thm 1: {}, gradient gap", table, gaps)


def _small_gaps(claim: str, names: Iterable[str], gaps: Tensor) -> list[Claim]:
    return [Claim.at_most(claim.format(name), gap, 1e-6) for name, gap in zip(names, gaps, strict=True)]


def theorem_2_and_corollary_1(
    result: Result, problem: Problem, families: dict[str, ExponentialFamily], tau: float
) -> Tensor:
    """Theorem 2 at the start, and Corollary 1: the paths of descent on L and of coordinate-wise steps.

    The first loss is InfoNCE with ε = 0. Returns the losses along their paths.
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
    result.claims += [
        *_small_gaps("Thm 2: {}, solved α − Eqn. 4", families, alpha_gaps),
        *_small_gaps("Cor 1: {}, gap of paths", families, gaps),
        Claim.at_most("Cor 1: all of these, gradient gap at the end", descent.relative_gap(*end_gradients), 1e-6),
        Claim.at_least("Sec 3.2: propagating through α, gap of paths", propagated_gap, 1e-3),
    ]
    result.arrays |= {
        "theorem2": alpha_gaps,
        "corollary1": gaps,
        "propagated": propagated_gap,
        "gap_path": along.amax(2).T,  # (losses, T + 1), the largest of any seed
        "propagated_path": propagated_along.amax(1)[None],
    }
    result.notes += [
        f"weights move by up to {float(moved.min()):.2f} to {float(moved.max()):.2f} along the paths compared",
        f"for scale: weights changed by 1e-15 of themselves at the start move a loss's own path by "
        f"{float(rounding.max()):.1e}",
    ]
    return values


def q_axis(result: Result, problem: Problem, pairs: Sequence[tuple[float, float]], first_seed: int) -> None:
    """Our result: coordinate-wise steps of every regularizer r_q, of pairs (τ_q, q), descend its loss L_r."""
    path, _ = problem.descend([energy_of(Tsallis(*pair)) for pair in pairs], "the q axis")
    through, _ = problem.descend([partial(players.min_player_value, *pair) for pair in pairs], "descent on L_r")
    envelope_path = descent.path_gaps(path, through).amax(0)
    result.claims.append(Claim.at_most("ours: all q, gap to the path of descent on L_r", envelope_path, 1e-6))
    for k, (tau, e) in enumerate(pairs):
        if e in (1, 2):
            theirs, _ = problem.descend([partial(players.closed_form_loss, tau, e)], f"loss of q={e:g}")
            gap = descent.path_gaps([w[:, k : k + 1] for w in path], theirs).amax(0)
            result.claims.append(Claim.at_most(f"ours: q={e:g}, gap to the path of its closed form", gap, 1e-6))
    direction = [normal(w.shape[1:], len(w), first_seed, 30 + n).double() for n, w in enumerate(problem.start)]
    envelope = torch.stack([problem.envelope_gap(*pair, direction) for pair in pairs])
    result.claims.append(Claim.at_most("ours: all q, finite difference of L_r − ∇E", envelope, 1e-5))
    result.arrays |= {"envelope": envelope, "envelope_path": envelope_path} | _measure_path(path, problem, pairs)


def _measure_path(path: Weights, problem: Problem, pairs: Sequence[tuple[float, float]]) -> dict[str, Tensor]:
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


def ends(result: Result, q: Sequence[float], falling: Tensor) -> None:
    """Every loss falls in every step, and only q > 1 gives zero weights; a note on the ends."""
    along = result.arrays
    paths = (along["loss"].movedim(2, 0), falling)
    rise = torch.cat([path.diff(dim=0).clamp_min(0).amax(0).flatten() for path in paths])
    zeros = along["zeros"].amax(2)  # (Q, seeds)
    result.claims.append(Claim.at_most("all losses and q, largest rise in a step", rise, 1e-9))
    for rule, claim, bound, chosen in (
        ("≤", Claim.at_most, 0.0, [e <= 1 for e in q]),
        (">", Claim.at_least, 1e-3, [e > 1 for e in q]),
    ):
        if any(chosen):
            result.claims.append(claim(f"ours: q {rule} 1, largest share of zero weights", zeros[chosen], bound))
    end = {name: along[name][:, :, -1].mean(1).tolist() for name in ("entropy", "energy", "nearest")}
    parts = (
        f"q={e:g}: entropy {end['entropy'][k]:.3f}, energy {end['energy'][k]:.3f}, nearest pair {end['nearest'][k]:.3f}"
        for k, e in enumerate(q)
    )
    result.notes.append("end of the q axis (mean over seeds): " + "; ".join(parts))
