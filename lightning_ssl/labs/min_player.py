"""The two players of contrastive learning: descent on a loss is α solving, θ stepping, for every concave regularizer.

Source: "Understanding Deep Contrastive Learning via Coordinate-wise Optimization", Theorems 1 and 2, Corollary 1, and
our Tsallis family. A two-layer network embeds two views of a mixture of classes on the unit sphere;
anchors are one view, as in Eqn. 1. What is checked, for every seed:

- Theorem 1: for every loss of the (φ, ψ) table, ∇L = −∇E_{sg(α)} with α_ij = φ'(ξ_i) ψ'(d²_i − d²_ij).
- Theorem 2: where ψ is exponential, that α is the min player's: argmin_α E_α − R_H(α) over rows of sum τ⁻¹ ξ_i φ'(ξ_i).
  The row is solved numerically from r' and its inverse, not by its closed form.
- Corollary 1: T steps of "solve α, then one ascent step of E_{sg(α)} in θ" and T steps of descent on L are the same
  path. Propagating through α instead leaves it.
- Ours: the same for every concave r. By the envelope theorem the min player's value

      L_r(θ) = mean_i max_α Σ_j [ r(α_ij) − α_ij (d²_ij − d²_i) ],   α ≥ 0, Σ_j α_ij = 1

  has ∇L_r = −∇E_{sg(α)} at the solved α. So each regularizer of α-CL, not only Entropy, comes with a loss that its
  coordinate-wise steps descend: InfoNCE (ε = 0) for q = 1, a sparsemax loss for q = 2. Checked for every q by the path
  of descent on L_r, differentiated through the solved α, and by finite differences of L_r; for q = 1 and 2 also by the
  path of the closed form.

The q axis runs from q < 1 (every pair keeps weight) over q = 1 (Entropy) to q > 1 (far pairs are dropped) at matched
temperatures τ_q = τ K^{q−1}, for which r'' at uniform weights is the same for every q; see `importances`. Without the
matching (`--no-matched`) the axis mixes shape and strength: with K = 31 and τ = 0.5 for every q, rows use all 31
negatives at q = −1, about 23 at q = 1 and about two at q = 3.

A step size must let the loss fall. Beyond that (here from lr 0.1 on: an embedding that comes near the origin has a huge
gradient, as it is normalized) descent amplifies rounding: two runs of the *same* loss part by 1e-2 within 300 steps,
and so do the two paths, although their gradients agree to rounding at every point.

Conventions: ½ in the energy, means over anchors, float64. Everything is batched over (loss or q) × seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lightning_ssl.checks import require, require_positive
from lightning_ssl.labs.importances import matched_tau, sphere_mixture, spread_of, weigh
from lightning_ssl.labs.lab import PALETTE, Claim, Result, panels, per_seed, track
from lightning_ssl.losses.families import (
    MINE,
    ExponentialFamily,
    Family,
    InfoNCE,
    LiftedStructured,
    ModifiedTriplet,
    NPlusOneTuplet,
    Quadratic,
    SoftTriplet,
    Triplet,
)
from lightning_ssl.losses.importance import FromFamily
from lightning_ssl.losses.solved import Regularized, Tsallis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Weights = list[Tensor]
PerRun = Callable[[Tensor, Tensor], Tensor]
"""d2_pos (R, N), d2_neg (R, N, N) → a scalar of each run (R,)."""


def families(tau: float) -> dict[str, Family]:
    """Every loss of the (φ, ψ) table."""
    return {
        "InfoNCE, ε=0": InfoNCE(tau, 0.0),
        "InfoNCE, ε=1": InfoNCE(tau, 1.0),
        "MINE": MINE(),
        "Soft triplet": SoftTriplet(tau, 0.1),
        "N+1 tuplet": NPlusOneTuplet(),
        "Lifted structured": LiftedStructured(),
        "Triplet": Triplet(1.0),
        "Modified triplet": ModifiedTriplet(2.0),
        "Quadratic": Quadratic(),
    }


def embed(x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """z = W_2 tanh(W_1 x), on the unit sphere: (R, N, n) → (R, N, d)."""
    z = (x @ weights[0].mT).tanh() @ weights[1].mT
    return z / z.norm(dim=2, keepdim=True)


def pair_distances(x1: Tensor, x2: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """d2_pos (R, N) and d2_neg (R, N, N) with the first view as anchors."""
    z1, z2 = embed(x1, weights), embed(x2, weights)
    return 1 - (z1 * z2).sum(2), 1 - z1 @ z1.mT


def others(samples: int) -> Tensor:
    """Negatives of anchor i are all j ≠ i: (N, N)."""
    return ~torch.eye(samples, dtype=torch.bool)


def loss_of(family: Family, d2_pos: Tensor, d2_neg: Tensor) -> Tensor:
    """L = mean_i φ(Σ_{j≠i} ψ(d2_pos_i − d2_neg_ij)), (R,)."""
    runs, samples = d2_pos.shape
    value = family.value(d2_pos.flatten(), d2_neg.flatten(0, 1), others(samples).repeat(runs, 1))
    return value.view(runs, samples).mean(1)


def energy_of(alpha: Tensor, d2_pos: Tensor, d2_neg: Tensor) -> Tensor:
    """E_α = mean_i Σ_j α_ij (d2_neg_ij − d2_pos_i), (R,)."""
    return (alpha * (d2_neg - d2_pos[:, :, None])).sum(2).mean(1)


def solved_by_theorem_2(family: ExponentialFamily, d2_pos: Tensor, d2_neg: Tensor) -> Tensor:
    """argmin_α E_α − R_H(α) over rows of sum b_i = τ⁻¹ ξ_i φ'(ξ_i), solved from r' = −τ(log α + 1) alone.

    With α = b_i a_i the rows a_i are on the simplex, and b_i only multiplies their problem.
    """
    tau, valid = family.tau, others(d2_pos.shape[1])
    entropy = Regularized(lambda a: -tau * (a.log() + 1), lambda x: torch.exp(-x / tau - 1))
    xi = family.xi(d2_pos.flatten(), d2_neg.flatten(0, 1), valid.repeat(len(d2_pos), 1))
    b = (xi * family.phi_prime(xi) / tau).view_as(d2_pos)
    return b[:, :, None] * weigh(entropy, d2_pos, d2_neg, valid)


def regularizer(alpha: Tensor, tau: float, q: float, valid: Tensor) -> Tensor:
    """Σ_j r_q(α_ij) of every row, (R, N).

    r_q(α) = −τ (α^q − 1 − q(α − 1)) / (q(q − 1)): Tsallis' −τ α^q/(q(q−1)) up to what is constant on the simplex, so
    that the limits q → 1, −τ(α log α − α + 1), and q → 0, τ(log α − α + 1), exist.
    """
    a = torch.where(valid, alpha, 1.0)  # r_q(1) = 0: the anchor itself adds nothing
    if q == 1:
        r = -tau * (torch.special.xlogy(a, a) - a + 1)
    elif q == 0:
        r = tau * (a.log() - a + 1)
    else:
        r = -tau * (a.pow(q) - 1 - q * (a - 1)) / (q * (q - 1))
    return r.sum(2)


def min_player_value(tau: float, q: float, d2_pos: Tensor, d2_neg: Tensor) -> Tensor:
    """L_r = mean_i max_α Σ_j [r(α_ij) − α_ij (d2_neg_ij − d2_pos_i)] at the solved α, (R,)."""
    valid = others(d2_pos.shape[1])
    alpha = weigh(Tsallis(tau, q), d2_pos, d2_neg, valid)
    return regularizer(alpha, tau, q, valid).mean(1) - energy_of(alpha, d2_pos, d2_neg)


def closed_form_loss(tau: float, q: float, d2_pos: Tensor, d2_neg: Tensor) -> Tensor:
    """L_r for q = 1 and q = 2 without a solver, differentiable; up to a constant: (R,).

    q = 1: τ log Σ_j e^{(d2_pos_i − d2_neg_ij)/τ}.  q = 2: with s = −d2_neg/τ and the k largest s in the support,
    L = τ/2 · (1 + Σ_{support} (s_j² − t²)) + d2_pos, t = (Σ_{support} s_j − 1)/k.
    """
    itself = ~others(d2_pos.shape[1])
    if q == 1:
        return (tau * (-d2_neg / tau).masked_fill(itself, -torch.inf).logsumexp(2) + d2_pos).mean(1)
    s = (-d2_neg / tau).masked_fill(itself, -1e6).sort(2, descending=True).values
    k = torch.arange(1, s.shape[2] + 1, dtype=s.dtype)
    inside = 1 + k * s > s.cumsum(2)
    size = inside.sum(2, keepdim=True)
    t = (torch.where(inside, s, 0.0).sum(2, keepdim=True) - 1) / size
    return (tau / 2 * (1 + torch.where(inside, s.square() - t.square(), 0.0).sum(2)) + d2_pos).mean(1)


def gradient(weights: Sequence[Tensor], x1: Tensor, x2: Tensor, objective: PerRun) -> tuple[Weights, Tensor]:
    """The gradient of every run's objective in its own weights, and the objective (R,)."""
    leaves = [w.detach().requires_grad_(True) for w in weights]
    value = objective(*pair_distances(x1, x2, leaves))
    # Runs share no weight, so the gradient of the sum is each run's own gradient.
    return list(torch.autograd.grad(value.sum(), leaves)), value.detach()


