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

from lightning_ssl.base.checks import require
from lightning_ssl.labs.importances import matched_tau, sphere_mixture
from lightning_ssl.labs.lab import Result, require_bounds
from lightning_ssl.labs.min_player.claims import path_claims, q_axis, theorem_1, theorem_2_and_corollary_1
from lightning_ssl.labs.min_player.descent import Problem, initial
from lightning_ssl.labs.min_player.figures import draw
from lightning_ssl.labs.min_player.players import families
from lightning_ssl.losses.families import ExponentialFamily


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
    settings = {name: value for name, value in locals().items() if name != "progress"}
    require(len(q) >= 1, "q", q, "one or more exponents")
    require_bounds(settings, "tau", "lr", classes=2, samples=3, inputs=3, hidden=1, outputs=2, steps=1, seeds=1)
    settings["tau_of_q"] = taus = [matched_tau(tau, e, samples - 1) if matched else tau for e in q]
    if quick:
        settings |= {"steps": min(steps, 30), "seeds": min(seeds, 3)}
    steps, run = settings["steps"], (settings["seeds"], first_seed)
    signal = max(1, inputs // 3)
    points = sphere_mixture(classes, 1, samples, signal, inputs - signal, 0.5, 0.5, *run)
    x1, x2 = points.x1[:, 0].double(), points.x2[:, 0].double()
    problem = Problem(initial(inputs, hidden, outputs, *run), x1, x2, steps, lr, progress)
    table = families(tau)
    exponential = {name: family for name, family in table.items() if isinstance(family, ExponentialFamily)}
    claims_1, arrays_1 = theorem_1(problem, table)
    claims_2, arrays_2, notes, falling = theorem_2_and_corollary_1(problem, exponential, tau)
    axis_claims, axis_arrays, along = q_axis(problem, q, taus, first_seed)
    end_claims, end_note = path_claims(along, q, falling)
    claims = [*claims_1, *claims_2, *axis_claims, *end_claims]
    arrays = along | arrays_1 | arrays_2 | axis_arrays
    settings["losses"] = list(exponential)
    return Result("min_player", settings, arrays, claims, [*notes, end_note], draw)
