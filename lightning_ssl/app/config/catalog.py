"""What can be chosen: importances, families, methods, backbones, augmentations, data sets, sweeps, labs.

Each entry has a name, one line, and the packaged configuration that shows its use. Imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
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


# Keys whose values are the names of a section of `lightning-ssl list`, and what they are.
KEYS = {
    "model": ("methods", "the method, or the path of your own"),
    "model.importance": ("importances", "the rule for α, or the path of your own"),
    "model.importance.family": ("families", "the (φ, ψ) loss, or the path of your own"),
    "model.backbone": ("backbones", "the network"),
    "model.augment": ("augmentations", "the distribution of the two views"),
    "data.name": ("data", "the data set"),
}
# The keys that choose a class of this package: the room and the bases of these classes.
CLASSES: dict[str, tuple[Room, tuple[str, ...]]] = {
    "model": ("methods", ("Method",)),
    "model.importance": ("losses", ("Importance", "Family")),
    "model.importance.family": ("losses", ("Family",)),
}
# Configurations that are not found by their name or as the shortest one.
CHOSEN = {"AlphaCL": "method/direct", "SimCLR": "method/infonce", "FromFamily": "method/mine"}


def classes(room: Room, bases: Sequence[str]) -> dict[str, str]:
    """The classes with these bases, with the first line of their docstrings."""
    return {each.name: each.summary for base in bases for each in concrete(room, base)}


def backbones() -> dict[str, str]:
    """The networks of networks.py, read from its source."""
    source = (packaged.PACKAGE / "networks.py").read_text(encoding="utf-8")
    known = {}
    for name, block, layers in re.findall(r'"(\w+)": \((\w+), \[([\d, ]+)\]\)', source):
        features = 2048 if block == "Bottleneck" else 512
        known[name] = f"torchvision's ResNet, blocks {layers.replace(', ', '-')}, {features} features"
    known["resnet_tiny"] = re.findall(r'class ResNetTiny\(.*:\n    """(.*)', source)[0]
    return known | {"timm:NAME": "any network of timm, such as timm:vit_tiny_patch16_224; needs `pip install timm`"}


def augmentations() -> dict[str, str]:
    found = {}
    for name, preset in PRESETS.items():
        second = f"; second view: {describe(preset.second)}" if preset.second != preset.first else ""
        found[name] = describe(preset.first) + second + ("; normalized" if preset.normalize else "")
    return found


def describe(view: View) -> str:
    """One view in words: crop, colour jitter, and what else it does."""
    jitter = "/".join(f"{value:g}" for value in (view.brightness, view.contrast, view.saturation, view.hue))
    parts = [f"crop {view.scale[0]:g}–{view.scale[1]:g}", f"jitter {jitter}"]
    parts += [f"{name} {value:g}" for name in ("blur", "solarize") if (value := getattr(view, name))]
    return ", ".join(parts)


def sweeps() -> dict[str, str]:
    """The packaged sweep files, with the first sentence of their first comment, or two if it is short."""
    found = {}
    for name in packaged.names("sweeps"):
        text = (packaged.PACKAGE / "sweeps" / f"{name}.yaml").read_text(encoding="utf-8")
        comment = " ".join(line.lstrip("# ") for line in text.partition("\n#\n")[0].splitlines())
        first, *more = re.split(r"(?<=[.?]) (?=[A-Z]|sweeps/|hyperband)", comment)
        # A short one is a question; the next sentence says what is compared.
        found[name] = " ".join([first, *more[:1]]) if len(first) < 60 else first
    return found


SECTIONS: dict[str, tuple[str, Callable[[], dict[str, str]]]] = {
    "importances": ("--model AlphaCL --model.importance NAME", lambda: classes("losses", ["Importance"])),
    "families": ("--model AlphaCL --model.importance NAME", lambda: classes("losses", ["Family"])),
    "methods": ("--model NAME", lambda: classes("methods", ["Method"])),
    "backbones": ("--model.backbone NAME", backbones),
    "augmentations": ("--model.augment NAME", augmentations),
    "data": ("--data.name NAME", lambda: {name: each.summary for name, each in data.DATASETS.items()}),
    "sweeps": ("lightning-ssl sweep NAME", sweeps),
    "labs": ("lightning-ssl lab NAME", labs.summaries),
}
"""How an entry of each section is used, and the names with one line each."""


def entries(section: str) -> list[Entry]:
    """The entries of a section."""
    has_config = section not in ("sweeps", "labs")
    found = SECTIONS[section][1]().items()
    return [Entry(name, summary, config_of(name) if has_config else "") for name, summary in found]


def names(section: str) -> list[str]:
    """The names of a section."""
    return list(SECTIONS[section][1]())


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
