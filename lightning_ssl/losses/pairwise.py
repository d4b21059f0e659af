"""Losses that take each pair by itself, or weigh it by its similarity alone; and the two that metric learning uses.

With similarities s = 1 − d2, the cosines of unit embeddings, over the K negatives. Each class is the importance of its
loss: `PairLoss(Sigmoid())` has the value and the gradient of the loss, on the scale of its paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl.base.checks import is_number, require, require_finite
from lightning_ssl.losses.contrastive import Tempered, softplus
from lightning_ssl.losses.families import require_scale
from lightning_ssl.losses.importance import Mixture, Streaming
from lightning_ssl.losses.rows import Negatives, Row, Rows, Weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from lightning_ssl.losses.interface import Sums

__all__ = ["FMICL", "AlignUniform", "Circle", "MultiSimilarity", "Sigmoid", "Spectral"]


def require_weight(argument: str, value: float) -> None:
    """Refuse anything but a finite number, 0 or more."""
    require(is_number(value) and 0 <= value < math.inf, argument, value, "a finite number, 0 or more")


@dataclass(frozen=True)
class Sigmoid(Tempered):
    """Sigmoid loss of SigLIP and SigCLR: every pair is classified by itself as positive or negative.

        L_i = softplus(−u₊) + Σ_j softplus(u_j),   u = s/τ + b,   α_ij = σ(u_j)/τ,   a_i = σ(−u₊)/τ

    log τ and b are trained with the network, from these values. The sum over j is not divided by K, so b starts low.
    With both views as anchors every pair counts twice, the positives too.

    tau         temperature τ
    bias        bias b
    learn_tau   train log τ
    learn_bias  train b

    >>> Sigmoid(tau=0.5, bias=0.0)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[1.6640, 1.4621, 1.0997]])
    """

    source = "arXiv 2303.15343 (SigLIP) and 2410.17427 (SigCLR)"
    unlabelled: ClassVar = {"learn_bias": True}

    tau: float = 0.1
    bias: float = -10.0
    learn_tau: bool = True
    learn_bias: bool = True

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)
        require_finite("bias", self.bias)

    @property
    def learned(self) -> tuple[str, ...]:
        return (*super().learned, "bias") if self.learn_bias else super().learned

    def with_learned(self, learned: Mapping[str, Tensor]) -> Self:
        rule = super().with_learned(learned)
        return rule.altered(bias=self.bias + learned["bias"]) if "bias" in learned else rule

    def learned_gradients(self, sums: Sums) -> dict[str, Tensor]:
        return super().learned_gradients(sums) | {"bias": (sums.row_sum - sums.attraction) * self.tau}

    def log_kernels(self, d2_neg: Tensor) -> tuple[Tensor, ...]:
        u = (1 - d2_neg) / self.tau + self.bias
        return F.logsigmoid(u), F.logsigmoid(u.neg_()).neg_().log_()  # the second one is the value

    def weigh(self, row: Row) -> Weights:
        log_sigmoids, log_value = row.log_sums
        u = (1 - row.d2_pos) / self.tau + self.bias
        return Weights((log_sigmoids.exp() / self.tau,), (-u).sigmoid() / self.tau, log_value.exp() - F.logsigmoid(u))


@dataclass(frozen=True)
class Spectral(Mixture):
    """Spectral contrastive loss of unit embeddings: negatives should be orthogonal.

        L_i = −2 s₊ + (1/K) Σ_j s_j²,   α_ij = (2/K) s_j,   a_i = 2

    Negatives with s < 0 are attracted. The paper does not normalize; its loss of inner products is another one off the
    sphere. It takes the negatives of the other view.

    >>> Spectral()(torch.zeros(1), torch.tensor([[0.2, 0.5, 1.4]]))
    tensor([[ 0.5333,  0.3333, -0.2667]])
    """

    source = "arXiv 2106.04156, for unit norms"
    is_loss = True

    def log_kernels(self, d2_neg: Tensor) -> tuple[Tensor, ...]:
        log_d2 = d2_neg.log()
        return torch.zeros_like(d2_neg), log_d2, 2 * log_d2  # the third one is for the value

    def weigh(self, row: Row) -> Weights:
        count, two = row.count, torch.full_like(row.d2_pos, 2.0)
        of_d2, of_squares = (x.exp() / count for x in row.log_sums[1:])
        value = 2 * (row.d2_pos - of_d2) - 1 + of_squares
        return Weights((two, -2 * of_d2), two, value)


@dataclass(frozen=True)
class AlignUniform(Streaming):
    """Alignment and uniformity: near positives, and all samples spread over the sphere.

        L = w_a mean_i ‖x_i − x_i₊‖^p + w_u log mean_ij exp(−t ‖x_i − x_j‖²)
        α_ij = w_u 2tM k_ij/Σ_kl k_kl,   k = exp(−2t d2),   a_i = w_a p (2 d2_pos_i)^{p/2−1}

    The second mean is over all negative pairs of the batch, of all M anchors. The paper takes the mean of the
    uniformity of each view, without pairs across the views: the mean of anchors="one" for (z1, z2) and for (z2, z1).

    t          scale t of the Gaussian
    power      p of the alignment, 1 or more
    w_align    weight of the alignment
    w_uniform  weight of the uniformity

    >>> AlignUniform()(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[2.9368, 0.8846, 0.1786]])
    """

    source = "arXiv 2005.10242"
    symbols: ClassVar = {"w_align": "w_a", "w_uniform": "w_u"}
    unlabelled: ClassVar = {"w_align": 1, "w_uniform": 1}
    is_loss = True
    can_vanish = False
    needs_batch = True

    t: float = 2.0
    power: float = 2.0
    w_align: float = 1.0
    w_uniform: float = 1.0

    def __post_init__(self) -> None:
        require_scale("t", self.t)
        require(is_number(self.power) and 1 <= self.power < math.inf, "power", self.power, "a finite number, 1 or more")
        require_weight("w_align", self.w_align)
        require_weight("w_uniform", self.w_uniform)

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        return d2_neg.mul_(-2 * self.t)

    def for_rows(self, row: Row) -> Self:
        return self.altered(whole=row)

    def weigh(self, row: Row) -> Weights:
        (log_sum,) = row.log_sums
        whole: Row = vars(self).get("whole", row)
        log_total = whole.log_sums[0].logsumexp(0)
        mass = self.w_uniform * 2 * self.t * len(whole.d2_pos) * (log_sum - log_total).exp()
        uniform = self.w_uniform * (log_total - whole.count.sum().log())
        # If p < 2, a is unbounded as d2_pos → 0. The force a (x − x₊) is not.
        squared = (2 * row.d2_pos).clamp_(min=torch.finfo(log_sum.dtype).eps ** 2)
        slope = self.w_align * squared.pow(self.power / 2 - 1)
        return Weights((mass,), self.power * slope, uniform + slope * squared)


@dataclass(frozen=True)
class MultiSimilarity(Streaming):
    """Multi-similarity loss of metric learning.

        L_i = log(1 + e^{−A(s₊−λ)})/A + log(1 + Σ_j e^{B(s_j−λ)})/B
        α_ij = e^{B(s_j−λ)}/(1 + Σ_k e^{B(s_k−λ)}),   a_i = σ(−A(s₊ − λ))

    pos_scale  A
    neg_scale  B
    base       λ; 0.5 in the code
    mining     keep only the negatives with s_j + mining > s₊, 0.1 in the paper; a row that keeps none counts as 0 in
               the mean. None keeps all

    >>> MultiSimilarity(neg_scale=2.0)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.4266, 0.2341, 0.1052]])
    """

    source = "arXiv 1904.06627"
    symbols: ClassVar = {"pos_scale": "A", "neg_scale": "B"}
    unlabelled: ClassVar = {"mining": None}
    is_loss = True

    pos_scale: float = 2.0
    neg_scale: float = 50.0
    base: float = 0.5
    mining: float | None = None

    def __post_init__(self) -> None:
        require_scale("pos_scale", self.pos_scale)
        require_scale("neg_scale", self.neg_scale)
        require_finite("base", self.base)
        if self.mining is not None:
            require_finite("mining", self.mining)

    @property
    def streams(self) -> bool:
        return self.mining is None  # which negatives are kept depends on the row

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        return d2_neg.sub_(1 - self.base).mul_(-self.neg_scale)

    def weigh(self, row: Row) -> Weights:
        (log_sum,) = row.log_sums
        u = (row.d2_pos - 1 + self.base) * self.pos_scale
        attraction, value = u.sigmoid(), softplus(u) / self.pos_scale + softplus(log_sum) / self.neg_scale
        if self.mining is not None:
            none = log_sum == -torch.inf
            attraction, value = attraction.masked_fill(none, 0.0), value.masked_fill(none, 0.0)
        return Weights((log_sum.sigmoid(),), attraction, value)

    def rows(self, d2_pos: Tensor, d2_neg: Tensor, negatives: Negatives) -> Rows:
        if self.mining is not None:
            d2_neg = d2_neg.masked_fill(d2_neg >= d2_pos[:, None] + self.mining, torch.inf)
        return super().rows(d2_pos, d2_neg, negatives)


@dataclass(frozen=True)
class Circle(Mixture):
    """Circle loss of metric learning: pairs far from their optimum have larger weights.

        L_i = log(1 + e^{−γ p₊ (s₊ − 1 + m)} Σ_j e^{γ p_j (s_j − m)}),   p₊ = [1 + m − s₊]₊,   p_j = [s_j + m]₊
        α_ij = σ_i γ p_j softmax_j(γ p_j (s_j − m)),   a_i = σ_i γ p₊,   σ_i the sigmoid of the logarithm of the product

    p has no gradient, as usual. With γ = 256 the exponentials overflow; all is computed in log space.

    margin  margin m
    gamma   scale γ

    >>> Circle(gamma=2.0)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[1.0004, 0.3276, 0.0946]])
    """

    source = "arXiv 2002.10857"
    symbols: ClassVar = {"gamma": "γ"}
    is_loss = True

    margin: float = 0.25
    gamma: float = 256.0

    def __post_init__(self) -> None:
        require_finite("margin", self.margin)
        require_scale("gamma", self.gamma)

    def log_kernels(self, d2_neg: Tensor) -> tuple[Tensor, ...]:
        p = (1 + self.margin - d2_neg).clamp_(min=0)
        logits = p * (1 - self.margin - d2_neg) * self.gamma
        return p.log() + logits, logits

    def weigh(self, row: Row) -> Weights:
        log_weighted, log_sum = row.log_sums
        p = (row.d2_pos + self.margin).clamp(min=0)
        u = log_sum + self.gamma * p * (row.d2_pos - self.margin)  # the logarithm of the product
        share = u.sigmoid() * self.gamma
        return Weights((share * (log_weighted - log_sum).exp(),), share * p, softplus(u))


@dataclass(frozen=True)
class FMICL(Mixture):
    """Contrastive learning with an f-mutual information and Gaussian similarities G = h exp(−d2/ρ²).

        L_i = −f'(G₊) + (w/K) Σ_j f*(f'(G_j))
        kl      f' = 1 + log G,          f*(f') = G,                 α_ij = (w/Kρ²) G,          a_i = 1/ρ²
        js      f' = log(2G/(1 + G)),    f*(f') = log((1 + G)/2),    α_ij = (w/Kρ²) G/(1 + G),  a_i = 1/(ρ² (1 + G₊))
        chi2    f' = 2 (G − 1),          f*(f') = G² − 1,            α_ij = (w/Kρ²) 2G²,        a_i = 2 G₊/ρ²

    With js it is `Sigmoid` with 1/τ = 1/ρ² and b = log h − 1/ρ², and the negatives weighted by w/K.

    divergence  "kl", "js" or "chi2"
    width       width ρ of the similarity
    height      height h of the similarity
    weight      weight w of the negatives

    >>> FMICL()(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.2729, 0.2022, 0.1355]])
    """

    source = "arXiv 2402.10150; the defaults are ours"
    is_loss = True

    divergence: Literal["kl", "js", "chi2"] = "kl"
    width: float = 1.0
    height: float = 1.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        kinds = ("kl", "js", "chi2")
        require(self.divergence in kinds, "divergence", self.divergence, f"one of {', '.join(kinds)}")
        require_scale("width", self.width)
        require_scale("height", self.height)
        require_weight("weight", self.weight)

    def log_similarity(self, d2: Tensor) -> Tensor:
        """log G."""
        return math.log(self.height) - d2 / self.width**2

    def log_kernels(self, d2_neg: Tensor) -> tuple[Tensor, ...]:
        log_g = self.log_similarity(d2_neg)
        if self.divergence == "js":
            return F.logsigmoid(log_g), F.logsigmoid(log_g.neg_()).neg_().log_()  # the second one is for the value
        return (log_g if self.divergence == "kl" else 2 * log_g,)

    def weigh(self, row: Row) -> Weights:
        of_negatives = [self.weight * x.exp() / row.count for x in row.log_sums]
        log_g = self.log_similarity(row.d2_pos)
        if self.divergence == "kl":
            force, attraction = of_negatives[0], torch.ones_like(log_g)
            value = of_negatives[0] - 1 - log_g
        elif self.divergence == "js":
            force, attraction = of_negatives[0], (-log_g).sigmoid()
            value = of_negatives[1] - (1 + self.weight) * math.log(2) - F.logsigmoid(log_g)
        else:
            force, attraction = 2 * of_negatives[0], 2 * log_g.exp()
            value = of_negatives[0] - self.weight - 2 * (log_g.exp() - 1)
        return Weights((force / self.width**2,), attraction / self.width**2, value)
