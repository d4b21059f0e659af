"""Data sets as batches of uint8 images.

    data.load("cifar10", "data", "train")     one split in memory: `Images`
    data.fetch("cifar10", "data")             download, verify and cache; does nothing if the cache is complete
    data.DataModule("cifar10", batch_size=256)
    data.DataModule("mine.make_dataset")      the user's own data set, by its path; `hf:NAME` for the Hugging Face hub

A data set is a class with the interface `split.Source`. Its arguments are the root and the options; it opens its splits
and has an `info`, known before an image is read. The files for the user's own data sets have `source_of`, which makes
one. Importing this package imports no torch.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lightning_ssl._lazy import lazy_names
from lightning_ssl.base.checks import require
from lightning_ssl.base.signatures import arguments_of
from lightning_ssl.base.tree import complete_arguments, naming, refuse
from lightning_ssl.base.user_code import is_path

if TYPE_CHECKING:
    from lightning_ssl.data.lightning_data import adapt as adapt
    from lightning_ssl.data.lightning_data import check_batches as check_batches
    from lightning_ssl.data.module import DataModule as DataModule
    from lightning_ssl.data.split import DatasetInfo, Source, Split
    from lightning_ssl.data.split import Images as Images


class Entry(NamedTuple):
    """An entry of `DATASETS`."""

    source: str  # file and class
    summary: str  # for `lightning-ssl data list`
    published: bool = True  # whether there are files to download


SHAPES = "10 classes, 32×32, drawn in memory from a seed; nothing to download"
FOLDER = "your own images: ROOT/train/CLASS/*.jpg, ROOT/val/CLASS/*.jpg, or ROOT/*.jpg"
DATASETS = {
    "shapes": Entry("shapes.Shapes", SHAPES, published=False),
    "cifar10": Entry("cifar.Cifar10", "10 classes, 32×32, 50,000 + 10,000 images; torchvision or npm"),
    "cifar100": Entry("cifar.Cifar100", "100 classes, 32×32, 50,000 + 10,000 images; torchvision"),
    "stl10": Entry("stl10.STL10", "10 classes, 96×96, 5,000 + 8,000 images and 100,000 unlabeled; torchvision"),
    "folder": Entry("folder.ImageFolder", FOLDER, published=False),
}
SPLITS = ("train", "test", "pretrain")
"""`pretrain` is every image for training without labels: train, followed by unlabeled of STL-10, or train alone."""

__getattr__, __dir__ = lazy_names(
    __name__, {"module": ("DataModule",), "split": ("Images",), "lightning_data": ("adapt", "check_batches")}
)


def open_split(name: str, root: str | Path = "data", split: str = "train", **options: Any) -> Split:
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


def fetch(name: str, root: str | Path = "data", source: str = "auto", files: str | Path | None = None) -> Path:
    """Download, verify and cache a published data set, and return its folder. A complete cache is left as it is.

    files   a folder with the official files, which are read instead of a download

    >>> fetch("shapes")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    lightning_ssl.base.checks.UserError: name='shapes': ... shapes has nothing to download
    """
    require_data_set("name", name)
    published = [key for key, dataset in DATASETS.items() if dataset.published]
    require(name in published, "name", name, f"one of {', '.join(published)}: {name} has nothing to download")
    folder: Path = class_of(name)(Path(root)).fetch(source, None if files is None else Path(files))
    return folder


def is_complete(name: str, root: str | Path = "data") -> bool:
    """Whether nothing has to be downloaded or converted: a published data set is in the cache, or it is another one."""
    published = name in DATASETS and DATASETS[name].published
    return not published or class_of(name)(Path(root)).is_complete


def source_of(name: str, root: str | Path, options: dict[str, Any]) -> Source:
    """A data set. Its options are converted to their types; an unknown one and a wrong value are refused."""
    require_data_set("name", name)
    if name not in DATASETS:
        module = importlib.import_module(f"{__name__}.{'huggingface' if name.startswith('hf:') else 'user_data'}")
        return module.source_of(name, Path(root), options)
    kind, wrong = class_of(name), list[str]()
    known = {key: each for key, each in arguments_of(kind).items() if key != "root"}
    completed = complete_arguments(options, known, "options", name, wrong)
    refuse(wrong)
    with naming("options", options):
        return kind(Path(root), **completed)


def class_of(name: str) -> Any:
    """The class of a data set of `DATASETS`."""
    file, _, kind = DATASETS[name].source.partition(".")
    return getattr(importlib.import_module(f"{__name__}.{file}"), kind)


def require_data_set(argument: str, name: str) -> None:
    """Refuse a name that is no data set. Nothing is imported."""
    others = "hf:NAME, or the path of your own, such as mine.make_dataset"
    known = name in DATASETS or name.startswith("hf:") or is_path(name)
    require(known, argument, name, f"one of {', '.join(DATASETS)}, {others}")
