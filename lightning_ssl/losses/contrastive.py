"""Contrastive losses with one softmax over the negatives: decoupled, reweighted, robust to noise, with a margin.

With similarities s = 1 − d2, the cosines of unit embeddings, P = e^{s₊/τ} of the positive and S = Σ_j e^{s_j/τ}. Each
class is the importance of its loss: `PairLoss(DCL())` has the value and the gradient of the loss. The values are on the
scale of their papers, so Σ_j α_ij is near 1/τ: `DCL(tau)` has the weights of `Entropy(tau)` divided by τ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl.base.checks import is_number, require, require_finite
from lightning_ssl.losses.families import require_scale
from lightning_ssl.losses.importance import Mixture, Streaming
from lightning_ssl.losses.rows import Row, Weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from lightning_ssl.losses.interface import Sums

__all__ = ["DCL", "DCLW", "MACL", "RINCE", "MarginInfoNCE"]


def softplus(u: Tensor) -> Tensor:
    """log(1 + e^u). By default torch leaves out the 1 if u > 20, which float64 sees."""
    return F.softplus(u, threshold=50)


class Tempered(Mixture):
    """A loss that depends on the similarities through s/τ alone, so it can learn log τ without another sum.

    −∂L/∂log τ = Σ s ∂L/∂s = mean_i [a_i d2_pos_i − Σ_j α_ij d2_neg_ij + Σ_j α_ij − a_i]
    """

    is_loss = True
    can_vanish = False
    tau: float
    learn_tau: bool

    @property
    def learned(self) -> tuple[str, ...]:
        return ("tau",) if self.learn_tau else ()

    def with_learned(self, learned: Mapping[str, Tensor]) -> Self:
        return self.altered(tau=self.tau * learned["tau"].exp()) if "tau" in learned else self

    def log_kernels(self, d2_neg: Tensor) -> tuple[Tensor, ...]:
        return (d2_neg.mul_(-1 / self.tau),)

    def learned_gradients(self, sums: Sums) -> dict[str, Tensor]:
        return {"tau": sums.attraction - sums.row_sum - sums.pair_value}


@dataclass(frozen=True)
class DCL(Tempered):
    """Decoupled contrastive loss: NT-Xent without the positive in the denominator.

        L_i = −s₊/τ + log S,   α_ij = softmax_j(s_j/τ)/τ

    There is one logarithm over all negatives of the anchor, as in Eqn. 6. Older releases of lightly add one within and
    one across the views, so that the repulsion is twice as strong.

    tau        temperature τ
    learn_tau  train log τ with the network

    >>> DCL(tau=0.5)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[1.1140, 0.6114, 0.2747]])
    """

    source = "arXiv 2110.06848, Eqn. 6"
    unlabelled: ClassVar = {"learn_tau": False}

    tau: float = 0.1
    learn_tau: bool = False

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)

    def weigh(self, row: Row) -> Weights:
        (log_sum,) = row.log_sums
        return Weights((torch.ones_like(log_sum) / self.tau,), value=log_sum + row.d2_pos / self.tau)


@dataclass(frozen=True)
class DCLW(Tempered):
    """Decoupled contrastive loss with a weight of each positive, which is smaller for near positives.

        L_i = −w_i s₊/τ + log S,   w_i = 2 − exp(s₊_i/σ) / mean_k exp(s₊_k/σ)
        α_ij = softmax_j(s_j/τ)/τ,   a_i = w_i/τ

    The mean is over the anchors of the whole batch, and w has no gradient: the paper leaves it open. w_i is negative,
    and the positive is pushed away, where exp(s₊_i/σ) is above twice the mean.

    tau        temperature τ
    sigma      width σ of the weights
    learn_tau  train log τ with the network

    >>> DCLW(tau=0.5)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[1.1140, 0.6114, 0.2747]])
    """

    source = "arXiv 2110.06848"
    symbols: ClassVar = {"sigma": "σ"}
    unlabelled: ClassVar = {"learn_tau": False}

    tau: float = 0.1
    sigma: float = 0.5
    learn_tau: bool = False

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)
        require_scale("sigma", self.sigma)

    def for_batch(self, d2_pos: Tensor) -> Self:
        if "log_total" in vars(self):
            return self
        logits = d2_pos.detach() / -self.sigma
        return self.altered(log_total=logits.logsumexp(0) - math.log(len(d2_pos)))

    def weigh(self, row: Row) -> Weights:
        (log_sum,) = row.log_sums
        w = 2 - (row.d2_pos.detach() / -self.sigma - vars(self)["log_total"]).exp()
        value = log_sum + (1 - w * (1 - row.d2_pos)) / self.tau
        return Weights((torch.ones_like(log_sum) / self.tau,), w / self.tau, value)


@dataclass(frozen=True)
class MACL(Streaming):
    """Model-aware contrastive loss: NT-Xent with a temperature that follows the alignment of the batch.

        L_i = −log p₊ / (1 − p₊),   p₊ = P/(P + S) at τ = τ₀ (1 + α (mean_i s₊_i − A₀)),   α_ij = softmax_j(s_j/τ)/τ

    Neither τ nor the weight 1/(1 − p₊) has a gradient, so the gradient is that of `DCL` at this τ. The mean is over the
    whole batch.

    tau    temperature τ₀
    alpha  how much τ follows the alignment
    a0     alignment A₀ at which τ is τ₀; α (1 + A₀) is below 1, so that τ is above 0

    >>> MACL(tau=0.5)(torch.ones(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[1.1140, 0.6114, 0.2747]])
    """

    source = "arXiv 2207.07874"
    symbols: ClassVar = {"alpha": "α", "a0": "A₀"}
    is_loss = True
    can_vanish = False

    tau: float = 0.1
    alpha: float = 0.5
    a0: float = 0.0

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)
        require(is_number(self.alpha) and 0 <= self.alpha < math.inf, "alpha", self.alpha, "a finite number, 0 or more")
        require_finite("a0", self.a0)
        positive = self.alpha * (1 + self.a0) < 1
        require(positive, "alpha", self.alpha, "below 1/(1 + a0), so that the temperature is above 0")

    def for_batch(self, d2_pos: Tensor) -> Self:
        if "tau_of_batch" in vars(self):
            return self
        alignment = 1 - d2_pos.detach().mean()
        return self.altered(tau_of_batch=self.tau * (1 + self.alpha * (alignment - self.a0)))

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        return d2_neg.div_(-vars(self)["tau_of_batch"])

    def weigh(self, row: Row) -> Weights:
        (log_sum,) = row.log_sums
        tau = vars(self)["tau_of_batch"]
        u = (log_sum + row.d2_pos / tau).clamp(min=-40)  # log S/P; below, the quotient is 1 to rounding
        return Weights((torch.ones_like(log_sum) / tau,), value=softplus(u) / u.sigmoid())


@dataclass(frozen=True)
class RINCE(Tempered):
    """Robust InfoNCE, for views that do not always match: from NT-Xent (q → 0) to a loss linear in P and S (q = 1).

        L_i = [−P^q + λ^q (P + S)^q]/q,   α_ij = λ^q (P + S)^{q−1} e^{s_j/τ}/τ,   a_i = [P^q − λ^q (P + S)^{q−1} P]/τ

    The loss is that of similarities s = 1 − d2; with distances it would be e^{q/τ} times smaller.

    tau        temperature τ; q/τ is at most 80, because the loss is near e^{q/τ}
    lam        density λ of the negatives, above 0 and up to 1
    q          robustness, above 0 and up to 1
    learn_tau  train log τ with the network

    >>> RINCE(tau=0.5, lam=0.1, q=0.5)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.7763, 0.4261, 0.1914]])
    """

    source = "arXiv 2201.04309; the defaults of its code"
    symbols: ClassVar = {"lam": "λ"}
    unlabelled: ClassVar = {"learn_tau": False}

    tau: float = 0.5
    lam: float = 0.001
    q: float = 0.5
    learn_tau: bool = False

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)
        for name in ("lam", "q"):
            value = getattr(self, name)
            require(is_number(value) and 0 < value <= 1, name, value, "a number above 0 and up to 1")
        require(self.q <= 80 * self.tau, "tau", self.tau, f"at least q/80 = {self.q / 80:g}")

    def weigh(self, row: Row) -> Weights:
        (log_sum,) = row.log_sums
        log_p, log_s = (1 - row.d2_pos) / self.tau, log_sum + 1 / self.tau
        log_t = torch.logaddexp(log_p, log_s)
        of_positive = (self.q * log_p).exp()
        log_common = self.q * math.log(self.lam) + (self.q - 1) * log_t
        masses = ((log_common + log_s).exp() / self.tau,)
        attraction = (of_positive - (log_common + log_p).exp()) / self.tau
        return Weights(masses, attraction, ((log_common + log_t).exp() - of_positive) / self.q)


@dataclass(frozen=True)
class MarginInfoNCE(Streaming):
    """NT-Xent that asks the positive to be nearer by a margin, of the cosine or of the angle.

        L_i = −log Q/(Q + S),   Q = exp((s₊ − m)/τ)   or   exp(cos(θ₊ + m)/τ),   cos θ₊ = s₊
        α_ij = e^{s_j/τ}/(τ (Q + S)),   a_i = Σ_j α_ij, times sin(θ₊ + m)/sin θ₊ for the angle

    With a margin of the cosine it is the soft triplet loss with margin m/τ, divided by τ, and implicit feature
    modification (arXiv 2106.11230) with m = 2ε. The factor of the angle is unbounded as θ₊ → 0, so there d2_pos is
    bounded from below by its rounding error.

    tau      temperature τ
    margin   margin m, 0 or more; radians for an angle
    angular  the margin is one of the angle

    >>> MarginInfoNCE(tau=0.5, margin=0.2)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.7155, 0.3927, 0.1764]])
    """

    source = "ArcCSE for the angle, arXiv 2106.11230 for the cosine; the default margin is ours"
    unlabelled: ClassVar = {"angular": False}
    is_loss = True
    can_vanish = False

    tau: float = 0.5
    margin: float = 0.1
    angular: bool = False

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)
        require(
            is_number(self.margin) and 0 <= self.margin < math.inf, "margin", self.margin, "a finite number, 0 or more"
        )

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        return d2_neg.mul_(-1 / self.tau)

    def weigh(self, row: Row) -> Weights:
        (log_sum,) = row.log_sums
        gap, slope = self.of_positive(row.d2_pos)
        u = log_sum + gap / self.tau  # log S/Q
        mass = u.sigmoid() / self.tau
        return Weights((mass,), None if slope is None else mass * slope, softplus(u))

    def of_positive(self, d2_pos: Tensor) -> tuple[Tensor, Tensor | None]:
        """1 − τ log Q and its derivative by d2_pos; None if that is 1."""
        if not self.angular:
            return d2_pos + self.margin, None
        cos, sin = math.cos(self.margin), math.sin(self.margin)
        cosine = 1 - d2_pos
        sine = (d2_pos * (2 - d2_pos)).clamp(min=torch.finfo(d2_pos.dtype).eps ** 2).sqrt()  # 0 past the antipode too
        return 1 + sine * sin - cosine * cos, cos + sin * cosine / sine
