"""Methods without negatives: `SimSiam` stops the gradient of one side, `BYOL` compares with a moving average."""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_ssl.base.checks import require
from lightning_ssl.methods.base import Head, Method, Views
from lightning_ssl.networks import Norm, Projector
from lightning_ssl.optim import momentum_schedule

__all__ = ["BYOL", "PredictorHead", "SimSiam"]


@dataclass(frozen=True)
class PredictorHead:
    """The shape of a predictor, without its input width. The arguments are those of `networks.Projector`.

    hidden     width of the hidden layers
    layers     number of linear maps
    norm       after each map but the last: "bn", "bn_noaffine" (no scale and shift) or null
    last_norm  after the last map

    The default is SimSiam's.

    >>> PredictorHead(hidden=64)
    PredictorHead(hidden=64, layers=2, norm='bn', last_norm=None)
    """

    hidden: int = 512
    layers: int = 2
    norm: Norm | None = "bn"
    last_norm: Norm | None = None


# Chen & He 2021, Sec. 3: three layers on ImageNet, two on CIFAR (appendix D). In their code the last norm has no affine
# part. The predictor is a bottleneck.
SIMSIAM_PROJECTOR = Head(hidden=2048, out=2048, layers=2, norm="bn", last_norm="bn_noaffine")
SIMSIAM_PREDICTOR = PredictorHead(hidden=512)

# Grill et al. 2020, Sec. 3.3: unlike SimCLR's, the output has no norm. The predictor has the shape of the projector.
BYOL_PROJECTOR = Head(hidden=4096, out=256, layers=2, norm="bn")
BYOL_PREDICTOR = PredictorHead(hidden=4096)


def make_predictor(projector: Projector, shape: PredictorHead) -> Projector:
    """The network that predicts the embedding of one view from the other: (B, D) → (B, D)."""
    return Projector(projector.out_features, out=projector.out_features, **asdict(shape))


def mean_cosine(p: Tensor, z: Tensor) -> Tensor:
    """Mean cosine of predictions and targets: (B, D), (B, D) → scalar."""
    return F.cosine_similarity(p, z, dim=1).mean()


class SimSiam(Method):
    """Maximizes the cosine of a prediction and the other view's embedding, without its gradient (Chen & He 2021).

        L = −½ cos(p₁, sg(z₂)) − ½ cos(p₂, sg(z₁)),   z = projector(backbone(x)),   p = predictor(z)

    Each view goes through the network as a batch of its own.

    predictor  shape of the predictor
    projector  shape of the projector
    network    the arguments of `Method`

    >>> model = SimSiam(backbone="resnet_tiny")
    >>> images = torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8)
    >>> bool(-1 <= model.compute_loss(model.views(images)) <= 1)
    True
    """

    roles: ClassVar = {"predictor": "setting"}

    def __init__(
        self, predictor: PredictorHead = SIMSIAM_PREDICTOR, projector: Head = SIMSIAM_PROJECTOR, **network: Any
    ) -> None:
        super().__init__(projector=projector, **network)
        self.predictor = make_predictor(self.projector, predictor)

    def compute_loss(self, views: Views) -> Tensor:
        z1, z2 = (self.projector(self(x)) for x in views[:2])
        p1, p2 = self.predictor(z1), self.predictor(z2)
        return -0.5 * (mean_cosine(p1, z2.detach()) + mean_cosine(p2, z1.detach()))


class BYOL(Method):
    """Predicts the embedding of the other view by a target network, a moving average (Grill et al. 2020).

        L = (2 − 2 cos(p₁, z₂')) + (2 − 2 cos(p₂, z₁')),   p of the online network, z' of the target network

        target ← momentum · target + (1 − momentum) · online        after every optimizer step

    The target starts as a copy of the online network and is not trained by the optimizer.

    momentum   at the first step; it rises to 1 along half a cosine over the whole training
    predictor  shape of the predictor
    projector  shape of the projector
    network    the arguments of `Method`

    >>> model = BYOL(backbone="resnet_tiny")
    >>> images = torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8)
    >>> bool(0 <= model.compute_loss(model.views(images)) <= 8)
    True
    """

    roles: ClassVar = {"predictor": "setting"}

    def __init__(
        self,
        momentum: float = 0.996,
        predictor: PredictorHead = BYOL_PREDICTOR,
        projector: Head = BYOL_PROJECTOR,
        **network: Any,
    ) -> None:
        super().__init__(projector=projector, **network)
        require(0 <= momentum <= 1, "momentum", momentum, "between 0 and 1")
        self.momentum = momentum
        self.predictor = make_predictor(self.projector, predictor)
        online = {"backbone": self.backbone, "projector": self.projector}
        self.target = nn.ModuleDict(copy.deepcopy(online)).requires_grad_(False)

    def compute_loss(self, views: Views) -> Tensor:
        predictions = [self.predictor(self.projector(self(x))) for x in views[:2]]
        with torch.no_grad():
            targets = [self.target["projector"](self.target["backbone"](x)) for x in views[:2]]
        agreement = mean_cosine(predictions[0], targets[1]) + mean_cosine(predictions[1], targets[0])
        return 4 - 2 * agreement

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Step the online network, then the target; no checkpoint is written between the two."""
        super().optimizer_step(*args, **kwargs)
        self.move_target(momentum_schedule(self.global_step + 1, self.total_steps(), self.momentum))

    @torch.no_grad()
    def move_target(self, momentum: float) -> None:
        """target ← momentum · target + (1 − momentum) · online, parameters only.

        The running statistics of the batch norms are the target's own.
        """
        for name in ("backbone", "projector"):
            online, target = getattr(self, name), self.target[name]
            for p, q in zip(online.parameters(), target.parameters(), strict=True):
                q.lerp_(p.to(q.dtype), 1 - momentum)
