"""`lightning-ssl bench NAME`: run a benchmark of the folder `benchmarks`."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import lightning_ssl
from lightning_ssl.app.commands.parser import choose
from lightning_ssl.base.checks import UserError

BENCHMARKS = Path(lightning_ssl.__file__).parent.parent / "benchmarks"


def main(argv: list[str]) -> int:
    """Run one benchmark, or list all."""
    if not BENCHMARKS.is_dir():
        raise UserError(f"bench: {BENCHMARKS} does not exist; the benchmarks need a source checkout")
    name = choose("lightning-ssl bench", "benchmark", summaries(), argv)
    if name is None:
        return 0
    sys.path.insert(0, str(BENCHMARKS))  # as in `python benchmarks/NAME.py`
    code: int = importlib.import_module(name).main(argv[1:])
    return code


def summaries() -> dict[str, str]:
    """The first docstring line of every benchmark, by name. A benchmark is a file with a `main`."""
    texts = {file.stem: file.read_text(encoding="utf-8") for file in sorted(BENCHMARKS.glob("*.py"))}
    return {
        name: (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
        for name, text in texts.items()
        if "\nmain = " in text
    }
