"""Every contrastive update of a deep ReLU network is a covariance operator applied to its weights.

Source: "Understanding Self-supervised Learning with Dual Deep Networks", Theorems 1 to 4, Corollary 1, Lemma 2 and
Eqns. 7, 51, 56 and 79. Findings, and differences from the paper: docs/labs/covariance_operator.md.

The population is finite: X samples x, each with A equally likely views x ± σ·noise. Every expectation is then a finite
sum, and every statement is checked to rounding (float64), for R random networks at once.

With the connection K_l(x) = f_{l−1}(x) ⊗ J_l(x)ᵀ, each of the paper's operators is one quadratic form in the K of the
V = X·A views, OP = Σ_uv M_uv K_u K_vᵀ; losses differ only in the weights M (V × V). The update is ΔW_l = OP vec(W_l).
- simple loss: M = within-sample mean − overall mean (Theorem 3);
- (1 + β) r₊ − r₋: VE − β EV (Corollary 1);
- soft triplet and InfoNCE with one negative: M from ∂L/∂r₋ of every triple of views (Lemma 2), against the paper's
  ½ V^ξ, whose M is the Laplacian of ξ(r) between un-augmented samples, hence positive semi-definite (Theorem 4). The
  difference of the two is the residue θ.

Two treatments of the output. The paper's theory has none ("unbounded"): Theorems 1 to 4, Lemma 2, Corollary 1 and Eqns.
7 and 79 belong to it. Its experiments divide the output by its length ("normalized", r ≤ 2): Eqns. 51 and 56 belong to
it. Section 4.1 expects θ to shrink in training and does not name a treatment: both are trained.

`networks` has the networks and the population, `losses` the losses, `operators` the weights M and what is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lightning_ssl.base.checks import require
from lightning_ssl.labs.covariance_operator import losses, operators
from lightning_ssl.labs.covariance_operator.figures import draw
from lightning_ssl.labs.covariance_operator.losses import Loss
from lightning_ssl.labs.covariance_operator.networks import Population, half_distances
from lightning_ssl.labs.lab import Claim, Result, laboratory, mean_std

ROUNDING = 1e-9
TREATMENTS = {"unbounded": False, "normalized": True}  # of the outputs


@laboratory(quick={"seeds": 4, "steps": 10}, samples=2, betas=-math.inf, margin=-math.inf)
def run(
    *,
    sizes: tuple[int, ...] = (6, 8, 8, 4),
    samples: int = 12,
    views: int = 6,
    sigma: float = 0.1,
    sigmas: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    betas: tuple[float, ...] = (-1.0, -0.5, -0.2, 0.0, 0.05, 0.1, 0.2, 0.5),
    tau: float = 0.5,
    margin: float = 1.0,
    lr: float = 0.01,
    lr_normalized: float = 0.1,
    steps: int = 300,
    seeds: int = 20,
    first_seed: int = 0,
    quick: bool = False,
    progress: bool = False,
) -> Result:
    """Compare gradients and covariance operators of random ReLU networks on a finite population.

    Args:
        sizes: nodes n_0 … n_L of the network
        samples: samples X of the population
        views: views A of each sample
        sigma: strength of the augmentation
        sigmas: strengths for which the residue is measured
        betas: values of β in (1 + β) r₊ − r₋
        tau: temperature of InfoNCE and of the soft triplet
        margin: r_0 of the soft triplet
        lr: step size of the training in which the residue is measured, outputs unbounded
        lr_normalized: the same, outputs normalized
        steps: steps of that training
        seeds: networks and populations
        first_seed: seed of the first network
        quick: four networks, ten steps
        progress: show a progress bar
    """
    settings = dict(locals()) | {"sigmas": tuple(sorted(sigmas))}
    require(len(sizes) >= 2, "sizes", sizes, "two numbers or more")
    require(views % 2 == 0, "views", views, "an even number")
    new_population = partial(Population, sizes, samples, views, seeds=seeds, first_seed=first_seed)
    population = new_population(sigma=sigma)
    compared = [losses.soft_triplet(tau, margin), losses.infonce(tau)]
    unit = new_population(sigma=sigma, normalize=True)
    claims = _theorems_1_to_3(population, [losses.simple(), *compared], first_seed)
    claims.append(_gradient_claim("Eqn. 56", unit, losses.simple()))
    arrays: dict[str, Tensor] = {}
    for loss in compared:
        claims += _theorem_4(loss, population)
        claims.append(_gradient_claim("Eqn. 51", unit, loss))
        found, residues = _residues(loss, new_population, settings, progress)
        arrays |= found
        claims += residues
    lowest = []
    for beta in betas:
        M = operators.beta_weights(samples, views, beta)
        error = operators.gradient_error(population, M, losses.beta_loss(samples, beta))
        lowest.append(operators.smallest_eigenvalue(population, M))
        claims.append(Claim.at_most(f"Corollary 1, β = {beta:g}: gradient, relative error", error, ROUNDING))
        if beta <= 0:
            claims.append(Claim.at_least(f"Corollary 1, β = {beta:g}: λ_min/λ_max", lowest[-1], -ROUNDING))
    arrays["smallest_eigenvalue"] = torch.stack(lowest)  # (betas, R)
    arrays["normalized_asymmetry"] = operators.asymmetry(unit)
    return Result("covariance_operator", settings, arrays, claims, _notes(arrays, compared, settings), draw)


def _theorems_1_to_3(population: Population, compared: list[Loss], seed: int) -> list[Claim]:
    error = operators.theorem1_error(population)
    claims = [Claim.at_most("Theorem 1: gradient of ½‖f₁ − f₂‖², relative error", error, ROUNDING)]
    r = 3 * torch.rand(200, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for loss in compared:
        pos, neg, total = operators.theorem2(loss, r[:, 0], r[:, 1:])
        smallest = torch.minimum(pos, -neg.amax(1))
        claims.append(Claim.at_most(f"Theorem 2, {loss.name}: |∂L/∂r₊ + Σ ∂L/∂r₋|", total.abs(), ROUNDING))
        claims.append(Claim.at_least(f"Theorem 2, {loss.name}: smallest of ∂L/∂r₊ and −∂L/∂r₋", smallest, 0.0))
    M = operators.inter_weights(population.X, population.A)
    error = operators.gradient_error(population, M, losses.population_loss(population.X, losses.simple()))
    lowest = operators.smallest_eigenvalue(population, M)
    claims.append(Claim.at_most("Theorem 3: −V[K̄] vec(W) against the gradient, relative error", error, ROUNDING))
    claims.append(Claim.at_least("Theorem 3: λ_min/λ_max of V[K̄]", lowest, -ROUNDING))
    return claims


def _theorem_4(loss: Loss, population: Population) -> list[Claim]:
    """Lemma 2, Theorem 4, Eqn. 7 and the bound of the residue."""
    lowest = operators.smallest_eigenvalue(population, operators.theorem4_weights(population, loss))
    exact = operators.exact_error(population, loss)
    norm, bound = operators.residue_bound(population, loss)
    return [
        _gradient_claim("Lemma 2", population, loss),
        Claim.at_least(f"Theorem 4, {loss.name}: λ_min/λ_max of ½V^ξ", lowest, -ROUNDING),
        Claim.at_most(f"Eqn. 7, {loss.name}: exact loss, relative error", exact, ROUNDING),
        Claim.at_most(f"Eqn. 79, {loss.name}: ‖θ‖ over its bound", norm / bound, 1.0),
    ]


def _residues(
    loss: Loss, new_population: Callable[..., Population], settings: dict[str, Any], progress: bool
) -> tuple[dict[str, Tensor], list[Claim]]:
    """The residue for each strength of the augmentation, and in training, for both treatments of the outputs."""
    arrays: dict[str, Tensor] = {}
    claims, sigmas = [], settings["sigmas"]
    for treatment, normalize in TREATMENTS.items():
        weak = [operators.residue(new_population(sigma=s, normalize=normalize), loss)[0] for s in sigmas]
        trained = new_population(sigma=settings["sigma"], normalize=normalize)
        lr = settings["lr_normalized" if normalize else "lr"]
        share, size = operators.train(trained, loss, lr, settings["steps"], progress)
        y, name = trained.outputs(), f"{loss.name}, {treatment}"
        arrays |= {f"residue {name}": torch.stack(weak), f"share {name}": share, f"size {name}": size}
        arrays[f"distance {name}"] = half_distances(y, y).mean((1, 2))
        if not normalize:
            claim = f"Theorem 4, {loss.name}: residue share at σ = {sigmas[0]:g}"
            claims.append(Claim.at_most(claim, weak[0], 0.05))
        claims.append(_shrinking_claim(name, size))
    return arrays, claims


def _gradient_claim(source: str, population: Population, loss: Loss) -> Claim:
    M = operators.triple_weights(population.outputs(), population.X, loss)
    error = operators.gradient_error(population, M, losses.population_loss(population.X, loss))
    return Claim.at_most(f"{source}, {loss.name}: gradient, relative error", error, ROUNDING)


def _shrinking_claim(name: str, size: Tensor) -> Claim:
    """Section 4.1: the residue shrinks in training; size (steps + 1, R)."""
    end, start = size[-1].median().item(), size[0].median().item()
    rule = "median at the end below the median at the start"
    label = f"Section 4.1, {name}: ‖θ‖/‖½V^ξ‖ after {len(size) - 1} steps"
    return Claim(label, end, mean_std(size[-1])[1], start, None, rule, end < start, "≤")


def _notes(arrays: dict[str, Tensor], compared: list[Loss], settings: dict[str, Any]) -> list[str]:
    lowest, sigmas = arrays["smallest_eigenvalue"], settings["sigmas"]
    notes = [
        "with l2-normalized outputs the operator is not symmetric (Eqn. 56): ‖OP − OPᵀ‖/‖OP‖ = {:.2f} ± {:.2f}".format(
            *mean_std(arrays["normalized_asymmetry"])
        ),
    ]
    for treatment in TREATMENTS:
        ends = []
        for loss in compared:
            share, distance = (arrays[f"{array} {loss.name}, {treatment}"] for array in ("share", "distance"))
            start, end = share[[0, -1]].median(1).values.tolist()
            ends.append(f"{loss.name} {start:.2f} → {end:.2f} (mean r {distance.median():.2g})")
        notes.append(f"‖θ vec(W)‖/‖½V^ξ vec(W)‖ in training, {treatment}, median: {', '.join(ends)}")
    if len(sigmas) > 1:
        exponents = []
        for loss in compared:
            weakest, weak = arrays[f"residue {loss.name}, unbounded"][:2].median(1).values.tolist()
            exponents.append(f"{loss.name} ∝ σ^{math.log(weak / weakest) / math.log(sigmas[1] / sigmas[0]):.2f}")
        notes.append(f"residue share for weak augmentation, median: {', '.join(exponents)}")
    indefinite = ", ".join(
        f"{(lowest[k] < -ROUNDING).double().mean():.0%} at β = {beta:g}"
        for k, beta in enumerate(settings["betas"])
        if beta > 0
    )
    if indefinite:
        notes.append(f"share of networks whose operator has a negative eigenvalue: {indefinite}")
    return notes
