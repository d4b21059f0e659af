"""Iterates over the batches of a split, with worker processes for image files.

A terminal and SLURM send signals to all processes. The training stops after its step, and then ends its workers, which
ignore these signals themselves.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import ClassVar, TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lightning_ssl.base.checks import UserError
from lightning_ssl.base.machine import available_cores
from lightning_ssl.data.sampling import SequentialSampler, ShuffledSampler
from lightning_ssl.data.split import Batch, Images, Split

T = TypeVar("T")
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


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
        decoded = decoded_batches(self.split.batch, self.sampler, self.workers)  # a generator: nothing starts yet
        for batch in decoded if self.workers else self.in_memory():
            self.batches_yielded += 1
            yield batch

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


# ---------------------------------------------------------------------------------------------------------------------
# Worker processes


def load_all(split: Split, size: int, classes: tuple[str, ...]) -> Images:
    """Read every image of a split into memory, by worker processes."""
    images = torch.empty(len(split), 3, size, size, dtype=torch.uint8)
    labels = torch.empty(len(split), dtype=torch.int64)
    batches = torch.arange(len(split)).split(64)
    for part, known, ids in decoded_batches(split.batch, batches, min(available_cores(), len(batches))):
        images[ids], labels[ids] = part, known
    return Images(images, labels, classes)


def decoded_batches(decode: Callable[[Tensor], T], batches: Iterable[Tensor], workers: int) -> Iterator[T]:
    """The batches with these ids, (B,) each, in their order. Each worker decodes whole batches."""
    loader: DataLoader[T] = DataLoader(
        Decoded(decode),
        sampler=batches,
        batch_size=None,
        num_workers=workers,
        worker_init_fn=ignore_stop_signals,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator(),  # without one it draws from the global generator, once more in a resumed run
    )
    before = set(active_children())
    decoded = iter(loader)
    at_exit = Finalize(None, kill_workers, args=(set(active_children()) - before,), exitpriority=0)
    try:
        yield from decoded
    except UserError as error:  # of a worker, with its traceback as text; the last line is the class and the message
        raise UserError(str(error).strip().rpartition("\n")[2].partition(": ")[2]) from error
    finally:
        # An error keeps the iterator alive in its traceback, so its workers would wait for the garbage collector.
        if workers:
            getattr(decoded, "_shutdown_workers")()  # noqa: B009  private, as torch has no other way
        at_exit.cancel()


class Decoded(Dataset[T]):
    """For the workers of a `DataLoader`: an index is a tensor of ids, an item is their batch."""

    def __init__(self, decode: Callable[[Tensor], T]) -> None:
        self.decode = decode

    def __getitem__(self, ids: Tensor) -> T:
        return self.decode(ids)


def ignore_stop_signals(worker: int) -> None:
    """Keep a worker process alive until the training ends it."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def kill_workers(workers: Iterable[BaseProcess]) -> None:
    """End the workers of a loader that is in use when the process exits.

    multiprocessing would send them SIGTERM, which they ignore, and wait for their end.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler reports a killed worker as an error
    for worker in workers:
        worker.kill()
