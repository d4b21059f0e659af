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

import lightning_ssl
from lightning_ssl.app.config import catalog
from lightning_ssl.app.config.configuration import root
from lightning_ssl.app.config.run_flags import run
from lightning_ssl.app.config.text import PRINT
from lightning_ssl.base.convert import choices_in, in_words, members, text_of
from lightning_ssl.base.signatures import REQUIRED, Argument, arguments_of, concrete, summary
from lightning_ssl.base.tree import is_group
from lightning_ssl.base.walk import joined
from lightning_ssl.callbacks import BY_FLAG as CALLBACKS
from lightning_ssl.callbacks.checkpoints import Checkpoints
from lightning_ssl.data import DataModule
from lightning_ssl.methods import Method


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
    config = Flag("config", "FILE", "", "a YAML file; later files and flags win")
    shown = Flag(PRINT, "", "", "print the configuration and stop")
    shared = arguments_of(Method)  # by every method
    listed = [
        Section("run", summary(run), [config, shown, *flags_of("", arguments_of(run))]),
        Section("model", about(Method), [catalogued("model"), *flags_of("model", shared)]),
    ]
    for kind in concrete(Method):
        own = {name: each for name, each in arguments_of(kind).items() if not is_same(each, shared.get(name))}
        listed.append(Section(f"model.{kind.__name__}", about(kind), list(flags_of("model", own)), ["model"]))
    for key, (_, names) in catalog.CLASSES.items():
        if key != "model":
            bases = [getattr(lightning_ssl, name) for name in names]
            listed.append(Section(key, summary(bases[0]), [catalogued(key)]))
            kinds = [kind for base in bases for kind in concrete(base)]
            listed += [class_section(f"{key}.{kind.__name__}", key, kind) for kind in kinds]
    listed.append(class_section("data", "data", DataModule))
    for key, kind in CALLBACKS.items():
        module = inspect.getdoc(inspect.getmodule(kind)) or ""
        found = class_section(key, key, kind)
        listed.append(replace(found, about=f"{module}\n\n{found.about}\n\n--{key} null switches it off."))
    listed.append(class_section("checkpoint", "checkpoint", Checkpoints))
    about_trainer = "Lightning's Trainer. Some defaults are those of this package."
    listed.append(Section("trainer", about_trainer, list(flags_of("trainer", root().named()["trainer"].type.named()))))
    return {section.title: section for section in listed}


def class_section(title: str, key: str, kind: type) -> Section:
    """The arguments of a class."""
    return Section(title, about(kind), list(flags_of(key, arguments_of(kind))))


def is_same(argument: Argument, other: Argument | None) -> bool:
    """Whether two classes have the same argument with the same default."""
    return other is not None and (argument.type, argument.default) == (other.type, other.default)


def flags_of(key: str, arguments: Mapping[str, Argument]) -> Iterator[Flag]:
    """The flags of the arguments of a class. An argument that is a dataclass gives a flag for each of its fields."""
    for each in arguments.values():
        path = joined(key, each.name)
        if is_group(each.type):
            fields = arguments_of(each.type).items()
            yield from flags_of(
                path, {name: replace(inner, default=getattr(each.default, name)) for name, inner in fields}
            )
        elif path in catalog.KEYS:
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
    section, text = catalog.KEYS[key]
    classes = catalog.CLASSES.get(key)
    names = tuple(catalog.classes(*classes) if classes else catalog.names(section))
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
    known = {bool: ["true", "false"], NoneType: ["null"]}
    found = [known.get(kind) or choices_in(kind) for kind in sorted(members(hint), key=lambda kind: kind is NoneType)]
    return tuple(dict.fromkeys(chain(*found))) if all(found) else ()


def values_text(hint: Any) -> str:
    """The values of a type: `FLOAT`, `INT | null`, `cosine | euclidean`."""
    if len(choices_of(hint)) > 4:
        return "CHOICE"
    return " | ".join(" | ".join(choices_of(kind)) or in_words(kind).upper() for kind in members(hint))


def default_text(value: Any) -> str:
    """A default as it is written on the command line; empty if there is none."""
    return "" if value is REQUIRED or is_dataclass(value) or value in ([], "") else text_of(value)
