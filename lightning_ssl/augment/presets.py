"""The published recipes of two views, by name."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lightning_ssl.augment.parameters import View


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
