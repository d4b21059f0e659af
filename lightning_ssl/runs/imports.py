"""Why the parser refused a class or function of the user's own.

jsonargparse says of a missing module, a wrong name, an error inside the module and a wrong kind alike that the path is
not accepted. After it refused, `explain` imports every path of the command line and of its files again and says what
is wrong with the first bad one. `failure` does the same for an error of a constructor.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning_ssl.checks import UserError
from lightning_ssl.losses.importance import Importance
from lightning_ssl.losses.interface import ARGUMENTS, call_of, wrong_signature
from lightning_ssl.untrusted import load_yaml, read_text
from lightning_ssl.user_code import is_path, is_user_file, load_object, place_of, place_of_error, reason

# Keys whose value can be a path without the word class_path.
CLASSES = ("model", "importance", "family", "callbacks", "probe", "knn", "spectrum", "importance_monitor")
CALL = f"({', '.join(ARGUMENTS)})"


def explain(argv: list[str]) -> str | None:
    """What is wrong with the user's own classes and functions on a refused command line; None if nothing is."""
    values = list(given_values(argv))
    for key, path in values:
        if key.rpartition(".")[2] == "class_path" or key.rpartition(".")[2] in CLASSES:
            owner = key.removesuffix(".class_path")
            if is_path(path) and (wrong := wrong_object(owner, path, values)):
                return wrong
    return None


def wrong_object(key: str, path: str, values: list[tuple[str, Any]]) -> str | None:
    """What is wrong with the object of a path, or with the arguments that are given for it."""
    try:
        found = load_object(path, key)
    except ValueError as error:
        return str(error)
    if not is_own(found):
        return None
    if key.rpartition(".")[2] == "importance" and not is_importance_or_factory(found):
        return f"{key}={path}: {not_an_importance(found)}"
    return wrong_arguments(key, path, found, values) if inspect.isclass(found) else None


def is_own(found: Any) -> bool:
    """Whether an object was written by the user."""
    target = found if inspect.isclass(found) or inspect.isroutine(found) else type(found)
    module = str(getattr(target, "__module__", ""))
    return module.partition(".")[0] != "lightning_ssl"


def is_importance_or_factory(found: Any) -> bool:
    if inspect.isclass(found):
        return issubclass(found, Importance) and not inspect.isabstract(found)
    if isinstance(found, Importance):
        return True
    returned = inspect.signature(found).return_annotation if inspect.isroutine(found) else None
    return "Importance" in str(returned)  # a function that makes an importance; annotations may be text


def not_an_importance(found: Any) -> str:
    """Say why an object is no importance."""
    if inspect.isclass(found) and inspect.isabstract(found):
        missing = sorted(getattr(found, "__abstractmethods__", ()))
        return f"{place_of(found)}: class {found.__name__} must define {', '.join(missing)}"
    if inspect.isclass(found) and call_of(found) is None:
        return f"{place_of(found)}: class {found.__name__} has no __call__; it must accept {CALL}"
    if not callable(found):
        kind = type(found).__name__
        return f"it is of type {kind} and cannot be called; expected a function or a class that accepts {CALL}"
    return wrong_signature(found)


def wrong_arguments(key: str, path: str, owner: type, values: list[tuple[str, Any]]) -> str | None:
    """Name an argument that the constructor of a user's class does not have, or one that it requires."""
    parameters = [each for each in inspect.signature(owner).parameters.values() if each.name != "self"]
    if not issubclass(owner, Importance) or any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    names = [each.name for each in parameters if each.kind is not each.VAR_POSITIONAL]
    below = [(other, value) for other, value in values if other.startswith(f"{key}.")]
    given = {other.removeprefix(f"{key}.").partition(".")[0]: value for other, value in below}
    for name, value in given.items():
        if name not in names and name != "class_path":
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; valid keys: {', '.join(names) or 'none'}"
            return f"{key}.{name}={value}: unknown key {name} for {owner.__name__} ({place_of(owner)}){hint}"
    for each in parameters:
        if each.default is each.empty and each.name in names and each.name not in given:
            return f"{key}.{each.name}: {path} requires it ({place_of(owner)})"
    return None


def failure(error: BaseException, config: dict[str, Any]) -> UserError | None:
    """An error that a constructor of the user's own raised, with its key, file and line; None for any other error."""
    cause: BaseException | None = error
    while cause is not None:
        if not str(cause).startswith("Problem with") and (place := place_of_error(cause)):
            file = place.rpartition(":")[0]
            for key, path in walk("", config):
                if is_path(path) and file_of(path, key) == file:
                    return UserError(f"{key.removesuffix('.class_path')}={path}: {reason(cause)}")
        cause = cause.__cause__ or cause.__context__
    return None


def file_of(path: str, key: str) -> str | None:
    """The file of a user's own object."""
    try:
        found = load_object(path, key)
    except ValueError:
        return None
    file = place_of(found).rpartition(":")[0]
    return file if file and is_user_file(file) else None


# ---------------------------------------------------------------------------------------------------------------------
# The values of a command line


def given_values(argv: list[str]) -> Iterator[tuple[str, Any]]:
    """Every value of a command line and of its files by dotted key, without `init_args`."""
    for number, word in enumerate(argv):
        if not word.startswith("-"):
            continue
        key, equals, value = word.lstrip("-").partition("=")
        if not equals:
            value = argv[number + 1] if number + 1 < len(argv) else ""
        if key in ("config", "c"):
            yield from walk("", read_yaml(value))
        else:
            yield from walk(short(key.removesuffix("+")), parse_yaml(value))


def walk(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of nested dictionaries and lists."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from walk(short(f"{key}.{name}" if key else str(name)), item)
    elif isinstance(value, list):
        for item in value:
            yield from walk(key, item)
    else:
        yield key, value


def short(key: str) -> str:
    """A key without the words `init_args`."""
    return ".".join(word for word in key.split(".") if word != "init_args")


def read_yaml(file: str) -> Any:
    try:
        return load_yaml(read_text(Path(file)))
    except ValueError:
        return None


def parse_yaml(text: str) -> Any:
    try:
        return load_yaml(text)
    except ValueError:
        return text
