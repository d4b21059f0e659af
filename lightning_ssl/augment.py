"""Two random views of a whole uint8 batch, on the batch's device: a few batched matrix products, no loop over images.

    augment = TwoViews("paper_cifar", size=32)
    x1, x2 = augment(images, generator)          # uint8 (B, 3, H, W) → float32 (B, 3, size, size), twice

A view is crop → flip → colour jitter → grayscale → blur → solarize → normalize, its parameters drawn for every image:

    parameters = augment.sample(images, generator)    # chance, and nothing else
    views = apply(images, parameters, size=32)        # no chance left: (2, B, 3, size, size)

Everything up to the first clamp is affine in the pixels, so a view is three small matrix products:

    y = R · (L x + o) · Cᵀ      R (size, H) and C (size, W) resize the crop, antialiased; C also flips; both also blur
                                L (3, 3) and o (3,) are the jitter and the grayscale

Jitter. With brightness b, contrast c, saturation s, luminance w = (.299, .587, .114), hue as a turn R_θ of the colours
around the gray axis, and the mean colour μ of the crop,

    L = b c (s I + (1 − s) 1wᵀ) R_θ,   o = b (1 − c) wᵀR_θ μ 1;   grayscale is s = 0.

Deviations from torchvision, where every operation ends with a clamp to [0, 1] and a rounding to 8 bits:
  - One clamp, after the blur, and no rounding: this makes the operations one matrix. Only pixels that an operation
    drives out of [0, 1] and a later one brings back, or mixes with others, differ.
  - The order of the jitter is not drawn: without clamps in between, brightness, contrast and saturation commute. Hue
    comes first, so that a gray view has the luminance of the turned colours, as it has there.
  - Hue turns around the gray axis and not in HSV, which is not linear. (A turn in YIQ would commute with the rest, but
    is further from HSV's: at a tenth of a turn, further than the image left as it was.)
Mean distance to torchvision on CIFAR-10 at strength ½ (.4/.4/.4/.1), where the jitter itself moves a pixel by .101:
.001 without hue, which is what torchvision's own drawing of the order moves it by, and .011 with hue.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lightning_ssl.checks import require

TRIES = 10  # torchvision's: candidates for a crop before the central one is taken
CHUNK = {"cpu": 2**16}  # pixels worked on at a time: more fall out of a CPU's cache,
LARGEST = 2**24  # and elsewhere they are only bounded by memory

LUMINANCE = torch.tensor([0.299, 0.587, 0.114])  # w
# R_θ = G + cos θ (I − G) + sin θ K: G projects on the gray axis, K is a quarter turn around it, red towards yellow.
GRAY = torch.full((3, 3), 1 / 3)
QUARTER = torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]) / math.sqrt(3)
TURNS = torch.stack([GRAY, torch.eye(3) - GRAY, QUARTER])  # (3, 3, 3)


class Parameters(NamedTuple):
    """What was drawn for V views of B images: tensors of shape (V, B)."""

    top: Tensor  # the crop, in pixels of the input
    left: Tensor
    height: Tensor
    width: Tensor
    flip: Tensor  # bool
    brightness: Tensor  # factors: 1 leaves the image as it is
    contrast: Tensor
    saturation: Tensor  # 0 is grayscale
    hue: Tensor  # in turns: 0 leaves the image as it is
    sigma: Tensor  # of the blur, in pixels of the output; 0 leaves the image as it is
    solarize: Tensor  # bool

    def to(self, device: torch.device) -> Parameters:
        """The same on another device, in one transfer."""
        if device == self.top.device:
            return self
        moved = torch.stack([field.double() for field in self]).to(device)
        return Parameters(*(new.to(old.dtype) for new, old in zip(moved, self, strict=True)))


@dataclass(frozen=True)
class View:
    """The distribution of one view: probabilities, ranges and strengths.

    `brightness`, `contrast` and `saturation` of strength a draw a factor from [max(0, 1 − a), 1 + a], `hue` a turn from
    [−a, a]; all four are applied together with probability `jitter`. `scale` is the crop's share of the image's area
    and `ratio` its width over its height, both as in torchvision's RandomResizedCrop.
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


# ---------------------------------------------------------------------------------------------------------------------
# Chance


