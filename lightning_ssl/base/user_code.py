"""Objects of the user's own modules, given by their path: `mine.my_loss`. Importing this imports no torch.

    load_object("mine.my_loss", "model.importance")

Every failure is a UserError of one line, `key=path: reason`, with the file and line of the user's code.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
import sys
import sysconfig
import traceback
from contextlib import suppress
from types import ModuleType
from typing import Any

import lightning_ssl
from lightning_ssl.base.checks import UserError, did_you_mean

PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
PACKAGE = os.path.dirname(os.path.abspath(lightning_ssl.__file__))
INSTALLED = (PACKAGE, *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
SHOWN = 8  # names in a message


def is_path(value: object) -> bool:
    """Whether a value is a dotted path, such as `mine.my_loss`."""
    return isinstance(value, str) and PATH.fullmatch(value) is not None


def load_object(path: str, key: str) -> Any:
    """Import the object of a path. `key` is the option that names it, for the error."""
    if not is_path(path):
        raise UserError(f"{key}={path}: expected a path such as mine.my_function")
    parts = path.split(".")
    importlib.invalidate_caches()  # a file that is newer than the process is found too
    for length in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:length])
        try:
            found: Any = importlib.import_module(name)
        except (Exception, SystemExit) as error:
            if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
                continue  # the path names a part of the module above
            raise UserError(f"{key}={path}: {reason(error)}") from error  # of the user's module
        for attribute in parts[length:]:
            if not hasattr(found, attribute):
                raise UserError(f"{key}={path}: {missing_name(found, attribute)}")
            found = getattr(found, attribute)
        return found
    folders = [entry for entry in dict.fromkeys(map(os.path.abspath, sys.path)) if not is_installed(entry)]
    searched = ", ".join(filter(os.path.isdir, folders)) or "no folder of yours"
    raise UserError(f"{key}={path}: no module named {parts[0]!r} in {searched}, nor among the installed packages")


def missing_name(owner: Any, name: str) -> str:
    """Say that a module or class has no such name, and which names are close."""
    names = [each for each in vars(owner) if not each.startswith("_")]
    where = f"class {owner.__name__}"
    if isinstance(owner, ModuleType):
        where = shorten(owner.__file__) if owner.__file__ else owner.__name__
        names += [each.name for each in pkgutil.iter_modules(getattr(owner, "__path__", []))]
    listed = f"it has {', '.join(sorted(set(names))[:SHOWN]) or 'no names'}"
    return f"{where} has no {name!r}; {did_you_mean(name, names) or listed}"


def reason(error: BaseException) -> str:
    """An error of the user's code in one line: `mine.py:3: ZeroDivisionError: division by zero`."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{shorten(error.filename)}:{error.lineno}: {type(error).__name__}: {error.msg}"
    text = " ".join(str(error).split())
    place = place_of_error(error)
    return (f"{place}: " if place else "") + type(error).__name__ + (f": {text}" if text else "")


def place_of_error(error: BaseException) -> str | None:
    """File and line of the innermost frame in the user's code; None if there is no such frame."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_user_file(frame.filename)]
    return f"{shorten(frames[-1].filename)}:{frames[-1].lineno}" if frames else None


def place_of(thing: Any) -> str:
    """File and line of a user's function or class, or of the class of another object; else its full name."""
    target = inspect.unwrap(thing) if callable(thing) else thing
    if not (inspect.isclass(target) or inspect.isroutine(target)):
        target = type(target)
    with suppress(OSError, TypeError):
        if is_user_file(file := inspect.getsourcefile(target) or "<unknown>"):
            return f"{shorten(file)}:{inspect.getsourcelines(target)[1]}"
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', repr(target))}"


def is_user_module(name: str) -> bool:
    """Whether an imported module was written by the user."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and is_user_file(file)


def name_of(thing: Any) -> str:
    """The name of a function or class, or of the class of another object."""
    return getattr(thing, "__name__", type(thing).__name__)


def is_user_file(file: str) -> bool:
    """Whether a file is neither of Python, nor of this package, nor of an installed one."""
    return not file.startswith("<") and not is_installed(os.path.abspath(file))


def is_installed(path: str) -> bool:
    return any(path == folder or path.startswith(folder + os.sep) for folder in INSTALLED) or path.endswith(".zip")


def shorten(file: str) -> str:
    """A file relative to the working directory, if it is inside."""
    relative = os.path.relpath(file)
    return file if relative.startswith(os.pardir) else relative
