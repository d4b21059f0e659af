"""Pair importance α: the weight of each negative pair of a batch.

    alpha = importance(d2_pos, d2_neg, valid=None)     # (M,), (M, K), optional bool (M, K) → (M, K)

d2 is always ½‖a − b‖²: small means similar. α > 0 repels, and α = 0 where a pair is not valid.

There are four kinds:
  `Streaming`  α_ij = s_i · softmax_j ℓ(d2_neg_ij): one sum per row, so the kernel can work in small tiles
  `Mixture`    α_ij = Σ_c m_ci softmax_j ℓ_c(d2_neg_ij): a few sums per row, signed masses, an attraction of its own
  `Solved`     α_i = argmin over the simplex of Σ_j α_ij c_ij − Σ_j r(α_ij), r concave: one unknown per row
  `FromFamily` α_ij = φ'(ξ_i) ψ'(d2_pos_i − d2_neg_ij), Theorem 1

To add your own, subclass one of these. Any callable with the signature above is accepted too: exact, but slower.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl.base.checks import is_number, require, require_finite
from lightning_ssl.losses.families import ExponentialFamily, Family, require_scale
from lightning_ssl.losses.interface import Importance
from lightning_ssl.losses.rows import Negatives, Row, Rows, Weights, relative_to_nearest

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Direct", "Entropy", "Exact", "FromFamily", "Gaussian", "Mixture", "Streaming", "Uniform"]


class Mixture(Importance):
    """A mixture of softmaxes with signed masses: α_ij = Σ_c m_ci softmax_j ℓ_c(d2_neg_ij).

    A subclass defines the ℓ_c in `log_kernels`, and in `weigh` the masses m_ci and the attraction a_i as functions of
    the log-sums L_ci = log Σ_j exp ℓ_c(d2_neg_ij), of d2_pos_i and of the number of negatives. The first component
    below repels near pairs, and the second one attracts all pairs:

    >>> class Contrast(Mixture):
    ...     def log_kernels(self, d2_neg):
    ...         return -4 * d2_neg, torch.zeros_like(d2_neg)
    ...     def weigh(self, row):
    ...         one = torch.ones_like(row.d2_pos)
    ...         return Weights((1.5 * one, -0.5 * one))
    >>> Contrast()(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[ 0.9347,  0.1650, -0.0997]])
    """

    needs_batch: ClassVar[bool] = False
    """Whether `for_rows` must be called with the rows of all ranks before `weigh` is called with some of them."""

    @property
    def streams(self) -> bool:
        return True

    @property
    def can_vanish(self) -> bool:
        """Whether ℓ_c can be −∞ at every negative of a row, with m_ci = 0. A subclass may set it as an attribute."""
        return True

    @abstractmethod
    def log_kernels(self, d2_neg: Tensor) -> tuple[Tensor, ...]:
        """The ℓ_c(d2_neg), elementwise. It may overwrite its argument, and the caller may overwrite the results."""

    @abstractmethod
    def weigh(self, row: Row) -> Weights:
        """The masses of the first components; the components without a mass only supply their log-sums."""

    def for_rows(self, row: Row) -> Self:
        """The same rule with what it takes from the rows of the whole batch."""
        return self

    def rows(self, d2_pos: Tensor, d2_neg: Tensor, negatives: Negatives) -> Rows:
        logits = [negatives.exclude_(x, -torch.inf) for x in self.log_kernels(d2_neg)]
        return self.rows_of_logits(d2_pos, logits, negatives)

    def rows_of_logits(self, d2_pos: Tensor, logits: list[Tensor], negatives: Negatives) -> Rows:
        """Whole rows of α from the ℓ_c(d2_neg), −∞ at pairs that are not negatives. It overwrites the logits."""
        with torch.no_grad():
            tops = [x.amax(1, keepdim=True).clamp_(min=torch.finfo(x.dtype).min) for x in logits]  # (M, 1) each
        kernels = [x.sub_(top).exp_() for x, top in zip(logits, tops, strict=True)]
        return self.rows_of_kernels(d2_pos, kernels, negatives, tops)

    def rows_of_kernels(
        self, d2_pos: Tensor, kernels: list[Tensor], negatives: Negatives, tops: list[Tensor] | None = None
    ) -> Rows:
        """Whole rows of α from the k_c = exp(ℓ_c(d2_neg) − top_c), 0 at other pairs, and the top_c: (M, K), (M, 1)."""
        totals = [k.sum(1) for k in kernels]
        log_sums = [x.log() for x in totals]
        if tops is not None:
            log_sums = [x + top.squeeze(1) for x, top in zip(log_sums, tops, strict=True)]
        weights = self.weigh(Row(tuple(log_sums), d2_pos, lambda: negatives.count(kernels[0]).squeeze(1)))
        scales = [mass / total for mass, total in zip(weights.masses, totals, strict=False)]
        if self.can_vanish:  # if every logit of a row overflows, its α is NaN, or 0 with a mass of 0
            scales = [x.masked_fill_(mass == 0, 0.0) for x, mass in zip(scales, weights.masses, strict=True)]
        alpha = kernels[0] * scales[0][:, None]
        for k, scale in zip(kernels[1:], scales[1:], strict=False):
            alpha = torch.addcmul(alpha, k, scale[:, None])
        return Rows(alpha, weights.row_sum, weights.value, weights.attraction)


class Streaming(Mixture):
    """α_ij = s_i · softmax_j ℓ(d2_neg_ij), with a row sum s_i that depends on Σ_j exp ℓ(d2_neg_ij) and d2_pos_i.

    A subclass defines ℓ in `log_kernel`. Rows sum to 1 unless it overrides `row_sum`. For example, α_ij ∝ 1/(1 + d2):

    >>> class Cauchy(Streaming):
    ...     def log_kernel(self, d2_neg):
    ...         return -(1 + d2_neg).log()
    >>> Cauchy()(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.4113, 0.3290, 0.2597]])
    """

    @abstractmethod
    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        """ℓ(d2_neg), elementwise. It may overwrite its argument, and the caller may overwrite the result."""

    def row_sum(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        """s_i = Σ_j α_ij from log Σ_j exp ℓ(d2_neg_ij) and d2_pos: (M,), (M,) → (M,). The default is 1."""
        return torch.ones_like(log_sum)

    def value(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor | None:
        """φ(ξ_i), if the importance comes from a loss: (M,), (M,) → (M,)."""
        return None

    def log_kernels(self, d2_neg: Tensor) -> tuple[Tensor, ...]:
        return (self.log_kernel(d2_neg),)

    def weigh(self, row: Row) -> Weights:
        (log_sum,) = row.log_sums
        return Weights((self.row_sum(log_sum, row.d2_pos),), value=self.value(log_sum, row.d2_pos))


@dataclass(frozen=True)
class Entropy(Streaming):
    """α_i = softmax_j(−d2_neg_ij/τ), the solution for the regularizer r(α) = −τ α log α.

    `PairLoss(Entropy(tau))` has the gradient of InfoNCE with ε = 0.

    tau  temperature τ

    >>> Entropy(tau=0.5)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.5570, 0.3057, 0.1373]])
    """

    source = "α-CL, Section 6"
    can_vanish = False
    tau: float = 0.5

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        return d2_neg.mul_(-1 / self.tau)

    def rows(self, d2_pos: Tensor, d2_neg: Tensor, negatives: Negatives) -> Rows:
        c, _ = relative_to_nearest(d2_neg, negatives)  # the same softmax, without overflow
        return self.rows_of_kernels(d2_pos, [self.log_kernel(c).exp_()], negatives)

    def vjp(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        centre = (alpha * cotangent).sum(1, keepdim=True)
        return alpha * (centre - cotangent) / self.tau


@dataclass(frozen=True)
class Direct(Streaming):
    """α_ij ∝ exp(−d_ij^p/τ) with d = √d2 (α-CL-direct, Eqn. 12).

    tau        temperature τ
    p          exponent, above 1 and up to 1000; p = 2 is `Entropy`
    normalize  rows sum to 1; False: α_ij = exp(−d_ij^p/τ) (Eqn. 44)

    >>> Direct(tau=0.5, p=4.0)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.5344, 0.3511, 0.1146]])
    """

    source = "α-CL, Eqns. 12 and 44"
    unlabelled: ClassVar = {"normalize": True}

    tau: float = 0.5
    p: float = 4.0
    normalize: bool = True

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)
        require(is_number(self.p) and 1 < self.p < math.inf, "p", self.p, "a finite number above 1")
        require(self.p <= MAX_P, "p", self.p, f"at most {MAX_P}")

    @property
    def can_vanish(self) -> bool:
        return not self.normalize

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        return d2_neg.pow_(self.p / 2).mul_(-1 / self.tau)

    def rows(self, d2_pos: Tensor, d2_neg: Tensor, negatives: Negatives) -> Rows:
        if not self.normalize:
            return super().rows(d2_pos, d2_neg, negatives)
        # If d^p/τ of the nearest pair of a row is this large, rounding of d decides that it has the whole weight.
        # Smaller distances of the same ratios have the same weights, and their powers do not overflow.
        c = negatives.exclude_(d2_neg, torch.inf)
        before = self.tau if self.p >= 2 else 1.0  # the factor of τ by which d^p is divided before the power is taken
        after = self.tau / before
        with torch.no_grad():
            largest = (LARGEST_LOGIT * after) ** (2 / self.p)
            factor = (largest / c.amin(1, keepdim=True)).clamp_(max=before ** (-2 / self.p))  # (M, 1)
        return self.rows_of_logits(d2_pos, [c.mul_(factor).pow_(self.p / 2).mul_(-1 / after)], negatives)

    def row_sum(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        return super().row_sum(log_sum, d2_pos) if self.normalize else log_sum.exp()

    def vjp(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        # If p < 2, ℓ' is unbounded as d2 → 0. The gradient of such a pair vanishes as a difference of large terms.
        # Below the rounding error of d2 these terms have no correct digits, so d2 is clamped.
        if self.p < 2:
            limits = torch.finfo(d2_neg.dtype)
            d2_neg = torch.maximum(d2_neg, d2_neg.amax(1, keepdim=True).mul_(limits.eps).clamp_(min=limits.tiny))
        slope = d2_neg.pow(self.p / 2 - 1).mul_(-self.p / (2 * self.tau))  # ℓ'
        if self.normalize:
            cotangent = cotangent - (alpha * cotangent).sum(1, keepdim=True)
        change = alpha * cotangent
        found = slope.mul_(change)
        return found if self.p < 2 else found.masked_fill_(change == 0, 0.0)  # there the slope can be infinite


MAX_P = 1000
LARGEST_LOGIT = 1e30  # times eps of float64 is still far above the largest exponent


@dataclass(frozen=True)
class Uniform(Streaming):
    """α_ij = 1: every negative has the same weight, and the row sum is the number of negatives.

    >>> Uniform()(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]])).round()
    tensor([[1., 1., 1.]])
    """

    source = "one layer, Section 2"

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        return d2_neg.zero_()

    def row_sum(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        return log_sum.exp()

    def vjp(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        return torch.zeros_like(alpha)


@dataclass(frozen=True)
class Gaussian(Streaming):
    """α_ij = exp(−‖g(x0_i) − g(x0_j)‖²/2τ), with embeddings g of the un-augmented samples x0.

    tau  width τ of the kernel

    >>> Gaussian(tau=0.5)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.6703, 0.3679, 0.1653]])
    """

    source = "one layer, Lemma 1"

    uses_clean_view = True
    tau: float = 0.5

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        return d2_neg.mul_(-1 / self.tau)

    def row_sum(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        return log_sum.exp()


@dataclass(frozen=True)
class Exact(Streaming):
    """α_ij = ξ(r_ij), with r_ij the d2 of two un-augmented samples. With these weights Theorem 3 is exact.

        kind="infonce"         ξ(r) = τ⁻¹ e^{−r/τ} / (1 + e^{−r/τ}), Eqn. 6
        kind="soft_triplet"    ξ(r) = e^{−(r−r0)/τ} / (1 + e^{−(r−r0)/τ}), Eqn. 6
        kind="all_negatives"   ξ_ij = e^{−r_ij/τ} / (1 + Σ_k e^{−r_ik/τ}), Eqn. 80, a remark on more than one negative

    tau        temperature τ
    kind       one of the three equations above
    r0         margin, for "soft_triplet" only
    distances  "clean": r of the un-augmented samples, as in the text; "augmented": of the augmented ones, the default
               of the released code
    mean       divide by the number of negatives, as the released code does

    >>> Exact(tau=0.5)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.8026, 0.5379, 0.2837]])
    >>> Exact(tau=0.5, kind="all_negatives")(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.3042, 0.1670, 0.0750]])
    """

    source = "dual networks, Eqns. 6, 7 and 80"
    unlabelled: ClassVar = {"kind": "infonce", "r0": 0, "distances": "clean", "mean": False}

    tau: float = 0.5
    kind: Literal["infonce", "soft_triplet", "all_negatives"] = "infonce"
    r0: float = 0.0
    distances: Literal["clean", "augmented"] = "clean"
    mean: bool = False

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)
        kinds = ("infonce", "soft_triplet", "all_negatives")
        require(self.kind in kinds, "kind", self.kind, f"one of {', '.join(kinds)}")
        require_finite("r0", self.r0)
        require(self.r0 == 0 or self.kind == "soft_triplet", "r0", self.r0, "0 unless kind='soft_triplet'")
        require(self.distances in ("clean", "augmented"), "distances", self.distances, "'clean' or 'augmented'")

    @property
    def uses_clean_view(self) -> bool:
        return self.distances == "clean"

    @property
    def streams(self) -> bool:
        return not self.mean  # only whole rows know the number of negatives

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        if self.kind == "infonce":
            return F.logsigmoid(d2_neg.mul_(-1 / self.tau)).sub_(math.log(self.tau))
        if self.kind == "soft_triplet":
            return F.logsigmoid((self.r0 - d2_neg) / self.tau)
        return d2_neg.mul_(-1 / self.tau)

    def row_sum(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        return log_sum.sigmoid() if self.kind == "all_negatives" else log_sum.exp()

    def rows(self, d2_pos: Tensor, d2_neg: Tensor, negatives: Negatives) -> Rows:
        found = super().rows(d2_pos, d2_neg, negatives)
        if not self.mean:
            return found
        count = negatives.count(d2_neg)  # (M, 1)
        return Rows(found.alpha.div_(count), found.row_sum / count.squeeze(1))


# ---------------------------------------------------------------------------------------------------------------------
# From a loss


@dataclass(frozen=True)
class FromFamily(Streaming):
    """α_ij = φ'(ξ_i) ψ'(d2_pos_i − d2_neg_ij), with ξ_i = Σ_j ψ(d2_pos_i − d2_neg_ij) (Theorem 1).

    With this α, gradient descent on the loss equals gradient ascent on the energy E_{sg(α)}.

    family  the (φ, ψ) loss

    >>> from lightning_ssl.losses.families import Quadratic
    >>> FromFamily(Quadratic())(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.3333, 0.3333, 0.3333]])
    """

    source = "α-CL, Theorem 1"
    can_vanish = False
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
        return self.family.row_sum(self.family.log_xi(log_sum, d2_pos))

    def value(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        assert isinstance(self.family, ExponentialFamily)
        return self.family.phi_of_log(self.family.log_xi(log_sum, d2_pos))

    def rows(self, d2_pos: Tensor, d2_neg: Tensor, negatives: Negatives) -> Rows:
        if self.streams:
            # d2_pos − d2_neg stays the same, and the sum of the exponentials neither overflows nor underflows.
            c, nearest = relative_to_nearest(d2_neg, negatives)
            return self.rows_of_kernels(d2_pos - nearest.squeeze(1), [self.log_kernel(c).exp_()], negatives)
        valid = negatives.mask()
        xi = self.family.xi(d2_pos, d2_neg, valid)
        phi_prime = self.family.phi_prime(xi)
        if self.family.averages:
            phi_prime = phi_prime / self.family.negatives(d2_neg, valid)
        psi_prime = self.family.psi_prime(d2_pos[:, None] - d2_neg)
        alpha = negatives.exclude_(psi_prime * phi_prime[:, None], 0.0)
        return Rows(alpha, alpha.sum(1), self.family.phi(xi))
