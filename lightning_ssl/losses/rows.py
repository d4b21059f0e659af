"""Whole rows of α, and which of their pairs are negatives."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_ssl.base.checks import require


class Rows(NamedTuple):
    """Whole rows of α."""

    alpha: Tensor  # (M, K)
    row_sum: Tensor  # (M,): Σ_j α_ij
    value: Tensor | None = None  # (M,): φ(ξ_i), if the importance comes from a loss


class Negatives:
    """Which pairs of whole rows are negatives: all, or those of a mask."""

    def __init__(self, valid: Tensor | None) -> None:
        self.valid = valid

    def mask(self) -> Tensor | None:
        """The mask of the negatives, bool (M, K); None: all pairs are."""
        return self.valid

    def exclude_(self, x: Tensor, value: float) -> Tensor:
        """Write a value, in place, at the pairs that are not negatives."""
        return x if self.valid is None else x.masked_fill_(~self.valid, value)

    def count(self, x: Tensor) -> Tensor:
        """The number of negatives of each row of x, (M, K), at least 1: (M, 1)."""
        if self.valid is None:
            return x.new_full((len(x), 1), max(x.shape[1], 1))
        return self.valid.sum(1, keepdim=True).clamp(min=1).to(x.dtype)


def relative_to_nearest(d2_neg: Tensor, negatives: Negatives) -> tuple[Tensor, Tensor]:
    """d2_neg minus the smallest of its row, in place, ∞ at pairs that are not negatives: (M, K); and this smallest."""
    c = negatives.exclude_(d2_neg, torch.inf)
    with torch.no_grad():  # a common shift changes no weight
        nearest = c.amin(1, keepdim=True)  # (M, 1)
    return c.sub_(nearest), nearest


def check_distances(d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None) -> None:
    """Refuse shapes that would broadcast silently."""
    require(d2_neg.ndim == 2, "d2_neg", tuple(d2_neg.shape), "of shape (M, K)")
    require(d2_pos.shape == d2_neg.shape[:1], "d2_pos", tuple(d2_pos.shape), f"of shape ({d2_neg.shape[0]},)")
    if valid is not None:
        require(valid.dtype == torch.bool, "valid", valid.dtype, "a bool mask")
        require(valid.shape == d2_neg.shape, "valid", tuple(valid.shape), f"of shape {tuple(d2_neg.shape)}")