def sample(
    views: Sequence[View], count: int, height: int, width: int, generator: torch.Generator | None = None
) -> Parameters:
    """Draw what happens to `count` images of one size in each view, on the generator's device: fields (V, B).

    The same numbers are drawn whatever the settings, so two recipes with one seed share all that they agree on.
    """
    device = generator.device if generator is not None else None
    u = torch.rand(len(views), 2 * TRIES + 12, count, generator=generator, device=device)
    top, left, crop_height, crop_width = crop(views, u[:, : 2 * TRIES + 2], height, width)
    flip, jitter, brightness, contrast, saturation, hue, gray, blur, sigma, solarize = u[:, 2 * TRIES + 2 :].unbind(1)

    def setting(values: Iterable[float]) -> Tensor:
        return torch.tensor([[value] for value in values], device=device)  # (V, 1)

    jittered = jitter < setting(v.jitter for v in views)

    def factor(u: Tensor, strengths: list[float]) -> Tensor:
        low, high = setting(max(0.0, 1 - a) for a in strengths), setting(1 + a for a in strengths)
        return torch.where(jittered, low + (high - low) * u, 1.0)

    widths = setting(v.sigma[0] for v in views), setting(v.sigma[1] - v.sigma[0] for v in views)
    return Parameters(
        top,
        left,
        crop_height,
        crop_width,
        flip=flip < setting(v.flip for v in views),
        brightness=factor(brightness, [v.brightness for v in views]),
        contrast=factor(contrast, [v.contrast for v in views]),
        saturation=factor(saturation, [v.saturation for v in views]) * (gray >= setting(v.gray for v in views)),
        hue=jittered * setting(v.hue for v in views) * (2 * hue - 1),
        sigma=(blur < setting(v.blur for v in views)) * (widths[0] + widths[1] * sigma),
        solarize=solarize < setting(v.solarize for v in views),
    )


