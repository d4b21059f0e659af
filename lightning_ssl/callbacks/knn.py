"""`OnlineKNN`: accuracy of a weighted nearest-neighbour classifier on the features. It trains nothing.

    p(c) ∝ Σ_{j among the k nearest} exp(s_j/τ) [y_j = c]        (Wu et al. 2018, Sec. 3.4: k = 200, τ = 0.07)

With `distance="cosine"`, s = cos(x, x_j). With `"euclidean"`, s = −½‖x − x_j‖², which for unit vectors is cos − 1.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl._lightning import pl
from lightning_ssl.callbacks.encoder import features_of, number_of_features, require_encoder, validation_features
from lightning_ssl.callbacks.schedule import is_due
from lightning_ssl.checks import require, require_positive
from lightning_ssl.distributed import gather_rows, sum_over_ranks

Distance = Literal["cosine", "euclidean"]
PAIRS = 2**22  # similarities computed at once


def vote(
    queries: Tensor, references: Tensor, labels: Tensor, classes: int, k: int, tau: float, distance: Distance = "cosine"
) -> Tensor:
    """Shares of the vote for each class, (Q, F), (R, F), (R,) → (Q, C). All R references vote where R < k.

    Queries are compared in blocks, so that Q×R similarities are never held at once.
    """
    if distance == "cosine":
        queries, references = F.normalize(queries, dim=1), F.normalize(references, dim=1)
    half_norms = references.square().sum(1) / 2  # (R,)
    shares = queries.new_zeros(len(queries), classes)
    height = max(1, PAIRS // len(references))
    for block, out in zip(queries.split(height), shares.split(height), strict=True):
        # Up to a constant of the row, which cancels in the softmax, s is ⟨x, x_j⟩ − ½‖x_j‖².
        s = torch.addmm(-half_norms, block, references.T)  # (q, R)
        nearest = s.topk(min(k, len(references)), dim=1)
        out.scatter_add_(1, labels[nearest.indices], (nearest.values / tau).softmax(1))
    return shares


class OnlineKNN(pl.Callback):
    """Classifies the validation images by their neighbours among the labelled training images: `knn/top1`.

    k                  number of neighbours that vote
    tau                temperature of the vote
    distance           "cosine" or "euclidean"; these three are logged as hyperparameters, such as `knn/k`
    every_n_epochs     how often it runs, besides the last epoch; its cost is the forward pass of the references
    max_reference      the largest number of references; the same images are used every time

    >>> trainer = pl.Trainer(accelerator="cpu", logger=False, callbacks=[OnlineKNN(k=20, every_n_epochs=5)])
    """

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
        self.features: list[Tensor] = []
        self.labels: list[Tensor] = []

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        require_encoder(self, pl_module)
        settings = {"knn/k": self.k, "knn/tau": self.tau, "knn/distance": self.distance}
        for logger in trainer.loggers:
            logger.log_hyperparams(settings)

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.features, self.labels = [], []

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        if is_due(trainer, self.every_n_epochs):
            features, labels = validation_features(trainer, pl_module, outputs, batch)
            self.features.append(features[labels >= 0])
            self.labels.append(labels[labels >= 0])

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not self.features:
            return
        classes = trainer.datamodule.num_classes  # type: ignore[attr-defined]
        queries, truth = torch.cat(self.features), torch.cat(self.labels)
        self.features, self.labels = [], []
        references, labels = self.references(trainer, pl_module)
        if not len(labels):
            return
        shares = vote(queries.to(references), references, labels, classes, self.k, self.tau, self.distance)
        hits = (shares.argmax(1) == truth).sum()
        hits, count = sum_over_ranks(hits, torch.full_like(hits, len(truth)))
        if count:
            pl_module.log("knn/top1", hits / count, on_step=False, on_epoch=True, sync_dist=True, batch_size=1)

    def references(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> tuple[Tensor, Tensor]:
        """Features and labels of the references of all ranks, at least in float32: (R, F), (R,)."""
        loader = trainer.datamodule.reference_dataloader(self.max_reference)  # type: ignore[attr-defined]
        width = number_of_features(trainer, pl_module)
        features = [torch.zeros(0, width, device=pl_module.device)]
        known = [torch.zeros(0, dtype=torch.int64, device=pl_module.device)]
        for images, labels, _ in loader:
            kept = labels >= 0
            if kept.any():
                features.append(features_of(trainer, pl_module, images[kept].to(pl_module.device)))
                known.append(labels[kept].to(pl_module.device))
        return gather_rows(torch.cat(features)), gather_rows(torch.cat(known))
