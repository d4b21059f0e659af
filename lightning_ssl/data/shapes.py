"""`shapes`: small images of a textured shape, drawn in memory from a seed. Nothing is downloaded.

There are five shapes and five textures. Each shape occurs with two textures and each texture with two shapes, so that
the ten classes need both. Position, scale, rotation, colours, background and clutter are independent of the class. The
object is lighter than its background as often as darker. So a linear classifier on pixels has a low accuracy.

Every outline is a star of n points whose inner radius is q times the outer one; the ring also has a round hole. With
q = cos(π/n) the star is the regular n-gon, and for large n a disc. Edges are anti-aliased: the coverage of a pixel is
½ minus the signed distance of its centre to the edge in pixels (negative inside), clamped to [0, 1].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl.base.checks import require, require_memory
from lightning_ssl.base.machine import memory
from lightning_ssl.base.seeding import generator_of
from lightning_ssl.data.split import DatasetInfo, Images


class Outline(NamedTuple):
    """A star with `points` points. `inner` is the ratio of inner to outer radius, `hole` that of a round hole."""

    points: int
    inner: float
    hole: float = 0.0

    @property
    def radius(self) -> float:
        """The outer radius at which the area is that of the unit disc, so that the size does not reveal the shape."""
        area = self.points * self.inner * math.sin(math.pi / self.points) - math.pi * self.hole**2
        return math.sqrt(math.pi / area)


def polygon(points: int, hole: float = 0.0) -> Outline:
    return Outline(points, math.cos(math.pi / points), hole)


OUTLINES = {  # neighbours in this list share a texture, so neighbours are dissimilar
    "disc": polygon(64),
    "triangle": polygon(3),
    "ring": polygon(64, hole=0.55),
    "square": polygon(4),
    "star": Outline(5, 0.40),
}
TEXTURES = ("plain", "striped", "dotted", "mottled", "checked")
SHAPE_OF = tuple(k // 2 for k in range(10))
TEXTURE_OF = tuple((k // 2 + k % 2) % 5 for k in range(10))
CLASSES = tuple(f"{TEXTURES[t]} {list(OUTLINES)[s]}" for s, t in zip(SHAPE_OF, TEXTURE_OF, strict=True))

MEAN, STD = (0.5, 0.5, 0.5), (0.212, 0.212, 0.212)
STROKES = 3
LARGEST = 10_000_000  # images of a split
CHUNK = 250  # images drawn at a time; the planes of a chunk fit into the cache


@dataclass(frozen=True)
class Shapes:
    """The data set with its options. `root` is not used."""

    root: Path
    train_images: int = 10_000
    test_images: int = 2_000
    size: int = 32
    seed: int = 0
    no_test: ClassVar[str] = ""

    def __post_init__(self) -> None:
        require(8 <= self.size <= 4096, "size", self.size, "between 8 and 4096 pixels")
        require(0 <= self.seed < 2**63, "seed", self.seed, "0 or above, and below 2^63")
        for name, images in (("train_images", self.train_images), ("test_images", self.test_images)):
            require(1 <= images <= LARGEST, name, images, f"between 1 and {LARGEST}")
            require_memory(name, images, images * 3 * self.size**2, memory())

    @property
    def info(self) -> DatasetInfo:
        return DatasetInfo(self.size, len(CLASSES), MEAN, STD)

    def open_split(self, split: str) -> Images:
        """Draw one split. The first images do not depend on the number of images."""
        test = split == "test"
        count = self.test_images if test else self.train_images
        images = torch.empty(count, 3, self.size, self.size, dtype=torch.uint8)
        labels = torch.empty(count, dtype=torch.int64)
        for number, start in enumerate(range(0, count, CHUNK)):
            x, y = draw(CHUNK, self.size, generator_of(self.seed, int(test), number))
            images[start : start + CHUNK], labels[start : start + CHUNK] = x[: count - start], y[: count - start]
        return Images(images, labels, CLASSES)


def draw(count: int, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw images uint8 (B, 3, size, size) and labels int64 (B,)."""

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return torch.rand(count, *shape, generator=generator) * (high - low) + low

    labels = torch.randint(len(CLASSES), (count,), generator=generator)
    axis = (torch.arange(size) + 0.5) * (2 / size) - 1  # pixel centres in [−1, 1]
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"))  # (2, H, W): x, y
    pixel = 2 / size

    # +1: a light object on a dark background, −1: the reverse; independent of the label.
    polarity = torch.randint(2, (count, 1), generator=generator) * 2.0 - 1  # (B, 1)
    background_colour = 0.5 - polarity * uniform(0.08, 0.28, 1) + uniform(-0.10, 0.10, 3)  # (B, 3)
    object_colour = 0.5 + polarity * uniform(0.20, 0.34, 1) + uniform(-0.12, 0.12, 3)  # (B, 3)
    texture_colour = object_colour - polarity * uniform(0.42, 0.56, 1) + uniform(-0.10, 0.10, 3)  # (B, 3)

    picture = background(background_colour, uniform(-0.07, 0.07, 3, 3, 3), axis)
    for _ in range(STROKES):
        start, end = uniform(-1.1, 1.1, 2), uniform(-0.45, 0.45, 2)
        colour = background_colour + uniform(-0.25, 0.25, 3)
        paint(picture, colour, coverage(stroke(grid, start, end, uniform(0.02, 0.09)), pixel))

    centre, angle, scale = uniform(-0.25, 0.25, 2), uniform(0, 2 * math.pi), uniform(0.48, 0.66)
    offset = grid - centre[..., None, None]  # (B, 2, H, W)
    local = rotate(offset, angle) / scale[:, None, None]  # (2, B, H, W), in units of the radius of the disc
    inside = coverage(distance(local, torch.tensor(SHAPE_OF)[labels]) * scale[:, None, None], pixel)

    angle, period, phase = uniform(0, math.pi), uniform(0.30, 0.40), uniform(0, 1, 2)
    periods = rotate(offset, angle) / period[:, None, None] + phase.T[..., None, None]  # (2, B, H, W)
    noise = uniform(0, 1, 1, 13, 13)
    cover = texture(periods, noise, torch.tensor(TEXTURE_OF)[labels], pixel / period)

    paint(picture, object_colour, inside)
    paint(picture, texture_colour, inside * cover)
    picture += torch.randn(picture.shape, generator=generator) * 0.02
    return picture.clamp_(0, 1).mul_(255).round_().to(torch.uint8), labels