def crop(views: Sequence[View], u: Tensor, height: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Turn uniform numbers (V, 2·TRIES + 2, B) into crops: the first candidate that fits the image, else its centre.

    A candidate has area ~ U(scale)·H·W and log ratio ~ U(log ratio), both sides rounded; its place is uniform. The
    central crop is the largest with an allowed ratio. Returns top, left, height and width, (V, B) each.
    """
    scale = torch.tensor([v.scale for v in views], device=u.device)[:, :, None, None]  # (V, 2, 1, 1)
    log_ratio = torch.tensor([v.ratio for v in views], device=u.device).log()[:, :, None, None]
    area = height * width * torch.lerp(scale[:, 0], scale[:, 1], u[:, :TRIES])  # (V, TRIES, B)
    ratio = torch.lerp(log_ratio[:, 0], log_ratio[:, 1], u[:, TRIES : 2 * TRIES]).exp()
    h, w = (area / ratio).sqrt().round(), (area * ratio).sqrt().round()
    fits = (h >= 1) & (h <= height) & (w >= 1) & (w <= width)
    first = fits.to(torch.uint8).argmax(1, keepdim=True)  # (V, 1, B): the first of equals
    found = fits.any(1)  # (V, B)
    central = torch.tensor([central_crop(v, height, width) for v in views], device=u.device)  # (V, 2)
    h = torch.where(found, h.gather(1, first)[:, 0].long(), central[:, :1])
    w = torch.where(found, w.gather(1, first)[:, 0].long(), central[:, 1:])
    # u just below 1 can round up to the excluded end.
    top = torch.minimum((u[:, -2] * (height - h + 1)).long(), height - h)
    left = torch.minimum((u[:, -1] * (width - w + 1)).long(), width - w)
    return torch.where(found, top, (height - h) // 2), torch.where(found, left, (width - w) // 2), h, w


def central_crop(view: View, height: int, width: int) -> tuple[int, int]:
    """Height and width of the largest crop that the view's ratios allow."""
    if width / height > view.ratio[1]:
        return height, round(height * view.ratio[1])
    return (round(width / view.ratio[0]), width) if width / height < view.ratio[0] else (height, width)


# ---------------------------------------------------------------------------------------------------------------------
# The matrices


def place(start: Tensor, length: Tensor, extent: int, size: int, flip: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Where the outputs (N, size) and the pixels (N, extent) of crops lie, one unit being a triangle's half-width.

    Output s of a crop looks at start + (s + ½) r, r = length/size, with a triangle of half-width max(r, 1); in a
    flipped crop it is output size − 1 − s that does. Pixels outside of the crop are at infinity.
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
    weight = weight.abs_().sub_(1).clamp_(max=0)  # its negative, and the sum's: one pass less
    return weight.div_(weight.sum(2, keepdim=True))


def gaussian(sigma: Tensor, size: int) -> Tensor:
    """Matrices (..., size, size) that blur `size` pixels, mirrored at the edges; σ = 0 is the identity.

    The kernel reaches a twentieth of the image to either side, as SimCLR's does: 9 pixels wide at 96.
    """
    radius = max(size // 20, 1)
    offset = torch.arange(-radius, radius + 1, device=sigma.device)
    kernel = torch.softmax(-(offset**2) / (2 * sigma.clamp(min=1e-3)[..., None] ** 2), -1)  # (..., 2·radius + 1)
    source = torch.arange(size, device=sigma.device) + offset[:, None]  # (2·radius + 1, size)
    source = (size - 1) - ((size - 1) - source.abs()).abs()
    place = nn.functional.one_hot(source, size).to(kernel.dtype)  # (2·radius + 1, size, size)
    return torch.tensordot(kernel, place, 1)


def colour(p: Parameters) -> tuple[Tensor, Tensor]:
    """L (N, 3, 3) and ℓ (N, 3) of the map x → L x + (ℓᵀμ) 1 of the colours, μ the crop's mean: fields (N,).

    L = b c (s I + (1 − s) 1wᵀ) R_θ and ℓᵀ = b (1 − c) wᵀR_θ.
    """
    theta = 2 * math.pi * p.hue
    turn = torch.stack([torch.ones_like(theta), theta.cos(), theta.sin()], 1) @ TURNS.to(theta.device).flatten(1)
    turn = turn.view(-1, 3, 3)  # R_θ
    luminance = LUMINANCE.to(theta.device) @ turn  # (N, 3): wᵀR_θ
    b, c, s = p.brightness[:, None], p.contrast[:, None], p.saturation[:, None, None]
    return (b * c)[:, None] * (s * turn + (1 - s) * luminance[:, None]), b * (1 - c) * luminance


@torch.no_grad()
def apply(
    images: Tensor,
    parameters: Parameters,
    size: int,
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
    memory_format: torch.memory_format = torch.contiguous_format,
) -> Tensor:
    """Make the views that the parameters (V, B) describe: uint8 (B, 3, H, W) → float32 (V, B, 3, size, size).

    `memory_format` is that of each view, (B, 3, size, size).
    """
    check_images(images)
    views, count = parameters.top.shape
    require(count == len(images), "parameters", (views, count), f"of shape (V, {len(images)})")
    height, width = images.shape[2:]
    # Asked before they move: on their own device, a CPU unless the generator's is another, this waits for nothing.
    blurs, solarizes = bool(parameters.sigma.any()), bool(parameters.solarize.any())
    p = Parameters(*(field.T.flatten() for field in parameters.to(images.device)))  # (B·V,): views side by side

    # Normalizing is affine as well: 0 becomes `black` and 255 `white`, and the clamp is to these.
    black = [-m / s for m, s in zip(mean, std, strict=True)]
    white = [(1 - m) / s for m, s in zip(mean, std, strict=True)]
    low, high = torch.tensor([black, white], device=images.device)  # (3,)
    gain = (high - low) / 255

    if memory_format == torch.channels_last:
        out = torch.empty(views, count, size, size, 3, device=images.device).permute(0, 1, 4, 2, 3)
    else:
        out = torch.empty(views, count, 3, size, size, device=images.device)
    # Half precision has too few digits for these sums, whatever the network around is trained in.
    with torch.autocast(images.device.type, enabled=False):
        vertical = place(p.top, p.height, height, size)
        horizontal = place(p.left, p.width, width, size, p.flip)
        mix, lift = colour(p)
        mix = mix * gain[:, None]
        chunk = max(1, CHUNK.get(images.device.type, LARGEST) // (views * max(size**2, height * width)))
        for start in range(0, count, chunk):
            x = images[start : start + chunk]
            n = len(x)
            some = slice(views * start, views * (start + n))
            x = nn.functional.pad(x.reshape(n, -1), (0, height * width), value=1).float()  # a fourth channel, for o
            rows = interpolation(vertical[0][some], vertical[1][some])  # (n·V, size, H)
            columns = interpolation(horizontal[0][some], horizontal[1][some])  # (n·V, size, W)

            # The crop's mean colour without the crop: the mean row of R and of C around x.
            mu = x.view(n, 4 * height, width) @ columns.mean(1).view(n, views, width).mT  # (n, 4·H, V)
            mu = (mu.view(n, 4, height, views) * rows.mean(1).view(n, 1, views, height).mT).sum(2)  # (n, 4, V)
            offset = (lift[some] * mu[:, :3].mT.reshape(n * views, 3)).sum(1, keepdim=True)  # (n·V, 1)
            affine = torch.cat([mix[some], (low + gain * offset)[:, :, None]], 2)  # (n·V, 3, 4)
            x = affine.view(n, 3 * views, 4) @ x.view(n, 4, -1)  # (n, V·3, H·W)

            if blurs:
                blur = gaussian(p.sigma[some], size)
                rows, columns = blur @ rows, blur @ columns
            x = x.view(n * views, 3 * height, width) @ columns.mT
            x = x.view(n * views, 3, height, size)
            for channel in range(3):  # one product for all three would copy R for each
                y = (rows @ x[:, channel]).view(n, views, size, size).transpose(0, 1)
                torch.clamp(y, black[channel], white[channel], out=out[:, start : start + n, channel])
        if solarizes:
            # A solarized pixel is the smaller of y and 1 − y; for the others 2 − y is never the smaller.
            mirror = torch.where(p.solarize.view(count, views).T[..., None], low + high, 2 * high)  # (V, B, 3)
            out = torch.minimum(out, mirror[..., None, None] - out)
    return out


def check_images(images: Tensor) -> None:
    """Refuse anything but a uint8 batch of RGB images."""
    require(images.ndim == 4 and images.shape[1] == 3, "images", tuple(images.shape), "of shape (B, 3, H, W)")
    require(images.dtype == torch.uint8, "images", images.dtype, "uint8")


# ---------------------------------------------------------------------------------------------------------------------
# The recipes


@dataclass(frozen=True)
class Preset:
    """A published recipe: two views, and whether the channels are normalized afterwards."""

    first: View
    second: View
    normalize: bool


CIFAR = View()  # crop .08–1, flip, jitter .4/.4/.4/.1 at .8, gray .2
STL10 = replace(CIFAR, brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2)
BYOL = replace(CIFAR, saturation=0.2)
SIMSIAM = replace(CIFAR, scale=(0.2, 1.0))

PRESETS: dict[str, Preset] = {
    # The α-CL and dual-network tables, as their released code has it.
    "paper_cifar": Preset(CIFAR, CIFAR, normalize=True),
    "paper_stl10": Preset(replace(STL10, blur=1.0), replace(STL10, blur=1.0), normalize=False),
    # Chen et al. 2020, appendices A and B.9: strength ½ without blur on CIFAR; their ImageNet recipe, strength 1 with
    # blur in half of the views, at 96 pixels. Pixels stay in [0, 1].
    "simclr_cifar": Preset(CIFAR, CIFAR, normalize=False),
    "simclr_stl10": Preset(replace(STL10, blur=0.5), replace(STL10, blur=0.5), normalize=False),
    # Grill et al. 2020, appendix B: the second view is solarized at .2. Their blur (1 and .1) is for 224 pixels, and
    # left out at 32, as in SimCLR's and SimSiam's own recipes for CIFAR.
    "byol_cifar": Preset(BYOL, replace(BYOL, solarize=0.2), normalize=True),
    # Chen & He 2021, appendix D: MoCo v2's, without blur.
    "simsiam_cifar": Preset(SIMSIAM, SIMSIAM, normalize=True),
}


@contextmanager
def single_precision() -> Iterator[None]:
    """Lightning's `precision="64-true"` changes what torch makes numbers of; views are float32 all the same."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class TwoViews(nn.Module):
    """Two random views of each image of a batch, and the image itself where `clean` asks for it.

    `preset` names a recipe of `PRESETS`; `first` and `second` replace its views whole, `normalize` its choice. `mean`
    and `std` are the data set's channel statistics on a scale of 0 to 1 (CIFAR-10's, unless given), used only when
    normalizing.
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
        require(len(mean) == 3, "mean", mean, "three numbers")
        require(len(std) == 3 and min(std) > 0, "std", std, "three numbers above 0")
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
        self,
        images: Tensor,
        generator: torch.Generator | None = None,
        rank: int = 0,
        ranks: int = 1,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> tuple[Tensor, ...]:
        """(x1, x2), or (x1, x2, clean): uint8 (B, 3, H, W) → float32 (B, 3, size, size) each.

        With the same generator on every rank, what happens to an image depends on its place in the whole batch alone,
        and not on how many ranks share it.
        """
        parameters = self.sample(images, generator, rank, ranks)
        x1, x2 = apply(images, parameters, self.size, self.mean, self.std, memory_format).unbind()
        return (x1, x2, self.unaugmented(images, memory_format)) if self.clean else (x1, x2)

    def sample(
        self, images: Tensor, generator: torch.Generator | None = None, rank: int = 0, ranks: int = 1
    ) -> Parameters:
        """Draw what happens to each image of all ranks' batches and take one rank's part: fields of shape (2, B)."""
        check_images(images)
        count, _, height, width = images.shape
        drawn = sample(self.views, ranks * count, height, width, generator)
        return Parameters(*(field[:, rank * count : (rank + 1) * count] for field in drawn))

    @single_precision()
    def unaugmented(self, images: Tensor, memory_format: torch.memory_format = torch.contiguous_format) -> Tensor:
        """The images themselves, resized whole where they are not of `size`, and normalized like a view."""
        check_images(images)
        count, _, height, width = images.shape
        if height == width == self.size:
            mean, std = torch.tensor([self.mean, self.std], device=images.device)[..., None, None]  # (3, 1, 1)
            x = images.to(torch.float32, memory_format=memory_format)
            return torch.addcmul(-mean / std, x, 1 / (255 * std))
        zero, one = torch.zeros(1, count), torch.ones(1, count)
        whole = Parameters(zero, zero, height * one, width * one, zero > 0, one, one, one, zero, zero, zero > 0)
        return apply(images, whole, self.size, self.mean, self.std, memory_format)[0]
