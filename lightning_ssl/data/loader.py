"""Iterates over the batches of a split, with worker processes for image files."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import ClassVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from lightning_ssl.data.sampling import BatchSampler, ShuffledSampler
from lightning_ssl.data.split import Batch, BatchDataset, Split

# A terminal and SLURM send these to all processes. The training stops after its step, and then ends its workers.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


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


class Loader:
    """Iterates over the batches of a split; worker processes decode image files.

    It is not a `DataLoader`, because Lightning replaces the sampler of a `DataLoader` under DDP. Lightning saves its
    `state_dict`: a checkpoint within an epoch has the number of batches that were yielded, and a resumed run continues
    after them.
    """

    batch_sampler: ClassVar[None] = None  # Lightning reads this attribute of any loader that has a `sampler`

    def __init__(
        self, split: Split, sampler: BatchSampler, workers: int = 0, epoch: Callable[[], int | None] = lambda: None
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
        for batch in self.decoded_batches() if self.workers else self.batches_in_memory():
            self.batches_yielded += 1
            yield batch

    def batches_in_memory(self) -> Iterator[Batch]:
        """Batches made in this process. For a GPU they are in pinned memory: any other copy waits for the GPU."""
        pin = torch.cuda.is_available() and getattr(self.split, "device", torch.device("cpu")).type == "cpu"
        for images, labels, ids in map(self.split.batch, self.ids()):
            yield (images.pin_memory(), labels.pin_memory(), ids.pin_memory()) if pin else (images, labels, ids)

    def ids(self) -> Iterable[Tensor]:
        """The ids of the batches, on the device of the split. Those of a whole epoch are copied there at once."""
        device = getattr(self.split, "device", None)
        if device is None or device.type == "cpu":
            return self.sampler
        batches = list(self.sampler)
        return torch.cat(batches).to(device).split([len(ids) for ids in batches])

    def decoded_batches(self) -> Iterator[Batch]:
        """Batches decoded by worker processes; each worker decodes whole batches."""
        loader: DataLoader[Batch] = DataLoader(
            BatchDataset(self.split),
            sampler=self.sampler,  # each item is a tensor of ids
            batch_size=None,
            num_workers=self.workers,
            worker_init_fn=ignore_stop_signals,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),  # without one it draws from the global generator, once more in a resumed run
        )
        before = set(active_children())
        batches = iter(loader)
        at_exit = Finalize(None, kill_workers, args=(set(active_children()) - before,), exitpriority=0)
        try:
            yield from batches
        except ValueError as error:  # of a worker, with its traceback as text; the last line is the message
            raise ValueError(str(error).strip().rpartition("\n")[2].removeprefix("ValueError: ")) from error
        finally:
            # An error keeps the iterator alive in its traceback, so its workers would wait for the garbage collector.
            getattr(batches, "_shutdown_workers")()  # noqa: B009  private, as torch has no other way
            at_exit.cancel()

    def state_dict(self) -> dict[str, int]:
        if not isinstance(self.sampler, ShuffledSampler):
            return {}
        # After `set_epoch` or `seek`, and before the next batch, the position is the sampler's own.
        started = self.last_epoch == self.sampler.epoch and self.sampler.start == 0
        return {"epoch": self.sampler.epoch, "batch": self.batches_yielded if started else self.sampler.start}

    def load_state_dict(self, state: dict[str, int]) -> None:
        if isinstance(self.sampler, ShuffledSampler):
            self.sampler.seek(state["epoch"], state["batch"])
