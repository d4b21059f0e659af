"""`FeatureSpectrum`: collapse of the features, and how the embeddings of two views are spread on the sphere.

From the features X (N, F) of the validation images, with singular values σ and covariance eigenvalues λ:

    spectrum/rankme      e^H of σ_k/Σσ, X not centred (Garrido et al. 2023, Eqn. 1, without its ε: 0 log 0 = 0)
    spectrum/effective   e^H of λ_k/Σλ (Roy & Vetterli 2007, of the covariance): the number of directions with variance
    spectrum/std         mean over the F dimensions of the standard deviation of x/‖x‖: 1/√F if spread evenly, 0 if
                         collapsed (Chen & He 2021, Fig. 2)

From the normalized embeddings z, z' of two views of some of these images, in evaluation mode (Wang & Isola 2020):

    spectrum/alignment   E ‖z − z'‖²
    spectrum/uniformity  log E_{i≠j} e^{−2‖z_i − z_j‖²}, the mean of both views: 0 if all points are equal, about −4 if
                         they are uniform

A large mean of the features lowers RankMe (one large direction). The effective rank does not depend on the mean.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl._lightning import pl
from lightning_ssl.base.checks import require
from lightning_ssl.base.distributed import gather_rows, sum_over_ranks
from lightning_ssl.base.facts import Metric, Panel
from lightning_ssl.callbacks.encoder import FeatureCallback
from lightning_ssl.networks import eval_mode

__all__ = ["FeatureSpectrum"]


def effective_number(weights: Tensor) -> Tensor:
    """e^H of weights divided by their sum, (…, K) → (…): K for K equal weights, 0 where all weights are 0."""
    total = weights.sum(-1, keepdim=True)
    entropy = torch.special.entr(weights / total.where(total > 0, 1.0)).sum(-1)
    return entropy.exp() * (total.squeeze(-1) > 0)


def alignment(z1: Tensor, z2: Tensor) -> Tensor:
    """E ‖z − z'‖² of unit vectors (N, D)."""
    return (z1 - z2).square().sum(1).mean()


def uniformity(z: Tensor) -> Tensor:
    """log E_{i<j} e^{−2‖z_i − z_j‖²} of unit vectors (N, D)."""
    return torch.pdist(z).square().mul(-2).exp().mean().log()


class Moments:
    """Sums over images from which the three measures of the features follow. The features are not kept."""

    def __init__(self, features: int, device: torch.device) -> None:
        # In float32, rounding alone would add 1e-3 of the largest singular value to every direction.
        like: dict[str, Any] = {"dtype": torch.float64, "device": "cpu" if device.type == "mps" else device}
        self.count = torch.zeros((), **like)
        self.total = torch.zeros(features, **like)  # Σ x
        self.gram = torch.zeros(features, features, **like)  # Σ x xᵀ
        self.unit_total = torch.zeros(features, **like)  # Σ x/‖x‖
        self.unit_square = torch.zeros(features, **like)

    def add(self, features: Tensor) -> None:
        """(B, F)."""
        x = features.to(self.total)
        unit = F.normalize(x, dim=1)
        self.count += len(x)
        self.total += x.sum(0)
        self.gram.addmm_(x.T, x)
        self.unit_total += unit.sum(0)
        self.unit_square += unit.square().sum(0)

    def ranks(self) -> dict[str, Tensor]:
        """RankMe, effective rank and standard deviation, over the images of all ranks."""
        count, total, gram, unit_total, unit_square = sum_over_ranks(
            self.count, self.total, self.gram, self.unit_total, self.unit_square
        )
        mean, unit_mean = total / count, unit_total / count
        second = gram / count
        floor = RESOLUTION * second.trace()
        matrices = torch.stack([second, second - torch.outer(mean, mean)])
        finite = matrices.isfinite().all()  # else all three are NaN; eigvalsh would raise
        squares, variances = torch.linalg.eigvalsh(matrices.where(finite, 0.0))  # (F,) each
        squares, variances = (x.where(x > floor, 0.0) for x in (squares, variances))
        found = {
            "rankme": effective_number(squares.sqrt()),
            "effective": effective_number(variances),
            "std": (unit_square / count - unit_mean.square()).clamp(min=0).sqrt().mean(),
        }
        return {name: value.where(finite, torch.nan) for name, value in found.items()}


RESOLUTION = 1e-13  # relative to the mean ‖x‖²: smaller eigenvalues come from float32's rounding of the features


class FeatureSpectrum(FeatureCallback):
    """Logs the five measures above at validation.

    every_n_epochs   how often it runs, besides the last epoch
    images           number of images for the two views, taken evenly from all ranks and batches; which images, and
                     their augmentations, can depend on the number of ranks (the features are those of all images)

    >>> trainer = pl.Trainer(accelerator="cpu", logger=False, callbacks=[FeatureSpectrum(every_n_epochs=5)])
    """

    flag = "spectrum"
    role = "incidental"
    panel = Panel("spectrum", "Rank and collapse", "A falling rank or a standard deviation near 0 indicates collapse.")
    metrics = (
        Metric("spectrum/rankme", "RankMe"),
        Metric("spectrum/effective", "effective rank"),
        Metric("spectrum/std", "standard deviation of unit features"),
        Metric("spectrum/alignment", "alignment", "lower"),
        Metric("spectrum/uniformity", "uniformity", "lower"),
    )

    def __init__(self, every_n_epochs: int = 1, images: int = 256) -> None:
        require(every_n_epochs >= 1, "every_n_epochs", every_n_epochs, "at least 1")
        require(images >= 2, "images", images, "at least 2")
        self.every_n_epochs, self.images = every_n_epochs, images
        self.begin()

    def begin(self) -> None:
        self.moments: Moments | None = None
        self.chosen: list[Tensor] = []

    def add(self, trainer: pl.Trainer, images: Tensor, features: Tensor, labels: Tensor) -> None:
        if self.moments is None:
            self.moments = Moments(features.shape[1], features.device)
        self.moments.add(features)
        batches = trainer.num_val_batches[0] if trainer.num_val_batches else 1
        share = -(-self.images // int(batches * trainer.world_size))
        self.chosen.append(images[:share])

    def measure(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Tensor]:
        if self.moments is None:
            return {}
        values = self.moments.ranks()
        if hasattr(pl_module, "views") and hasattr(pl_module, "projector"):
            z1, z2 = (gather_rows(z) for z in self.embeddings(trainer, pl_module))
            if len(z1) >= 2:
                values["alignment"] = alignment(z1, z2)
                values["uniformity"] = (uniformity(z1) + uniformity(z2)) / 2
        self.begin()
        return {f"spectrum/{key}": value for key, value in values.items()}

    @torch.no_grad()
    def embeddings(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> tuple[Tensor, Tensor]:
        """Unit vectors of two views of the chosen images: (n, D) each."""
        views = pl_module.views(torch.cat(self.chosen))[:2]  # type: ignore[operator]
        with eval_mode(pl_module), trainer.precision_plugin.val_step_context():
            z1, z2 = (pl_module.projector(pl_module(x)) for x in views)  # type: ignore[operator]
        # At least float32: two views of an image differ by little.
        z1, z2 = (F.normalize(z.to(torch.promote_types(z.dtype, torch.float32)), dim=1) for z in (z1, z2))
        return z1, z2
