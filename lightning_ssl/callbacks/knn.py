"""`OnlineKNN`: accuracy of a weighted nearest-neighbour classifier on the features. It trains nothing.

    p(c) ∝ Σ_{j among the k nearest} exp(s_j/τ) [y_j = c]        (Wu et al. 2018, Sec. 3.4: k = 200, τ = 0.07)

With `distance="cosine"`, s = cos(x, x_j). With `"euclidean"`, s = −½‖x − x_j‖², which for unit vectors is cos − 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from lightning_ssl._lightning import pl
from lightning_ssl.base.checks import require, require_positive
from lightning_ssl.base.distributed import gather_equal_rows, sum_over_ranks
from lightning_ssl.base.facts import Metric
from lightning_ssl.callbacks.encoder import FeatureCallback, features_of
from lightning_ssl.data.split import Batch
from lightning_ssl.evaluation.knn import Distance, vote

__all__ = ["OnlineKNN"]


class OnlineKNN(FeatureCallback):
    """Classifies the validation images by their neighbours among the labelled training images: `knn/top1`.

    k                  number of neighbours that vote
    tau                temperature of the vote
    distance           "cosine" or "euclidean"; these three are logged as hyperparameters, such as `knn/k`
    every_n_epochs     how often it runs, besides the last epoch; its cost is the forward pass of the references
    max_reference      the largest number of references; the same images are used every time

    >>> trainer = pl.Trainer(accelerator="cpu", logger=False, callbacks=[OnlineKNN(k=20, every_n_epochs=5)])
    """

    flag = "knn"
    role = "measuring"
    metrics = (Metric("knn/top1", "nearest neighbours, top-1", "higher", "accuracy", percent=True),)

    def __init__(
        self,
        k: int = 200,
        tau: float = 0.1,
        distance: Distance = "cosine",
        every_n_epochs: int = 10,
        max_reference: int = 50_000,
    ) -> None:
        require(k >= 1, "k", k, "at least 1")
        require_positive("tau", tau)
        require(distance in ("cosine", "euclidean"), "distance", distance, "'cosine' or 'euclidean'")
        require(every_n_epochs >= 1, "every_n_epochs", every_n_epochs, "at least 1")
        require(max_reference >= 1, "max_reference", max_reference, "at least 1")
        self.k, self.tau, self.distance = k, tau, distance
        self.every_n_epochs, self.max_reference = every_n_epochs, max_reference
        self.begin()

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_fit_start(trainer, pl_module)
        settings = {"knn/k": self.k, "knn/tau": self.tau, "knn/distance": self.distance}
        for logger in trainer.loggers:
            logger.log_hyperparams(settings)

    def begin(self) -> None:
        self.features: list[Tensor] = []
        self.labels: list[Tensor] = []

    def add(self, trainer: pl.Trainer, images: Tensor, features: Tensor, labels: Tensor) -> None:
        self.features.append(features[labels >= 0])
        self.labels.append(labels[labels >= 0])

    def measure(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Tensor]:
        if not self.features:
            return {}
        classes = trainer.datamodule.num_classes  # type: ignore[attr-defined]
        queries, truth = torch.cat(self.features), torch.cat(self.labels)
        self.begin()
        references, labels = self.references(trainer, pl_module, queries.shape[1])
        if not (labels >= 0).any():
            return {}
        shares = vote(queries.to(references), references, labels, classes, self.k, self.tau, self.distance)
        hits = (shares.argmax(1) == truth).sum()
        hits, count = sum_over_ranks(hits, torch.full_like(hits, len(truth)))
        return {"knn/top1": hits / count} if count else {}

    def references(self, trainer: pl.Trainer, pl_module: pl.LightningModule, width: int) -> tuple[Tensor, Tensor]:
        """Features and labels of the references of all ranks, at least in float32: (R, width), (R,).

        They are written into one tensor as they come. A row that is not used has the label −1.
        """
        loader = trainer.datamodule.reference_dataloader(self.max_reference)  # type: ignore[attr-defined]
        parts: Iterable[tuple[Tensor, Tensor]] = reference_parts(trainer, pl_module, loader)
        ids = getattr(getattr(loader, "sampler", None), "ids", None)
        if ids is None:  # the data module of a user: the number of images is not known before
            parts = list(parts)
        count = len(ids) if ids is not None else sum(len(labels) for _, labels in parts)
        rows = int(gather_equal_rows(torch.tensor([count], device=pl_module.device)).max())
        dtype = torch.promote_types(next(pl_module.parameters()).dtype, torch.float32)
        like: dict[str, Any] = {"device": pl_module.device, "dtype": dtype}
        features = torch.zeros(rows, width, **like)
        known, filled = torch.full((rows,), -1, device=pl_module.device), 0
        for x, labels in parts:
            place = slice(filled, filled + len(labels))
            features[place], known[place] = x, labels
            filled += len(labels)
        return gather_equal_rows(features), gather_equal_rows(known)


def reference_parts(
    trainer: pl.Trainer, module: pl.LightningModule, batches: Iterable[Batch]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Features and labels of the labelled images of each batch."""
    for images, labels, _ in batches:
        kept = labels >= 0
        if kept.any():
            yield features_of(trainer, module, images[kept].to(module.device)), labels[kept].to(module.device)
