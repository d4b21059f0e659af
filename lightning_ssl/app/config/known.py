"""The flags of `lightning-ssl fit`, read from the source of the classes. Imports no torch, which takes seconds.

A wrong flag, class, name or file is refused here at once. What passes is checked again with the classes themselves.
"""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from lightning_ssl.app.config import catalog, packaged
from lightning_ssl.app.config.merge import merge
from lightning_ssl.app.config.run_flags import check_run_flags, run
from lightning_ssl.app.config.text import PRINT, SEE, Step
from lightning_ssl.base import facts
from lightning_ssl.base.checks import MAX_SHOWN, UserError, cut, did_you_mean
from lightning_ssl.base.signatures import arguments_of
from lightning_ssl.base.tree import Group, checked
from lightning_ssl.base.user_code import is_path
from lightning_ssl.base.walk import parents, walk

BASES = {base for _, bases in catalog.CLASSES.values() for base in bases}
LIBRARIES = ("lightning_ssl", "pytorch_lightning", "lightning", "torch", "torchvision")
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


@cache
def known_flags() -> tuple[str, ...]:
    """The key of every flag, each once."""
    return tuple(dict.fromkeys(("config", PRINT, *arguments_of(run), *part_flags())))


def part_flags() -> Iterator[str]:
    lightning = importlib.util.find_spec("pytorch_lightning")  # does not import it
    assert lightning is not None
    assert lightning.origin is not None
    groups = {
        "trainer": (Path(lightning.origin).parent / "trainer" / "trainer.py", "Trainer"),
        "data": (packaged.PACKAGE / "data" / "module.py", "DataModule"),
        "checkpoint": (packaged.PACKAGE / "callbacks" / "checkpoints.py", "Checkpoints"),
    }
    for key, (file, name) in groups.items():
        yield from (f"{key}.{argument}" for argument in facts.arguments_in(file, name))
    for key, (room, bases) in catalog.CLASSES.items():
        yield key
        known = facts.facts_of(room)
        for each in (kind for base in bases for kind in (known[base], *facts.concrete(room, base))):
            for argument, hint in each.arguments.items():
                group = known.get(hint.text)  # such as Optimization
                fields = group.arguments if group and hint.text not in BASES else {}
                yield from [f"{key}.{argument}.{field}" for field in fields] or [f"{key}.{argument}"]
    for each in facts.callbacks():
        if flag := each.declared.get("flag"):
            yield flag
            yield from (f"{flag}.{argument}" for argument in each.arguments)


def check_early(steps: Sequence[Step]) -> None:
    """Refuse what needs no class to be known: flags, names of our classes, and where a run is."""
    values = [value for step in steps for _, value in walk(step.value, into_lists=True)]
    wrong = [line for step in steps if not step.from_file and (line := wrong_flag(step))]
    if wrong and not any(map(is_own_path, values)):
        raise UserError(f"{'; '.join(dict.fromkeys(wrong))} {SEE}")
    group = Group(run)
    check_run_flags(checked(merge(run_steps(steps, group.named()), group), group, ""))


def run_steps(steps: Iterable[Step], names: Container[str]) -> Iterator[Step]:
    """The steps of the flags that belong to no class."""
    for step in steps:
        if step.from_file:
            yield step._replace(value={name: value for name, value in step.value.items() if name in names})
        elif step.key in names:
            yield step


def is_own_path(value: object) -> bool:
    """Whether a value can be the path of the user's own class, whose arguments are not known here."""
    return is_path(value) and str(value).partition(".")[0] not in LIBRARIES


def wrong_flag(step: Step) -> str | None:
    """What is wrong with a flag, or None. A flag below one that is no class, such as data.options, is left to it."""
    plain = ".".join(word for word in step.key.split(".") if word not in ("init_args", "class_path"))
    known = known_flags()
    if step.key in catalog.CLASSES and isinstance(step.value, str) and step.value.isidentifier():
        names = list(catalog.classes(*catalog.CLASSES[step.key]))
        if step.value not in names:
            expected = f"expected one of {cut(', '.join(names), 100)}, or a path"
            return f"{step.key}={cut(step.value, MAX_SHOWN)}: {did_you_mean(step.value, names, most=1) or expected}"
    groups = {above for flag in known for above in parents(flag)}
    if plain in groups.union(known) or any(above in known and above not in groups for above in parents(plain)):
        return None
    return f"--{cut(step.key, MAX_SHOWN)}: unknown flag{flags_meant(plain)}"


def suggestions(key: str, known: Iterable[str]) -> list[str]:
    """The flags that an unknown key can mean, at most three.

    >>> suggestions("max_epochs", ["trainer.max_epochs", "data.name"])
    ['trainer.max_epochs']
    """
    known, plain = list(known), key.replace("-", "_").lower()
    last = plain.rpartition(".")[2]
    other = OTHER_NAMES.get(last, last)
    found = [each for each in known if each == other or each.endswith(f".{other}")]
    found = found or difflib.get_close_matches(plain, known, n=3, cutoff=0.75)
    return found[:3] or difflib.get_close_matches(plain, known, n=1)


def flags_meant(key: str) -> str:
    found = [f"--{each}" for each in suggestions(key, known_flags())]
    return f"; did you mean {' or '.join(found)}?" if found else ""
