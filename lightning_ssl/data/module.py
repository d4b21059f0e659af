"""The DataModule: batches of a data set, the same ones in the same order on any number of ranks.

The order of an epoch is a function of (seed, epoch) alone. Batch b of the whole is positions b·B … (b+1)·B − 1 of it,
and rank r of W takes the r-th part of every batch: W ranks together take the steps of one process with the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lightning_ssl import data
from lightning_ssl.checks import require
from lightning_ssl.data.download import Batch
from lightning_ssl.data.folder import processors
from lightning_ssl.seeding import generator_of


class Rows(Protocol):
    """A split: `Images`, or a `Folder` that decodes."""

    decodes: ClassVar[bool]

    def __len__(self) -> int: ...

    def batch(self, ids: Tensor) -> Batch: ...


class BatchSampler(Protocol):
    """Which ids a rank takes, batch by batch."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Tensor]: ...


class ShuffledSampler:
    """Training: every epoch reshuffled, the last incomplete batch dropped, and any batch of any epoch to begin at."""

    def __init__(
        self, length: int, batch_size: int, rank: int = 0, ranks: int = 1, seed: int = 0, reshuffle: bool = True
    ) -> None:
        require(1 <= batch_size <= length, "batch_size", batch_size, f"between 1 and the number of images, {length}")
        require(
            batch_size % ranks == 0,
            "batch_size",
            batch_size,
            f"a multiple of the number of ranks, {ranks}: it is the size of the whole batch",
        )
        require(0 <= rank < ranks, "rank", rank, f"between 0 and {ranks - 1}")
        require(seed >= 0, "seed", seed, "0 or above")
        self.length, self.batch_size, self.rank, self.ranks = length, batch_size, rank, ranks
        self.seed, self.reshuffle = seed, reshuffle
        self.epoch = self.start = 0

    def __len__(self) -> int:
        """Batches of a whole epoch, wherever it begins."""
        return self.length // self.batch_size

    def set_epoch(self, epoch: int) -> None:
        """Called by Lightning before an epoch; a place to begin at belongs to its own epoch and is kept for that."""
        if epoch != self.epoch:
            self.epoch, self.start = epoch, 0

    def seek(self, epoch: int, batch: int) -> None:
        """Begin the next pass at a batch of an epoch; those after it begin at 0."""
        require(epoch >= 0, "epoch", epoch, "0 or above")
        require(0 <= batch <= len(self), "batch", batch, f"between 0 and {len(self)}")
        self.epoch, self.start = epoch, batch

    def order(self) -> Tensor:
        """The epoch's batches, of all ranks: (batches, batch_size)."""
        generator = generator_of(self.seed, self.epoch if self.reshuffle else 0)
        kept = len(self) * self.batch_size
        return torch.randperm(self.length, generator=generator)[:kept].view(len(self), self.batch_size)

    def __iter__(self) -> Iterator[Tensor]:
        share = self.batch_size // self.ranks
        start, self.start = self.start, 0
        yield from self.order()[start:, self.rank * share : (self.rank + 1) * share]


class SequentialSampler:
    """Evaluation: every image once, on one rank, and equally many batches, none of them empty, on every rank."""

    def __init__(self, length: int, batch_size: int, rank: int = 0, ranks: int = 1, most: int | None = None) -> None:
        ids = torch.arange(length)
        if most is not None and most < length:
            # Drawn, not taken in turn: a data set may be sorted by class, or its classes may take turns.
            ids = torch.randperm(length, generator=generator_of(0))[: max(most, ranks)].sort().values
            length = len(ids)
        require(length >= ranks, "ranks", ranks, f"at most the number of images, {length}")
        self.ids = ids.tensor_split(ranks)[rank]
        self.batches = max(1, -(-(length // ranks) // max(1, batch_size // ranks)))

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Tensor]:
        yield from self.ids.tensor_split(self.batches)


class Loader:
    """Batches of a split in an order; slices of memory, or decoded by worker processes.

    It is no `DataLoader`, for Lightning would put its own sampler into one under DDP. It has Lightning's `state_dict`:
    a checkpoint in the middle of an epoch knows the batches that were handed out, and a resumed run goes on after them.
    """

    batch_sampler: ClassVar[None] = None  # Lightning asks whatever has a `sampler` for it

    def __init__(
        self, rows: Rows, sampler: BatchSampler, workers: int = 0, epoch: Callable[[], int | None] = lambda: None
    ) -> None:
        self.rows, self.sampler, self.epoch = rows, sampler, epoch
        self.workers = workers if rows.decodes else 0
        self.begun, self.handed_out = -1, 0  # the epoch of the last pass, and how many of its batches are gone

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Batch]:
        # A generator: the epoch is asked for with the first batch. Lightning sets it after it has made the iterator,
        # and 1.9 sets that of a DataLoader only.
        epoch = self.epoch()
        if epoch is not None and isinstance(self.sampler, ShuffledSampler):
            self.sampler.set_epoch(epoch)
        self.begun, self.handed_out = getattr(self.sampler, "epoch", 0), getattr(self.sampler, "start", 0)
        for batch in self.decoded() if self.workers else map(self.rows.batch, self.sampler):
            self.handed_out += 1
            yield batch

    def decoded(self) -> Iterator[Batch]:
        """One batch per worker at a time."""
        loader: DataLoader[Batch] = DataLoader(
            Decoding(self.rows),
            sampler=self.sampler,  # each of its items is a batch of ids
            batch_size=None,
            num_workers=self.workers,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),  # it would draw from the global one, and a resumed run once more often
        )
        try:
            yield from loader
        except ValueError as error:  # a worker's, with its traceback as text: the last line says what is wrong
            raise ValueError(str(error).strip().rpartition("\n")[2].removeprefix("ValueError: ")) from error

    def state_dict(self) -> dict[str, int]:
        if not isinstance(self.sampler, ShuffledSampler):
            return {}
        # An epoch that was set or sought, but of which no batch was asked for, is at its start.
        begun = self.begun == self.sampler.epoch and self.sampler.start == 0
        return {"epoch": self.sampler.epoch, "batch": self.handed_out if begun else self.sampler.start}

    def load_state_dict(self, state: dict[str, int]) -> None:
        if isinstance(self.sampler, ShuffledSampler):
            self.sampler.seek(state["epoch"], state["batch"])


