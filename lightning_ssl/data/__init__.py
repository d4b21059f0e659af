"""Data sets as batches of uint8 images.

    data.load("cifar10", "data", "train")     one split in memory: `Images`
    data.fetch("cifar10", "data")             download, verify and cache; does nothing if the cache is complete
    data.DataModule("cifar10", batch_size=256)
    data.DataModule("mine.make_dataset")      the user's own data set, by its path; `hf:NAME` for the Hugging Face hub

Each data set has a file with `open_split` (a split) and `info` (sizes and channel statistics, known before an image is
read). Data sets that are downloaded also have `PUBLISHED`, and those that can lack test images have `no_test`. The
files for the user's own data sets have `source_of` instead. Importing this package imports no torch.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from lightning_ssl._lazy import lazy_names
from lightning_ssl.base.checks import require
from lightning_ssl.base.signatures import arguments_of
from lightning_ssl.base.tree import complete_arguments, naming, refuse
from lightning_ssl.base.user_code import is_path

if TYPE_CHECKING:
    from lightning_ssl.data.folder import ImageFolder
    from lightning_ssl.data.lightning_data import adapt as adapt
    from lightning_ssl.data.lightning_data import check_batches as check_batches
    from lightning_ssl.data.map_style import Items, Source
    from lightning_ssl.data.module import DataModule as DataModule
    from lightning_ssl.data.split import DatasetInfo
    from lightning_ssl.data.split import Images as Images


class Entry(NamedTuple):
    """An entry of `DATASETS`: the module that reads the data set, and a summary for `lightning-ssl data list`."""

    module: str
    summary: str
    published: bool = True
    """Whether there are files to download."""


DATASETS = {
    "shapes": Entry("shapes", "10 classes, 32×32, drawn in memory from a seed; nothing to download", published=False),
    "cifar10": Entry("cifar", "10 classes, 32×32, 50,000 + 10,000 images; torchvision or npm"),
    "cifar100": Entry("cifar", "100 classes, 32×32, 50,000 + 10,000 images; torchvision"),
    "stl10": Entry("stl10", "10 classes, 96×96, 5,000 + 8,000 images and 100,000 unlabeled; torchvision"),
    "folder": Entry("folder", "your own images: ROOT/train/CLASS/*.jpg, ROOT/val/CLASS/*.jpg, or ROOT/*.jpg", False),
}
SPLITS = ("train", "test", "pretrain")
"""`pretrain` is every image for training without labels: train, followed by unlabeled of STL-10, or train alone."""

__getattr__, __dir__ = lazy_names(
    __name__, {"module": ("DataModule",), "split": ("Images",), "lightning_data": ("adapt", "check_batches")}
)


def open_split(
    name: str, root: str | Path = "data", split: str = "train", **options: Any
) -> Images | ImageFolder | Items:
    """Open one split. It has a length, classes and `batch(ids)`; all but `Images` read their images on request."""
    require(split in SPLITS, "split", split, f"one of {', '.join(SPLITS)}")
    return source_of(name, root, options).open_split(split)


def load(name: str, root: str | Path = "data", split: str = "train", **options: Any) -> Images:
    """Load one split into memory: images uint8 (N, 3, H, W), labels int64 (N,), −1 without a label, class names.

    >>> load("shapes", split="test", test_images=8).images.shape
    torch.Size([8, 3, 32, 32])
    """
    return open_split(name, root, split, **options).load()


def info(name: str, root: str | Path = "data", /, **options: Any) -> DatasetInfo:
    """Image size, number of classes, and mean and standard deviation of the channels.

    Reads no image, except of the user's own data sets and those of the Hugging Face hub.

    >>> info("cifar10").image_size, info("cifar10").num_classes
    (32, 10)
    """
    return source_of(name, root, options).info


def fetch(name: str, root: str | Path = "data", source: str = "auto") -> Path:
    """Download, verify and cache a published data set, and return its folder. A complete cache is left as it is.

    >>> fetch("shapes")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    lightning_ssl.base.checks.UserError: name='shapes': ... shapes has nothing to download
    """
    module = module_of(name)
    published = [key for key, dataset in DATASETS.items() if dataset.published]
    require(name in published, "name", name, f"one of {', '.join(published)}: {name} has nothing to download")
    return module.PUBLISHED[name].fetch(Path(root), source)


def is_complete(name: str, root: str | Path = "data") -> bool:
    """Whether nothing has to be downloaded or converted: a published data set is in the cache, or it is another one."""
    if name not in DATASETS or not DATASETS[name].published:
        return True
    return module_of(name).PUBLISHED[name].is_complete(Path(root) / name)


def source_of(name: str, root: str | Path, options: dict[str, Any]) -> BuiltIn | Source:
    """A data set: its splits, its `info`, and why it has no test images."""
    module = module_of(name)
    if name not in DATASETS:
        return module.source_of(name, Path(root), options)
    return BuiltIn(module, name, Path(root), checked(module, name, options))


class BuiltIn(NamedTuple):
    """A data set of `DATASETS`, in the form of `map_style.Source`."""

    module: Any
    name: str
    root: Path
    options: dict[str, Any]

    def open_split(self, split: str) -> Images | ImageFolder:
        return self.module.open_split(self.name, self.root, split, **self.options)

    @property
    def info(self) -> DatasetInfo:
        return self.module.info(self.name, self.root, **self.options)

    @property
    def no_test(self) -> str:
        """Why there are no test images; empty if there are."""
        known = hasattr(self.module, "no_test")
        return self.module.no_test(self.name, self.root, **self.options) if known else ""


def module_of(name: str) -> ModuleType:
    """The module that reads a data set."""
    if name.startswith("hf:"):
        return importlib.import_module("lightning_ssl.data.huggingface")
    if is_path(name):
        return importlib.import_module("lightning_ssl.data.user_data")
    require_data_set("name", name)
    return importlib.import_module(f"lightning_ssl.data.{DATASETS[name].module}")


def require_data_set(argument: str, name: str) -> None:
    """Refuse a name that is no data set. Nothing is imported."""
    others = "hf:NAME, or the path of your own, such as mine.make_dataset"
    known = name in DATASETS or name.startswith("hf:") or is_path(name)
    require(known, argument, name, f"one of {', '.join(DATASETS)}, {others}")


def checked(module: ModuleType, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a data set, converted to their types. An unknown one and a wrong value are refused.

    The options are the keyword-only parameters of its `open_split`. `check_values` of its module adds to this check.
    """
    known = {key: each for key, each in arguments_of(module.open_split).items() if key not in ("name", "root", "split")}
    wrong: list[str] = []
    completed = complete_arguments(options, known, "options", name, wrong)
    refuse(wrong)
    given = {key: completed[key] for key in options}
    with naming("options", given):
        getattr(module, "check_values", dict)(**given)
    return given
