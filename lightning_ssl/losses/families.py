"""The (φ, ψ) losses: L = mean_i φ(ξ_i), with ξ_i = Σ_j ψ(d2_pos_i − d2_neg_ij).

Theorem 1 of the α-CL paper gives the pair importance of such a loss, α_ij = φ'(ξ_i) ψ'(d2_pos_i − d2_neg_ij).
`importance.FromFamily` computes it, and `energy.FamilyLoss` trains with it.

If ψ is exponential, ξ overflows at small τ. These families compute u_i = log ξ_i instead.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lightning_ssl.base.checks import require, require_finite, require_positive

__all__ = [
    "MINE",
    "ExponentialFamily",
    "Family",
    "InfoNCE",
    "LiftedStructured",
    "ModifiedTriplet",
    "NPlusOneTuplet",
    "Quadratic",
    "SoftTriplet",
    "Triplet",
]


def require_scale(argument: str, value: float) -> None:
    """Refuse a temperature or slope whose product with a distance can lose all digits in float32."""
    require_positive(argument, value)
    require(MIN_SCALE <= value <= MAX_SCALE, argument, value, f"a number from {MIN_SCALE:g} to {MAX_SCALE:g}")


MIN_SCALE, MAX_SCALE = 1e-30, 1e30


class Family(ABC):
    """A loss given by two increasing functions φ and ψ.

        L = mean_i φ(ξ_i),   ξ_i = Σ_j ψ(d2_pos_i − d2_neg_ij)

    A subclass defines φ, ψ and their derivatives, elementwise.

    >>> Quadratic().psi(torch.tensor([-0.5, 0.5])), Quadratic().psi_prime(torch.tensor([-0.5, 0.5]))
    (tensor([-0.5000,  0.5000]), tensor([1., 1.]))
    """

    averages: ClassVar[bool] = False
    """Whether ξ is the mean over the negatives and not the sum."""

    @abstractmethod
    def phi(self, x: Tensor) -> Tensor:
        """φ(x)."""

    @abstractmethod
    def psi(self, x: Tensor) -> Tensor:
        """ψ(x)."""

    @abstractmethod
    def phi_prime(self, x: Tensor) -> Tensor:
        """φ'(x)."""

    @abstractmethod
    def psi_prime(self, x: Tensor) -> Tensor:
        """ψ'(x)."""

    def xi(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None = None) -> Tensor:
        """ξ_i = Σ_j ψ(d2_pos_i − d2_neg_ij) over the valid negatives of each row: (M,)."""
        psi = self.psi(d2_pos[:, None] - d2_neg)  # (M, K)
        if valid is not None:
            psi = psi.masked_fill(~valid, 0.0)
        return psi.sum(1) / self.negatives(d2_neg, valid) if self.averages else psi.sum(1)

    def value(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None = None) -> Tensor:
        """φ(ξ_i) of every anchor: (M,), (M, K) and an optional mask (M, K) → (M,)."""
        wide = torch.promote_types(d2_neg.dtype, torch.float32)  # sums of many terms need at least float32
        return self.row_value(d2_pos.to(wide), d2_neg.to(wide), valid).to(d2_neg.dtype)

    def row_value(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None) -> Tensor:
        """`value` in float32 or wider."""
        return self.phi(self.xi(d2_pos, d2_neg, valid))

    @staticmethod
    def negatives(d2_neg: Tensor, valid: Tensor | None) -> Tensor:
        """Number of negatives of each row, at least 1: (M,)."""
        if valid is None:
            return d2_neg.new_full((len(d2_neg),), max(d2_neg.shape[1], 1))
        return valid.sum(1).clamp(min=1).to(d2_neg.dtype)


