"""choice.json: the settings that `lightning-ssl tune` chose, frozen before the confirmation starts.

    {"generator": "lightning-ssl tune", "hash": "3f2a…", "metric": "online/top1", "tuning_seeds": [0, 1], "losses": {…}}

The hash is that of everything else in the file. The runs of the confirmation have it in a tag, so that a page can tell
which choice they confirm, and whether the file was changed afterwards.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from lightning_ssl.app.config.keys import role
from lightning_ssl.app.config.labels import Scalar, plain_number
from lightning_ssl.base.checks import UserError, is_number
from lightning_ssl.base.convert import convert
from lightning_ssl.base.files import write_atomic
from lightning_ssl.base.untrusted import load_json, read_text

FILE = "choice.json"
GENERATOR = "lightning-ssl tune"
TAG = "choice-"  # in the tags of a run, before the start of the hash
SHOWN = 12  # digits of a hash
HOLDOUT = "data.holdout"
DECISIVE = ("loss", "data", "setting", "measuring")  # roles of the keys that tell settings apart


@dataclass(frozen=True)
class TunedSetting:
    """A setting of a loss.

    flags      the values of the tuned flags
    scores     the accuracy on held-out images for each tuning seed, between 0 and 1; none if a run failed
    failed     why the setting could not be chosen
    """

    flags: dict[str, Scalar]
    scores: list[float]
    failed: str | None = None

    @property
    def mean(self) -> float:
        return fmean(self.scores)


@dataclass(frozen=True)
class TunedLoss:
    """A loss with its settings.

    space          the tuned flags, in the language of sweep files
    chosen         index of the chosen setting
    configuration  the settings of the runs that confirm it, without seed and held-out images
    """

    space: dict[str, Any]
    settings: list[TunedSetting]
    chosen: int
    configuration: dict[str, Scalar]

    @property
    def choice(self) -> TunedSetting:
        return self.settings[self.chosen]

    @property
    def borders(self) -> list[str]:
        """The tuned flags whose chosen value is the smallest or the largest of a grid: a better one may be outside.

        >>> loss = TunedLoss({"model.tau": {"values": [0.1, 0.2]}}, [TunedSetting({"model.tau": 0.2}, [0.7])], 0, {})
        >>> loss.borders
        ['model.tau']
        """
        found = []
        for key, value in self.choice.flags.items():
            values = [each for each in self.space.get(key, {}).get("values", ()) if is_number(each)]
            if len(set(values)) > 1 and value in (min(values), max(values)):
                found.append(key)
        return found


@dataclass(frozen=True)
class Choice:
    """The losses of a tuning with their scores, the chosen settings, and the seeds of both steps."""

    name: str
    metric: str
    holdout: float
    tuning_seeds: list[int]
    fresh_seeds: list[int]
    losses: dict[str, TunedLoss]

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the content."""
        text = json.dumps(asdict(self), sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def tag(self) -> str:
        """The tag of the runs that confirm this choice."""
        return TAG + self.hash[:SHOWN]

    def write(self, folder: Path) -> None:
        content = {"generator": GENERATOR, "hash": self.hash, **asdict(self)}
        write_atomic(folder / FILE, f"{json.dumps(content, indent=1, ensure_ascii=False)}\n".encode())


def read_choice(file: Path) -> Choice:
    """Read a frozen choice. A file that was changed after it was written is refused."""
    try:
        content: dict[str, Any] = convert(load_json(read_text(file)), dict[str, Any])
        choice = Choice(
            name=convert(content["name"], str),
            metric=convert(content["metric"], str),
            holdout=convert(content["holdout"], int | float),
            tuning_seeds=convert(content["tuning_seeds"], list[int]),
            fresh_seeds=convert(content["fresh_seeds"], list[int]),
            losses={name: as_loss(entry) for name, entry in content["losses"].items()},
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{file}: not the choice of a tuning ({error})") from error
    if content.get("hash") != choice.hash:
        raise UserError(f"{file}: changed after the choice was frozen; restore the file, or tune again")
    return choice


def as_loss(entry: Mapping[str, Any]) -> TunedLoss:
    settings = [
        TunedSetting(each["flags"], convert(each["scores"], list[float]), each["failed"]) for each in entry["settings"]
    ]
    chosen = convert(entry["chosen"], int)
    if not (0 <= chosen < len(settings) and settings[chosen].scores):
        raise ValueError(f"chosen={chosen}")
    return TunedLoss(entry["space"], settings, chosen, dict(entry["configuration"]))


def decisive(settings: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The values by which a run of one setting is recognized, on every machine: without seed and held-out images.

    settings   a configuration as dotted flags
    """
    return {k: plain_number(v) for k, v in settings.items() if role(k) in DECISIVE and k != HOLDOUT}


def choices_in(folders: Iterable[Path]) -> list[Path]:
    """The files with a choice in these folders."""
    return [file for folder in dict.fromkeys(folders) if (file := folder / FILE).is_file()]


def tag_of(tags: Any) -> str | None:
    """The tag that names a choice, among the tags of a run."""
    found = tags if isinstance(tags, list) else []
    return next((tag for tag in found if isinstance(tag, str) and tag.startswith(TAG)), None)
