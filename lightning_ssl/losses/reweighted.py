"""Contrastive losses that correct or choose their negatives: debiased, hard, at a chosen similarity, the nearest ones.

With similarities s = 1 − d2, the cosines of unit embeddings, P = e^{s₊/τ} of the positive, e_j = e^{s_j/τ} and
S = Σ_j e_j over the K negatives. Each class is the importance of its loss: `PairLoss(Debiased())` has the value and the
gradient of the loss, on the scale of its paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lightning_ssl.base.checks import is_number, require, require_finite
from lightning_ssl.losses.contrastive import Tempered, softplus
from lightning_ssl.losses.families import require_scale
from lightning_ssl.losses.importance import Mixture, Streaming
from lightning_ssl.losses.rows import Negatives, Row, Rows, Weights

__all__ = ["AdaptiveNegative", "Debiased", "HardContrastive", "HardNegative"]


def require_share(argument: str, value: float) -> None:
    """Refuse anything but a share below 1."""
    require(is_number(value) and 0 <= value < 1, argument, value, "a number from 0 to below 1")


def debias(u: Tensor, row: Row, tau: float, tau_plus: float) -> tuple[Tensor, Tensor, Tensor]:
    """Σ_j α_ij, a_i and L_i of `Debiased`, from u = log S/P: (M,) each."""
    log_count = row.count.log()
    log_excess = log_count - u + (math.log(tau_plus) if tau_plus else -math.inf)  # log τ⁺KP/S
    u = u - math.log1p(-tau_plus)
    log_g = u + torch.log1p(-log_excess.exp().clamp(max=1))  # log G/P
    log_floor = torch.add(log_count - 2 / tau, row.d2_pos, alpha=1 / tau)
    floored = log_g <= log_floor
    value = softplus(torch.maximum(log_g, log_floor))  # log D/P
    attraction = (torch.where(floored, log_floor, u) - value).exp() / tau
    return attraction.masked_fill(floored, 0.0), attraction, value


@dataclass(frozen=True)
class Debiased(Streaming):
    """Debiased contrastive loss: negatives of the anchor's own class are subtracted, as a share τ⁺ of all samples.

        L_i = −log P/D,   D = P + max(G, K e^{−1/τ}),   G = (S − τ⁺ K P)/(1 − τ⁺)
        α_ij = e_j/(τ (1 − τ⁺) D),   a_i = Σ_j α_ij;   at the floor: α_ij = 0,   a_i = K e^{−1/τ}/(τ D)

    As in the code, the positive is the only sample of the positive class, and the floor is one of the sum. With τ⁺ = 0
    it is NT-Xent.

    tau       temperature τ
    tau_plus  probability τ⁺ that a negative is of the anchor's class

    >>> Debiased(tau=0.5)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.7434, 0.4080, 0.1833]])
    """

    source = "arXiv 2007.00224 and its code"
    symbols: ClassVar = {"tau_plus": "τ⁺"}
    is_loss = True
    can_vanish = False

    tau: float = 0.5
    tau_plus: float = 0.1

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)
        require_share("tau_plus", self.tau_plus)

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        return d2_neg.mul_(-1 / self.tau)

    def weigh(self, row: Row) -> Weights:
        (log_sum,) = row.log_sums
        u = torch.add(log_sum, row.d2_pos, alpha=1 / self.tau)
        mass, attraction, value = debias(u, row, self.tau, self.tau_plus)
        return Weights((mass,), attraction, value)


@dataclass(frozen=True)
class HardNegative(Mixture):
    """Debiased contrastive loss with hard negatives: the weights of the negatives grow as e^{βs/τ}.

        L_i as in `Debiased`, with R = K S₁/S₂ in place of S,   S₁ = Σ_j e^{(1+β)s_j/τ},   S₂ = Σ_j e^{βs_j/τ}
        α_ij = m_i [(1+β) softmax_j((1+β)s_j/τ) − β softmax_j(βs_j/τ)],   m_i = R/(τ (1 − τ⁺) D);   0 at the floor

    The code of the paper lets the gradient into the weights, so that α < 0 and the easiest negatives are attracted,
    where e_j < β S₁/((1+β) S₂). The published figures are of this loss. The pseudo-code of the paper weighs linearly.

    tau       temperature τ
    tau_plus  probability τ⁺ that a negative is of the anchor's class
    beta      concentration β on hard negatives; 0 is `Debiased`
    detached  no gradient through the weights: α_ij = m_i softmax_j((1+β)s_j/τ)

    >>> HardNegative(tau=0.5)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[ 1.3083,  0.1961, -0.0690]])
    """

    source = "arXiv 2010.04592 and its code"
    symbols: ClassVar = {"tau_plus": "τ⁺", "beta": "β"}
    unlabelled: ClassVar = {"detached": False}
    is_loss = True
    can_vanish = False

    tau: float = 0.5
    tau_plus: float = 0.1
    beta: float = 1.0
    detached: bool = False

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)
        require_share("tau_plus", self.tau_plus)
        require(is_number(self.beta) and 0 <= self.beta < math.inf, "beta", self.beta, "a finite number, 0 or more")

    def log_kernels(self, d2_neg: Tensor) -> tuple[Tensor, ...]:
        of_weight = d2_neg * (-self.beta / self.tau)
        return d2_neg.mul_(-(1 + self.beta) / self.tau), of_weight

    def weigh(self, row: Row) -> Weights:
        log_s1, log_s2 = row.log_sums
        u = row.count.log() + log_s1 - log_s2 + row.d2_pos / self.tau  # log R/P
        mass, attraction, value = debias(u, row, self.tau, self.tau_plus)
        masses = (mass,) if self.detached else ((1 + self.beta) * mass, -self.beta * mass)
        return Weights(masses, attraction, value)


@dataclass(frozen=True)
class AdaptiveNegative(Tempered):
    """Contrastive loss whose negatives are weighed by a Gaussian of their similarity, around a chosen one.

        L_i = −log P/(P + W),   W = Σ_j w_j e_j,   w_j = K g_j/Σ_k g_k,   g = exp(−(s − μ)²/2σ²)
        α_ij = w_j e_j/(τ (P + W))

    The weights have no gradient. As in the code for images, their mean over the negatives is 1.

    tau        temperature τ
    mu         similarity μ with the largest weight
    sigma      width σ of the Gaussian
    learn_tau  train log τ with the network

    >>> AdaptiveNegative()(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.8707, 0.3873, 0.0751]])
    """

    source = "arXiv 2310.11048 and its code for images; the defaults of CIFAR-10"
    symbols: ClassVar = {"mu": "μ", "sigma": "σ"}
    unlabelled: ClassVar = {"learn_tau": False}

    tau: float = 0.4
    mu: float = 0.7
    sigma: float = 0.5
    learn_tau: bool = False

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)
        require_finite("mu", self.mu)
        require_scale("sigma", self.sigma)

    def log_kernels(self, d2_neg: Tensor) -> tuple[Tensor, ...]:
        log_g = ((1 - self.mu) - d2_neg).square_().mul_(-0.5 / self.sigma**2)
        return log_g - d2_neg / self.tau, log_g

    def weigh(self, row: Row) -> Weights:
        log_weighted, log_g = row.log_sums
        u = row.count.log() + log_weighted - log_g + row.d2_pos / self.tau  # log W/P
        return Weights((u.sigmoid() / self.tau,), value=softplus(u))


@dataclass(frozen=True)
class HardContrastive(Tempered):
    """NT-Xent over the nearest negatives of each anchor.

        L_i = −log P/(P + Σ_{j near} e_j),   α_ij = e_j/(τ (P + Σ_{k near} e_k)) if near, else 0

    The ⌈fraction · K⌉ nearest negatives are near, and those at the same distance as the last of them. The code of the
    paper takes the 4096 nearest samples of a memory bank.

    tau        temperature τ
    fraction   share of the negatives that are near, above 0 and up to 1
    learn_tau  train log τ with the network

    >>> HardContrastive(tau=0.5, fraction=0.5)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.6578, 0.3610, 0.0000]])
    """

    source = "arXiv 2012.09740; the default fraction is ours"
    unlabelled: ClassVar = {"learn_tau": False}

    tau: float = 0.3
    fraction: float = 0.1
    learn_tau: bool = False

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)
        allowed = is_number(self.fraction) and 0 < self.fraction <= 1
        require(allowed, "fraction", self.fraction, "a number above 0 and up to 1")

    @property
    def streams(self) -> bool:
        return False  # which negatives are near depends on the whole row

    def weigh(self, row: Row) -> Weights:
        (log_sum,) = row.log_sums
        u = log_sum + row.d2_pos / self.tau  # log of the sum over P
        return Weights((u.sigmoid() / self.tau,), value=softplus(u))

    def rows(self, d2_pos: Tensor, d2_neg: Tensor, negatives: Negatives) -> Rows:
        c = negatives.exclude_(d2_neg, torch.inf)
        # A product such as 0.1 · 30 may exceed a whole number by rounding.
        near = (negatives.count(c) * self.fraction - 1e-4).ceil().clamp(min=1)  # (M, 1)
        last = c.detach().sort(1).values.gather(1, near.long() - 1)
        return self.rows_of_logits(d2_pos, list(self.log_kernels(c.masked_fill(c > last, torch.inf))), negatives)