def background(colour: Tensor, waves: Tensor, axis: Tensor) -> Tensor:
    """A colour plus low-frequency cosine waves: (B, 3), (B, 3, F, F), (H,) → (B, 3, H, H)."""
    basis = (axis[:, None] * math.pi / 2 * torch.arange(waves.shape[-1]) + math.pi / 4).cos()  # (H, F)
    return (basis @ waves @ basis.T).add_(colour[..., None, None])


def paint(picture: Tensor, colour: Tensor, cover: Tensor) -> None:
    """Blend a colour (B, 3) into a picture (B, 3, H, W) in place, by its coverage (B, H, W)."""
    picture.lerp_(colour[..., None, None].expand_as(picture), cover[:, None].expand_as(picture))


def coverage(depth: Tensor, pixel: float | Tensor) -> Tensor:
    """The part of a pixel that is inside, from the signed distance to the edge (negative inside)."""
    return (0.5 - depth / pixel).clamp_(0, 1)


def rotate(xy: Tensor, angle: Tensor) -> Tensor:
    """Rotate points (B, 2, H, W) by the angle of their image (B,): (2, B, H, W), x first, then y."""
    cos, sin = angle.cos()[:, None, None], angle.sin()[:, None, None]
    x, y = xy.unbind(1)
    return torch.stack([cos * x + sin * y, cos * y - sin * x])


def distance(xy: Tensor, shape: Tensor) -> Tensor:
    """Signed distance to the lines through the edges of each shape: (2, B, H, W), (B,) → (B, H, W)."""
    outlines = torch.tensor([[*outline, outline.radius] for outline in OUTLINES.values()])
    points, inner, hole, radius = outlines[shape].T[..., None, None]  # each (B, 1, 1)
    x, y = xy
    r = torch.hypot(x, y)
    # Symmetry reduces the angle to half a point of the star: 0 at the tip, π/n at the inner corner.
    wedge = 2 * math.pi / points
    phi = (torch.remainder(torch.atan2(y, x), wedge) - wedge / 2).abs_().neg_().add_(wedge / 2)
    # The one remaining edge goes from (radius, 0) to inner·radius·(cos π/n, sin π/n).
    edge_x, edge_y = inner * (wedge / 2).cos() - 1, inner * (wedge / 2).sin()
    length = torch.hypot(edge_x, edge_y)
    outside = ((r * phi.cos() - radius) * edge_y - r * phi.sin() * edge_x) / length
    return torch.maximum(outside, torch.where(hole > 0, hole * radius - r, -math.inf))


def stroke(grid: Tensor, start: Tensor, along: Tensor, half_width: Tensor) -> Tensor:
    """Signed distance to a line segment with round ends: (2, H, W), (B, 2), (B, 2), (B,) → (B, H, W)."""
    x, y = (grid - start[..., None, None]).unbind(1)  # (B, H, W)
    u, v = along.T[..., None, None]
    t = ((x * u + y * v) / (u * u + v * v)).clamp_(0, 1)
    return torch.hypot(x - t * u, y - t * v) - half_width[:, None, None]


def texture(periods: Tensor, noise: Tensor, kind: Tensor, blur: Tensor) -> Tensor:
    """Coverage by each image's texture: (2, B, H, W) in periods, (B, 1, F, F) in [0, 1], (B,), (B,) → (B, H, W)."""
    x, y = (torch.remainder(periods, 1) - 0.5).abs_()  # distance to the middle of a cell
    blur = blur[:, None, None]
    stripes, across = coverage(x - 0.25, blur), coverage(y - 0.25, blur)
    covers = {
        "plain": torch.zeros_like(x),
        "striped": stripes,
        "dotted": coverage(torch.hypot(x, y) - 0.32, blur),
        "mottled": coverage(0.5 - F.interpolate(noise, size=x.shape[1:], mode="bilinear")[:, 0], 0.2),
        "checked": stripes + across - 2 * stripes * across,
    }
    return torch.stack([covers[name] for name in TEXTURES])[kind, torch.arange(len(kind))]