class ExponentialFamily(Family):
    """A family with ψ(x) = exp(x/τ + margin). A subclass defines φ' and two functions of u = log ξ.

    The logarithm does not overflow where ξ does:

    >>> InfoNCE(tau=0.001).value(torch.tensor([1.0]), torch.tensor([[0.2, 0.5]]))
    tensor([0.8000])
    """

    tau: float = 1.0
    margin: float = 0.0

    def psi(self, x: Tensor) -> Tensor:
        return torch.exp(x / self.tau + self.margin)

    def psi_prime(self, x: Tensor) -> Tensor:
        return self.psi(x) / self.tau

    def phi(self, x: Tensor) -> Tensor:
        return self.phi_of_log(x.log())

    @abstractmethod
    def phi_of_log(self, u: Tensor) -> Tensor:
        """φ(e^u)."""

    @abstractmethod
    def row_sum(self, u: Tensor) -> Tensor:
        """Σ_j α_ij = τ⁻¹ ξ φ'(ξ) at ξ = e^u, the row sum in Theorem 2."""

    def log_xi(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        """u_i from log Σ_j exp(−d2_neg_ij/τ): (M,), (M,) → (M,)."""
        return log_sum + d2_pos / self.tau + self.margin

    def row_value(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None) -> Tensor:
        logits = -d2_neg / self.tau  # (M, K)
        if valid is not None:
            logits = logits.masked_fill(~valid, -torch.inf)
        return self.phi_of_log(self.log_xi(logits.logsumexp(1), d2_pos))


class Logarithmic(ExponentialFamily):
    """A family with φ(x) = τ log(ε + x)."""

    eps: float = 1.0

    def phi_prime(self, x: Tensor) -> Tensor:
        return self.tau / (self.eps + x)

    def phi_of_log(self, u: Tensor) -> Tensor:
        # torch's softplus leaves out the 1 of log(1 + e^u) if u > 20, which float64 sees.
        return self.tau * (torch.logaddexp(u, u.new_full((), math.log(self.eps))) if self.eps else u)

    def row_sum(self, u: Tensor) -> Tensor:
        return torch.sigmoid(u - math.log(self.eps)) if self.eps else torch.ones_like(u)


@dataclass(frozen=True)
class InfoNCE(Logarithmic):
    """InfoNCE: φ(x) = τ log(ε + x), ψ(x) = e^{x/τ}.

        α_ij = e^{x_ij/τ} / (ε + ξ_i),   x_ij = d2_pos_i − d2_neg_ij,   ξ_i = Σ_j e^{x_ij/τ}

    tau  temperature τ
    eps  ε = 1 keeps the positive in the denominator: τ times the NT-Xent of SimCLR. ε = 0 is the decoupled form.

    >>> InfoNCE(tau=0.5, eps=1.0).value(torch.tensor([0.1]), torch.tensor([[0.2, 0.9]]))
    tensor([0.3517])
    """

    source = "α-CL, Figure 1"
    symbols: ClassVar = {"eps": "ε"}
    unlabelled: ClassVar = {"eps": 1}

    tau: float = 0.5
    eps: float = 1.0

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)
        require(0 <= self.eps < math.inf, "eps", self.eps, "a finite number, 0 or more")


@dataclass(frozen=True)
class MINE(Logarithmic):
    """MINE: φ(x) = log x, ψ(x) = e^x.

        α_ij = e^{x_ij} / ξ_i = softmax_j(−d2_neg_ij),   x_ij = d2_pos_i − d2_neg_ij,   ξ_i = Σ_j e^{x_ij}

    >>> MINE().value(torch.tensor([0.1]), torch.tensor([[0.2, 0.9]]))
    tensor([0.3032])
    """

    source = "α-CL, Figure 1"
    eps = 0.0


@dataclass(frozen=True)
class SoftTriplet(Logarithmic):
    """Soft triplet loss: φ(x) = τ log(1 + x), ψ(x) = e^{x/τ + margin}.

        α_ij = e^{x_ij/τ + margin} / (1 + ξ_i),   x_ij = d2_pos_i − d2_neg_ij,   ξ_i = Σ_j e^{x_ij/τ + margin}

    tau     temperature τ
    margin  added to x/τ

    >>> SoftTriplet(tau=0.5, margin=0.0).value(torch.tensor([0.1]), torch.tensor([[0.2, 0.9]]))
    tensor([0.3517])
    """

    source = "α-CL, Figure 1"

    tau: float = 0.5
    margin: float = 0.0

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)
        require_finite("margin", self.margin)


