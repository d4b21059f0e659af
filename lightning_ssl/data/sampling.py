"""The images of each batch and their order. They do not depend on the number of ranks.

The permutation of an epoch is a function of (seed, epoch) only. Batch b is its positions b·B … (b+1)·B − 1. Rank r of W
takes the r-th part of every batch, so W ranks together take the steps of one process with the whole batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from lightning_ssl.base.checks import require
from lightning_ssl.base.seeding import generator_of


class ShuffledSampler:
    """Training: reshuffles every epoch and drops the last incomplete batch. `seek` starts at any batch of any epoch.

    ids   of the images (N,), or their number N for 0 … N − 1
    """

    def __init__(
        self, ids: int | Tensor, batch_size: int, rank: int = 0, ranks: int = 1, seed: int = 0, reshuffle: bool = True
    ) -> None:
        self.ids = torch.arange(ids) if isinstance(ids, int) else ids
        length = len(self.ids)
        require(1 <= batch_size <= length, "batch_size", batch_size, f"between 1 and the number of images, {length}")
        allowed = f"a multiple of the number of ranks, {ranks}: it is the batch of all ranks together"
        require(batch_size % ranks == 0, "batch_size", batch_size, allowed)
        self.length, self.batch_size, self.rank, self.ranks = length, batch_size, rank, ranks
        self.seed, self.reshuffle = seed, reshuffle
        self.epoch = self.start = 0

    def __len__(self) -> int:
        """The number of batches of a complete epoch, also after `seek`."""
        return self.length // self.batch_size

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; Lightning calls this before each one. A position set by `seek` for the same epoch is kept."""
        if epoch != self.epoch:
            self.epoch, self.start = epoch, 0

    def seek(self, epoch: int, batch: int) -> None:
        """Start the next iteration at this batch of this epoch. Later iterations start at batch 0."""
        require(0 <= batch <= len(self), "batch", batch, f"between 0 and {len(self)}")
        self.epoch, self.start = epoch, batch

    def epoch_batches(self) -> Tensor:
        """The ids of the epoch's batches for all ranks: (batches, batch_size)."""
        generator = generator_of(self.seed, self.epoch if self.reshuffle else 0)
        kept = len(self) * self.batch_size
        order = torch.randperm(self.length, generator=generator)[:kept]
        return self.ids[order].view(len(self), self.batch_size)

    def __iter__(self) -> Iterator[Tensor]:
        share = self.batch_size // self.ranks
        start, self.start = self.start, 0
        yield from self.epoch_batches()[start:, self.rank * share : (self.rank + 1) * share]


class SequentialSampler:
    """Evaluation: every image occurs once, on one rank. All ranks have the same number of batches, none empty.

    ids   of the images (N,), or their number N for 0 … N − 1
    """

    def __init__(
        self, ids: int | Tensor, batch_size: int, rank: int = 0, ranks: int = 1, max_images: int | None = None
    ) -> None:
        ids = torch.arange(ids) if isinstance(ids, int) else ids
        length = len(ids)
        if max_images is not None and max_images < length:
            # A random subset: a data set may be sorted by class, or its classes may alternate.
            ids = ids[torch.randperm(length, generator=generator_of(0))[: max(max_images, ranks)].sort().values]
            length = len(ids)
        require(length >= ranks, "ranks", ranks, f"at most the number of images, {length}")
        self.ids = ids.tensor_split(ranks)[rank]
        self.num_batches = max(1, -(-(length // ranks) // max(1, batch_size // ranks)))

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[Tensor]:
        yield from self.ids.tensor_split(self.num_batches)
