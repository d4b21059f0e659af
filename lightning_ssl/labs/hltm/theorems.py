"""Theorem 6 by enumeration, and Theorem 5 on random layers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from lightning_ssl.labs.hltm.categorical import symmetric
from lightning_ssl.labs.hltm.lucky import lucky_width
from lightning_ssl.labs.hltm.networks import Networks
from lightning_ssl.labs.hltm.tree import pattern_probabilities, polarities
from lightning_ssl.labs.lab import Claim, mean_std, seeded_generator


@torch.no_grad()
def theorem6(rho: list[Tensor], networks: Networks, layer: int) -> tuple[Tensor, Tensor]:
    """V_{z0}[E[f_ch | z_0]] of every latent of `layer` ≤ T + 1 by enumeration, and o_μ a_μ a_μᵀ: each (R, n, 2h, 2h).

    o_μ = ρ_{0μ}²(1 − ρ_0²) with ρ_0 = 0 here, a_μ = [ρ_{μν} s_k] over the nodes k of both children ν,
    s_k = ½(E[f_k | z_ν=1] − E[f_k | z_ν=0]).
    """
    below = layer - 1
    R, depth = networks.runs, networks.depth
    _, inputs = networks.forward(networks.table_index(torch.zeros(R, 2**depth, 1, dtype=torch.bool)))
    f = inputs[below].unflatten(0, (R, -1)).double()  # (R, n_below, P, h)
    v = pattern_probabilities(rho, below) @ f  # E[f_k | z_ν], (R, n_below, 2, h)
    # P(z_ν | z_0): the product of the 2×2 transition matrices on the path, not of their ρ.
    step = [symmetric(r).double() for r in rho]
    chain = torch.eye(2, dtype=torch.float64).expand(R, 1, 2, 2)
    product = torch.ones(R, 1, dtype=torch.float64)
    for down in range(depth - 1, below - 1, -1):
        above = product
        product = above.repeat_interleave(2, 1) * rho[down]
        chain = chain.repeat_interleave(2, 1) @ step[down]
    given_root = (chain @ v).unflatten(1, (-1, 2)).movedim(2, 3).flatten(3)  # (R, n, 2, 2h)
    centred = given_root - given_root.mean(2, keepdim=True)
    enumerated = centred.mT @ centred / 2
    s = (v[:, :, 1] - v[:, :, 0]) / 2
    a = (rho[below].double()[..., None] * s).unflatten(1, (-1, 2)).flatten(2)
    return enumerated, (above**2)[..., None, None] * a[..., None] * a[..., None, :]


def theorem6_error(rho: list[Tensor], networks: Networks) -> Tensor:
    """max |V_{z0}[E[f_ch|z_0]] − o a aᵀ| / max |o a aᵀ| of every layer that can be enumerated: (layers, R)."""
    errors = []
    for layer in range(1, min(networks.depth, networks.table + 1) + 1):
        enumerated, closed = theorem6(rho, networks, layer)
        errors.append((enumerated - closed).abs().amax((1, 2, 3)) / closed.abs().amax((1, 2, 3)))
    return torch.stack(errors)


def theorem5(rho: float, c: float, eta: float, children: int, seeds: range) -> Tensor:
    """Find the lucky nodes of random layers of the width that Theorem 5 requires: bool (S, |N_μ|).

    The children, a multiple of 4, are perfectly selective: node k has value 2v̄_k for one value of its latent and 0 for
    the other (σ_l = 0, s_k = ±v̄_k). Half of them belong to each of the two child latents, half of each sign. Lucky:
    the pre-activation gap is positive and |s_j| ≥ 3σ_w²/(4v̄_j) · mean_k s_k² ((c + 6)ρ²/6 − 1) (Eqn. 130), with
    v_j(z_μ) enumerated over the children's values and σ_w = 1.
    """
    gamma = (1 - rho**2) / (1 + rho**2)  # Eqn. 129 for these children
    width = lucky_width(c, gamma, eta)
    generators = [seeded_generator(seed, 4) for seed in seeds]
    mean = torch.stack([torch.rand(children // 4, generator=g, dtype=torch.float64) for g in generators]).repeat(1, 4)
    w = torch.stack([torch.rand(width, children, generator=g, dtype=torch.float64) for g in generators])
    w = (2 * w - 1) * (3 / children) ** 0.5
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat_interleave(children // 4).repeat(2)
    s = mean * sign  # (S, children): first half below ν_1, second half below ν_2
    below = torch.arange(children) >= children // 2
    v = torch.zeros(2, *w.shape[:2], dtype=torch.float64)  # v_j(z_μ)
    for z1 in (-1, 1):
        for z2 in (-1, 1):
            f = mean + torch.where(below, z2, z1) * s
            value = torch.einsum("snk,sk->sn", w, f).relu()
            for z in (-1, 1):
                v[(z + 1) // 2] += (1 + rho * z * z1) * (1 + rho * z * z2) / 4 * value
    gap = torch.einsum("snk,sk->sn", w, rho * s)
    middle, selectivity = (v[1] + v[0]) / 2, (v[1] - v[0]).abs() / 2
    bound = 0.75 * s.square().mean(1, keepdim=True) * ((c + 6) * rho**2 / 6 - 1)
    # Both sides are multiplied by v̄_j, so that a node that is always 0 causes no division by zero. Such a node is not
    # lucky, because bound > 0.
    return (gap > 0) & (selectivity * middle >= bound)


def theorem_claims(settings: dict[str, Any]) -> tuple[list[Claim], str]:
    """Check Theorem 6 on the initial networks, and Theorem 5 on 100 random layers; the claims and a note."""
    first, deltas = settings["first_seed"], settings["delta_lower"]
    seeds = range(first, first + settings["seeds"])
    rho = polarities(settings["depth"], deltas, seeds, settings["signed"])
    error = theorem6_error(rho, Networks(settings["depth"], max(settings["widths"]), seeds, len(deltas)))
    lucky = theorem5(rho=0.8, c=6.0, eta=0.05, children=20, seeds=range(first, first + 100))
    layers, width = lucky.any(1).double(), lucky.shape[1]
    (share, std), rule = mean_std(layers), "at least 1 − η of 100 random layers"
    name = f"Theorem 5: share of layers of {width} nodes with a lucky one (ρ=0.8, c=6, η=0.05)"
    claims = [
        Claim.at_most("Theorem 6: largest relative error of o_μ a_μ a_μᵀ", error, 1e-5),
        Claim(name, share, std, 0.95, None, rule, share >= 0.95, "≥"),
    ]
    enough = math.ceil(math.log(0.05) / math.log1p(-lucky.double().mean().item()))
    return claims, f"Theorem 5: of {width} nodes, {enough} would do"
