"""Batches of a split that worker processes decode.

A terminal and SLURM send signals to all processes. The training stops after its step, and then ends its workers, which
ignore these signals themselves.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lightning_ssl.base.checks import UserError

T = TypeVar("T")
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


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
