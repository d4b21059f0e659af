"""Steps → a plain tree, in which a later step wins. Only given values are in it: `base.tree.complete` adds defaults.

| step                                          | result                                                        |
|-----------------------------------------------|---------------------------------------------------------------|
| `model.optimization={lr: 1}` (a group)        | merges                                                        |
| `data.options={b: 1}` after `{a: 1}` (a leaf) | replaces; `data.options.b=1` merges                           |
| `probe=null`, then `probe.lr=1`               | the probe again                                               |
| `trainer.callbacks=X`, `+=X`, `.argument=`    | a list of one; appends; the argument of the last one          |

Another class at a node: a method keeps the values that the new class has too, because methods share their network. An
importance or a family keeps those of flags, and drops those of files, which were meant for the class before. A flag
that the new class does not have stays, and is refused as an unknown key.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, Literal

from lightning_ssl.app.config.text import Step
from lightning_ssl.base.checks import UserError, shown
from lightning_ssl.base.convert import NUMBERS, TEXTS, Mismatch, as_list, convert, members, origin
from lightning_ssl.base.signatures import Argument
from lightning_ssl.base.tree import Group, class_arguments, find_class, group_of, item_hint, node_bases
from lightning_ssl.base.untrusted import load_yaml
from lightning_ssl.base.walk import arguments_in, joined

ANYTHING = Argument("", Any)
SCALARS = (*NUMBERS, *TEXTS, NoneType, Literal)  # their text is no YAML
Names = Container[str]
Pairs = list[tuple[str, list[str], Any]]  # the name of an argument, the words that follow it, the value


def merge(steps: Iterable[Step], root: Group) -> dict[str, Any]:
    """The tree of the given values."""
    tree: dict[str, Any] = {}
    flags: set[str] = set()
    for step in steps:
        first, *words = step.key.split(".")
        given: Pairs = [(first, words, step.value)] if first else [(name, [], v) for name, v in step.value.items()]
        tree = Merge(step, flags).arguments(tree, root.named(), given, "")
    return tree


class Merge:
    """One step. `flags` has the keys of all values that flags gave."""

    def __init__(self, step: Step, flags: set[str]) -> None:
        self.step, self.flags = step, flags

    def arguments(self, old: Any, known: Mapping[str, Argument], given: Pairs, key: str) -> dict[str, Any]:
        """The arguments of a class or group after this step."""
        merged = dict(old) if isinstance(old, Mapping) else {}
        for name, words, value in given:
            merged[name] = self.part(merged.get(name), known.get(name, ANYTHING), words, value, joined(key, name))
        return merged

    def part(self, old: Any, argument: Argument, words: list[str], value: Any, key: str) -> Any:
        """One argument after this step. `words` lead from it to the value."""
        hint = argument.type
        if not words or words == ["init_args"]:
            value = self.parsed(value, hint, key)
        if group := group_of(hint):
            given = pairs(words, value)
            return value if given is None else self.arguments(old, group.named(), given, key)
        if words or self.step.appends or not converts(value, hint):
            items, bases = item_hint(hint), node_bases(hint)
            if items is not None and (words or self.step.appends or not isinstance(value, Mapping)):
                return self.items(old, Argument("", items), words, value, key)
            if bases:
                return self.node(old, bases, argument.default, words, value, key)
        if words:
            return self.arguments(old, {}, [(words[0], words[1:], value)], key)
        if not self.step.from_file:
            self.flags.add(key)
        return [*(old or []), *as_list(value)] if self.step.appends else value

    def parsed(self, value: Any, hint: Any, key: str) -> Any:
        """The text of a flag as YAML, where the argument can be a list, a mapping or anything."""
        kinds = [origin(kind) for kind in members(hint)]
        is_text = isinstance(value, str) and not self.step.from_file
        is_structure = is_text and value.lstrip().startswith(("{", "[")) and any(kind not in SCALARS for kind in kinds)
        if not (is_structure or (is_text and hint is Any)):
            return value
        try:
            return load_yaml(value)
        except UserError as error:
            if str in kinds or hint is Any:
                return value
            raise UserError(f"{key}={shown(value)}: {error}") from error

    def items(self, old: Any, item: Argument, words: list[str], value: Any, key: str) -> Any:
        """A list of nodes. A flag below its key is an argument of the last one."""
        before = as_list(old)
        if words and not before:
            raise UserError(f"{key}.{words[0]}={shown(value)}: choose a class with --{key} first")
        if words:
            return [*before[:-1], self.part(before[-1], item, words, value, key)]
        chosen = [self.part(None, item, [], each, key) for each in as_list(value)]
        return before + chosen if self.step.appends else chosen

    def node(self, old: Any, bases: Sequence[type], default: Any, words: list[str], value: Any, key: str) -> Any:
        """A class and its arguments."""
        node = dict(old) if isinstance(old, Mapping) else {} if old in (None, "null") else {"class_path": old}
        path, given = class_and_arguments(words, value)
        if given is None or not isinstance(path, str | None):
            return value  # refused later
        before = self.class_at(node.get("class_path"), bases, default, key)
        chosen = before if path is None else self.class_at(path, bases, default, key)
        known = class_arguments(chosen, bases)
        if chosen is not before:
            old_names, shares = class_arguments(before, bases), getattr(bases[0], "shares_arguments", False)
            node["init_args"] = self.kept(node.get("init_args") or {}, old_names, known, shares, key)
        if path is not None:
            node["class_path"] = path
        node["init_args"] = self.arguments(node.get("init_args"), known, given, key)
        return node

    def class_at(self, path: str | None, bases: Sequence[type], default: Any, key: str) -> Any:
        """The class of a node; without a path that of the default, or the base. None if it cannot be found."""
        if path is None:
            return type(default) if isinstance(default, tuple(bases)) else bases[0]
        try:
            return find_class(path, bases, key)
        except UserError:  # refused later
            return None

    def kept(self, given: Mapping[str, Any], old: Names, new: Names, shares: bool, key: str) -> dict[str, Any]:
        """The arguments that stay when another class is chosen. A flag that neither class has is refused later."""
        kept = {}
        for name, value in given.items():
            by_flag = any(f"{flag}.".startswith(f"{key}.{name}.") for flag in self.flags)
            if (shares or by_flag) if name in new else (by_flag and name not in old):
                kept[name] = value
        return kept


def pairs(words: list[str], value: Any) -> Pairs | None:
    """The arguments of a group or node that a step gives; None if its value is no mapping."""
    if words:
        return [(words[0], words[1:], value)]
    return [(name, [], each) for name, each in value.items()] if isinstance(value, Mapping) else None


def class_and_arguments(words: list[str], value: Any) -> tuple[Any, Pairs | None]:
    """The class that a step chooses for a node, or None, and the arguments that it gives."""
    if words == ["class_path"] or (not words and isinstance(value, str)):
        return value, []
    if words[:1] == ["init_args"]:
        return None, pairs(words[1:], value)
    if not words and isinstance(value, Mapping) and ("class_path" in value or "init_args" in value):
        given = value.get("init_args") or {}
        if value.keys() - {"class_path", "init_args", "dict_kwargs"}:
            return None, None
        return value.get("class_path"), pairs([], arguments_in(value) if isinstance(given, Mapping) else given)
    return None, pairs(words, value)


def converts(value: Any, hint: Any) -> bool:
    """Whether a value is a leaf of a type."""
    try:
        convert(value, hint)
    except Mismatch:
        return False
    return True
