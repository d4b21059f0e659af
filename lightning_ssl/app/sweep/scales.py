"""The scales: sizes of the experiments, each with the speed of one worker. `scales.yaml` has them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.resources import files

import yaml  # type: ignore[import-untyped]

from lightning_ssl.base.checks import require

PIXELS = 32  # side of the images to which the speed of a scale refers


@dataclass(frozen=True)
class Scale:
    """A size of the experiments. `images_per_second` is the speed of `network` on images of 32 pixels."""

    name: str
    summary: str
    flags: list[str]
    images_per_second: float
    network: str
    source: str  # where the speed comes from
    evaluation_seconds: float  # of one run

    @property
    def basis(self) -> str:
        """The speed in words."""
        return f"{self.images_per_second:g} images/s of {self.network} at {PIXELS} pixels, {self.source}"

    def at(self, images_per_second: float | None) -> Scale:
        """The scale at the speed of the user's machine, if it is given."""
        if images_per_second is None:
            return self
        return replace(self, images_per_second=images_per_second, source="as given")


def scales() -> dict[str, Scale]:
    """The scales, by name."""
    content = yaml.safe_load((files(__package__) / "scales.yaml").read_text(encoding="utf-8"))
    return {name: Scale(name, **entry) for name, entry in content.items()}


def scale_named(name: str) -> Scale:
    known = scales()
    require(name in known, "scale", name, f"one of {', '.join(known)}")
    return known[name]
