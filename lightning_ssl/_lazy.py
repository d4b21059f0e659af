"""Public names: which there are, without importing their files, and their import on first use (PEP 562)."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


def exported(room: str) -> dict[str, list[str]]:
    """The names in `__all__` of each file of a room, such as "losses", by file, without importing it."""
    found = {}
    for file in sorted((Path(__file__).parent / room).glob("[!_]*.py")):
        if listed := re.search(r"^__all__ = \[(.*?)\]", file.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            found[file.stem] = re.findall(r'"(\w+)"', listed[1])
    return found


def import_files(package: str) -> dict[str, Any]:
    """Import every file of a room that exports names. Returns these names with their values."""
    files = exported(package.rpartition(".")[2])
    modules = {file: importlib.import_module(f"{package}.{file}") for file in files}
    return {name: getattr(modules[file], name) for file, names in files.items() for name in names}


def lazy_names(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of a package from its modules and the names that each provides."""
    module_of = {name: module for module, provided in names.items() for name in provided}

    def __getattr__(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return __getattr__, __dir__
