"""`lightning-ssl bench NAME`: run a benchmark of the folder `benchmarks`."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import lightning_ssl
from lightning_ssl.app.commands.parser import columns
from lightning_ssl.base.checks import UserError, shown

BENCHMARKS = Path(lightning_ssl.__file__).parent.parent / "benchmarks"


def main(argv: list[str]) -> int:
    """Run one benchmark, or list all."""
    if not BENCHMARKS.is_dir():
        raise UserError(f"bench: {BENCHMARKS} does not exist; the benchmarks need a source checkout")
    known = summaries()
    if not argv or argv[0] in ("-h", "--help", "list"):
        print("usage: lightning-ssl bench NAME [--flags]     lightning-ssl bench NAME --help\n\nThe benchmarks:")
        print(columns(known))
        return 0
    name, *flags = argv
    if name not in known:
        raise UserError(f"bench={shown(name)}: expected one of {', '.join(known)}")
    sys.path.insert(0, str(BENCHMARKS))  # as in `python benchmarks/NAME.py`
    code: int = importlib.import_module(name).main(flags)
    return code


def summaries() -> dict[str, str]:
    """The first docstring line of every benchmark, by name. A benchmark is a file with a function `main`."""
    found = {}
    for file in sorted(BENCHMARKS.glob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            found[file.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found
