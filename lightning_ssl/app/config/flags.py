"""Every flag of `lightning-ssl fit`, in sections: for `--help` and for tab completion.

A section is a class of the configuration: `trainer`, `data`, `model.AlphaCL`, `model.importance.Direct`, `probe`, …
The flags come from the signatures, their texts from the docstrings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cache
from itertools import chain
from types import NoneType
from typing import Any

from lightning_ssl.app.config import catalog
from lightning_ssl.app.config.configuration import root
from lightning_ssl.app.config.run_flags import run
from lightning_ssl.app.config.text import PRINT
from lightning_ssl.base.convert import choices_in, members, origin
from lightning_ssl.base.signatures import REQUIRED, Argument, arguments_of, concrete, is_group, summary
from lightning_ssl.callbacks import BY_FLAG as CALLBACKS
from lightning_ssl.callbacks.checkpoints import Checkpoints
from lightning_ssl.data import DataModule
from lightning_ssl.losses import Family, Importance
from lightning_ssl.methods import Method

# Keys whose values are the names of a section of `lightning-ssl list`, and what they are.
CATALOGUED = {
    "model": ("methods", "the method, or the path of your own"),
    "model.importance": ("importances", "the rule for α, or the path of your own"),
    "model.importance.family": ("families", "the (φ, ψ) loss, or the path of your own"),
    "model.backbone": ("backbones", "the network"),
    "model.augment": ("augmentations", "the distribution of the two views"),
    "data.name": ("data", "the data set"),
}
TYPE_NAMES = {
    int: "INT", float: "FLOAT", str: "TEXT", bool: "true | false", dict: "JSON", list: "LIST", tuple: "LIST",
    NoneType: "null",
}  # fmt: skip


@dataclass(frozen=True)
class Flag:
    """One flag: `--model.tau FLOAT`, its default and one description."""

    key: str
    values: str
    default: str
    description: str
    choices: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The description with the default."""
        default = f"(default: {self.default})" if self.default else ""
        return " ".join(filter(None, (self.description, default)))


@dataclass(frozen=True)
class Section:
    """The flags of one class, and what the docstring of the class says."""

    title: str
    about: str
    flags: list[Flag]
    parts: list[str] = field(default_factory=list)  # titles of other sections whose flags belong to the same class


@cache
def sections() -> dict[str, Section]:
    """All sections by title, in the order of `--help all`."""
    arguments = root().named()
    listed = [run_section(), model_section()]
    listed += [class_section(f"model.{kind.__name__}", "model", kind, ["model"]) for kind in concrete(Method)]
    for key, base in (("model.importance", Importance), ("model.importance.family", Family)):
        listed.append(Section(key, summary(base), [catalogued(key)]))
        listed += [class_section(f"{key}.{kind.__name__}", key, kind) for kind in concrete(base)]
    listed.append(class_section("data", "data", DataModule))
    for key, kind in CALLBACKS.items():
        module = inspect.getdoc(inspect.getmodule(kind)) or ""
        found = class_section(key, key, kind)
        listed.append(replace(found, about=f"{module}\n\n{found.about}\n\n--{key} null switches it off."))
    listed.append(class_section("checkpoint", "checkpoint", Checkpoints))
    about = "Lightning's Trainer. Some defaults are those of this package."
    listed.append(Section("trainer", about, list(flags_of("trainer", arguments["trainer"].type.named()))))
    return {section.title: section for section in listed}


def run_section() -> Section:
    """The flags that belong to no class: `--config`, `--name`, `--resume`, …"""
    config = Flag("config", "FILE", "", "a YAML file; later files and flags win")
    shown = Flag(PRINT, "", "", "print the configuration and stop")
    return Section("run", summary(run), [config, shown, *flags_of("", arguments_of(run))])


def model_section() -> Section:
    """The method, and the arguments that every method has."""
    return Section("model", about(Method), [catalogued("model"), *flags_of("model", arguments_of(Method))])


def class_section(title: str, key: str, kind: type, parts: list[str] | None = None) -> Section:
    """The arguments of a class. Those that a method shares with every other are in the section `model`."""
    shared = arguments_of(Method) if parts else {}
    own = {name: each for name, each in arguments_of(kind).items() if not is_same(each, shared.get(name))}
    return Section(title, about(kind), list(flags_of(key, own)), parts or [])


def is_same(argument: Argument, other: Argument | None) -> bool:
    """Whether two classes have the same argument with the same default."""
    return other is not None and (argument.type, argument.default) == (other.type, other.default)


def flags_of(key: str, arguments: Mapping[str, Argument]) -> Iterator[Flag]:
    """The flags of the arguments of a class. An argument that is a dataclass gives a flag for each of its fields."""
    for each in arguments.values():
        path = f"{key}.{each.name}" if key else each.name
        if is_group(each.type):
            fields = arguments_of(each.type).items()
            yield from flags_of(
                path, {name: replace(inner, default=getattr(each.default, name)) for name, inner in fields}
            )
        elif path in CATALOGUED:
            yield catalogued(path, default_text(each.default))
        else:
            text = short(each.description) if key == "trainer" else each.description
            yield Flag(path, values_text(each.type), default_text(each.default), text, choices_of(each.type))


def short(text: str) -> str:
    """A description of Lightning: its first sentence, without the one on the default."""
    text = re.sub(r" ?Defaults? ?(?:is|to|:)[^.]*\.?$", "", text)
    return re.split(r"(?<=[a-z)]\.) (?=[A-Z])", text)[0]


def catalogued(key: str, default: str = "") -> Flag:
    """A flag whose values are listed by `lightning-ssl list`."""
    section, text = CATALOGUED[key]
    names = tuple(catalog.names(section))
    return Flag(key, "NAME", default, f"{text}: {', '.join(names)}", names)


def about(kind: type) -> str:
    """The docstring of a class up to the table of its arguments and its examples."""
    kept = []
    for block in inspect.cleandoc(kind.__doc__ or "").split("\n\n"):
        first = block.split(maxsplit=1)[0].rstrip(",") if block.split() else ""
        if block.startswith(">>>"):
            break
        if block.startswith(" ") or first not in arguments_of(kind):
            kept.append(block)
    return "\n\n".join(kept)


# ---------------------------------------------------------------------------------------------------------------------
# Types and defaults as text


def choices_of(hint: Any) -> tuple[str, ...]:
    """The allowed values of a type; empty if there is no list of them."""
    kinds = [kind for kind in members(hint) if kind is not NoneType]
    found = [["true", "false"] if kind is bool else choices_in(kind) for kind in kinds]
    null = ["null"] if NoneType in members(hint) else []
    return tuple(dict.fromkeys([*chain(*found), *null])) if found and all(found) else ()


def values_text(hint: Any) -> str:
    """The values of a type: `FLOAT`, `INT | null`, `cosine | euclidean`."""
    if choices := choices_of(hint):
        return " | ".join(choices) if len(choices) <= 4 else "CHOICE"
    kinds = sorted(members(hint), key=lambda kind: kind is NoneType)
    names = [" | ".join(choices_of(kind)) or name_of(kind) for kind in kinds]
    return " | ".join(dict.fromkeys(names))


def name_of(kind: Any) -> str:
    return TYPE_NAMES.get(origin(kind), "CLASS" if isinstance(kind, type) else "TEXT")


def default_text(value: Any) -> str:
    """A default as it is written on the command line; empty if there is none."""
    if value is REQUIRED or is_dataclass(value):
        return ""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value) if value not in ([], "") else ""