def descend(
    weights: Sequence[Tensor],
    x1: Tensor,
    x2: Tensor,
    objective: PerRun,
    steps: int,
    lr: float | Tensor,
    progress: bool = False,
    label: str = "min player",
) -> tuple[list[Weights], Tensor]:
    """Plain gradient descent of every run; the weights at every step and the objective along the way (R, T).

    lr is one for all runs, or each run's own as (R, 1, 1).
    """
    path, values = [list(weights)], []
    for _ in track(range(steps), label, progress):
        g, value = gradient(path[-1], x1, x2, objective)
        path.append([w - lr * d for w, d in zip(path[-1], g, strict=True)])
        values.append(value)
    return path, torch.stack(values, 1)


def by_group(objectives: Sequence[PerRun], d2_pos: Tensor, d2_neg: Tensor) -> Tensor:
    """One objective for each equal group of runs: (R,)."""
    pos, neg = d2_pos.chunk(len(objectives)), d2_neg.chunk(len(objectives))
    return torch.cat([objective(p, n) for objective, p, n in zip(objectives, pos, neg, strict=True)])


def step_objective(solve: PerRun, d2_pos: Tensor, d2_neg: Tensor) -> Tensor:
    """−E_{sg(α)}: the max player's objective once the min player has answered."""
    alpha = solve(d2_pos.detach(), d2_neg.detach())
    return -energy_of(alpha.detach(), d2_pos, d2_neg)


