"""The one walker of plain trees: every value with its dotted key, without `init_args`. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class ClassPath(str):
    """The path of the class of a node."""


def is_node(tree: Any) -> bool:
    """Whether a part of a tree is a class with its arguments."""
    return isinstance(tree, Mapping) and isinstance(tree.get("class_path"), str)


def arguments_in(node: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a node. `dict_kwargs` are those of older configurations for `**kwargs`."""
    parts = [node.get(key) for key in ("init_args", "dict_kwargs")]
    return {name: value for part in parts if isinstance(part, Mapping) for name, value in part.items()}


def joined(key: str, name: object) -> str:
    """The dotted key of a name below a key. YAML has names that are no text."""
    return f"{key}.{name}" if key else str(name)


def parents(key: str) -> list[str]:
    """The keys above a key: `model` and `model.importance` for `model.importance.p`."""
    return [key[:place] for place, letter in enumerate(key) if letter == "."]


def walk(tree: Any, key: str = "", into_lists: bool = False) -> Iterator[tuple[str, Any]]:
    """Every leaf of a tree with its dotted key, and every class as `ClassPath` at the key of its node.

    >>> dict(walk({"model": {"class_path": "lightning_ssl.SimCLR", "init_args": {"tau": 0.5}}, "tags": ["a"]}))
    {'model': 'lightning_ssl.SimCLR', 'model.tau': 0.5, 'tags': ['a']}
    """
    node = is_node(tree)
    if node:
        yield key, ClassPath(tree["class_path"])
    below = arguments_in(tree) if node else tree
    if isinstance(below, Mapping) and (below or node):
        for name, value in below.items():
            yield from walk(value, joined(key, name), into_lists)
    elif isinstance(tree, list | tuple) and into_lists:
        for value in tree:
            yield from walk(value, key, into_lists)
    else:
        yield key, tree
