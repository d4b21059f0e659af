"""`lightning-ssl bench NAME`: measure against the bars, side by side with others."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import lightning_ssl

BENCHMARKS = Path(lightning_ssl.__file__).parent.parent / "benchmarks"


def main(argv: list[str]) -> int:
    """Run one benchmark, or list them."""
    if not BENCHMARKS.is_dir():
        raise ValueError("bench: benchmarks live beside the package in its source checkout, and this is not one")
    known = {file.stem: first_line(file) for file in sorted(BENCHMARKS.glob("*.py"))}
    if not argv or argv[0] in ("-h", "--help", "list"):
        print("usage: lightning-ssl bench NAME [--flags]     lightning-ssl bench NAME --help\n\nThe benchmarks:")
        width = max(map(len, known))
        print("\n".join(f"  {name.ljust(width)}  {line}" for name, line in known.items()))
        return 0
    name, *flags = argv
    if name not in known:
        raise ValueError(f"bench={name!r}: expected one of {', '.join(known)}")
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    code: int = module.main(flags)
    return code


def first_line(file: Path) -> str:
    """The first line of a file's docstring, without running the file."""
    return (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n")[0]