def path_gap(ours: Sequence[Weights], theirs: Sequence[Weights]) -> Tensor:
    """Largest difference of a weight between two paths over all their steps, (R,)."""
    steps = [
        torch.stack([(a - b).abs().amax((1, 2)) for a, b in zip(u, v, strict=True)]).amax(0)
        for u, v in zip(ours, theirs, strict=True)
    ]
    return torch.stack(steps).amax(0)


def relative_gap(ours: Weights, theirs: Weights) -> Tensor:
    """‖a − b‖ / ‖b‖ of two gradients, (R,)."""
    a, b = (torch.cat([g.flatten(1) for g in gradients], 1) for gradients in (ours, theirs))
    return (a - b).norm(dim=1) / b.norm(dim=1)


def envelope_gap(weights: Weights, x1: Tensor, x2: Tensor, tau: float, q: float, direction: Weights) -> Tensor:
    """Relative difference of a central difference of L_r and −∇E_{sg(α)} along a direction, (R,)."""
    h = 1e-5

    def value(sign: int) -> Tensor:
        moved = [w + sign * h * d for w, d in zip(weights, direction, strict=True)]
        return min_player_value(tau, q, *pair_distances(x1, x2, moved))

    slope = (value(1) - value(-1)) / (2 * h)
    solve = partial(weigh, Tsallis(tau, q), valid=others(x1.shape[1]))
    g, _ = gradient(weights, x1, x2, partial(step_objective, solve))
    along = torch.stack([(a * b).sum((1, 2)) for a, b in zip(g, direction, strict=True)]).sum(0)
    size = torch.stack([a.square().sum((1, 2)) for a in g]).sum(0).sqrt()
    return (slope - along).abs() / size


