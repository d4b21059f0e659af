"""Apply drawn parameters to a batch by matrix products: y = R · (L x + o) · Cᵀ."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lightning_ssl.augment.parameters import Parameters
from lightning_ssl.base.checks import require

# Pixels processed at a time. On a CPU more of them do not fit in the cache; elsewhere the limit only bounds memory.
CHUNK_PIXELS = {"cpu": 2**16}
LARGEST_CHUNK_PIXELS = 2**24

LUMINANCE = torch.tensor([0.299, 0.587, 0.114])  # w
# R_θ = G + cos θ (I − G) + sin θ K. G projects on the gray axis. K is a quarter turn around it, from red to yellow.
GRAY = torch.full((3, 3), 1 / 3)
QUARTER = torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]) / math.sqrt(3)
TURNS = torch.stack([GRAY, torch.eye(3) - GRAY, QUARTER])  # (3, 3, 3)


class Constants(NamedTuple):
    """Numbers that are the same for every batch, on its device."""

    turns: Tensor  # (3, 9)
    luminance: Tensor  # (3,)
    low: Tensor  # (3,): normalization is affine; 0 becomes `low`
    high: Tensor  # and 255 becomes `high`
    gain: Tensor  # (high − low) / 255


@functools.cache  # the host waits for each copy to an accelerator
def constants(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> Constants:
    """The constants for the mean and the standard deviation of the channels, copied once to each device."""
    with torch.inference_mode(False):  # a later batch outside of inference mode uses them too
        low = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)], dtype=torch.float32)
        high = torch.tensor([(1 - m) / s for m, s in zip(mean, std, strict=True)], dtype=torch.float32)
        found = (TURNS.flatten(1), LUMINANCE, low, high, (high - low) / 255)
        return Constants(*(x.to(device) for x in found))


def place(start: Tensor, length: Tensor, extent: int, size: int, flip: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Positions of the outputs (N, size) and of the input pixels (N, extent) of N crops, for `interpolation`.

    Output s of a crop has its centre at start + (s + ½) r, with r = length/size. It averages under a triangle of
    half-width max(r, 1). Positions are in units of this half-width. In a flipped crop, output size − 1 − s takes the
    place of output s. Pixels outside of the crop are at infinity.
    """
    ratio = length / size  # (N,)
    width = ratio.clamp(min=1)[:, None]
    step = torch.arange(size, device=start.device) + 0.5  # (size,)
    if flip is not None:
        step = torch.where(flip[:, None], size - step, step)  # (N, size)
    pixel = torch.arange(extent, device=start.device) + 0.5  # (extent,)
    inside = (pixel > start[:, None]) & (pixel < (start + length)[:, None])  # (N, extent)
    return (start[:, None] + ratio[:, None] * step) / width, torch.where(inside, pixel / width, torch.inf)


def interpolation(centre: Tensor, pixel: Tensor) -> Tensor:
    """Matrices (N, size, extent) that average pixels under triangles, as PIL and torchvision do with antialiasing.

    Row s is (1 − |centre_s − pixel|)₊, rescaled to sum to 1.
    """
    weight = pixel[:, None, :] - centre[:, :, None]
    weight = weight.abs_().sub_(1).clamp_(max=0)  # the negative of the weight; the sign cancels in the division
    return weight.div_(weight.sum(2, keepdim=True))


