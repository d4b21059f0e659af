"""`ImportanceMonitor`: how the loss distributes its weight α over the negatives.

For rows α̂_i = |α_i| / Σ_j |α_ij| over the K valid negatives, it logs means over anchors:

    alpha/entropy              H_i / log K: 1 if all negatives have the same weight, 0 if one has all of it
    alpha/effective_negatives  e^{H_i}: the number of equal weights with this entropy
    alpha/zeros                share of the negatives whose weight is exactly 0
    alpha/top1                 the largest α̂_ij of the row
    alpha/negative             share of the negatives whose weight is below 0: they are attracted

It also logs the learned values of a loss, such as alpha/tau.

If all weights of a row are 0 (a triplet whose margin holds), its entropy, effective negatives and top-1 are 0.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from lightning_ssl._lightning import pl
from lightning_ssl.base.checks import require
from lightning_ssl.base.distributed import sum_over_ranks
from lightning_ssl.base.facts import Metric, Panel
from lightning_ssl.callbacks.log import log_now
from lightning_ssl.callbacks.spectrum import effective_number
from lightning_ssl.losses.device import exact_products
from lightning_ssl.losses.energy import PairLoss
from lightning_ssl.losses.pairs import Pairs

__all__ = ["ImportanceMonitor"]


def row_statistics(alpha: Tensor, valid: Tensor) -> Tensor:
    """Entropy, effective negatives, zeros, top-1 and negative share of each row, (M, K) → (5, M)."""
    count = valid.sum(1).to(alpha.dtype)
    signed = alpha.masked_fill(~valid, 0.0)
    alpha = signed.abs()
    effective = effective_number(alpha)
    # log 1 = 0 for a row without weight, and for a row with a single negative
    entropy = effective.clamp(min=1).log() / count.clamp(min=2).log()
    zeros = ((alpha == 0) & valid).sum(1) / count
    total = alpha.sum(1)
    top1 = alpha.amax(1) / total.where(total > 0, 1.0)
    return torch.stack([entropy, effective, zeros, top1, (signed < 0).sum(1) / count])


class ImportanceMonitor(pl.Callback):
    """Logs the five statistics of α at the step they belong to. Methods without pair importance have none.

    every_n_steps   how often; the last step of an epoch is always included
    rows            number of anchors of the global batch that are measured, the same number from each view that has
                    anchors; α of an anchor is exact for any number of ranks

    >>> trainer = pl.Trainer(accelerator="cpu", logger=False, callbacks=[ImportanceMonitor(every_n_steps=100)])
    """

    flag = "importance_monitor"
    role = "incidental"
    panel = Panel(
        "alpha", "Pair importance α", "How many negatives have weight in a row of α, and how even the weights are."
    )
    metrics = (
        Metric("alpha/effective_negatives", "effective negatives", every_step=True),
        Metric("alpha/entropy", "entropy of α", every_step=True),
        Metric("alpha/top1", "largest weight in a row", every_step=True),
        Metric("alpha/zeros", "share of zero weights", "lower", every_step=True),
        Metric("alpha/negative", "share of negative weights", every_step=True),
    )

    def __init__(self, every_n_steps: int = 50, rows: int = 128) -> None:
        require(every_n_steps >= 1, "every_n_steps", every_n_steps, "at least 1")
        require(rows >= 1, "rows", rows, "at least 1")
        self.every_n_steps, self.rows = every_n_steps, rows
        self.hook: RemovableHandle | None = None
        self.views: tuple[Tensor, ...] | None = None
        self.step = 0  # the step of `views`

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
        if self.views is None or trainer.global_step == self.step:  # while gradients are accumulated no step is taken
            return
        views, self.views = self.views, None
        loss: Any = pl_module.loss
        with exact_products(views[0].device.type):
            found = self.statistics(loss, views)
        learned = loss.learned_values()
        if learned:
            found = torch.cat([found, torch.stack(list(learned.values())).to(found)])
        names = ("entropy", "effective_negatives", "zeros", "top1", "negative", *learned)
        log_now(trainer, {f"alpha/{name}": x for name, x in zip(names, found.tolist(), strict=True)}, pl_module)

    def statistics(self, loss: PairLoss, views: tuple[Tensor, ...]) -> Tensor:
        """Means over the measured anchors of all ranks: (5,)."""
        z1, z2, *clean = views
        pairs = Pairs(z1, z2, clean[0] if clean else None, loss.anchors, check_finite=False)
        importance = loss.rule(pairs.d2_pos)
        sums = pairs.points.new_zeros(6)
        for rows in self.measured_rows(pairs):
            d2 = pairs.weight_distances.strip(rows).clamp_(min=0)  # (m, M)
            valid = pairs.valid(rows)
            each = row_statistics(importance(pairs.d2_pos[rows], d2, valid), valid)  # (5, m)
            sums[:5] += each.sum(1)
            sums[5] += each.shape[1]
        (sums,) = sum_over_ranks(sums)
        return sums[:5] / sums[5]

    def measured_rows(self, pairs: Pairs) -> list[slice]:
        """Slices of this rank's share of the measured anchors, one for each view."""
        views = len(pairs) // pairs.samples
        height = min(-(-self.rows // views), pairs.samples)
        start, stop = (height * r // pairs.ranks for r in (pairs.rank, pairs.rank + 1))
        firsts = range(0, len(pairs), pairs.samples)  # of each view
        return [slice(first + start, first + stop) for first in firsts if stop > start]

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.hook is not None:
            self.hook.remove()
        self.hook = self.views = None

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self.on_fit_end(trainer, pl_module)
