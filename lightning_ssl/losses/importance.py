"""Pair importance α: how much each negative pair of a batch counts.

`importance(d2_pos, d2_neg, valid=None) -> alpha`, with d2_pos (M,), d2_neg (M, K), an optional mask (M, K) and
α ≥ 0 (M, K), zero where not valid. d2 is always ½‖a − b‖²: small means similar.

An importance is written in two steps, so that the kernel in `energy` can weigh any tile of the M×K matrix alone:

    rows = importance.fit(d2_pos, d2_neg, valid)       # what a row must know of itself
    alpha = importance.weigh(d2_neg, rows.params)      # elementwise from there on

Three kinds:
  `Streaming`  α_ij = mass_i · softmax_j ℓ(d2_neg_ij): one running sum per row is all there is to know
  `Solved`     α_i = argmin over the simplex of Σ_j α_ij c_ij − Σ_j r(α_ij), r concave: one unknown per row
  `FromFamily` α_ij = φ'(ξ_i) ψ'(d2_pos_i − d2_neg_ij), Theorem 1

Your own: subclass one of these, or pass any callable with the signature above (slower, still exact).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl.checks import require, require_finite, require_positive
from lightning_ssl.losses.families import ExponentialFamily, Family


class Rows(NamedTuple):
    """What is known of each row once it has been seen whole."""

    params: Tensor  # (P, M): enough to weigh any pair of the row
    row_sum: Tensor  # (M,): Σ_j α_ij
    value: Tensor | None = None  # (M,): φ(ξ_i), where the importance comes from a loss


class Importance(ABC):
    """A rule that gives every negative pair its weight."""

    uses_clean_view: ClassVar[bool] = False
    """Whether the distances weighed are those of the un-augmented view (d2_neg is then of that view)."""

    @property
    def streams(self) -> bool:
        """Whether `log_kernel` and `row_sum` say it all (see `Streaming`)."""
        return False

    @abstractmethod
    def fit(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None = None) -> Rows:
        """Learn from whole rows, (M,) and (M, K), what `weigh` needs."""

    @abstractmethod
    def weigh(self, d2_neg: Tensor, params: Tensor) -> Tensor:
        """α of any pairs, elementwise: d2_neg (m, k), params (P, m, 1) → (m, k). It knows nothing of masks."""

    def __call__(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None = None) -> Tensor:
        check_distances(d2_pos, d2_neg, valid)
        dtype = d2_neg.dtype
        if dtype in (torch.float16, torch.bfloat16):
            d2_pos, d2_neg = d2_pos.float(), d2_neg.float()
        alpha = self.weigh(d2_neg, self.fit(d2_pos, d2_neg, valid).params[..., None])
        if valid is not None:
            alpha = alpha.masked_fill(~valid, 0.0)
        return alpha.to(dtype)

    def vjp(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        """∂/∂d2_neg_ij of Σ_k cotangent_ik α_ik, the cotangent held fixed: what `backprop_alpha` adds to α."""
        raise ValueError(f"backprop_alpha=True: {type(self).__name__} has no derivative of its weights to propagate")


def check_distances(d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None) -> None:
    """Refuse shapes that would broadcast silently."""
    require(d2_neg.ndim == 2, "d2_neg", tuple(d2_neg.shape), "of shape (M, K)")
    require(d2_pos.shape == d2_neg.shape[:1], "d2_pos", tuple(d2_pos.shape), f"of shape ({d2_neg.shape[0]},)")
    if valid is not None:
        require(valid.dtype == torch.bool, "valid", valid.dtype, "a bool mask")
        require(valid.shape == d2_neg.shape, "valid", tuple(valid.shape), f"of shape {tuple(d2_neg.shape)}")


# ---------------------------------------------------------------------------------------------------------------------
# Streaming: known from one sum over the row


def refuse_second_derivative(who: str) -> None:
    """Called in a backward: a graph of the gradient is being asked for, and would silently be a constant."""
    if torch.is_grad_enabled():
        raise RuntimeError(f"create_graph=True: {who} can be differentiated once; the gradient is a closed form")


class Streaming(Importance):
    """α_ij = mass_i · softmax_j ℓ(d2_neg_ij): the running sum of exp ℓ is all there is to know of a row."""

    @property
    def streams(self) -> bool:
        return True

    @abstractmethod
    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        """ℓ, elementwise. It may overwrite its argument, and the caller may overwrite what it returns."""

    def row_sum(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        """Σ_j α_ij, from log Σ_j exp ℓ(d2_neg_ij): (M,), (M,) → (M,). As it stands, rows sum to 1."""
        return torch.ones_like(log_sum)

    def value(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor | None:
        """φ(ξ_i), where the importance comes from a loss."""
        return None

    def fit(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None = None) -> Rows:
        logits = self._logits(d2_neg)  # (M, K)
        if valid is not None:
            # A row without negatives keeps its logits here; its weights are masked, and its row_sum is 0.
            empty = ~valid.any(1, keepdim=True)
            logits = logits.masked_fill(~(valid | empty), -torch.inf)
        top = logits.amax(1)
        total = (logits - top[:, None]).exp().sum(1)
        log_sum = top + total.log()
        row_sum = self.row_sum(log_sum, d2_pos)
        if valid is not None:
            row_sum = row_sum.masked_fill(empty[:, 0], 0.0)
        # The sum stands beside the largest logit and not in a logarithm, which has few digits left at small τ.
        return Rows(torch.stack([top, row_sum / total]), row_sum, self.value(log_sum, d2_pos))

    def weigh(self, d2_neg: Tensor, params: Tensor) -> Tensor:
        top, scale = params
        # `top` can come from a product of another shape: at d2 ≥ 1e12 their roundings differ by more than exp can take.
        return (self._logits(d2_neg) - top).clamp_(max=0).exp() * scale

    def _logits(self, d2_neg: Tensor) -> Tensor:
        # Where every logit of a row overflows, its pairs count alike.
        return self.log_kernel(d2_neg.clone()).clamp(min=torch.finfo(d2_neg.dtype).min)


@dataclass(frozen=True)
class Entropy(Streaming):
    """α = softmax(−d2_neg/τ): r(α) = −τ α log α, the gradient of InfoNCE with ε = 0."""

    tau: float = 0.5

    def __post_init__(self) -> None:
        require_positive("tau", self.tau)

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        return d2_neg.mul_(-1 / self.tau)

    def vjp(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        centre = (alpha * cotangent).sum(1, keepdim=True)
        return alpha * (centre - cotangent) / self.tau


@dataclass(frozen=True)
class Direct(Streaming):
    """α_ij ∝ exp(−d_ij^p/τ) with d = √d2 (Eqn. 12); `normalize=False` leaves out the row sum (Eqn. 44)."""

    tau: float = 0.5
    p: float = 4.0
    normalize: bool = True

    def __post_init__(self) -> None:
        require_positive("tau", self.tau)
        require(1 < self.p < math.inf, "p", self.p, "a finite number above 1")

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        return d2_neg.pow_(self.p / 2).mul_(-1 / self.tau)

    def row_sum(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        return super().row_sum(log_sum, d2_pos) if self.normalize else log_sum.exp()

    def vjp(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        # When p < 2, ℓ' grows without bound towards d2 = 0. Such a pair's own gradient vanishes, but as a difference of
        # large terms: below the rounding of a unit vector's d2 they would only lose digits.
        slope = d2_neg.clamp(min=torch.finfo(d2_neg.dtype).eps).pow(self.p / 2 - 1) * (-self.p / (2 * self.tau))  # ℓ'
        if self.normalize:
            cotangent = cotangent - (alpha * cotangent).sum(1, keepdim=True)
        return slope * alpha * cotangent


@dataclass(frozen=True)
class Uniform(Streaming):
    """α_ij = 1: every negative counts the same, and a row counts as much as it has negatives."""

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        return d2_neg.zero_()

    def row_sum(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        return log_sum.exp()

    def vjp(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        return torch.zeros_like(alpha)


@dataclass(frozen=True)
class Gaussian(Streaming):
    """α_ij = exp(−‖g(x0_i) − g(x0_j)‖²/2τ) on un-augmented samples x0: a kernel that the views cannot move."""

    uses_clean_view: ClassVar[bool] = True
    tau: float = 0.5

    def __post_init__(self) -> None:
        require_positive("tau", self.tau)

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        return d2_neg.mul_(-1 / self.tau)

    def row_sum(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        return log_sum.exp()


@dataclass(frozen=True)
class Exact(Streaming):
    """α_ij = ξ(r_ij), r_ij the d2 of the two un-augmented samples: the weights under which Theorem 3 is exact.

    `kind="infonce"`      ξ(r) = τ⁻¹ e^{−r/τ} / (1 + e^{−r/τ})
    `kind="soft_triplet"` ξ(r) = e^{−(r−r0)/τ} / (1 + e^{−(r−r0)/τ})
    """

    uses_clean_view: ClassVar[bool] = True
    tau: float = 0.5
    kind: Literal["infonce", "soft_triplet"] = "infonce"
    r0: float = 0.0

    def __post_init__(self) -> None:
        require_positive("tau", self.tau)
        require(self.kind in ("infonce", "soft_triplet"), "kind", self.kind, "'infonce' or 'soft_triplet'")
        require_finite("r0", self.r0)
        require(self.r0 == 0 or self.kind == "soft_triplet", "r0", self.r0, "0 unless kind='soft_triplet'")

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        if self.kind == "infonce":
            return F.logsigmoid(d2_neg.mul_(-1 / self.tau)).sub_(math.log(self.tau))
        return F.logsigmoid((self.r0 - d2_neg) / self.tau)

    def row_sum(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        return log_sum.exp()


# ---------------------------------------------------------------------------------------------------------------------
# From a loss


@dataclass(frozen=True)
class FromFamily(Streaming):
    """α_ij = φ'(ξ_i) ψ'(d2_pos_i − d2_neg_ij): descent of the loss is ascent of E_{sg(α)} (Theorem 1)."""

    family: Family

    def __post_init__(self) -> None:
        require(isinstance(self.family, Family), "family", self.family, "a lightning_ssl.losses.Family")

    @property
    def streams(self) -> bool:
        return isinstance(self.family, ExponentialFamily)

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        assert isinstance(self.family, ExponentialFamily)
        return d2_neg.mul_(-1 / self.family.tau)

    def row_sum(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        assert isinstance(self.family, ExponentialFamily)
        return self.family.gain(self.family.log_xi(log_sum, d2_pos))

    def value(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        assert isinstance(self.family, ExponentialFamily)
        return self.family.phi_of_log(self.family.log_xi(log_sum, d2_pos))

    def fit(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None = None) -> Rows:
        if self.streams:
            return super().fit(d2_pos, d2_neg, valid)
        xi = self.family.xi(d2_pos, d2_neg, valid)
        gain = self.family.phi_prime(xi)
        if self.family.averages:
            gain = gain / self.family.negatives(d2_neg, valid)
        psi_prime = self.family.psi_prime(d2_pos[:, None] - d2_neg)
        if valid is not None:
            psi_prime = psi_prime.masked_fill(~valid, 0.0)
        return Rows(torch.stack([d2_pos, gain]), gain * psi_prime.sum(1), self.family.phi(xi))

    def weigh(self, d2_neg: Tensor, params: Tensor) -> Tensor:
        if self.streams:
            return super().weigh(d2_neg, params)
        d2_pos, gain = params
        return self.family.psi_prime(d2_pos - d2_neg) * gain
