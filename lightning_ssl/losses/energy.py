"""The energy E_α and the losses that maximize it. kernel.py computes them.

E_α = ½ tr C_α[z, z] = Σ_i Σ_j α_ij (d2_neg_ij − d2_pos_i),       training minimizes −E_{sg(α)} / M
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from lightning_ssl.base.checks import UserError, require, require_finite
from lightning_ssl.losses.device import Workspace
from lightning_ssl.losses.families import Family
from lightning_ssl.losses.importance import FromFamily
from lightning_ssl.losses.interface import Importance, require_importance
from lightning_ssl.losses.kernel import FusedPairs, vjp_of
from lightning_ssl.losses.pairs import Anchors
from lightning_ssl.losses.rows import Rows, Weights

__all__ = ["FamilyLoss", "PairLoss", "contrastive_covariance", "energy"]

PairWeights = Importance | Callable[[Tensor, Tensor, Tensor | None], Tensor]
BetaTimes = Literal["row_sum", "one"]


def energy(alpha: Tensor, d2_pos: Tensor, d2_neg: Tensor) -> Tensor:
    """E_α = Σ_i Σ_j α_ij (d2_neg_ij − d2_pos_i): dense (M, K), (M,), (M, K) → scalar.

    >>> energy(torch.ones(1, 2), torch.tensor([0.1]), torch.tensor([[0.2, 0.9]]))
    tensor(0.9000)
    """
    return (alpha * (d2_neg - d2_pos[..., None])).sum()


def contrastive_covariance(a1: Tensor, b1: Tensor, alpha: Tensor, a2: Tensor, b2: Tensor) -> Tensor:
    """C_α[a, b] = Σ_i Σ_{j≠i} α_ij (a_i−a_j)(b_i−b_j)ᵀ − Σ_i (Σ_{j≠i} α_ij)(a_i−a_i')(b_i−b_i')ᵀ.

    a1, b1  a_i and b_i of the anchors: (…, N, D)
    a2, b2  a_i' and b_i' of their positives
    alpha   (…, N, N); its diagonal is ignored

    >>> z1, z2 = torch.eye(3), torch.zeros(3, 3)
    >>> contrastive_covariance(z1, z1, torch.ones(3, 3), z2, z2).diagonal()
    tensor([2., 2., 2.])
    """
    alpha = alpha - torch.diag_embed(alpha.diagonal(dim1=-2, dim2=-1))
    row_sum = alpha.sum(-1)  # (…, N)
    pull = (row_sum + alpha.sum(-2))[..., None] * b1 - (alpha + alpha.mT) @ b1
    return a1.mT @ pull - (a1 - a2).mT @ (row_sum[..., None] * (b1 - b2))


class PairLoss(nn.Module):
    """The loss −E_{sg(α)} / M of two views, with α from an importance.

        L = 1/M Σ_i [ a_i d2_pos_i − Σ_j α_ij d2_neg_ij ],   a_i = (1+β) Σ_j α_ij   or   a_i = Σ_j α_ij + β

    An importance that stands for a loss can have another attraction in place of Σ_j α_ij, and β adds to it. The
    gradient is that of L with α and a held fixed; the value is that of the loss. Its learned parameters are in
    `learned`, as shifts that start at 0, so an optimizer trains them with the network; `learned_values()` has their
    values.

    `loss(z1, z2, clean=None)` takes embeddings (N, D) and returns a scalar. The embeddings are not normalized here:
    normalize them first if d2 should be 1 − cosine. Half-precision input is computed in float32. Under DDP every rank
    passes its local views and gets the exact value of the global batch. Gradients are scaled so that the average of DDP
    is the gradient of this value.

    importance      an `Importance`, any callable (d2_pos, d2_neg, valid) → α, or a (φ, ψ) loss, which stands for its
                    `FromFamily`
    anchors         "both": 2N anchors, each with one positive and 2N−2 negatives; "one": N anchors z1[i] against z1[j]
    beta            extra weight β of the positive term
    beta_times      "row_sum": β is a share of each row's own weight, a_i = (1+β) Σ_j α_ij; "one": a constant,
                    a_i = Σ_j α_ij + β, so that ∂L/∂r₊ + Σ ∂L/∂r₋ = β for every anchor (dual networks, Section 4.2)
    backprop_alpha  let the gradient into α
    tile            largest height of a block; the extra memory is O(M·(D + tile)). None chooses by device
    check_finite    refuse NaN and infinite embeddings on a CPU. On an accelerator, where the check would wait for the
                    device, they give a NaN loss

    Errors of a user's own importance name it by the attribute `key`; the command line sets it to "model.importance".

    >>> from lightning_ssl.losses.importance import Direct
    >>> z1, z2 = torch.nn.functional.normalize(torch.randn(2, 8, 4), dim=2)
    >>> PairLoss(Direct(p=4))(z1, z2).shape
    torch.Size([])
    """

    key = "importance"

    def __init__(
        self,
        importance: PairWeights | Family,
        anchors: Anchors = "both",
        beta: float = 0.0,
        backprop_alpha: bool = False,
        tile: int | None = None,
        check_finite: bool = True,
        beta_times: BetaTimes = "row_sum",
    ) -> None:
        super().__init__()
        if isinstance(importance, Family):
            importance = FromFamily(importance)
        require_importance(importance)
        require(anchors in ("both", "one"), "anchors", anchors, "'both' or 'one'")
        require_finite("beta", beta)
        require(beta_times in get_args(BetaTimes), "beta_times", beta_times, "'row_sum' or 'one'")
        whole = isinstance(tile, int) and not isinstance(tile, bool)
        require(tile is None or (whole and tile >= 1), "tile", tile, "None or a whole number above 0")
        self.importance = importance
        self.anchors: Anchors = anchors
        self.beta = beta
        self.beta_times: BetaTimes = beta_times
        self.backprop_alpha = backprop_alpha
        self.tile = tile
        self.check_finite = check_finite
        self.workspace = Workspace()
        names = importance.learned if isinstance(importance, Importance) else ()
        self.learns = bool(names)
        self.learned = nn.ParameterDict({name: nn.Parameter(torch.zeros(())) for name in names})
        if backprop_alpha:
            clean = getattr(importance, "uses_clean_view", False)
            require(not clean, "backprop_alpha", True, f"False: {importance!r} weighs samples that get no gradient")
            probe = torch.ones(1, 2)
            vjp_of(importance)(probe, probe, probe)  # an importance without a vjp raises here and not in training

    def forward(self, z1: Tensor, z2: Tensor, clean: Tensor | None = None) -> Tensor:
        if getattr(self.importance, "uses_clean_view", False) != (clean is not None):
            given = "None" if clean is None else "a tensor"
            needs = "the un-augmented embeddings" if clean is None else "None"
            raise UserError(f"clean={given}: {self.importance} needs {needs}")
        clean = None if clean is None else clean.detach()
        return FusedPairs.apply(z1, z2, clean, self, *(self.learned.values() if self.learns else ()))

    def rule(self, d2_pos: Tensor) -> PairWeights:
        """The importance at the present learned parameters and for the d2_pos of the whole batch."""
        rule = self.importance
        if not isinstance(rule, Importance):  # a function
            return rule
        if self.learns:
            rule = rule.with_learned({name: x.to(d2_pos.dtype) for name, x in self.learned.items()})
        return rule.for_batch(d2_pos)

    def learned_values(self) -> dict[str, Tensor]:
        """The present values of the trained attributes of the importance, such as `tau`."""
        if not self.learns:
            return {}
        assert isinstance(self.importance, Importance)
        rule = self.importance.with_learned(dict(self.learned))
        return {name: getattr(rule, name).detach() for name in self.learned}

    def attraction(self, found: Rows | Weights) -> tuple[Tensor, float]:
        """a_i / f of some anchors and the factor f."""
        if found.attraction is None and self.beta_times == "row_sum":
            return found.row_sum, 1 + self.beta
        own = found.row_sum if found.attraction is None else found.attraction
        return torch.add(own, self.added(found), alpha=self.beta) if self.beta else own, 1.0

    def added(self, found: Rows | Weights) -> Tensor:
        """What β multiplies: Σ_j α_ij or 1."""
        return found.row_sum if self.beta_times == "row_sum" else torch.ones_like(found.row_sum)

    def value(
        self, d2_pos: Tensor, found: Rows | Weights, attraction: Tensor, factor: float, repulsion: Tensor
    ) -> Tensor:
        """The sum of the loss over some anchors, from their d2_pos, weights, `attraction` and Σ_ij α_ij d2_neg_ij."""
        if found.value is None or not getattr(self.importance, "is_loss", False):
            return factor * attraction.dot(d2_pos) - repulsion
        total = found.value.sum()
        if self.beta:
            total = torch.add(total, self.added(found).dot(d2_pos), alpha=self.beta)
        return torch.add(total, repulsion, alpha=0)  # NaN if the repulsion is not finite

    def extra_repr(self) -> str:
        return (
            f"{self.importance}, anchors={self.anchors!r}, beta={self.beta}, beta_times={self.beta_times!r}, "
            f"backprop_alpha={self.backprop_alpha}, tile={self.tile}"
        )


class FamilyLoss(PairLoss):
    """The value and the gradient of a (φ, ψ) loss, by the kernel of its importance.

        L = mean_i φ(Σ_j ψ(d2_pos_i − d2_neg_ij))

    family  the (φ, ψ) loss; the other arguments are those of `PairLoss`

    >>> from lightning_ssl.losses.families import InfoNCE
    >>> z1, z2 = torch.nn.functional.normalize(torch.randn(2, 8, 4), dim=2)
    >>> FamilyLoss(InfoNCE(tau=0.1))(z1, z2).shape
    torch.Size([])
    """

    def __init__(
        self, family: Family, anchors: Anchors = "both", tile: int | None = None, check_finite: bool = True
    ) -> None:
        super().__init__(FromFamily(family), anchors=anchors, tile=tile, check_finite=check_finite)
        self.family = family

    def value(
        self, d2_pos: Tensor, found: Rows | Weights, attraction: Tensor, factor: float, repulsion: Tensor
    ) -> Tensor:
        assert found.value is not None
        return torch.add(found.value.sum(), repulsion, alpha=0)  # NaN if the repulsion is not finite

    def extra_repr(self) -> str:
        return f"{self.family}, anchors={self.anchors!r}, tile={self.tile}"
