"""The random parameters of a view: one draw of them (`Parameters`) from their distribution (`View`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_ssl.augment.presets import View

TRIES = 10  # candidates for a crop before the central crop is used, as in torchvision


class Parameters(NamedTuple):
    """The drawn parameters of V views of B images: tensors of shape (V, B)."""

    top: Tensor  # the crop, in pixels of the input
    left: Tensor
    height: Tensor
    width: Tensor
    flip: Tensor  # bool
    brightness: Tensor  # factors: 1 changes nothing
    contrast: Tensor
    saturation: Tensor  # 0 is grayscale
    hue: Tensor  # in turns: 0 changes nothing
    sigma: Tensor  # of the blur, in pixels of the output: 0 changes nothing
    solarize: Tensor  # bool

    def to(self, device: torch.device) -> Parameters:
        """Copy all tensors to a device in one transfer, for which the host does not wait."""
        if device == self.top.device:
            return self
        packed = torch.stack([field.float() for field in self])  # exact: the integers are numbers of pixels
        if device.type == "cuda":
            packed = packed.pin_memory()  # else the copy is not asynchronous
        moved = packed.to(device, non_blocking=True)
        return Parameters(*(new.to(old.dtype) for new, old in zip(moved, self, strict=True)))


def sample(
    views: Sequence[View], count: int, height: int, width: int, generator: torch.Generator | None = None
) -> Parameters:
    """Draw the parameters of each view for `count` images of one size, on the generator's device: fields (V, B).

    The number of random draws does not depend on the settings. Two recipes with the same seed therefore share the
    parameters of every setting in which they agree.
    """
    device = generator.device if generator is not None else None
    u = torch.rand(len(views), 2 * TRIES + 12, count, generator=generator, device=device)
    flip, jitter, brightness, contrast, saturation, hue, gray, blur, sigma, solarize = u[:, 2 * TRIES + 2 :].unbind(1)

    def setting(values: Iterable[float]) -> Tensor:
        return torch.tensor([[value] for value in values], device=device)  # (V, 1)

    jittered = jitter < setting(v.jitter for v in views)

    def factor(u: Tensor, strengths: list[float]) -> Tensor:
        low, high = setting(max(0.0, 1 - a) for a in strengths), setting(1 + a for a in strengths)
        return torch.where(jittered, low + (high - low) * u, 1.0)

    lowest, spread = setting(v.sigma[0] for v in views), setting(v.sigma[1] - v.sigma[0] for v in views)
    return Parameters(
        *crop(views, u[:, : 2 * TRIES + 2], height, width),
        flip=flip < setting(v.flip for v in views),
        brightness=factor(brightness, [v.brightness for v in views]),
        contrast=factor(contrast, [v.contrast for v in views]),
        saturation=factor(saturation, [v.saturation for v in views]) * (gray >= setting(v.gray for v in views)),
        hue=jittered * setting(v.hue for v in views) * (2 * hue - 1),
        sigma=(blur < setting(v.blur for v in views)) * (lowest + spread * sigma),
        solarize=solarize < setting(v.solarize for v in views),
    )


def crop(views: Sequence[View], u: Tensor, height: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Turn uniform numbers (V, 2·TRIES + 2, B) into crops: the first candidate that fits, else the central crop.

    A candidate has area ~ U(scale)·H·W and log ratio ~ U(log ratio), both sides rounded; its position is uniform. The
    central crop is the largest with an allowed ratio. Returns top, left, height and width, (V, B) each.
    """
    scale = torch.tensor([v.scale for v in views], device=u.device)[:, :, None, None]  # (V, 2, 1, 1)
    log_ratio = torch.tensor([v.ratio for v in views], device=u.device).log()[:, :, None, None]
    area = height * width * torch.lerp(scale[:, 0], scale[:, 1], u[:, :TRIES])  # (V, TRIES, B)
    ratio = torch.lerp(log_ratio[:, 0], log_ratio[:, 1], u[:, TRIES : 2 * TRIES]).exp()
    h, w = (area / ratio).sqrt().round(), (area * ratio).sqrt().round()
    fits = (h >= 1) & (h <= height) & (w >= 1) & (w <= width)
    first = fits.to(torch.uint8).argmax(1, keepdim=True)  # (V, 1, B): argmax returns the first of equal values
    found = fits.any(1)  # (V, B)
    central = torch.tensor([central_crop(v, height, width) for v in views], device=u.device)  # (V, 2)
    h = torch.where(found, h.gather(1, first)[:, 0].long(), central[:, :1])
    w = torch.where(found, w.gather(1, first)[:, 0].long(), central[:, 1:])
    # A product with u just below 1 can round up to the excluded end.
    top = torch.minimum((u[:, -2] * (height - h + 1)).long(), height - h)
    left = torch.minimum((u[:, -1] * (width - w + 1)).long(), width - w)
    return torch.where(found, top, (height - h) // 2), torch.where(found, left, (width - w) // 2), h, w


def central_crop(view: View, height: int, width: int) -> tuple[int, int]:
    """Return height and width of the largest crop that the view's ratios allow."""
    if width / height > view.ratio[1]:
        return height, round(height * view.ratio[1])
    return (round(width / view.ratio[0]), width) if width / height < view.ratio[0] else (height, width)
