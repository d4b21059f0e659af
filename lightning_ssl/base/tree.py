"""Objects and their plain trees: {"class_path": "lightning_ssl.Direct", "init_args": {"p": 6.0}}.

    to_tree(object)                        the tree of an object: plain values, as in config.yaml and in checkpoints
    complete(tree, hint, key, wrong)       a checked tree with every default; what is wrong with which key
    build(tree, hint, key, allow)          the object of a tree

A part of a tree is one of

    node      a class with its arguments: class_path and init_args. Its type is a class, such as `Importance`
    group     the fields of a dataclass, such as `optimization`, or the arguments of one class (`Group`): a mapping
    leaf      a value, converted to its type by convert.py
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from types import NoneType
from typing import Any, cast, get_args

import lightning_ssl
from lightning_ssl.base.checks import MAX_SHOWN, UserError, cut, did_you_mean, shown
from lightning_ssl.base.convert import SEQUENCES, Mismatch, as_object, convert, members, origin, text_of
from lightning_ssl.base.signatures import REQUIRED, Argument, arguments_of, concrete, subclasses, takes_any_name
from lightning_ssl.base.trust import require_trusted
from lightning_ssl.base.user_code import is_path, is_user_module, load_object, place_of, place_of_error, reason
from lightning_ssl.base.walk import arguments_in, is_node, joined, walk

PLAIN = (bool, int, float, str, NoneType)
MAX_WRONG = 5  # mistakes in an error


@dataclass(frozen=True)
class Group:
    """The arguments of one class or function, directly below a key: `data.batch_size`. A type for `complete`.

    kind   what they make; `dict` for the arguments themselves
    """

    kind: Any
    arguments: Mapping[str, Argument] = field(default_factory=dict)  # by default those of `kind`

    def named(self) -> Mapping[str, Argument]:
        return self.arguments or arguments_of(self.kind)


def is_group(hint: Any) -> bool:
    """Whether the keys of an argument are the fields of a dataclass, such as `model.optimization.lr`."""
    return inspect.isclass(hint) and is_dataclass(hint)


def group_of(hint: Any) -> Group | None:
    """The group of a type; None for a node or a leaf."""
    return hint if isinstance(hint, Group) else Group(hint) if is_group(hint) else None


# ---------------------------------------------------------------------------------------------------------------------
# From an object to its tree


def to_tree(value: Any, hint: Any = Any) -> Any:
    """An object as plain values: a class becomes `class_path` and `init_args`, a function its path.

    The arguments of an object are read from its attributes of the same names.
    """
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Mapping):
        return {str(key): to_tree(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_tree(item) for item in value]
    if inspect.isclass(value) or inspect.isroutine(value):
        return import_path(value)
    if is_group(hint) and is_dataclass(value):
        return {each.name: to_tree(getattr(value, each.name)) for each in fields(value)}
    given = {name: each for name, each in arguments_of(cast(Any, type(value))).items() if hasattr(value, name)}
    arguments = {name: to_tree(getattr(value, name), each.type) for name, each in given.items()}
    return {"class_path": import_path(type(value)), "init_args": arguments}


def import_path(value: Any) -> str:
    """The path by which a class or function is imported: the shortest one that its library has."""
    name, module = value.__name__, value.__module__
    if module.startswith("lightning_ssl.") and name in lightning_ssl.__all__:
        return f"lightning_ssl.{name}"
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        above = ".".join(parts[:length])
        if above != "lightning_ssl" and getattr(sys.modules.get(above), name, None) is value:
            return f"{above}.{name}"
    return f"{module}.{value.__qualname__}"


# ---------------------------------------------------------------------------------------------------------------------
# The class of a node


def node_bases(hint: Any) -> tuple[type, ...]:
    """The classes of which a node of this type can be; empty for a group or a leaf. Python's own are leaves."""
    kinds = [kind for kind in members(hint) if inspect.isclass(kind) and origin(kind) is kind and not is_group(kind)]
    return tuple(kind for kind in kinds if kind.__module__.partition(".")[0] not in sys.stdlib_module_names)


