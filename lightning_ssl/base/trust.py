"""Which code a stored configuration may name. Importing this imports no torch.

    require_trusted(config["model"], "model", trust=("mypackage",))

A checkpoint names classes by their paths, and building them runs their code. Paths in checkpoints and run folders are
taken from this package, from the modules in `trust`, and from the user's own modules that are imported already. Any
other path raises UserError before anything is imported. The command line passes `--trust MODULE`.

Every string is checked: any of them can name a class, such as a backbone or a data set.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from lightning_ssl.base.checks import MAX_SHOWN, UserError, cut
from lightning_ssl.base.user_code import is_path, is_user_module, load_object
from lightning_ssl.base.walk import walk

OURS = "lightning_ssl"


def require_trusted(tree: Any, key: str, trust: Sequence[str] | None = ()) -> None:
    """Refuse a configuration that names code outside the trusted modules. Nothing else is imported. None: trust all."""
    if trust is None:
        return
    for where, path in paths_in(tree, key):
        if not is_trusted(path, trust):
            root = path.partition(".")[0]
            refused = f"{where}={cut(path, MAX_SHOWN)}: the code of {root} is not trusted"
            raise UserError(f"{refused}; --trust {root} allows it")
        found = load_object(path, where)
        if not is_trusted_object(found, trust):
            origin = found if isinstance(found, ModuleType) else f"{found.__module__}.{found.__qualname__}"
            raise UserError(f"{where}={path}: it is {origin}, which is not trusted; expected a class of {OURS}")


def paths_in(tree: Any, key: str) -> Iterator[tuple[str, str]]:
    """Every import path in nested dictionaries and lists, with its dotted key."""
    for where, value in walk(tree, key, into_lists=True):
        if isinstance(value, str) and is_path(value.strip()):
            yield where, value.strip()


def is_trusted(path: str, trust: Sequence[str]) -> bool:
    """Whether a path is in this package, in a trusted module, or in a user's module that is imported already."""
    root = path.partition(".")[0]
    if root == OURS or any(f"{path}.".startswith(f"{module}.") for module in trust):
        return True
    return root == "__main__" or is_user_module(root)


def is_trusted_object(found: Any, trust: Sequence[str]) -> bool:
    """Whether an object is defined where it may be. A path can lead through a module to another: `mine.os.system`."""
    if isinstance(found, ModuleType):
        return False
    if not (inspect.isclass(found) or inspect.isroutine(found)):
        return True  # an object that a trusted module has made
    defined = f"{found.__module__}.{found.__qualname__}"
    # Of this package only classes: a function such as `lightning_ssl.app.cli.main` is no part of a model.
    return is_trusted(defined, trust) and (inspect.isclass(found) or not defined.startswith(f"{OURS}."))


def trusted_modules(named: Sequence[str], *paths: str | None) -> list[str]:
    """The modules of `--trust` and those of paths on the same command line. They may be in the working directory.

    The working directory is the last place where they are looked for.
    """
    modules = [*named, *(path.rpartition(".")[0] for path in paths if is_path(path) and path is not None)]
    for module in modules:
        if not all(part.isidentifier() for part in module.split(".")):
            raise UserError(f"trust={module!r}: expected the name of a module, such as mypackage")
    if modules and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    return modules
