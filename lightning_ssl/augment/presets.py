"""The distribution of a view, and the published recipes of two views by name. Imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lightning_ssl.base.checks import require


@dataclass(frozen=True)
class View:
    """The distribution of the parameters of one view.

    scale       range of the crop's area, as a fraction of the image's area (torchvision's RandomResizedCrop)
    ratio       range of the crop's width over its height (torchvision's RandomResizedCrop)
    flip        probability of a horizontal flip
    jitter      probability of the colour jitter, which applies the next four together
    brightness, contrast, saturation   strength a: the factor is uniform in [max(0, 1 − a), 1 + a]
    hue         strength a: the hue turns by a uniform fraction of a turn in [−a, a]
    gray        probability of grayscale
    blur        probability of a Gaussian blur
    sigma       range of the blur's standard deviation, in pixels of the output
    solarize    probability of solarization: pixels above ½ are inverted

    >>> View(scale=(0.2, 1.0), blur=0.5).flip
    0.5
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    jitter: float = 0.8
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1
    gray: float = 0.2
    blur: float = 0.0
    sigma: tuple[float, float] = (0.1, 2.0)
    solarize: float = 0.0

    def __post_init__(self) -> None:
        for name in ("flip", "jitter", "gray", "blur", "solarize"):
            require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "a probability, 0 to 1")
        for name in ("brightness", "contrast", "saturation"):
            require(0 <= getattr(self, name) < math.inf, name, getattr(self, name), "a finite number, 0 or above")
        require(0 <= self.hue <= 0.5, "hue", self.hue, "between 0 and 0.5 of a turn")
        for name, most in (("scale", 1.0), ("ratio", math.inf), ("sigma", math.inf)):
            low, high = getattr(self, name)
            allowed = "an increasing pair of numbers above 0" + (" and at most 1" if most == 1 else "")
            require(0 < low <= high <= most and high < math.inf, name, (low, high), allowed)


@dataclass(frozen=True)
class Preset:
    """A published recipe: the distributions of two views, and whether the channels are normalized afterwards.

    >>> PRESETS["byol_cifar"].second.solarize
    0.2
    """

    first: View
    second: View
    normalize: bool


CIFAR_VIEW = View()  # crop .08–1, flip, jitter .4/.4/.4/.1 at .8, gray .2
STL10_VIEW = replace(CIFAR_VIEW, brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2)
BYOL_VIEW = replace(CIFAR_VIEW, saturation=0.2)
SIMSIAM_VIEW = replace(CIFAR_VIEW, scale=(0.2, 1.0))

PRESETS: dict[str, Preset] = {
    # The α-CL and dual-network tables, as in their released code.
    "paper_cifar": Preset(CIFAR_VIEW, CIFAR_VIEW, normalize=True),
    "paper_stl10": Preset(replace(STL10_VIEW, blur=1.0), replace(STL10_VIEW, blur=1.0), normalize=False),
    # Chen et al. 2020, appendices A and B.9. On CIFAR: strength ½, no blur. At 96 pixels: their ImageNet recipe,
    # strength 1 with blur in half of the views. Pixels stay in [0, 1].
    "simclr_cifar": Preset(CIFAR_VIEW, CIFAR_VIEW, normalize=False),
    "simclr_stl10": Preset(replace(STL10_VIEW, blur=0.5), replace(STL10_VIEW, blur=0.5), normalize=False),
    # Grill et al. 2020, appendix B: the second view is solarized at .2. Their blur (1 and .1) is for 224 pixels; at 32
    # there is none, as in the CIFAR recipes of SimCLR and SimSiam.
    "byol_cifar": Preset(BYOL_VIEW, replace(BYOL_VIEW, solarize=0.2), normalize=True),
    # Chen & He 2021, appendix D: the recipe of MoCo v2 without blur.
    "simsiam_cifar": Preset(SIMSIAM_VIEW, SIMSIAM_VIEW, normalize=True),
}
