"""Iterates over the batches of a split, with worker processes for image files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

import torch

from lightning_ssl.data.sampling import SequentialSampler, ShuffledSampler
from lightning_ssl.data.split import Batch, Split
from lightning_ssl.data.workers import decoded_batches


class Loader:
    """Iterates over the batches of a split; worker processes decode image files.

    It is not a `DataLoader`, because Lightning replaces the sampler of a `DataLoader` under DDP. Lightning saves its
    `state_dict`: a checkpoint within an epoch has the number of batches that were yielded, and a resumed run continues
    after them.
    """

    batch_sampler: ClassVar[None] = None  # Lightning reads this attribute of any loader that has a `sampler`

    def __init__(
        self,
        split: Split,
        sampler: ShuffledSampler | SequentialSampler,
        workers: int = 0,
        epoch: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.split, self.sampler, self.epoch = split, sampler, epoch
        self.workers = workers if split.decodes else 0
        self.last_epoch, self.batches_yielded = -1, 0  # the epoch of the last iteration, and its position there

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Batch]:
        # A generator, so the epoch is read at the first batch: Lightning sets it after it creates the iterator, and
        # 1.9 sets it for a DataLoader only.
        epoch = self.epoch()
        if epoch is not None and isinstance(self.sampler, ShuffledSampler):
            self.sampler.set_epoch(epoch)
        self.last_epoch, self.batches_yielded = getattr(self.sampler, "epoch", 0), getattr(self.sampler, "start", 0)
        for batch in self.decoded() if self.workers else self.in_memory():
            self.batches_yielded += 1
            yield batch

    def decoded(self) -> Iterator[Batch]:
        """Batches made by worker processes."""
        return decoded_batches(self.split.batch, self.sampler, self.workers)

    def in_memory(self) -> Iterator[Batch]:
        """Batches made in this process. For a GPU they are in pinned memory: any other copy waits for the GPU."""
        device = getattr(self.split, "device", torch.device("cpu"))
        if device.type != "cpu":  # the ids of a whole epoch are copied there at once
            batches = list(self.sampler)
            yield from map(self.split.batch, torch.cat(batches).to(device).split([len(ids) for ids in batches]))
            return
        pin = torch.cuda.is_available()
        for images, labels, ids in map(self.split.batch, self.sampler):
            yield (images.pin_memory(), labels.pin_memory(), ids.pin_memory()) if pin else (images, labels, ids)

    def state_dict(self) -> dict[str, int]:
        if not isinstance(self.sampler, ShuffledSampler):
            return {}
        # After `set_epoch` or `seek`, and before the next batch, the position is the sampler's own.
        started = self.last_epoch == self.sampler.epoch and self.sampler.start == 0
        return {"epoch": self.sampler.epoch, "batch": self.batches_yielded if started else self.sampler.start}

    def load_state_dict(self, state: dict[str, int]) -> None:
        if isinstance(self.sampler, ShuffledSampler):
            self.sampler.seek(state["epoch"], state["batch"])
