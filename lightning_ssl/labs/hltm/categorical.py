"""Transition-regularized trees with categorical latents (TR-HLTM, Definition 3): Lemmas 6, 7 and 9.

P_{μν} = 1 1ᵀ/m_ν + C_{μν}, where the rows and the columns of C_{μν} sum to zero; m_ν is the number of values of z_ν.
Lemmas 6 and 9 are checked on a path z_0 → … → z_μ of any numbers of values, whose last latent has two children with
leaves below. Runs are a batch, R.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from lightning_ssl.labs.lab import Claim, normal, per_seed

PATH = (3, 4, 5)  # values m of z_0 … z_μ
CHILDREN = (4, 3)  # of the two children ν of μ
LEAVES = 3  # below each ν
LEAF_VALUES = 3
NODES = 6  # nodes of each ν
ROUNDING = 1e-12


def centre(G: Tensor) -> Tensor:
    """Subtract the means of rows and columns: C with C 1 = 0 and 1ᵀ C = 0."""
    G = G - G.mean(-1, keepdim=True)
    return G - G.mean(-2, keepdim=True)


def regularize(G: Tensor, strength: Tensor) -> Tensor:
    """P = 1 1ᵀ/m + C of Definition 3, C the centred G (R, m_μ, m), scaled so that min P = (1 − strength)/m."""
    C, m = centre(G), G.shape[-1]
    return 1 / m + C * (strength / m / -C.amin((-2, -1)))[..., None, None]


def regular_transition(rows: int, columns: int, seeds: int, first_seed: int, stream: int) -> Tensor:
    """A random P_{μν} of Definition 3 for each seed: (R, m_μ, m_ν)."""
    strength = per_seed(lambda g: torch.rand((), generator=g, dtype=torch.float64), seeds, first_seed, stream + 1)
    return regularize(normal((rows, columns), seeds, first_seed, stream, torch.float64), 0.5 + strength / 2)


def distribution(shape: tuple[int, ...], seeds: int, first_seed: int, stream: int) -> Tensor:
    """Random positive numbers that sum to one along the last axis: (R, *shape)."""
    return normal(shape, seeds, first_seed, stream, torch.float64).softmax(-1)


def symmetric(rho: Tensor) -> Tensor:
    """The transition of SB-HLTM, a value is kept with probability (1 + ρ)/2 (Eqn. 14): (R,) → (R, 2, 2)."""
    return torch.stack([1 + rho, 1 - rho, 1 - rho, 1 + rho], -1).unflatten(-1, (2, 2)) / 2


def chain(path: list[Tensor]) -> Tensor:
    """P(z_α | z_μ) of the two ends of a path of transitions, the sum over all latents between them: (R, m_μ, m_α)."""
    found = path[0]
    for P in path[1:]:
        found = found @ P
    return found


def lemma6(path: list[Tensor]) -> Tensor:
    """1 1ᵀ/m_α + Π C (Eqn. 99): (R, m_μ, m_α)."""
    return 1 / path[-1].shape[-1] + chain([P - 1 / P.shape[-1] for P in path])


def lemma9(root: Tensor, V: Tensor) -> Tensor:
    """Vᵀ(P_0 − P_0 1 1ᵀ P_0) V, P_0 = diag(root) (Eqn. 166): root (R, m_0), V (R, m_0, k) → (R, k, k)."""
    return V.mT @ (torch.diag_embed(root) - root[:, :, None] * root[:, None, :]) @ V


def weighted_covariance(root: Tensor, V: Tensor) -> Tensor:
    """V_{z_0} of the rows of V, Σ_z P(z) (v_z − v̄)(v_z − v̄)ᵀ: (R, k, k)."""
    centred = V - (root[:, :, None] * V).sum(1, keepdim=True)
    return centred.mT @ (root[:, :, None] * centred)


def leaf_patterns() -> Tensor:
    """All values of the leaves below one ν: (LEAF_VALUES^LEAVES, LEAVES)."""
    return torch.cartesian_prod(*[torch.arange(LEAF_VALUES)] * LEAVES)


def child_activations(values: int, seeds: int, first_seed: int, stream: int) -> Tensor:
    """E[f_k | z_ν] of ReLU nodes that see the leaves below ν, by enumeration of the leaves: (R, m_ν, NODES).

    Leaves are any distributions given z_ν. Their values are inputs as real numbers, as in the paper.
    """
    p = distribution((values, LEAVES, LEAF_VALUES), seeds, first_seed, stream)
    x = leaf_patterns()  # (patterns, LEAVES)
    likelihood = torch.stack([p[:, :, leaf, x[:, leaf]] for leaf in range(LEAVES)]).prod(0)  # (R, m_ν, patterns)
    w = normal((LEAVES, NODES), seeds, first_seed, stream + 1, torch.float64)
    b = normal((1, NODES), seeds, first_seed, stream + 2, torch.float64)
    return likelihood @ (x.double() @ w + b).relu()


def categorical_claims(seeds: int, first_seed: int) -> list[Claim]:
    """Lemma 6 for both children of the path, Lemma 7 in both directions, and Lemma 9 for the children's nodes."""
    return [*_lemmas_6_and_9(seeds, first_seed), *_lemma_7(seeds, first_seed)]


