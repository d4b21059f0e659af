"""Images: from where they are published to batches of uint8.

    data.load("cifar10", "data", "train")     one split in memory: `Images`
    data.fetch("cifar10", "data")             download, verify and keep; does nothing when it is there
    data.DataModule("cifar10", batch_size=256)

One file per data set; each has `rows` (a split), `info` (sizes and moments, known before anything is read) and, where
there is something to download, `PUBLISHED`. Importing this package imports no torch.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from lightning_ssl.checks import require

if TYPE_CHECKING:
    from lightning_ssl.data.download import DatasetInfo
    from lightning_ssl.data.download import Images as Images
    from lightning_ssl.data.folder import Folder
    from lightning_ssl.data.module import DataModule as DataModule


class Known(NamedTuple):
    """A data set by name: the file that knows it, and one line for people."""

    module: str
    summary: str
    published: bool = True
    """Whether there are files to fetch."""


SETS = {
    "shapes": Known("shapes", "10 classes, 32×32, drawn in memory from a seed; nothing to download", published=False),
    "cifar10": Known("cifar", "10 classes, 32×32, 50,000 + 10,000 images; torchvision or npm"),
    "cifar100": Known("cifar", "100 classes, 32×32, 50,000 + 10,000 images; torchvision"),
    "stl10": Known("stl10", "10 classes, 96×96, 5,000 + 8,000 images and 100,000 unlabeled; torchvision"),
    "folder": Known("folder", "your own: ROOT/train/CLASS/*.jpg and ROOT/val/CLASS/*.jpg", published=False),
}
SPLITS = ("train", "test", "pretrain")
"""`pretrain` is all there is to learn from without labels: with STL-10 train and unlabeled, elsewhere train."""

_LATE = {"DataModule": "module", "Images": "download"}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(importlib.import_module(f"lightning_ssl.data.{_LATE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def rows(name: str, root: str | Path = "data", split: str = "train", **options: Any) -> Images | Folder:
    """One split as something with a length, classes and `batch(ids)`: in memory, or decoded when asked for."""
    require(split in SPLITS, "split", split, f"one of {', '.join(SPLITS)}")
    module = of(name)
    check_options(name, module, options)
    found: Images | Folder = module.rows(name, Path(root), split, **options)
    return found


def load(name: str, root: str | Path = "data", split: str = "train", **options: Any) -> Images:
    """One split in memory: images uint8 (N, 3, H, W), labels int64 (N,), −1 where there is none, and class names."""
    return rows(name, root, split, **options).load()


def info(name: str, root: str | Path = "data", **options: Any) -> DatasetInfo:
    """Image size, number of classes and the channels' mean and standard deviation, without reading an image."""
    module = of(name)
    check_options(name, module, options)
    found: DatasetInfo = module.info(name, Path(root), **options)
    return found


def fetch(name: str, root: str | Path = "data", source: str = "auto") -> Path:
    """Download, verify and keep a published data set; does nothing when it is there."""
    module = of(name)
    published = [known for known in SETS if SETS[known].published]
    require(SETS[name].published, "name", name, f"one of {', '.join(published)}: {name} has nothing to download")
    folder: Path = module.PUBLISHED[name].fetch(Path(root), source)
    return folder


def of(name: str) -> ModuleType:
    """The file that knows a data set."""
    require(name in SETS, "name", name, f"one of {', '.join(SETS)}")
    return importlib.import_module(f"lightning_ssl.data.{SETS[name].module}")


def check_options(name: str, module: ModuleType, options: dict[str, Any]) -> None:
    """Refuse an option that the data set does not know."""
    parameters = inspect.signature(module.rows).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    for key, value in options.items():
        if key not in known:
            raise ValueError(f"{key}={value!r}: {name} takes {', '.join(known) or 'no options'}")
