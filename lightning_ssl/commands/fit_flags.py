"""Every flag of `lightning-ssl fit`, in sections: for `--help`, for suggestions and for tab completion.

A section is a class of the configuration: `trainer`, `data`, `model.AlphaCL`, `model.importance.Direct`, `probe`, …
The flags come from the signatures, their texts from the docstrings.
"""

from __future__ import annotations

import difflib
import inspect
import re
import types
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal

from lightning_ssl._lightning import pl
from lightning_ssl.checks import UserError
from lightning_ssl.commands import catalog
from lightning_ssl.data import DataModule
from lightning_ssl.losses import Family, Importance
from lightning_ssl.methods import Method
from lightning_ssl.runs.arguments import REQUIRED, Argument, arguments_of, concrete, description, summary
from lightning_ssl.runs.checkpointing import Checkpoints
from lightning_ssl.runs.configuration import CALLBACKS, make_parser

# Keys whose values are the names of a section of `lightning-ssl list`, and what they are.
CATALOGUED = {
    "model": ("methods", "the method, or the path of your own"),
    "model.importance": ("importances", "the rule for α, or the path of your own"),
    "model.importance.family": ("families", "the (φ, ψ) loss, or the path of your own"),
    "model.backbone": ("backbones", "the network"),
    "model.augment": ("augmentations", "the distribution of the two views"),
    "data.name": ("data", "the data set"),
}
# Arguments without a description in their class.
DESCRIPTIONS = {"hidden": "width of the hidden layers", "out": "width of the embeddings"}
TYPE_NAMES = {int: "INT", float: "FLOAT", str: "TEXT", bool: "true | false", dict: "JSON", list: "LIST", tuple: "LIST"}
MAX_LENGTH = 240  # characters of an error with all valid keys and a suggestion
# Names of other libraries, for suggestions.
OTHER_NAMES = {
    "arch": "backbone",
    "dataset": "data.name",
    "epochs": "max_epochs",
    "gpus": "trainer.devices",
    "learning_rate": "lr",
    "num_workers": "data.workers",
    "seed": "seed_everything",
    "temperature": "tau",
    "wd": "weight_decay",
}


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


def sections() -> dict[str, Section]:
    """All sections by title, in the order of `--help all`."""
    defaults = make_parser().get_defaults().as_dict()
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
    trainer = {name: replaced(each, defaults["trainer"]) for name, each in arguments_of(pl.Trainer).items()}
    about = "Lightning's Trainer. Some defaults are those of this package."
    listed.append(Section("trainer", about, list(flags_of("trainer", pl.Trainer, trainer))))
    return {section.title: section for section in listed}


def run_section() -> Section:
    """The flags that belong to no class: `--config`, `--name`, `--resume`, …"""
    shown = []
    for action in make_parser()._actions:
        flag = action.option_strings[-1].removeprefix("--").removesuffix("+")
        if "." in flag or flag in ("help", "trainer", "model", "data", "checkpoint", *CALLBACKS):
            continue
        hint = getattr(action, "_typehint", None)
        values = {"config": "FILE", "print_config": "", "seed_everything": "INT"}.get(flag, values_text(hint))
        default = "" if flag in ("config", "print_config") else default_text(action.default)
        text = "print the configuration and stop" if flag == "print_config" else str(action.help)
        shown.append(Flag(flag, values, default, text, choices_of(hint)))
    return Section("run", "Where a run is stored, what it is called, how it is resumed and logged.", shown)


def model_section() -> Section:
    """The method, and the arguments that every method has."""
    return Section("model", about(Method), [catalogued("model"), *flags_of("model", Method, arguments_of(Method))])


def class_section(title: str, key: str, kind: type, parts: list[str] | None = None) -> Section:
    """The arguments of a class. Those that a method shares with every other are in the section `model`."""
    shared = arguments_of(Method) if parts else {}
    own = {name: each for name, each in arguments_of(kind).items() if shared.get(name) != each}
    return Section(title, about(kind), list(flags_of(key, kind, own)), parts or [])


def flags_of(key: str, kind: type, arguments: dict[str, Argument]) -> Iterator[Flag]:
    """The flags of the arguments of a class. An argument that is a dataclass gives a flag for each of its fields."""
    for argument in arguments.values():
        path = f"{key}.{argument.name}"
        if is_dataclass(argument.type) and isinstance(argument.type, type) and is_dataclass(argument.default):
            types_ = typing.get_type_hints(argument.type)
            for each in fields(argument.type):
                text = description(argument.type, each.name) or DESCRIPTIONS.get(each.name, "")
                value = default_text(getattr(argument.default, each.name))
                hint = types_[each.name]
                yield Flag(f"{path}.{each.name}", values_text(hint), value, text, choices_of(hint))
        elif path in CATALOGUED:
            yield catalogued(path, default_text(argument.default))
        else:
            hint = argument.type
            default = default_text(argument.default)
            yield Flag(path, values_text(hint), default, argument.description, choices_of(hint))


