"""The DataModule: batches of a data set. The batches and their order do not depend on the number of ranks.

`sampling.py` says which rank takes which images of a batch.
"""

from __future__ import annotations

import inspect
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from lightning_ssl import data
from lightning_ssl._lightning import pl
from lightning_ssl.base.checks import is_number, require
from lightning_ssl.base.machine import available_cores
from lightning_ssl.data.loader import Loader
from lightning_ssl.data.map_style import MapStyle
from lightning_ssl.data.sampling import SequentialSampler, ShuffledSampler
from lightning_ssl.data.split import Images, Source, Split, stratified

__all__ = ["DataModule"]

MAX_BYTES_ON_DEVICE = 2**31  # of a split, with `on_device="auto"`


class DataModule(pl.LightningDataModule):
    """A data set as batches `(images uint8 (B, 3, H, W), labels (B,), ids (B,))`.

    name          one of `data.DATASETS`, `hf:NAME`, or the path of the user's own, such as `mine.make_dataset`
    root          the folder of the data sets
    batch_size    images per step of all ranks together: with W ranks each gets batch_size/W
    split         the split for training, "pretrain" or "train"
    holdout       number or share of the labelled training images that are held out for validation, the same share of
                  each class, chosen by `seed`; 0 validates on the test images, as the papers do
    seed          decides the order of the images; default 0; the command line sets it to `seed_everything`
    reshuffle     False repeats the order of the first epoch, as the code released with the papers does
    validate      whether there is a validation; it is skipped where there are neither test nor held-out images
    download      whether missing files are downloaded
    workers       processes that decode image files; default: one per core; splits in memory use none
    on_device     True keeps all images of a split in the memory of the device, image files are decoded once: a batch is
                  then an index, without a copy. "auto" does so on accelerators, for images that are in memory already
                  and take at most 2 GiB per split. The batches are the same
    options       options of the data set: `{"train_images": 5000}` of shapes, `{"store_size": 160}` of a folder

    `DataModule.of(train, test)` takes map-style data sets of torch. The attributes `image_size` (side of the square
    images, in pixels), `num_classes`, `mean` and `std` (of each channel, for pixels in [0, 1]) describe the data set.

    >>> data = DataModule("shapes", batch_size=64, options={"train_images": 256, "test_images": 64})
    >>> data.setup("fit")
    >>> images, labels, ids = next(iter(data.train_dataloader()))
    >>> images.shape, images.dtype, data.num_classes
    (torch.Size([64, 3, 32, 32]), torch.uint8, 10)
    """

    def __init__(
        self,
        name: str = "shapes",
        root: str = "data",
        batch_size: int = 256,
        split: str = "pretrain",
        holdout: int | float = 0,
        seed: int | None = None,
        reshuffle: bool = True,
        validate: bool = True,
        download: bool = True,
        workers: int | None = None,
        on_device: bool | Literal["auto"] = "auto",
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        require(batch_size >= 1, "batch_size", batch_size, "at least 1")
        require(split in ("pretrain", "train"), "split", split, "'pretrain' or 'train'")
        counted = is_number(holdout) and (0 <= holdout < 1 or (holdout >= 1 and int(holdout) == holdout))
        require(counted, "holdout", holdout, "0, a share below 1, or a number of images")
        require(seed is None or 0 <= seed < 2**63, "seed", seed, "0 or above, and below 2^63")
        require(workers is None or 0 <= workers <= 4096, "workers", workers, "0 or above, and at most 4096")
        require(on_device in (True, False, "auto"), "on_device", on_device, "true, false or 'auto'")
        self.data_set, self.root, self.batch_size, self.split = name, Path(root), batch_size, split
        self.holdout = int(holdout) if holdout >= 1 else holdout
        self.seed, self.reshuffle, self.validate = seed or 0, reshuffle, validate
        self.download, self.workers, self.on_device = download, workers, on_device
        self.options = dict(options or {})
        self.image_size, self.num_classes, self.mean, self.std = self.source.info
        self._notes: set[str] = set()  # lines that were printed
        self._limit_val_batches: int | float | None = None  # the trainer's, while there is no validation
        self._splits: dict[str, Split] = {}
        self._placed: dict[str, Split] = {}  # those on the device
        self._loader: Loader | None = None  # the training loader
        self._resume_state: dict[str, int] = {}  # position from a checkpoint

    @classmethod
    def of(
        cls,
        train: Any,
        test: Any = None,
        batch_size: int = 256,
        store_size: int | None = None,
        num_classes: int | None = None,
        val_share: float = 0.0,
        **arguments: Any,
    ) -> DatasetModule:
        """The batches of the user's own map-style data sets; `data/map_style.py` says what their items can be.

        test         None skips the validation, unless `val_share` holds out a part of each class
        store_size   side of the images; None takes the shorter side of the first image, at most 256
        num_classes  None takes it from `num_classes`, `classes`, `targets` or `labels` of `train`, else from all items
        arguments    `holdout`, `seed`, `reshuffle`, `validate`, `workers` and `on_device` of `DataModule`
        """
        source = MapStyle(train, test, "train", store_size, num_classes, val_share)
        return DatasetModule(source, batch_size=batch_size, **arguments)

    def configuration(self) -> dict[str, Any]:
        """The arguments as plain values: the part `data` of a configuration."""
        found = {key: getattr(self, key) for key in inspect.signature(DataModule).parameters}
        return {**found, "name": self.data_set, "root": str(self.root), "options": self.options or None}

    @property
    def ranks(self) -> tuple[int, int]:
        """This rank and the number of ranks."""
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)

    def open_split(self, split: str) -> Split:
        """Open a split once and keep it."""
        if split not in self._splits:
            self._splits[split] = opened = self.source.open_split(split)
            self.print_once(getattr(opened, "note", ""))
        return self._splits[split]

    def placed_split(self, split: str) -> Split:
        """A split, on the device of the trainer if `on_device` says so."""
        if split not in self._placed:
            opened, device = self.open_split(split), self.device
            fits = isinstance(opened, Images) and opened.images.nbytes <= MAX_BYTES_ON_DEVICE
            chosen = device.type != "cpu" and fits if self.on_device == "auto" else self.on_device
            self._placed[split] = opened.load().to(device) if chosen else opened
        return self._placed[split]

    @property
    def device(self) -> torch.device:
        """The device of the trainer; the CPU without one."""
        return torch.device("cpu") if self.trainer is None else self.trainer.strategy.root_device

    @property
    def labelled_share(self) -> float:
        """The share of the training images that have a label; 1 if the labels are known only with the images."""
        split = self.open_split(self.split)
        return float((split.labels >= 0).double().mean()) if isinstance(split, Images) else 1.0

    @cached_property
    def source(self) -> Source:
        """The data set."""
        return data.source_of(self.data_set, self.root, self.options)

    @property
    def validates(self) -> bool:
        """Whether there is a validation: it is wanted, and there are images for it."""
        return self.validate and (bool(self.holdout) or not self.source.no_test)

    def print_once(self, line: str) -> None:
        """Print a line on the first rank, once."""
        if line and self.ranks[0] == 0 and line not in self._notes:
            self._notes.add(line)
            print(line, flush=True)

    def prepare_data(self) -> None:
        """Download missing data, or check the files. Lightning calls this on one process per machine."""
        if self.data_set not in data.DATASETS or not data.DATASETS[self.data_set].published:
            self.open_split(self.split)
        elif self.download:
            data.fetch(self.data_set, self.root)

    def setup(self, stage: str | None = None) -> None:
        """Open the splits, so that errors occur before the first step. Lightning calls this on every rank."""
        if stage in (None, "fit"):
            self.train_dataloader()
        if stage == "test" or (self.validates and not self.holdout):
            self.open_split("test")
        elif not self.validates:
            self.skip_validation()

    def check(self, ranks: int = 1) -> tuple[int, int]:
        """Prepare and open the splits, which stay open, and check the batch size. Needs no trainer.

        Returns the numbers of batches of a training epoch and of a validation.
        """
        require(self.batch_size >= 2, "batch_size", self.batch_size, "at least 2: a loss compares images")
        self.prepare_data()
        training = ShuffledSampler(self.training_ids(self.split), self.batch_size, 0, ranks)
        if not self.validates:
            return len(training), 0
        images = int(self.held_out.sum()) if self.holdout else len(self.open_split("test"))
        return len(training), len(SequentialSampler(images, self.batch_size, 0, ranks))

    def skip_validation(self) -> None:
        """Tell the trainer that there is no validation; it would warn of an empty list of loaders."""
        if self.validate:
            self.print_once(f"validation is skipped: {self.source.no_test}")
        if self.trainer is not None and self._limit_val_batches is None:
            self._limit_val_batches, self.trainer.limit_val_batches = self.trainer.limit_val_batches, 0

    def train_dataloader(self) -> Loader:
        """This rank's part of every training batch."""
        split, ids = self.placed_split(self.split), self.training_ids(self.split)
        sampler = ShuffledSampler(ids, self.batch_size, *self.ranks, seed=self.seed, reshuffle=self.reshuffle)
        self._loader = Loader(split, sampler, self.workers_per_rank, self.current_epoch)
        if self._resume_state:
            self._loader.load_state_dict(self._resume_state)
        return self._loader

    # Lightning also saves the state of the loader, but does not load it if a learning-rate schedule asked for the
    # number of steps before. The state of the module is loaded before both.

    def state_dict(self) -> dict[str, int]:
        return {} if self._loader is None else self._loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self._resume_state = dict(state_dict)

    def teardown(self, stage: str | None = None) -> None:
        """Forget the position: the next training starts at batch 0. Free the memory of the device."""
        self._resume_state, self._loader, self._placed = {}, None, {}
        if self._limit_val_batches is not None and self.trainer is not None:
            self.trainer.limit_val_batches, self._limit_val_batches = self._limit_val_batches, None

    def current_epoch(self) -> int | None:
        """The trainer's epoch; None without a trainer."""
        return None if self.trainer is None else self.trainer.current_epoch

    def val_dataloader(self) -> Loader | list[Loader]:
        """The held-out or else the test images, each on one rank. Empty if `validate=False`, or if there are none."""
        if not self.validates:
            return []
        if self.holdout:
            return self.loader_in_order(self.split, self.held_out.nonzero()[:, 0])
        return self.sequential_dataloader("test")

    def test_dataloader(self) -> Loader:
        return self.sequential_dataloader("test")

    def reference_dataloader(self, max_images: int | None = None) -> Loader:
        """The labelled training images for kNN, each on one rank; at most `max_images`, chosen at random."""
        return self.loader_in_order("train", self.training_ids("train"), max_images)

    def sequential_dataloader(self, split: str) -> Loader:
        """The images of a split in their order, each on one rank; of the training split also the held-out ones."""
        return self.loader_in_order(split, len(self.open_split(split)))

    def loader_in_order(self, split: str, ids: int | Tensor, max_images: int | None = None) -> Loader:
        sampler = SequentialSampler(ids, self.batch_size, *self.ranks, max_images=max_images)
        return Loader(self.placed_split(split), sampler, self.workers_per_rank)

    @cached_property
    def held_out(self) -> Tensor:
        """Which images of the training split are held out: bool (N,)."""
        return stratified(self.open_split(self.split).labels, self.holdout, self.seed, "holdout")

    def training_ids(self, split: str) -> int | Tensor:
        """The ids of a training split without the held-out images; the number of images if none is held out."""
        images = len(self.open_split(split))
        return (~self.held_out[:images]).nonzero()[:, 0] if self.holdout else images

    @property
    def workers_per_rank(self) -> int:
        if self.workers is not None:
            return self.workers
        return max(1, available_cores() // (1 if self.trainer is None else self.trainer.num_devices))


class DatasetModule(DataModule):
    """The batches of data sets in memory of Python; made by `DataModule.of`."""

    def __init__(self, source: MapStyle, **arguments: Any) -> None:
        self.source: Source = source
        kind = type(source.train)
        super().__init__(name=f"{kind.__module__}.{kind.__qualname__}", **arguments)