def gaussian(sigma: Tensor, size: int) -> Tensor:
    """Matrices (..., size, size) that blur `size` pixels, mirrored at the edges; σ = 0 is the identity.

    The kernel extends a twentieth of the image to either side, as in SimCLR: 9 pixels wide at 96.
    """
    radius = max(size // 20, 1)
    offset = torch.arange(-radius, radius + 1, device=sigma.device)
    kernel = torch.softmax(-(offset**2) / (2 * sigma.clamp(min=1e-3)[..., None] ** 2), -1)  # (..., 2·radius + 1)
    source = torch.arange(size, device=sigma.device) + offset[:, None]  # (2·radius + 1, size)
    source = (size - 1) - ((size - 1) - source.abs()).abs()
    selection = nn.functional.one_hot(source, size).to(kernel.dtype)  # (2·radius + 1, size, size)
    return torch.tensordot(kernel, selection, 1)


def colour(p: Parameters, turns: Tensor, luminance: Tensor) -> tuple[Tensor, Tensor]:
    """Return L (N, 3, 3) and ℓ (N, 3) of the colour map x → L x + (ℓᵀμ) 1, μ the crop's mean; fields are (N,).

    L = b c (s I + (1 − s) 1wᵀ) R_θ and ℓᵀ = b (1 − c) wᵀR_θ.
    """
    theta = 2 * math.pi * p.hue
    turn = torch.stack([torch.ones_like(theta), theta.cos(), theta.sin()], 1) @ turns
    turn = turn.view(-1, 3, 3)  # R_θ
    luminance = luminance @ turn  # (N, 3): wᵀR_θ
    b, c, s = p.brightness[:, None], p.contrast[:, None], p.saturation[:, None, None]
    return (b * c)[:, None] * (s * turn + (1 - s) * luminance[:, None]), b * (1 - c) * luminance


@torch.no_grad()
def apply(
    images: Tensor,
    parameters: Parameters,
    size: int,
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
) -> Tensor:
    """Make the views that the parameters (V, B) describe: uint8 (B, 3, H, W) → float32 (V, B, 3, size, size)."""
    check_images(images)
    views, count = parameters.top.shape
    require(count == len(images), "parameters", (views, count), f"of shape (V, {len(images)})")
    height, width = images.shape[2:]
    # Read before the transfer: on a CPU this needs no synchronization with the device of the images.
    blurs, solarizes = bool(parameters.sigma.any()), bool(parameters.solarize.any())
    p = Parameters(*(field.T.flatten() for field in parameters.to(images.device)))  # (B·V,): the views of an image

    turns, luminance, low, high, gain = constants(tuple(mean), tuple(std), images.device)

    out = torch.empty(views, count, 3, size, size, device=images.device)
    with no_autocast(images.device.type):
        vertical = place(p.top, p.height, height, size)
        horizontal = place(p.left, p.width, width, size, p.flip)
        mix, lift = colour(p, turns, luminance)
        mix = mix * gain[:, None]
        limit = CHUNK_PIXELS.get(images.device.type, LARGEST_CHUNK_PIXELS)
        chunk = max(1, limit // (views * max(size**2, height * width)))
        for start in range(0, count, chunk):
            x = images[start : start + chunk]
            n = len(x)
            part = slice(views * start, views * (start + n))
            x = nn.functional.pad(x.reshape(n, -1), (0, height * width), value=1).float()  # a fourth channel, for o
            rows = interpolation(vertical[0][part], vertical[1][part])  # (n·V, size, H)
            columns = interpolation(horizontal[0][part], horizontal[1][part])  # (n·V, size, W)

            mu = mean_colour(x.view(n, 4, height, width), rows, columns)  # (n·V, 3)
            offset = (lift[part] * mu).sum(1, keepdim=True)  # (n·V, 1)
            affine = torch.cat([mix[part], (low + gain * offset)[:, :, None]], 2)  # (n·V, 3, 4)
            x = affine.view(n, 3 * views, 4) @ x.view(n, 4, -1)  # (n, V·3, H·W)

            if blurs:
                blur = gaussian(p.sigma[part], size)
                rows, columns = blur @ rows, blur @ columns
            x = x.view(n * views, 3 * height, width) @ columns.mT
            x = x.view(n * views, 3, height, size)
            for channel in range(3):  # one product for all three channels would copy R for each
                y = (rows @ x[:, channel]).view(n, views, size, size).transpose(0, 1)
                black, white = -mean[channel] / std[channel], (1 - mean[channel]) / std[channel]
                torch.clamp(y, black, white, out=out[:, start : start + n, channel])
        if solarizes:
            out = solarize(out, p.solarize.view(count, views).T, low, high)
    return out


def no_autocast(device_type: str) -> AbstractContextManager[object]:
    """Switch autocast off: half precision has too few digits for the sums of a view."""
    if not torch.is_autocast_enabled(device_type):
        return nullcontext()
    return torch.autocast(device_type, enabled=False)


def mean_colour(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Mean colour of each crop: images (n, 4, H, W), R (n·V, size, H) and C (n·V, size, W) → (n·V, 3).

    The crops themselves are not formed: the mean of R x Cᵀ is the mean row of R times x times the mean row of C.
    """
    n, _, height, width = x.shape
    views = len(rows) // n
    mu = x.view(n, 4 * height, width) @ columns.mean(1).view(n, views, width).mT  # (n, 4·H, V)
    mu = (mu.view(n, 4, height, views) * rows.mean(1).view(n, 1, views, height).mT).sum(2)  # (n, 4, V)
    return mu[:, :3].mT.reshape(n * views, 3)


def solarize(x: Tensor, chosen: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Invert the bright pixels of the chosen views: x (V, B, 3, size, size), bool (V, B), black and white (3,).

    In [0, 1] a solarized pixel is min(y, 1 − y). The other views take min(y, 2 − y) = y.
    """
    mirror = torch.where(chosen[..., None], low + high, 2 * high)  # (V, B, 3)
    return torch.minimum(x, mirror[..., None, None] - x)


def check_images(images: Tensor) -> None:
    """Refuse anything but a uint8 batch of RGB images."""
    require(images.ndim == 4 and images.shape[1] == 3, "images", tuple(images.shape), "of shape (B, 3, H, W)")
    require(images.dtype == torch.uint8, "images", images.dtype, "uint8")
