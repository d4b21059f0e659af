"""Contrastive methods: the energy of normalized embeddings, with any pair importance α."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl.losses.energy import BetaTimes, FamilyLoss, PairLoss
from lightning_ssl.losses.families import Family, InfoNCE
from lightning_ssl.losses.importance import Direct, Importance
from lightning_ssl.losses.pairs import Anchors
from lightning_ssl.methods.base import Method, Views

__all__ = ["AlphaCL", "SimCLR"]


class Contrastive(Method):
    """The base of the contrastive methods: a loss on unit embeddings of two views.

    views_together  both views go through the network as one batch, so a batch norm sees them together, as in SimCLR;
                    False: each view is a batch of its own, as in the released code of the α-CL papers
    """

    roles: ClassVar = {"views_together": "setting"}
    unlabelled: ClassVar[dict[str, Any]] = {"anchors": "both", "views_together": True}

    def __init__(self, loss: PairLoss, views_together: bool = True, **network: Any) -> None:
        self.needs_clean = getattr(loss.importance, "uses_clean_view", False)
        super().__init__(**network)
        self.loss = loss
        self.views_together = views_together

    def embed(self, x: Tensor) -> Tensor:
        """Unit embeddings of normalized images: (B, 3, S, S) → (B, D)."""
        z: Tensor = self.projector(self(x))
        return F.normalize(z, dim=1)

    def compute_loss(self, views: Views) -> Tensor:
        z1, z2 = self.embed(torch.cat(views[:2])).chunk(2) if self.views_together else map(self.embed, views[:2])
        if views.clean is None:
            return self.loss(z1, z2)
        with torch.no_grad():
            clean = self.embed(views.clean)
        return self.loss(z1, z2, clean)


class SimCLR(Contrastive):
    """Minimizes InfoNCE over both views (Chen et al. 2020 with ε = 1; the value is τ times theirs).

        L = mean_i τ log(ε + Σ_j exp((d2_pos_i − d2_neg_ij)/τ))

    tau      temperature
    eps      1 keeps the positive in the denominator; 0 is the decoupled form
    anchors  "both": 2N anchors, each with 2N−2 negatives; "one": N anchors of the first view
    network  the arguments of `Method`, and views_together=False: each view is a batch of its own for a batch norm

    >>> model = SimCLR(tau=0.2, backbone="resnet_tiny")
    >>> images = torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8)
    >>> model.compute_loss(model.views(images)).shape
    torch.Size([])
    """

    symbols: ClassVar = {"tau": "τ", "eps": "ε"}
    unlabelled: ClassVar = {"eps": 1}

    def __init__(self, tau: float = 0.5, eps: float = 1.0, anchors: Anchors = "both", **network: Any) -> None:
        super().__init__(FamilyLoss(InfoNCE(tau, eps), anchors=anchors, check_finite=False), **network)


class AlphaCL(Contrastive):
    """Maximizes the energy E_{sg(α)} with α from any importance (Definition 1 of the α-CL paper).

        L = 1/M Σ_i [ (1+β) (Σ_j α_ij) d2_pos_i − Σ_j α_ij d2_neg_ij ],   α = sg(importance(d2_pos, d2_neg))

    importance      the rule for α; a (φ, ψ) loss such as `InfoNCE(tau=0.1)` stands for the α that has its gradient
    anchors         "both": 2N anchors, each with 2N−2 negatives; "one": N anchors of the first view
    beta            extra weight of the positive term
    beta_times      "row_sum": the equation above; "one": the constant β in place of β Σ_j α_ij (dual networks,
                    Section 4.2)
    backprop_alpha  let the gradient into α (the third row of Table 1)
    tile            largest side of a tile of the kernel, to bound its memory; None chooses
    network         the arguments of `Method`

    >>> model = AlphaCL(Direct(p=4), backbone="resnet_tiny")
    >>> images = torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8)
    >>> model.compute_loss(model.views(images)).shape
    torch.Size([])
    """

    roles: ClassVar = {"tile": "incidental"}
    symbols: ClassVar = {"beta": "β"}
    unlabelled: ClassVar = {"beta": 0, "beta_times": "row_sum", "backprop_alpha": False}

    def __init__(
        self,
        importance: Importance | Family = Direct(),  # noqa: B008  frozen
        anchors: Anchors = "both",
        beta: float = 0.0,
        backprop_alpha: bool = False,
        tile: int | None = None,
        beta_times: BetaTimes = "row_sum",
        **network: Any,
    ) -> None:
        loss = PairLoss(importance, anchors, beta, backprop_alpha, tile, check_finite=False, beta_times=beta_times)
        super().__init__(loss, **network)
