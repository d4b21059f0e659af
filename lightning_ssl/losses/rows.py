"""Whole rows of α, which of their pairs are negatives, and what the masses of a mixture of softmaxes depend on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_ssl.base.checks import require


class Rows(NamedTuple):
    """Whole rows of α."""

    alpha: Tensor  # (M, K)
    row_sum: Tensor  # (M,): Σ_j α_ij
    value: Tensor | None = None  # (M,): the loss of each anchor, such as φ(ξ_i), if the importance comes from a loss
    attraction: Tensor | None = None  # (M,): the weight a_i of d2_pos_i; None: Σ_j α_ij


@dataclass(eq=False)
class Row:
    """What the masses of some rows can depend on."""

    log_sums: tuple[Tensor, ...]  # (M,) each: L_ci = log Σ_j exp ℓ_c(d2_neg_ij)
    d2_pos: Tensor  # (M,)
    count_negatives: Callable[[], Tensor]

    @property
    def count(self) -> Tensor:
        """The number K_i of negatives, at least 1: (M,). It is computed when it is asked for."""
        return self.count_negatives()


class Weights(NamedTuple):
    """The masses of the components, and the loss of each anchor: (M,) each."""

    masses: tuple[Tensor, ...]  # m_ci = Σ_j of component c; a component without a mass only supplies its log-sum
    attraction: Tensor | None = None  # the weight a_i of d2_pos_i; None: Σ_j α_ij
    value: Tensor | None = None  # the loss, if the importance comes from one

    @property
    def row_sum(self) -> Tensor:
        """Σ_j α_ij: (M,)."""
        return self.masses[0] if len(self.masses) == 1 else torch.stack(self.masses).sum(0)


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
