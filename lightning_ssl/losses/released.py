"""What the released code of the α-CL paper computes in two rows of its Table 1, where it differs from the paper.

Both rows are regularizers whose μ_i should make Σ_j α_ij = 1 (solved.py). The released code does not solve for μ_i in
the first, and divides by the row sum instead; in the second it picks another μ_i. Use these classes only to test which
of the two explains a published figure: `Inverse` and `Square` are the formulas of the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lightning_ssl.losses.families import require_scale
from lightning_ssl.losses.importance import Streaming
from lightning_ssl.losses.interface import Importance
from lightning_ssl.losses.rows import Negatives, Rows, relative_to_nearest

__all__ = ["ReleasedInverse", "ReleasedSquare"]


@dataclass(frozen=True)
class ReleasedInverse(Streaming):
    """α_ij ∝ (d2_neg_ij^power + τ)^{−exponent}: the inverse regularizer with μ_i = −τ, without the factor τ^{1/γ}.

    The released command of the α-CL paper (`loss_type=dual2`, `alpha_eps=0`) normalizes the rows. The distances are
    first raised to its `alpha_exponent`, and the default of its `inverse_exponent` is 1.

    tau        shift τ of the distances
    exponent   `inverse_exponent`; 1/γ of the paper, whose γ = 2 gives 0.5
    power      `alpha_exponent`
    normalize  rows sum to 1, as with `alpha_eps=0`; False: α_ij = (d2_neg_ij^power + τ)^{−exponent}

    >>> ReleasedInverse(tau=0.5)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[1.1952, 1.0000, 0.8452]])
    >>> ReleasedInverse(tau=0.5, exponent=1, normalize=True)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.4545, 0.3182, 0.2273]])
    """

    source = "the code released with α-CL, not its text"
    unlabelled: ClassVar = {"power": 1, "normalize": False}

    tau: float = 0.5
    exponent: float = 0.5
    power: float = 1.0
    normalize: bool = False

    def __post_init__(self) -> None:
        for name in ("tau", "exponent", "power"):
            require_scale(name, getattr(self, name))

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        return self.log_shifted(d2_neg).mul_(-self.exponent)

    def log_shifted(self, d2_neg: Tensor) -> Tensor:
        """log(d2_neg^power + τ), without an overflow of the power. It may overwrite its argument."""
        if self.power == 1:
            return d2_neg.add_(self.tau).log_()
        return torch.logaddexp(d2_neg.log_().mul_(self.power), d2_neg.new_tensor(self.tau).log())

    def row_sum(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        return super().row_sum(log_sum, d2_pos) if self.normalize else log_sum.exp()

    def vjp(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        if self.normalize:
            cotangent = cotangent - (alpha * cotangent).sum(1, keepdim=True)
        slope = (torch.xlogy(self.power - 1, d2_neg) - self.log_shifted(d2_neg.clone())).exp()
        return -self.exponent * self.power * slope * alpha * cotangent


@dataclass(frozen=True)
class ReleasedSquare(Importance):
    """α_ij = max(0, (μ_i − d2_neg_ij)/τ) with the released code's μ_i. The rows sum to more than 1.

    With the distances of a row sorted, m_k = (τ + Σ_{j≤k} d2_neg_ij)/k, and the support ends before the first k with
    d2_neg_ik ≥ m_k. The solution (`Square`) has μ_i = m of the last pair of the support. The released code takes m of
    the pair after it, or m_1 where every pair is in the support.

    tau  strength τ of the regularizer

    >>> ReleasedSquare(tau=0.5)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[1.0000, 0.4000, 0.0000]])
    >>> ReleasedSquare(tau=5.0)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]])).sum()
    tensor(2.8000)
    """

    source = "the code released with α-CL, not its text"
    tau: float = 5.0

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)

    def rows(self, d2_pos: Tensor, d2_neg: Tensor, negatives: Negatives) -> Rows:
        count = d2_neg.shape[1]
        ranks = torch.arange(1, count + 1, device=d2_neg.device, dtype=d2_neg.dtype)
        present = ranks <= negatives.count(d2_neg)  # (M, K)
        c, _ = relative_to_nearest(d2_neg, negatives)  # a shift does not change α; beside large distances τ is rounded
        ordered = c.sort(1).values
        means = (ordered.masked_fill(~present, 0.0).cumsum(1) + self.tau) / ranks
        support = (present & (ordered < means)).sum(1, keepdim=True)  # (M, 1)
        mu = means.gather(1, torch.where(support < present.sum(1, keepdim=True), support, 0))  # (M, 1)
        alpha = (mu - c).clamp(min=0) / self.tau  # 0 at the excluded pairs, whose c is ∞
        return Rows(alpha, alpha.sum(1))
