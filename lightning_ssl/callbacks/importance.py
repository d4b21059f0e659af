"""`ImportanceMonitor`: where the weight of the negatives goes, as the loss weighs them.

Of rows α̂_i = α_i / Σ_j α_ij over the K valid negatives, means over anchors:

    alpha/entropy              H_i / log K: 1 when all negatives count alike, 0 when one alone counts
    alpha/effective_negatives  e^{H_i}: as many equal negatives would have this entropy
    alpha/zeros                share of the negatives whose weight is exactly 0
    alpha/top1                 the largest α̂_ij of the row

A row without any weight (a triplet's whose margin holds) has entropy, effective negatives and top-1 of 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from lightning_ssl.callbacks.features import log_at_once
from lightning_ssl.callbacks.spectrum import effective_number
from lightning_ssl.checks import require
from lightning_ssl.distributed import sum_over_ranks
from lightning_ssl.losses.energy import PairLoss
from lightning_ssl.losses.pairs import Pairs


def row_statistics(alpha: Tensor, valid: Tensor) -> Tensor:
    """Entropy, effective negatives, zeros and top-1 of each row, (M, K) → (4, M)."""
    count = valid.sum(1).to(alpha.dtype)
    alpha = alpha.masked_fill(~valid, 0.0)
    effective = effective_number(alpha)
    # log 1 = 0 of a row without weight, and of one whose only negative has it all
    entropy = effective.clamp(min=1).log() / count.clamp(min=2).log()
    zeros = ((alpha == 0) & valid).sum(1) / count
    total = alpha.sum(1)
    return torch.stack([entropy, effective, zeros, alpha.amax(1) / total.where(total > 0, 1.0)])


class ImportanceMonitor(pl.Callback):
    """Logs the four statistics of α at the step they belong to; silent for methods without pair importance.

    every_n_steps   how often; the last step of an epoch is always one of them
    rows            how many anchors of the whole batch to look at, evenly of the views that are anchors: α of an anchor
                    is exact, whatever the number of ranks, and batches are shuffled
    """

    def __init__(self, every_n_steps: int = 50, rows: int = 128) -> None:
        require(every_n_steps >= 1, "every_n_steps", every_n_steps, "at least 1")
        require(rows >= 1, "rows", rows, "at least 1")
        self.every_n_steps, self.rows = every_n_steps, rows
        self.hook: RemovableHandle | None = None
        self.views: tuple[Tensor, ...] | None = None
        self.step = 0  # at which the views were seen

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        loss = getattr(pl_module, "loss", None)
        if not isinstance(loss, PairLoss):
            return

        def keep(module: torch.nn.Module, views: tuple[Tensor | None, ...]) -> None:
            due = (trainer.global_step + 1) % self.every_n_steps == 0 or trainer.is_last_batch
            if due and trainer.training:
                self.views = tuple(z.detach() for z in views if z is not None)
                self.step = trainer.global_step

        self.hook = loss.register_forward_pre_hook(keep)

    @torch.no_grad()
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.views is None or trainer.global_step == self.step:  # gradients are accumulated: no step was taken
            return
        views, self.views = self.views, None
        names = ("entropy", "effective_negatives", "zeros", "top1")
        found = self.statistics(pl_module.loss, views).tolist()  # type: ignore[arg-type]
        log_at_once(trainer, {f"alpha/{name}": x for name, x in zip(names, found, strict=True)}, pl_module)

    def statistics(self, loss: PairLoss, views: tuple[Tensor, ...]) -> Tensor:
        """Means over the anchors looked at, of all ranks: (4,)."""
        z1, z2, *clean = views
        pairs = Pairs(z1, z2, clean[0] if clean else None, loss.anchors, check_finite=False)
        sums = pairs.points.new_zeros(5)
        for rows in self.looked_at(pairs):
            d2 = pairs.weighed.tile(rows, slice(0, len(pairs))).clamp_(min=0)  # (m, M)
            valid = pairs.valid(rows)
            each = row_statistics(loss.importance(pairs.d2_pos[rows], d2, valid), valid)  # (4, m)
            sums[:4] += each.sum(1)
            sums[4] += each.shape[1]
        (sums,) = sum_over_ranks(sums)
        return sums[:4] / sums[4]

    def looked_at(self, pairs: Pairs) -> Iterator[slice]:
        """This rank's share of the first anchors of each view."""
        views = len(pairs) // pairs.samples
        height = min(-(-self.rows // views), pairs.samples)
        start, stop = (height * r // pairs.ranks for r in (pairs.rank, pairs.rank + 1))
        for view in range(views):
            if stop > start:
                yield slice(view * pairs.samples + start, view * pairs.samples + stop)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.hook is not None:
            self.hook.remove()
        self.hook = self.views = None

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self.on_fit_end(trainer, pl_module)