def item_hint(hint: Any) -> Any:
    """The type of the items of a list of nodes; None if there is none."""
    for kind in members(hint):
        if origin(kind) in SEQUENCES and get_args(kind) and node_bases(get_args(kind)[0]):
            return get_args(kind)[0]
    return None


def find_class(name: str, bases: Sequence[type], key: str) -> Any:
    """The class of a name or path, or the user's function that makes or is such a part."""
    if is_path(name):
        found = load_object(name, key)
    else:
        named = [kind for base in bases for kind in subclasses(base) if kind.__name__ == name]
        if not named:
            raise UserError(f"{key}={cut(name, MAX_SHOWN)}: {not_a_name(name, bases)}")
        public = getattr(lightning_ssl, name, None)
        found = public if public in named else named[0]
    if wrong := wrong_kind(found, bases):
        raise UserError(f"{key}={cut(name, MAX_SHOWN)}: {wrong}")
    return found


def not_a_name(name: str, bases: Sequence[type]) -> str:
    """Which names a node can have instead."""
    ours = [kind.__name__ for base in bases for kind in concrete(base)]
    every = [kind.__name__ for base in bases for kind in subclasses(base) if not inspect.isabstract(kind)]
    known = sorted(set(ours or every))  # none of ours: callbacks of Lightning
    meant = did_you_mean(name, known)
    hint = f"{meant} Or give the" if meant else f"expected one of {', '.join(known)}, or the"
    return f"{cut(hint, 120)} path of a class"


def wrong_kind(found: Any, bases: Sequence[type]) -> str | None:
    """Why an object cannot be a part; None if it can. A base with `wrong_part` also takes other objects."""
    if inspect.isclass(found) and issubclass(found, tuple(bases)):
        if not inspect.isabstract(found):
            return None
        missing = ", ".join(sorted(getattr(found, "__abstractmethods__")))  # noqa: B009  mypy does not see it
        return f"{place_of(found)}: class {found.__name__} must define {missing}"
    if isinstance(found, tuple(bases)) or is_factory(found, bases):
        return None
    own = [base.wrong_part for base in bases if hasattr(base, "wrong_part")]
    kinds = " or ".join(base.__name__ for base in bases)
    return own[0](found) if own else f"expected a subclass of {kinds}, and it is {place_of(found)}"


def is_factory(found: Any, bases: Sequence[type]) -> bool:
    """Whether a function makes a part, by the annotation of what it returns. Annotations may be text."""
    if not inspect.isroutine(found):
        return False
    returned = getattr(found, "__annotations__", {}).get("return")
    returned = getattr(found, "__globals__", {}).get(returned, returned) if isinstance(returned, str) else returned
    if inspect.isclass(returned):
        return issubclass(returned, tuple(bases))
    return any(base.__name__ in str(returned) for base in bases)


def class_arguments(found: Any, bases: Sequence[type]) -> Mapping[str, Argument]:
    """The arguments that a node with this class takes."""
    return arguments_of(found) if takes_arguments(found, bases) else {}


def takes_arguments(found: Any, bases: Sequence[type]) -> bool:
    """Whether the object of a node is made by a class or function; else what the path names is the object itself."""
    return inspect.isclass(found) or is_factory(found, bases)


# ---------------------------------------------------------------------------------------------------------------------
# Checks and defaults


def complete(tree: Any, hint: Any, key: str, wrong: list[str]) -> Any:
    """A tree with every default and every leaf converted. Each mistake adds a line `key=value: reason` to `wrong`."""
    if group := group_of(hint):
        if not isinstance(tree, Mapping):
            wrong.append(f"{key}={shown(tree)}: expected keys below it, such as {next(iter(group.named()), 'none')}")
            return tree
        return complete_arguments(tree, group.named(), key, key, wrong)
    bases, items = node_bases(hint), item_hint(hint)
    if bases and isinstance(tree, Mapping):
        return complete_node(tree, bases, key, wrong)
    try:
        return convert(tree, hint)
    except Mismatch as error:
        if items is not None and isinstance(tree, list):
            return [complete(each, items, f"{key}[{number}]", wrong) for number, each in enumerate(tree)]
        if bases and isinstance(tree, str):
            return complete_node({"class_path": tree}, bases, key, wrong)
        wrong.append(f"{key}={cut(text_of(tree), MAX_SHOWN)}: {error}")
        return tree


