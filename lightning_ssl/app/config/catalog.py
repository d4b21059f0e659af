"""What can be chosen: importances, families, methods, backbones, augmentations, data sets, sweeps, labs.

Each entry has a name, one line, and the packaged configuration that shows its use. Imports no torch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import yaml  # type: ignore[import-untyped]

from lightning_ssl import data, labs
from lightning_ssl.app.config import packaged
from lightning_ssl.augment.presets import PRESETS, View
from lightning_ssl.base.facts import Room, concrete
from lightning_ssl.base.walk import walk


class Entry(NamedTuple):
    """A name that can be chosen."""

    name: str
    summary: str
    config: str = ""  # the short name of a packaged file, for `--config`


# Configurations that are not found by their name or as the shortest one.
CHOSEN = {"AlphaCL": "method/direct", "SimCLR": "method/infonce"}


def importances() -> list[Entry]:
    return classes("losses", "Importance")


def families() -> list[Entry]:
    return classes("losses", "Family")


def methods() -> list[Entry]:
    return classes("methods", "Method")


def classes(room: Room, base: str) -> list[Entry]:
    """The public subclasses of a base, with the first line of their docstrings."""
    return [Entry(each.name, each.summary, config_of(each.name)) for each in concrete(room, base)]


def backbones() -> list[Entry]:
    known = {}
    for node in ast.parse((packaged.PACKAGE / "networks.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "RESNETS":
            pairs = re.findall(r"'(\w+)': \((\w+), \[([\d, ]+)\]\)", ast.unparse(node))
            for name, block, layers in pairs:
                features = 2048 if block == "Bottleneck" else 512
                known[name] = f"torchvision's ResNet, blocks {layers.replace(', ', '-')}, {features} features"
        if isinstance(node, ast.ClassDef) and node.name == "ResNetTiny":
            known["resnet_tiny"] = str(ast.get_docstring(node)).partition("\n")[0]
    known["timm:NAME"] = "any network of timm, such as timm:vit_tiny_patch16_224; needs `pip install timm`"
    return [Entry(name, line, config_of(name)) for name, line in known.items()]


def augmentations() -> list[Entry]:
    found = []
    for name, preset in PRESETS.items():
        line = describe(preset.first)
        if preset.second != preset.first:
            line += f"; second view: {describe(preset.second)}"
        found.append(Entry(name, line + ("; normalized" if preset.normalize else ""), config_of(name)))
    return found


def describe(view: View) -> str:
    """One view in words: crop, colour jitter, and what else it does."""
    jitter = "/".join(f"{value:g}" for value in (view.brightness, view.contrast, view.saturation, view.hue))
    parts = [f"crop {view.scale[0]:g}–{view.scale[1]:g}", f"jitter {jitter}"]
    parts += [f"{name} {value:g}" for name in ("blur", "solarize") if (value := getattr(view, name))]
    return ", ".join(parts)


def data_sets() -> list[Entry]:
    return [Entry(name, each.summary, config_of(name)) for name, each in data.DATASETS.items()]


def sweeps() -> list[Entry]:
    """The packaged sweep files, with the first sentence of their first comment, or two if it is short."""
    found = []
    for name in packaged.names("sweeps"):
        text = (packaged.PACKAGE / "sweeps" / f"{name}.yaml").read_text(encoding="utf-8")
        comment = " ".join(line.lstrip("# ") for line in text.partition("\n#\n")[0].splitlines())
        first, *more = re.split(r"(?<=[.?]) (?=[A-Z]|sweeps/|hyperband)", comment)
        short = len(first) < 60 and bool(more)  # a question; the next sentence says what is compared
        found.append(Entry(name, f"{first} {more[0]}" if short else first))
    return found


def laboratories() -> list[Entry]:
    return [Entry(name, line) for name, line in labs.summaries().items()]


SECTIONS: dict[str, tuple[str, Callable[[], list[Entry]]]] = {
    "importances": ("--model AlphaCL --model.importance NAME", importances),
    "families": ("--model AlphaCL --model.importance FromFamily --model.importance.family NAME", families),
    "methods": ("--model NAME", methods),
    "backbones": ("--model.backbone NAME", backbones),
    "augmentations": ("--model.augment NAME", augmentations),
    "data": ("--data.name NAME", data_sets),
    "sweeps": ("lightning-ssl sweep NAME", sweeps),
    "labs": ("lightning-ssl lab NAME", laboratories),
}
"""How an entry of each section is used, and the entries."""


def entries(section: str) -> list[Entry]:
    """The entries of a section."""
    return SECTIONS[section][1]()


def names(section: str) -> list[str]:
    """The names of a section."""
    return [entry.name for entry in entries(section)]


# ---------------------------------------------------------------------------------------------------------------------
# Which configuration shows a name


def config_of(name: str) -> str:
    """The packaged configuration that shows a name: the file of that name, or the shortest file that uses it."""
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    known = packaged.names("configs")
    for short in (CHOSEN.get(name, ""), f"method/{snake}", f"method/{name.lower()}", f"data/{snake}"):
        if short in known:
            return short
    using = [(len(found), short) for short in known if name in (found := values(short))]
    return min(using)[1] if using else ""


@cache
def values(short: str) -> list[str]:
    """Every value of a packaged configuration, as text. Each name of the catalog looks through all of them."""
    text = (packaged.PACKAGE / "configs" / f"{short}.yaml").read_text(encoding="utf-8")
    return [str(value) for _, value in walk(yaml.safe_load(text), into_lists=True)]