def initial(inputs: int, hidden: int, outputs: int, seeds: int, first_seed: int = 0) -> Weights:
    """W_1 (seeds, hidden, inputs) and W_2 (seeds, outputs, hidden), Gaussian with variance 1/fan-in, float64."""
    w1 = per_seed(lambda g: torch.randn(hidden, inputs, generator=g).double(), seeds, first_seed, 20)
    w2 = per_seed(lambda g: torch.randn(outputs, hidden, generator=g).double(), seeds, first_seed, 21)
    return [w1 / inputs**0.5, w2 / hidden**0.5]


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
    """Theorems 1 and 2, Corollary 1 and the Tsallis axis, every loss, q and seed batched.

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
    quick: seconds instead of minutes
    progress: show a progress bar
    """
    require(len(q) >= 1, "q", q, "one or more exponents")
    require_positive("tau", tau)
    require(classes >= 2, "classes", classes, "2 or more")
    require(samples >= 3, "samples", samples, "3 or more")
    require(inputs >= 3, "inputs", inputs, "3 or more")
    require(hidden >= 1, "hidden", hidden, "1 or more")
    require(outputs >= 2, "outputs", outputs, "2 or more")
    require(steps >= 1, "steps", steps, "1 or more")
    require_positive("lr", lr)
    require(seeds >= 1, "seeds", seeds, "1 or more")
    if quick:
        steps, seeds = min(steps, 30), min(seeds, 3)
    taus = [matched_tau(tau, e, samples - 1) if matched else tau for e in q]
    settings = {
        "q": q, "tau": tau, "matched": matched, "tau_of_q": taus, "classes": classes, "samples": samples,
        "inputs": inputs, "hidden": hidden, "outputs": outputs, "steps": steps, "lr": lr,
        "seeds": seeds, "first_seed": first_seed, "quick": quick,
    }  # fmt: skip
    signal = max(1, inputs // 3)
    points = sphere_mixture(classes, 1, samples, signal, inputs - signal, 0.5, 0.5, seeds, first_seed)
    x1, x2 = points.x1[:, 0].double(), points.x2[:, 0].double()
    start = initial(inputs, hidden, outputs, seeds, first_seed)
    valid = others(samples)

    def times(groups: int) -> tuple[Weights, Tensor, Tensor]:
        return [w.repeat(groups, 1, 1) for w in start], x1.repeat(groups, 1, 1), x2.repeat(groups, 1, 1)

    # Theorem 1: gradients of all losses at the start.
    table = families(tau)
    weights, xs, ys = times(len(table))
    of_loss, _ = gradient(weights, xs, ys, partial(by_group, [partial(loss_of, f) for f in table.values()]))
    answers = [partial(step_objective, partial(weigh, FromFamily(f), valid=valid)) for f in table.values()]
    of_energy, _ = gradient(weights, xs, ys, partial(by_group, answers))
    theorem1 = relative_gap(of_energy, of_loss).view(len(table), seeds)

    # Theorem 2 and Corollary 1: the exponential losses, solved α against Eqn. 4, and both paths.
    exponential = {name: f for name, f in table.items() if isinstance(f, ExponentialFamily)}
    weights, xs, ys = times(len(exponential))
    d2_pos, d2_neg = pair_distances(xs, ys, weights)
    chunks = list(
        zip(exponential.values(), d2_pos.chunk(len(exponential)), d2_neg.chunk(len(exponential)), strict=True)
    )
    theorem2 = torch.stack(
        [(solved_by_theorem_2(f, p, n) - weigh(FromFamily(f), p, n, valid)).abs().amax((1, 2)) for f, p, n in chunks]
    )
    # Losses differ in Σ_j α_ij, hence in the size of their gradients; each steps by lr over that row_sum at the start.
    row_sum = torch.cat([weigh(FromFamily(f), p, n, valid).sum(2).mean(1) for f, p, n in chunks])[:, None, None]
    of_losses = partial(by_group, [partial(loss_of, f) for f in exponential.values()])
    descent, falling = descend(weights, xs, ys, of_losses, steps, lr / row_sum, progress, "descent on the loss")
    solvers = partial(
        by_group, [partial(step_objective, partial(solved_by_theorem_2, f)) for f in exponential.values()]
    )
    coordinate, _ = descend(weights, xs, ys, solvers, steps, lr / row_sum, progress, "coordinate-wise steps")
    shaken, _ = descend(
        [w * (1 + 1e-15) for w in weights], xs, ys, of_losses, steps, lr / row_sum, progress, "descent, weights rounded"
    )
    rounding = path_gap(shaken, descent)
    at_end = relative_gap(gradient(descent[-1], xs, ys, solvers)[0], gradient(descent[-1], xs, ys, of_losses)[0])
    corollary1 = path_gap(coordinate, descent).view(len(exponential), seeds)
    moved = path_gap([descent[0]], [descent[-1]]).view(len(exponential), seeds)

    # Propagating through α, for InfoNCE (ε = 0).
    def through_alpha(d2_pos: Tensor, d2_neg: Tensor) -> Tensor:
        alpha = (-d2_neg / tau).masked_fill(~valid, -torch.inf).softmax(2)
        return -energy_of(alpha, d2_pos, d2_neg)

    propagated, _ = descend(start, x1, x2, through_alpha, steps, lr, progress, "propagating through α")
    first = [[w[:seeds] for w in at] for at in descent]  # InfoNCE, ε=0 comes first in the table
    left = path_gap(propagated, first)

    # The q axis.
    weights, xs, ys = times(len(q))
    importances = [Tsallis(t, e) for t, e in zip(taus, q, strict=True)]
    answers = [partial(step_objective, partial(weigh, importance, valid=valid)) for importance in importances]
    path, _ = descend(weights, xs, ys, partial(by_group, answers), steps, lr, progress, "the q axis")
    tracks = _along(path, xs, ys, taus, q, valid)
    values = [partial(min_player_value, t, e) for t, e in zip(taus, q, strict=True)]
    through, _ = descend(weights, xs, ys, partial(by_group, values), steps, lr, progress, "descent on L_r")
    envelope_path = path_gap(path, through)
    closed = {}
    for t, e in zip(taus, q, strict=True):
        if e in (1, 2):
            theirs, _ = descend(start, x1, x2, partial(closed_form_loss, t, e), steps, lr, progress, f"loss of q={e:g}")
            k = q.index(e) * seeds
            closed[e] = path_gap([[w[k : k + seeds] for w in at] for at in path], theirs)
    direction = [
        per_seed(lambda g, s=w.shape[1:]: torch.randn(s, generator=g).double(), seeds, first_seed, 30 + n)  # type: ignore[misc]
        for n, w in enumerate(start)
    ]
    envelope = torch.stack([envelope_gap(start, x1, x2, t, e, direction) for t, e in zip(taus, q, strict=True)])

    loss = tracks["loss"]  # (Q, seeds, T)
    rise = torch.cat([loss.diff(dim=2).clamp_min(0).amax(2).flatten(), falling.diff(dim=1).clamp_min(0).amax(1)])
    zeros = tracks["zeros"].amax(2)  # (Q, seeds)
    claims = [
        Claim.at_most(f"Thm 1: {name}, gradient gap", gap, 1e-6) for name, gap in zip(table, theorem1, strict=True)
    ]
    claims += [
        Claim.at_most(f"Thm 2: {n}, solved α − Eqn. 4", g, 1e-6) for n, g in zip(exponential, theorem2, strict=True)
    ]
    claims += [
        Claim.at_most(f"Cor 1: {n}, gap of paths", g, 1e-6) for n, g in zip(exponential, corollary1, strict=True)
    ]
    claims.append(Claim.at_most("Cor 1: all of these, gradient gap at the end", at_end, 1e-6))
    claims.append(Claim.at_least("Sec 3.2: propagating through α, gap of paths", left, 1e-3))
    claims.append(Claim.at_most("ours: all q, gap to the path of descent on L_r", envelope_path, 1e-6))
    claims += [Claim.at_most(f"ours: q={e:g}, gap to the path of its closed form", g, 1e-6) for e, g in closed.items()]
    claims.append(Claim.at_most("ours: all q, finite difference of L_r − ∇E", envelope, 1e-5))
    claims.append(Claim.at_most("all losses and q, largest rise in a step", rise, 1e-9))
    keeping, dropping = [e <= 1 for e in q], [e > 1 for e in q]
    if any(keeping):
        claims.append(Claim.at_most("ours: q ≤ 1, largest share of zero weights", zeros[keeping], 0.0))
    if any(dropping):
        claims.append(Claim.at_least("ours: q > 1, largest share of zero weights", zeros[dropping], 1e-3))
    end = {name: tracks[name][:, :, -1].mean(1).tolist() for name in ("entropy", "energy", "nearest")}
    notes = [
        f"weights move by up to {float(moved.min()):.2f} to {float(moved.max()):.2f} along the paths compared",
        f"for scale: weights changed by 1e-15 of themselves at the start move a loss's own path by "
        f"{float(rounding.max()):.1e}",
        "end of the q axis (mean over seeds): "
        + "; ".join(
            f"q={e:g}: entropy {end['entropy'][k]:.3f}, energy {end['energy'][k]:.3f}, "
            f"nearest pair {end['nearest'][k]:.3f}"
            for k, e in enumerate(q)
        ),
    ]
    arrays = {
        **tracks, "theorem1": theorem1, "theorem2": theorem2, "corollary1": corollary1, "propagated": left,
        "envelope": envelope, "envelope_path": envelope_path.view(len(q), seeds),
        "gap_path": _gap_path(coordinate, descent, len(exponential)),
        "propagated_path": _gap_path(propagated, first, 1),
    }  # fmt: skip
    settings["losses"] = list(exponential)
    return Result("min_player", settings, arrays, claims, notes, _draw)


def _gap_path(ours: Sequence[Weights], theirs: Sequence[Weights], groups: int) -> Tensor:
    """Largest gap of any seed at every step: (groups, T + 1)."""
    gaps = torch.stack([path_gap([u], [v]) for u, v in zip(ours, theirs, strict=True)], 1)
    return gaps.view(groups, -1, gaps.shape[1]).amax(1)


def _along(
    path: Sequence[Weights], x1: Tensor, x2: Tensor, taus: Sequence[float], q: Sequence[float], valid: Tensor
) -> dict[str, Tensor]:
    """What both players do along a path, each (Q, seeds, T + 1)."""
    found: dict[str, list[Tensor]] = {}
    for weights in path:
        d2_pos, d2_neg = pair_distances(x1, x2, weights)
        parts = zip(taus, q, d2_pos.chunk(len(q)), d2_neg.chunk(len(q)), strict=True)
        alpha, r = [], []
        for tau, e, pos, neg in parts:
            alpha.append(weigh(Tsallis(tau, e), pos, neg, valid))
            r.append(regularizer(alpha[-1], tau, e, valid).mean(1))
        a = torch.cat(alpha)
        energy = energy_of(a, d2_pos, d2_neg)
        now = {
            **spread_of(a, valid),
            "energy": energy,
            "loss": torch.cat(r) - energy,
            "positive": d2_pos.mean(1),
            "nearest": d2_neg.masked_fill(~valid, torch.inf).amin(2).mean(1),
        }
        for name, value in now.items():
            found.setdefault(name, []).append(value)
    return {name: torch.stack(values, 1).view(len(q), -1, len(path)) for name, values in found.items()}


def _draw(result: Result) -> Figure:
    fig, (gap, energy, entropy, zeros, nearest, loss) = panels(2, 3, (15, 8.4))
    a, q = result.arrays, result.settings["q"]
    steps = torch.arange(1, a["gap_path"].shape[1])
    for k, name in enumerate(result.settings["losses"]):
        gap.plot(steps, a["gap_path"][k, 1:].clamp_min(1e-17), color=PALETTE[k % 7], label=name)
    gap.plot(steps, a["propagated_path"][0, 1:], "k--", label="propagating through α")
    gap.axhline(1e-6, color="0.5", linestyle=":")
    gap.set(title="Coordinate-wise steps against descent on the loss", xlabel="step", ylabel="largest gap of a weight")
    gap.set_yscale("log")
    gap.legend(frameon=False, fontsize=8, loc=(0.55, 0.2))
    import matplotlib

    colours = matplotlib.colormaps["cividis"](torch.linspace(0, 0.95, len(q)).numpy())
    shown = [
        (energy, "energy", "The max player's energy E_α", "E_α"),
        (entropy, "entropy", "The min player's choice: entropy of α", "row entropy / log K"),
        (zeros, "zeros", "Pairs the min player ignores", "share of zero weights"),
        (nearest, "nearest", "Distance to the nearest negative", "mean nearest d²"),
        (loss, "loss", "The loss that is descended, from its start", "L_r(θ_t) − L_r(θ_0)"),
    ]
    time = torch.arange(a["energy"].shape[2])
    for ax, name, title, label in shown:
        for k, e in enumerate(q):
            value = a[name][k].mean(0)
            value = value - value[0] if name == "loss" else value
            ax.plot(time, value, color=colours[k], label=f"q = {e:g}")
        ax.set(title=title, xlabel="step", ylabel=label)
    energy.legend(frameon=False, ncols=2, fontsize=8)
    return fig