def complete_node(node: Any, bases: Sequence[type], key: str, wrong: list[str]) -> Any:
    path, given = node.get("class_path"), node.get("init_args", {})
    odd = [name for name in node if name not in ("class_path", "init_args", "dict_kwargs")]
    if not isinstance(path, str) or not isinstance(given, Mapping) or odd:
        wrong.append(f"{key}={shown(node)}: expected the name of a class, or class_path and init_args")
        return node
    try:
        found = find_class(path, bases, key)
    except UserError as error:
        wrong.append(str(error))
        return node
    if not takes_arguments(found, bases) and not given:
        return {"class_path": path}
    owner = getattr(found, "__name__", path)
    owner = f"{owner} ({place_of(found)})" if is_user_module(getattr(found, "__module__", "")) else owner
    arguments = class_arguments(found, bases)
    completed = complete_arguments(arguments_in(node), arguments, key, owner, wrong, takes_any_name(found))
    return {"class_path": path if is_path(path) else import_path(found), "init_args": completed}


def complete_arguments(
    given: Mapping[str, Any],
    arguments: Mapping[str, Argument],
    key: str,
    owner: str,
    wrong: list[str],
    more: bool = False,
) -> dict[str, Any]:
    """The arguments of a class or group with their defaults. `more`: unknown names are passed to `**kwargs`."""
    completed = {}
    for name, each in arguments.items():
        if name in given:
            completed[name] = complete(with_default(given[name], each), each.type, joined(key, name), wrong)
        elif each.default is REQUIRED:
            wrong.append(f"{joined(key, name)}: {owner or 'a run'} requires it")
        else:
            completed[name] = default_tree(each)
    for name in given.keys() - arguments.keys():
        if more:
            completed[name] = given[name]
        else:
            value = cut(text_of(given[name]), MAX_SHOWN)
            wrong.append(f"{joined(key, name)}={value}: {unknown_key(str(name), owner, arguments)}")
    return completed


def with_default(value: Any, argument: Argument) -> Any:
    """A group with the other fields of its default, and a node without a class with the class of its default."""
    if not isinstance(value, Mapping) or argument.default in (REQUIRED, None):
        return value
    if is_group(argument.type):
        return {**default_tree(argument), **value}
    if node_bases(argument.type) and "class_path" not in value and is_node(default := default_tree(argument)):
        return {"class_path": default["class_path"], "init_args": value.get("init_args", value)}
    return value


def unknown_key(name: str, owner: str, arguments: Mapping[str, Argument]) -> str:
    parts: dict[str, Any] = {key: type(each.default) for key, each in arguments.items()}
    below = [f"{key}.{name}" for key, kind in parts.items() if name in arguments_of(kind)]
    meant = f"did you mean {below[0]}?" if below else did_you_mean(name, arguments, most=1)
    hint = meant or f"valid keys: {cut(', '.join(arguments), 100) or 'none'}"
    return f"unknown key {cut(name, MAX_SHOWN)} for {owner or 'the configuration'}; {hint}"


def default_tree(argument: Argument) -> Any:
    """A default as plain values. One of a library that is no plain value, such as a device, is stored as text."""
    default, hint = argument.default, argument.type
    if isinstance(hint, Group) or is_node(default):
        return complete(default, hint, argument.name, [])
    is_part = is_group(hint) or isinstance(default, node_bases(hint))
    return to_tree(default, hint) if is_part or is_plain(default) else str(default)


def is_plain(value: Any) -> bool:
    return isinstance(value, (*PLAIN, list, tuple, dict))


# ---------------------------------------------------------------------------------------------------------------------
# From a tree to the object


