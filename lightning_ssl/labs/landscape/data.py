"""Sparse-coding data x = Mz + ε: the latent codes z, and the measure of how well an encoder finds the dictionary M."""

from __future__ import annotations

import math

import torch
from torch import Tensor

METRICS = ("maximum", "median", "minimum")


def sparse_codes(kind: str, n: int, d: int, sparsity: float, generator: torch.Generator) -> Tensor:
    """Draw latents z ∈ {−1, 0, 1}^d: (n, d).

    "bernoulli": Pr(z_i = ±1) = β/2 independently; an empty code becomes a random ±e_i (the paper's text).
    "permuted": a fixed multiset, shuffled for each sample. It has ⌈dβ/2⌉ entries −1, at least one +1 and ⌈dβ⌉ non-zeros
    (the released generator). β = 0.1 and 0.2 then give the same data, and β = 0.3 has mean −1/d in every coordinate.
    "one_hot": a random e_i.
    """
    order = torch.rand(n, d, generator=generator).argsort(1)
    sign = torch.randint(0, 2, (n, d), generator=generator) * 2.0 - 1.0
    if kind == "bernoulli":
        z = (torch.rand(n, d, generator=generator) < sparsity) * sign
        return torch.where((z == 0).all(1, keepdim=True), (order == 0) * sign, z)
    if kind == "one_hot":
        return (order == 0) * 1.0
    negatives, nonzero = permuted_counts(d, sparsity)
    z = torch.zeros(d)
    z[:negatives], z[negatives:nonzero] = -1.0, 1.0
    return z[order]


def permuted_counts(d: int, sparsity: float) -> tuple[int, int]:
    """Count the entries of a "permuted" code that are −1, and those that are not 0."""
    negatives = math.ceil(d * sparsity / 2)
    return negatives, max(math.ceil(d * sparsity), negatives + 1)


def max_cosine(W: Tensor, M: Tensor) -> Tensor:
    """Eqn. 11: maximum, median, minimum over j of max_i |cos(W_i*, M_*j)|: (..., 3) of W (..., m, p), M (..., p, d)."""
    cosine = (W @ M).abs() / (W.norm(dim=-1, keepdim=True) * M.norm(dim=-2, keepdim=True))
    best = cosine.amax(-2)  # (..., d)
    return torch.stack([best.amax(-1), best.quantile(0.5, dim=-1), best.amin(-1)], -1)