def _lemmas_6_and_9(seeds: int, first_seed: int) -> list[Claim]:
    path = [
        regular_transition(rows, columns, seeds, first_seed, 20 + 2 * k)
        for k, (rows, columns) in enumerate(itertools.pairwise(PATH))
    ]
    root = distribution((PATH[0],), seeds, first_seed, 44)
    errors, sides = [], []
    for k, values in enumerate(CHILDREN):
        full = [*path, regular_transition(PATH[-1], values, seeds, first_seed, 46 + 2 * k)]
        summed, closed = chain(full), lemma6(full)
        errors.append((summed - closed).abs().amax((1, 2)))
        v = child_activations(values, seeds, first_seed, 50 + 3 * k)
        sides.append((summed @ v, closed @ v))  # E[f_k | z_0]
    V_summed, V = (torch.cat(side, 2) for side in zip(*sides, strict=True))
    expected = weighted_covariance(root, V_summed)
    error9 = (lemma9(root, V) - expected).abs().amax((1, 2)) / expected.abs().amax((1, 2))
    return [
        Claim.at_most("Lemma 6: largest |P_{0ν} − 1 1ᵀ/m − Π C|", torch.stack(errors), ROUNDING),
        # V is much larger than its variance over z_0, so digits cancel.
        Claim.at_most("Lemma 9: relative error of Vᵀ(P_0 − P_0 1 1ᵀ P_0) V", error9, 1e-7),
    ]


def _lemma_7(seeds: int, first_seed: int) -> list[Claim]:
    """A regular 2 × 2 transition has one free number, ρ = P_11 + P_00 − 1."""
    binary = [regular_transition(2, 2, seeds, first_seed, stream) for stream in (40, 42)]
    rho = [P[:, 1, 1] + P[:, 0, 0] - 1 for P in binary]
    error = torch.stack([symmetric(r) - P for r, P in zip(rho, binary, strict=True)]).abs().amax((0, 2, 3))
    C = symmetric(rho[0]) - 0.5
    sums = torch.stack([C.sum(1), C.sum(2)]).abs().amax((0, 2))
    product = (chain(binary) - symmetric(rho[0] * rho[1])).abs().amax((1, 2))
    return [
        Claim.at_most("Lemma 7: binary TR-HLTM, largest |P − P(ρ)|", error, ROUNDING),
        Claim.at_most("Lemma 7: SB-HLTM, largest sum of a row or column of C(ρ)", sums, ROUNDING),
        Claim.at_most("Lemma 7, Eqn. 103: largest |P(ρ)P(ρ') − P(ρρ')|", product, ROUNDING),
    ]