class Decoding(Dataset[Batch]):
    """What a DataLoader's workers see: an index is a batch of ids."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def __getitem__(self, ids: Tensor) -> Batch:
        return self.rows.batch(ids)


class DataModule(pl.LightningDataModule):
    """A data set as batches `(images uint8 (B, 3, H, W), labels (B,), ids (B,))`.

    `batch_size` is that of the whole step: with W ranks each gets batch_size/W. `split` is what to train on;
    `seed` orders it (0; the command line takes `seed_everything`); `reshuffle=False` repeats the first epoch's order,
    as the code released with the papers does.
    `validate=False` is for a folder without a test split.
    `workers` decode image files (as many as there are processors unless said otherwise); sets in memory need none.
    `options` are the data set's own, such as `{"train_images": 5000}` of shapes or `{"store_size": 160}` of a folder.
    """

    def __init__(
        self,
        name: str = "shapes",
        root: str = "data",
        batch_size: int = 256,
        split: str = "pretrain",
        seed: int | None = None,
        reshuffle: bool = True,
        validate: bool = True,
        download: bool = True,
        workers: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        require(batch_size >= 1, "batch_size", batch_size, "at least 1")
        require(split in ("pretrain", "train"), "split", split, "'pretrain' or 'train'")
        require(seed is None or seed >= 0, "seed", seed, "0 or above")
        require(workers is None or workers >= 0, "workers", workers, "0 or above")
        self.data_set, self.root, self.batch_size, self.split = name, Path(root), batch_size, split
        self.seed, self.reshuffle, self.validate = seed or 0, reshuffle, validate
        self.download, self.workers = download, workers
        self.options = dict(options or {})
        self._info = data.info(name, self.root, **self.options)
        self._rows: dict[str, Rows] = {}
        self._loader: Loader | None = None  # the one that training reads
        self._place: dict[str, int] = {}  # of a checkpoint, where it begins

    @property
    def image_size(self) -> int:
        """Side of the square images, in pixels."""
        return self._info.image_size

    @property
    def num_classes(self) -> int:
        return self._info.num_classes

    @property
    def mean(self) -> tuple[float, float, float]:
        """Of each channel, images scaled to [0, 1]."""
        return self._info.mean

    @property
    def std(self) -> tuple[float, float, float]:
        """Of each channel, images scaled to [0, 1]."""
        return self._info.std

    @property
    def local_batch_size(self) -> int:
        """Images of a batch on this rank."""
        return self.batch_size // self.ranks[1]

    @property
    def ranks(self) -> tuple[int, int]:
        """This rank and how many there are."""
        trainer = getattr(self, "trainer", None)
        return (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)

    def rows(self, split: str) -> Rows:
        """A split, kept once it was asked for."""
        if split not in self._rows:
            self._rows[split] = data.rows(self.data_set, self.root, split, **self.options)
        return self._rows[split]

    def prepare_data(self) -> None:
        """On one process of a machine: fetch what is missing."""
        if self.download and data.SETS[self.data_set].published:
            data.fetch(self.data_set, self.root)

    def setup(self, stage: str | None = None) -> None:
        """On every rank: open the splits, so that whatever is wrong with them is said before the first step."""
        if stage in (None, "fit"):
            self.train_dataloader()
        if self.validate or stage == "test":
            self.rows("test")

    def train_dataloader(self) -> Loader:
        """This rank's part of every training batch."""
        rows = self.rows(self.split)
        order = ShuffledSampler(len(rows), self.batch_size, *self.ranks, seed=self.seed, reshuffle=self.reshuffle)
        self._loader = Loader(rows, order, self.workers_per_rank, self.current_epoch)
        if self._place:
            self._loader.load_state_dict(self._place)
        return self._loader

    # Lightning keeps the loader's state in its checkpoints too, and forgets to load it where an optimizer's schedule
    # asked for the number of steps before: the module's own is loaded first of all.

    def state_dict(self) -> dict[str, int]:
        return {} if self._loader is None else self._loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self._place = dict(state_dict)

    def teardown(self, stage: str | None = None) -> None:
        """The next training begins at the beginning."""
        self._place, self._loader = {}, None

    def current_epoch(self) -> int | None:
        """The trainer's epoch, where there is a trainer."""
        trainer = getattr(self, "trainer", None)
        return None if trainer is None else trainer.current_epoch

    def val_dataloader(self) -> Loader | list[Loader]:
        """The test images, each on one rank; nothing with `validate=False`."""
        return self.in_order("test") if self.validate else []

    def test_dataloader(self) -> Loader:
        return self.in_order("test")

    def reference_dataloader(self, most: int | None = None) -> Loader:
        """The labelled training images, or `most` of them, each on one rank: what neighbours are compared with."""
        return self.in_order("train", most)

    def in_order(self, split: str, most: int | None = None) -> Loader:
        rows = self.rows(split)
        return Loader(
            rows, SequentialSampler(len(rows), self.batch_size, *self.ranks, most=most), self.workers_per_rank
        )

    @property
    def workers_per_rank(self) -> int:
        if self.workers is not None:
            return self.workers
        trainer = getattr(self, "trainer", None)
        return max(1, processors() // (1 if trainer is None else trainer.num_devices))