def build(tree: Any, hint: Any, key: str, allow: Sequence[str] | None = None) -> Any:
    """The object of a tree, which may lack defaults. A mistake is a UserError that names the full key.

    allow  the modules whose code the tree may name, besides this package; None for a tree of the user's own

    >>> from lightning_ssl import Direct, Importance
    >>> build({"class_path": "Direct", "init_args": {"p": 6}}, Importance, "model.importance")
    Direct(tau=0.5, p=6.0, normalize=True)
    """
    return construct(checked(tree, hint, key, allow), hint, key)


def checked(tree: Any, hint: Any, key: str, allow: Sequence[str] | None = None) -> Any:
    """A complete tree that names only allowed code. All mistakes are told at once."""
    require_trusted(tree, key, allow)
    wrong: list[str] = []
    completed = complete(tree, hint, key, wrong)
    refuse(wrong)
    return completed


def refuse(wrong: Sequence[str]) -> None:
    """Raise one error for all mistakes, if there are any."""
    if wrong:
        more = [f"and {len(wrong) - MAX_WRONG} more"] if len(wrong) > MAX_WRONG else []
        raise UserError(*wrong[:MAX_WRONG], *more)


def construct(tree: Any, hint: Any, key: str) -> Any:
    """The object of a complete tree."""
    if group := group_of(hint):
        return made(group.kind, tree, group.named(), key, key)
    if is_node(tree) and (bases := node_bases(hint)):
        found = find_class(tree["class_path"], bases, key)
        if not takes_arguments(found, bases):
            return found
        return made(found, tree["init_args"], arguments_of(found), key, tree["class_path"])
    if isinstance(tree, list) and (items := item_hint(hint)) is not None:
        return [construct(each, items, f"{key}[{number}]") for number, each in enumerate(tree)]
    return as_object(tree, hint, key)


def made(kind: Any, tree: Mapping[str, Any], named: Mapping[str, Argument], key: str, path: str) -> Any:
    """Call a class or a function with the arguments of a tree."""
    given = constructed(tree, named, key)
    try:
        return kind(**given)
    except UserError as error:
        raise UserError(with_key(str(error), key, tree)) from error
    except Exception as error:
        if place_of_error(error) is not None:
            raise UserError(f"{key}={path}: {reason(error)}") from error
        if str(getattr(kind, "__module__", "")).startswith("lightning_ssl."):
            raise
        raise UserError(f"{key}: {type(error).__name__}: {error}") from error  # a class of a library


def constructed(tree: Mapping[str, Any], named: Mapping[str, Argument], key: str) -> dict[str, Any]:
    """The arguments of a tree as objects, without defaults that `default_tree` could only describe."""
    given = {}
    for name, value in tree.items():
        argument = named.get(name, Argument(name, Any))
        if is_plain(argument.default) or value != str(argument.default):
            given[name] = construct(value, argument.type, joined(key, name))
    return given


@contextmanager
def naming(key: str, tree: Mapping[str, Any]) -> Iterator[None]:
    """Name the full key in the UserError of a part that is in use."""
    try:
        yield
    except UserError as error:
        raise UserError(with_key(str(error), key, tree)) from error


def with_key(message: str, key: str, tree: Mapping[str, Any]) -> str:
    """The message of a class with the full key: `tau=-1.0: …` becomes `model.importance.tau=-1.0: …`.

    >>> with_key("lr=-1: lr must be positive", "model", {"optimization": {"lr": -1}})
    'model.optimization.lr=-1: lr must be positive'
    """
    refused = re.match(r"([\w.]+)=", message)
    if refused is None or refused[1].startswith(f"{key}."):
        return message if refused else f"{key}: {message}"
    own = {name: value for name, value in tree.items() if not is_node(value)}
    name = next((name for name, _ in walk(own) if f".{name}".endswith(f".{refused[1]}")), None)
    if name is None and refused[1].partition(".")[0] in own:
        name = refused[1]
    return f"{key}: {message}" if name is None else f"{key}.{name}{message[refused.end() - 1 :]}"
