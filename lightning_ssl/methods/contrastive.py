"""Contrastive methods: an energy of normalized embeddings, its pair importance chosen freely."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl.losses.energy import FamilyLoss, PairLoss
from lightning_ssl.losses.families import InfoNCE
from lightning_ssl.losses.importance import Direct, Importance
from lightning_ssl.losses.pairs import Anchors
from lightning_ssl.methods.base import Method, Views


class Contrastive(Method):
    """Both views go through the network as one batch, so that a batch norm sees them together (as SimCLR's does)."""

    def __init__(self, loss: PairLoss, **network: Any) -> None:
        self.needs_clean = getattr(loss.importance, "uses_clean_view", False)
        super().__init__(**network)
        self.loss = loss

    def embed(self, x: Tensor) -> Tensor:
        """(B, 3, S, S) → unit vectors (B, D)."""
        z: Tensor = self.projector(self(x))
        return F.normalize(z, dim=1)

    def compute_loss(self, views: Views) -> Tensor:
        z1, z2 = self.embed(torch.cat(views[:2])).chunk(2)
        if views.clean is None:
            return self.loss(z1, z2)
        with torch.no_grad():
            clean = self.embed(views.clean)
        return self.loss(z1, z2, clean)


class SimCLR(Contrastive):
    """InfoNCE over both views: φ(x) = τ log(ε + x), ψ(x) = e^{x/τ} (Chen et al. 2020 with ε = 1; its loss times τ)."""

    def __init__(self, tau: float = 0.5, eps: float = 1.0, anchors: Anchors = "both", **network: Any) -> None:
        super().__init__(FamilyLoss(InfoNCE(tau, eps), anchors=anchors), **network)


class AlphaCL(Contrastive):
    """Ascent of E_{sg(α)}, α by any importance (Definition 1 of the α-CL paper).

    A loss of the (φ, ψ) family is `importance=FromFamily(family)`; `beta` weighs the positive term by 1 + β, and
    `backprop_alpha` lets the gradient into α (the third row of Table 1).
    """

    def __init__(
        self,
        importance: Importance = Direct(),  # noqa: B008  frozen
        anchors: Anchors = "both",
        beta: float = 0.0,
        backprop_alpha: bool = False,
        tile: int | None = None,
        **network: Any,
    ) -> None:
        super().__init__(PairLoss(importance, anchors, beta, backprop_alpha, tile), **network)
