"""The module that draws and applies two views of a batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from lightning_ssl.augment.matrices import apply, check_images, constants
from lightning_ssl.augment.parameters import Parameters, sample
from lightning_ssl.augment.presets import PRESETS, View
from lightning_ssl.base.checks import require


@contextmanager
def single_precision() -> Iterator[None]:
    """Make float32 torch's default dtype; Lightning's `precision="64-true"` changes it, and views are float32."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class TwoViews(nn.Module):
    """Two random views of each image of a batch.

    preset         name of a recipe in `PRESETS`
    size           side of a view in pixels
    mean, std      of the data's channels, on a scale of 0 to 1, used if the views are normalized; default: CIFAR-10's
    clean          also return the un-augmented images
    normalize      normalize the channels; None: as in the preset
    first, second  distributions of the views; None: as in the preset

    >>> images = torch.zeros(8, 3, 48, 48, dtype=torch.uint8)
    >>> x1, x2 = TwoViews("paper_cifar", size=32)(images)
    >>> x1.shape, x1.dtype
    (torch.Size([8, 3, 32, 32]), torch.float32)
    """

    def __init__(
        self,
        preset: str = "paper_cifar",
        size: int = 32,
        mean: tuple[float, float, float] = (0.4914, 0.4822, 0.4465),
        std: tuple[float, float, float] = (0.2470, 0.2435, 0.2616),
        clean: bool = False,
        normalize: bool | None = None,
        first: View | None = None,
        second: View | None = None,
    ) -> None:
        super().__init__()
        require(preset in PRESETS, "preset", preset, f"one of {', '.join(PRESETS)}")
        require(size >= 2, "size", size, "at least 2 pixels")
        require(len(mean) == 3 and all(map(math.isfinite, mean)), "mean", mean, "three finite numbers")
        require(len(std) == 3 and all(0 < s < math.inf for s in std), "std", std, "three finite numbers above 0")
        recipe = PRESETS[preset]
        self.views = (first or recipe.first, second or recipe.second)
        self.size, self.clean = size, clean
        self.normalize = recipe.normalize if normalize is None else normalize
        # Not buffers: a module cast to half precision would round them.
        self.mean, self.std = (tuple(mean), tuple(std)) if self.normalize else ((0.0,) * 3, (1.0,) * 3)

    def extra_repr(self) -> str:
        return f"size={self.size}, normalize={self.normalize}, clean={self.clean}, views={self.views}"

    @single_precision()
    def forward(
        self, images: Tensor, generator: torch.Generator | None = None, rank: int = 0, ranks: int = 1
    ) -> tuple[Tensor, ...]:
        """Return (x1, x2), or (x1, x2, clean): uint8 (B, 3, H, W) → float32 (B, 3, size, size) each.

        With the same generator on every rank, the augmentation of an image depends on its place in the whole batch and
        not on the number of ranks.
        """
        parameters = self.sample(images, generator, rank, ranks)
        x1, x2 = apply(images, parameters, self.size, self.mean, self.std).unbind()
        return (x1, x2, self.unaugmented(images)) if self.clean else (x1, x2)

    def sample(
        self, images: Tensor, generator: torch.Generator | None = None, rank: int = 0, ranks: int = 1
    ) -> Parameters:
        """Draw the parameters of the batch of all ranks and return the part of one rank: fields of shape (2, B)."""
        check_images(images)
        count, _, height, width = images.shape
        drawn = sample(self.views, ranks * count, height, width, generator)
        return Parameters(*(field[:, rank * count : (rank + 1) * count] for field in drawn))

    @single_precision()
    def unaugmented(self, images: Tensor) -> Tensor:
        """Return the whole images, resized to `size` and normalized like a view: (B, 3, size, size)."""
        check_images(images)
        count, _, height, width = images.shape
        if height == width == self.size:
            found = constants(self.mean, self.std, images.device)
            return torch.addcmul(found.low[:, None, None], images.float(), found.gain[:, None, None])
        zero, one = torch.zeros(1, count), torch.ones(1, count)
        whole = Parameters(zero, zero, height * one, width * one, zero > 0, one, one, one, zero, zero, zero > 0)
        return apply(images, whole, self.size, self.mean, self.std)[0]