def catalogued(key: str, default: str = "") -> Flag:
    """A flag whose values are listed by `lightning-ssl list`."""
    section, text = CATALOGUED[key]
    names = tuple(catalog.names(section))
    return Flag(key, "NAME", default, f"{text}: {', '.join(names)}", names)


def replaced(argument: Argument, defaults: dict[str, Any]) -> Argument:
    """An argument of the Trainer with the default of this package, and without Lightning's sentence on its own."""
    text = re.sub(r" ?Defaults? ?(?:is|to|:)[^.]*\.?$", "", argument.description)
    default = defaults.get(argument.name, argument.default)
    return Argument(argument.name, argument.type, default, re.split(r"(?<=[a-z)]\.) (?=[A-Z])", text)[0])


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
    if hint is bool:
        return ("true", "false")
    if typing.get_origin(hint) is Literal:
        return tuple(str(value) for value in typing.get_args(hint))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [choices_of(each) for each in typing.get_args(hint) if each is not types.NoneType]
        null = ("null",) if types.NoneType in typing.get_args(hint) else ()
        if inner and all(inner):
            return tuple(dict.fromkeys(value for each in inner for value in each)) + null
    return ()


def values_text(hint: Any) -> str:
    """The values of a type: `FLOAT`, `INT | null`, `cosine | euclidean`."""
    if choices := choices_of(hint):
        return " | ".join(choices) if len(choices) <= 4 else "CHOICE"
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [values_text(each) for each in typing.get_args(hint) if each is not types.NoneType]
        null = ["null"] if types.NoneType in typing.get_args(hint) else []
        return " | ".join(dict.fromkeys([*inner, *null]))
    return TYPE_NAMES.get(typing.get_origin(hint) or hint, "CLASS" if isinstance(hint, type) else "TEXT")


def default_text(value: Any) -> str:
    """A default as it is written on the command line; empty if there is none."""
    if value is REQUIRED or is_dataclass(value):
        return ""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value) if value not in ([], "", "==SUPPRESS==") else ""


# ---------------------------------------------------------------------------------------------------------------------
# Suggestions


@cache
def known_keys() -> tuple[str, ...]:
    """The key of every flag, each once."""
    return tuple(dict.fromkeys(flag.key for section in sections().values() for flag in section.flags))


def suggestions(key: str, known: Iterable[str]) -> list[str]:
    """The flags that an unknown key can mean, at most three.

    >>> suggestions("max_epochs", ["trainer.max_epochs", "data.name"])
    ['trainer.max_epochs']
    """
    known, plain = list(known), key.replace("-", "_").lower()
    last = plain.rpartition(".")[2]
    other = OTHER_NAMES.get(last, last)
    for same in (
        [each for each in known if each == plain],
        [each for each in known if each == other or each.endswith(f".{other}")],
        [each for each in known if each.rpartition(".")[2] == last],
        difflib.get_close_matches(plain, known, n=3, cutoff=0.75),
    ):
        if found := [each for each in same if each != key]:
            return found[:3]
    close = difflib.get_close_matches(last, {each.rpartition(".")[2] for each in known}, n=1, cutoff=0.75)
    return [each for each in known if close and each.rpartition(".")[2] == close[0]][:3]


def with_suggestion(error: UserError) -> UserError:
    """Add to an error about an unknown flag or key the flags that it can mean."""
    text = str(error)
    if flags := re.match(r"unrecognized arguments:\s*(.*)", text):
        unknown = [word.partition("=")[0] for word in flags[1].split() if word.startswith("-")]
        if not unknown:
            return UserError(f"{flags[1].strip() or '--'}: unexpected word (see lightning-ssl fit --help)")
        lines = [f"{flag}: unknown flag{did_you_mean(flag.lstrip('-'))}" for flag in dict.fromkeys(unknown)]
        return UserError(f"{'; '.join(lines)} (see lightning-ssl fit --help)")
    if key := re.match(r"([\w.-]+)(?:=.*)?: unknown key (\S+) for ", text):
        hint = did_you_mean(key[1])
        if len(text + hint) > MAX_LENGTH:
            text = text.partition("; valid keys")[0] if hint else text
        return UserError(text + hint)
    return error


def did_you_mean(key: str) -> str:
    found = [f"--{each}" for each in suggestions(key, known_keys())]
    return f"; did you mean {' or '.join(found)}?" if found else ""
