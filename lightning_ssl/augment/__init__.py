"""Two random views of a whole uint8 batch, on the batch's device, by a few batched matrix products.

    augment = TwoViews("paper_cifar", size=32)
    x1, x2 = augment(images, generator)          # uint8 (B, 3, H, W) → float32 (B, 3, size, size), twice

A view is crop → flip → colour jitter → grayscale → blur → solarize → normalize. The parameters are drawn for each
image first and applied afterwards:

    parameters = augment.sample(images, generator)    # all random draws
    views = apply(images, parameters, size=32)        # deterministic: (2, B, 3, size, size)

presets.py     `View`, the distribution of the parameters, and `PRESETS`, the published recipes
parameters.py  `sample`
matrices.py    `apply`
two_views.py   `TwoViews`

Everything up to the first clamp is affine in the pixels, so a view is three small matrix products:

    y = R · (L x + o) · Cᵀ      R (size, H) and C (size, W) resize the crop, antialiased; C also flips; both also blur
                                L (3, 3) and o (3,) are the jitter and the grayscale

Jitter has brightness b, contrast c, saturation s, luminance w = (.299, .587, .114), the mean colour μ of the crop, and
a hue that turns the colours by R_θ around the gray axis:

    L = b c (s I + (1 − s) 1wᵀ) R_θ,   o = b (1 − c) wᵀR_θ μ 1;   grayscale is s = 0.

Deviations from torchvision, where every operation ends with a clamp to [0, 1] and a rounding to 8 bits:
  - There is one clamp, after the blur, and no rounding. This makes the operations one matrix. A pixel differs only if
    one operation moves it out of [0, 1] and a later operation moves it back or mixes it with others.
  - The order of the jitter operations is fixed. Without clamps between them, brightness, contrast and saturation
    commute. Hue comes first, so a gray view has the luminance of the turned colours, as in torchvision.
  - Hue turns around the gray axis and not in HSV, which is not linear. (A turn in YIQ would commute with the other
    operations, but it is further from HSV: at a tenth of a turn, further than no turn at all.)
Mean distance to torchvision on CIFAR-10 at strength ½ (.4/.4/.4/.1), where the jitter itself moves a pixel by .101:
.001 without hue, which equals the effect of torchvision's random order, and .011 with hue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning_ssl._lazy import lazy_names

if TYPE_CHECKING:
    from lightning_ssl.augment.matrices import apply
    from lightning_ssl.augment.parameters import Parameters, sample
    from lightning_ssl.augment.presets import PRESETS, Preset, View
    from lightning_ssl.augment.two_views import TwoViews

__all__ = ["PRESETS", "Parameters", "Preset", "TwoViews", "View", "apply", "sample"]
FILES = {
    "matrices": ("apply",),
    "parameters": ("Parameters", "sample"),
    "presets": ("PRESETS", "Preset", "View"),
    "two_views": ("TwoViews",),
}
__getattr__, __dir__ = lazy_names(__name__, FILES)