@dataclass(frozen=True)
class NPlusOneTuplet(Logarithmic):
    """(N+1)-tuplet loss: φ(x) = log(1 + x), ψ(x) = e^x.

        α_ij = e^{x_ij} / (1 + ξ_i),   x_ij = d2_pos_i − d2_neg_ij,   ξ_i = Σ_j e^{x_ij}

    >>> NPlusOneTuplet().value(torch.tensor([0.1]), torch.tensor([[0.2, 0.9]]))
    tensor([0.8562])
    """

    source = "α-CL, Figure 1"


@dataclass(frozen=True)
class LiftedStructured(ExponentialFamily):
    """Lifted structured loss: φ(x) = [log x]₊², ψ(x) = e^{x + margin}.

        α_ij = 2 [log ξ_i]₊ e^{x_ij + margin} / ξ_i,   x_ij = d2_pos_i − d2_neg_ij,   ξ_i = Σ_j e^{x_ij + margin}

    margin  added to x

    >>> LiftedStructured(margin=1.0).value(torch.tensor([0.1]), torch.tensor([[0.2, 0.9]]))
    tensor([1.6983])
    """

    source = "α-CL, Figure 1"

    margin: float = 1.0

    def __post_init__(self) -> None:
        require_finite("margin", self.margin)

    def phi_prime(self, x: Tensor) -> Tensor:
        return 2 * x.log().clamp(min=0) / x

    def phi_of_log(self, u: Tensor) -> Tensor:
        return u.clamp(min=0).square()

    def row_sum(self, u: Tensor) -> Tensor:
        return 2 * u.clamp(min=0)


class Linear(Family):
    """A family with φ(x) = x."""

    def phi(self, x: Tensor) -> Tensor:
        return x

    def phi_prime(self, x: Tensor) -> Tensor:
        return torch.ones_like(x)


@dataclass(frozen=True)
class Triplet(Linear):
    """Triplet loss: φ(x) = x, ψ(x) = [x + margin]₊.

        α_ij = 1 if d2_neg_ij < d2_pos_i + margin, otherwise 0

    margin  a negative counts while d2_neg < d2_pos + margin

    >>> Triplet(margin=1.0).value(torch.tensor([0.1]), torch.tensor([[0.2, 0.9]]))
    tensor([1.1000])
    """

    source = "α-CL, Figure 1"

    margin: float = 1.0

    def __post_init__(self) -> None:
        require_finite("margin", self.margin)

    def psi(self, x: Tensor) -> Tensor:
        return (x + self.margin).clamp(min=0)

    def psi_prime(self, x: Tensor) -> Tensor:
        return (x + self.margin > 0).to(x.dtype)


@dataclass(frozen=True)
class ModifiedTriplet(Linear):
    """Modified triplet loss: φ(x) = x, ψ(x) = sigmoid(c x).

        α_ij = c s_ij (1 − s_ij),   s_ij = sigmoid(c (d2_pos_i − d2_neg_ij))

    c  slope of the sigmoid

    >>> ModifiedTriplet(c=1.0).value(torch.tensor([0.1]), torch.tensor([[0.2, 0.9]]))
    tensor([0.7850])
    """

    source = "α-CL, Figure 1"

    c: float = 1.0

    def __post_init__(self) -> None:
        require_scale("c", self.c)

    def psi(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.c * x)

    def psi_prime(self, x: Tensor) -> Tensor:
        return self.c * torch.sigmoid(self.c * x) * torch.sigmoid(-self.c * x)  # 1 − sigmoid would round to 0


@dataclass(frozen=True)
class Quadratic(Linear):
    """Quadratic loss: φ(x) = x, ψ(x) = x, and ξ is the mean over the K negatives.

        α_ij = 1/K

    The mean instead of the sum makes the rows of α sum to 1.

    >>> Quadratic().value(torch.tensor([0.1]), torch.tensor([[0.2, 0.9]]))
    tensor([-0.4500])
    """

    source = "α-CL, Figure 1; divided by the number of negatives"
    averages: ClassVar[bool] = True

    def psi(self, x: Tensor) -> Tensor:
        return x

    def psi_prime(self, x: Tensor) -> Tensor:
        return torch.ones_like(x)
