"""choice.json: the settings that `lightning-ssl tune` chose, frozen before the confirmation starts.

    {"generator": "lightning-ssl tune", "hash": "3f2a…", "metric": "online/top1", "tuning_seeds": [0, 1], "losses": {…}}

The hash is that of everything else in the file. The runs of the confirmation have it in a tag, so that a page can tell
which choice they confirm, and whether the file was changed afterwards.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
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
TAG = "choice-"  # in the tags of a run that confirms a choice, before the start of its hash
LOSS_TAG = "loss-"  # before the name of its loss
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

    def tags(self, loss: str) -> list[str]:
        """The tags of the runs that confirm the choice for a loss."""
        return [self.tag, LOSS_TAG + loss]

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
        check_budget(choice)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{file}: not the choice of a tuning ({error})") from error
    if content.get("hash") != choice.hash:
        raise UserError(f"{file}: changed after the choice was frozen; restore the file, or tune again")
    return choice


def as_loss(entry: Mapping[str, Any]) -> TunedLoss:
    settings = [
        TunedSetting(
            convert(each["flags"], dict[str, Any]),
            convert(each["scores"], list[float]),
            convert(each["failed"], str | None),
        )
        for each in entry["settings"]
    ]
    space = convert(entry["space"], dict[str, dict[str, Any]])
    return TunedLoss(space, settings, convert(entry["chosen"], int), convert(entry["configuration"], dict[str, Any]))


def check_budget(choice: Choice) -> None:
    """Refuse losses with unequal numbers of settings or scores, and a chosen setting without scores."""
    sizes = {len(loss.settings) for loss in choice.losses.values()}
    scores = {len(each.scores) for loss in choice.losses.values() for each in loss.settings if not each.failed}
    chosen = all(0 <= loss.chosen < len(loss.settings) and loss.choice.scores for loss in choice.losses.values())
    if len(sizes) != 1 or not chosen or scores != {len(choice.tuning_seeds)}:
        raise ValueError("expected the same number of settings and scores for each loss")


def decisive(settings: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The values by which a run of one setting is recognized, on every machine: without seed and held-out images.

    settings   a configuration as dotted flags
    """
    return {k: plain_number(v) for k, v in settings.items() if role(k) in DECISIVE and k != HOLDOUT}


def choices_in(folders: Iterable[Path]) -> list[Path]:
    """The files with a choice in these folders."""
    return [file for folder in dict.fromkeys(folders) if (file := folder / FILE).is_file()]


def choice_tag(tags: Any) -> str | None:
    """The tag that names a choice, among the tags of a run."""
    return next(tags_with(TAG, tags), None)


def loss_name(tags: Any) -> str | None:
    """The name that a tuning file gives to the loss of a run that confirms its choice.

    >>> loss_name(["choice-3f2a", "loss-Mine"]), loss_name(["loss-Mine"])
    ('Mine', None)
    """
    named = next(tags_with(LOSS_TAG, tags), None) if choice_tag(tags) else None
    return None if named is None else named.removeprefix(LOSS_TAG)


def tags_with(start: str, tags: Any) -> Iterator[str]:
    found = tags if isinstance(tags, list) else []
    return (tag for tag in found if isinstance(tag, str) and tag.startswith(start))
