"""`shapes`: small pictures of a shape with a texture, drawn in memory from a seed; nothing to download.

There are five shapes and five textures; each shape wears two of the textures and each texture is worn by two of the
shapes, so that ten classes need both. Position, scale, rotation, all colours, the background and the clutter on it say
nothing of the class, and the object is as often lighter than its background as darker: a linear classifier of pixels
is nearly lost.

Every outline but the ring's hole is one formula: a star of n points whose inner radius is q times its outer one. With
q = cos(π/n) it is the regular n-gon, and with n large a disc. Edges are anti-aliased: a pixel is covered by as much as
its centre lies inside, in pixels, clamped to [−½, ½].
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl.checks import require
from lightning_ssl.data.download import DatasetInfo, Images
from lightning_ssl.seeding import generator_of


class Outline(NamedTuple):
    """A star of `points` points, `inner` its inner over its outer radius, `hole` that of a round hole."""

    points: int
    inner: float
    hole: float = 0.0

    @property
    def radius(self) -> float:
        """The outer radius at which the shape has the area of the unit disc: size must not give the shape away."""
        area = self.points * self.inner * math.sin(math.pi / self.points) - math.pi * self.hole**2
        return math.sqrt(math.pi / area)


def polygon(points: int, hole: float = 0.0) -> Outline:
    return Outline(points, math.cos(math.pi / points), hole)


OUTLINES = {  # neighbours share a texture, and so are as unlike as can be
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
CHUNK = 250  # images drawn at once: the planes of a chunk stay in cache


def rows(
    name: str,
    root: Path,
    split: str,
    *,
    train_images: int = 10_000,
    test_images: int = 2_000,
    size: int = 32,
    seed: int = 0,
) -> Images:
    """Draw one split; its first images do not depend on how many are asked for.

    Nothing is read from `root` or written there.
    """
    count, argument = (test_images, "test_images") if split == "test" else (train_images, "train_images")
    require(count >= 1, argument, count, "at least 1")
    require(size >= 8, "size", size, "at least 8 pixels")
    require(seed >= 0, "seed", seed, "0 or above")
    images = torch.empty(count, 3, size, size, dtype=torch.uint8)
    labels = torch.empty(count, dtype=torch.int64)
    stream = int(split == "test")
    for number, start in enumerate(range(0, count, CHUNK)):
        chunk = slice(start, min(start + CHUNK, count))
        x, y = draw(CHUNK, size, generator_of(seed, stream, number))
        images[chunk], labels[chunk] = x[: chunk.stop - start], y[: chunk.stop - start]
    return Images(images, labels, CLASSES)


def info(name: str, root: Path, *, size: int = 32, **_: int) -> DatasetInfo:
    return DatasetInfo(size, len(CLASSES), MEAN, STD)


def draw(count: int, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Pictures and their labels: uint8 (B, 3, size, size), int64 (B,)."""

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return torch.rand(count, *shape, generator=generator) * (high - low) + low

    labels = torch.randint(len(CLASSES), (count,), generator=generator)
    axis = (torch.arange(size) + 0.5) * (2 / size) - 1  # pixel centres in [−1, 1]
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"))  # (2, H, W): x, y
    pixel = 2 / size

    # A bright object on a dark ground or a dark one on a bright ground, by a coin that the label does not know.
    side = torch.randint(2, (count, 1), generator=generator) * 2.0 - 1  # (B, 1)
    ground = 0.5 - side * uniform(0.08, 0.28, 1) + uniform(-0.10, 0.10, 3)  # (B, 3)
    bright = 0.5 + side * uniform(0.20, 0.34, 1) + uniform(-0.12, 0.12, 3)  # (B, 3), the object's own colour
    ink = bright - side * uniform(0.42, 0.56, 1) + uniform(-0.10, 0.10, 3)  # (B, 3), its texture's

    picture = background(ground, uniform(-0.07, 0.07, 3, 3, 3), axis)
    for _ in range(STROKES):
        start, end = uniform(-1.1, 1.1, 2), uniform(-0.45, 0.45, 2)
        colour = ground + uniform(-0.25, 0.25, 3)
        paint(picture, colour, coverage(stroke(grid, start, end, uniform(0.02, 0.09)), pixel))

    centre, turn, scale = uniform(-0.25, 0.25, 2), uniform(0, 2 * math.pi), uniform(0.48, 0.66)
    offset = grid - centre[..., None, None]  # (B, 2, H, W)
    local = rotate(offset, turn) / scale[:, None, None]  # (2, B, H, W), in which the disc has radius 1
    inside = coverage(distance(local, torch.tensor(SHAPE_OF)[labels]) * scale[:, None, None], pixel)

    slant, pitch, phase = uniform(0, math.pi), uniform(0.30, 0.40), uniform(0, 1, 2)
    mesh = rotate(offset, slant) / pitch[:, None, None] + phase.T[..., None, None]  # (2, B, H, W), in periods
    blots = uniform(0, 1, 1, 13, 13)
    inked = texture(mesh, blots, torch.tensor(TEXTURE_OF)[labels], pixel / pitch)

    paint(picture, bright, inside)
    paint(picture, ink, inside * inked)
    picture += torch.randn(picture.shape, generator=generator) * 0.02
    return picture.clamp_(0, 1).mul_(255).round_().to(torch.uint8), labels


def background(colour: Tensor, waves: Tensor, axis: Tensor) -> Tensor:
    """A colour with slow cosine waves over it: (B, 3), (B, 3, F, F), (H,) → (B, 3, H, H)."""
    basis = (axis[:, None] * math.pi / 2 * torch.arange(waves.shape[-1]) + math.pi / 4).cos()  # (H, F)
    return (basis @ waves @ basis.T).add_(colour[..., None, None])


def paint(picture: Tensor, colour: Tensor, cover: Tensor) -> None:
    """Lay a colour (B, 3) over a picture (B, 3, H, W) where it is covered (B, H, W), in place."""
    picture.lerp_(colour[..., None, None].expand_as(picture), cover[:, None].expand_as(picture))


def coverage(depth: Tensor, pixel: float | Tensor) -> Tensor:
    """How much of a pixel lies inside, from the signed distance to the edge (below 0 inside)."""
    return (0.5 - depth / pixel).clamp_(0, 1)


def rotate(xy: Tensor, angle: Tensor) -> Tensor:
    """Points (B, 2, H, W) turned by their image's angle (B,): (2, B, H, W), x and y apart."""
    cos, sin = angle.cos()[:, None, None], angle.sin()[:, None, None]
    x, y = xy.unbind(1)
    return torch.stack([cos * x + sin * y, cos * y - sin * x])


def distance(xy: Tensor, shape: Tensor) -> Tensor:
    """Signed distance to the edge lines of each image's shape: (2, B, H, W), (B,) → (B, H, W)."""
    points, inner, hole, radius = torch.tensor([[*outline, outline.radius] for outline in OUTLINES.values()])[shape].T[
        ..., None, None
    ]  # each (B, 1, 1)
    x, y = xy
    r = torch.hypot(x, y)
    # Fold the plane into half a point of the star: 0 at the tip, π/n in the notch.
    wedge = 2 * math.pi / points
    phi = (torch.remainder(torch.atan2(y, x), wedge) - wedge / 2).abs_().neg_().add_(wedge / 2)
    # The one edge left runs from (radius, 0) to inner·radius·(cos π/n, sin π/n).
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


def texture(mesh: Tensor, blots: Tensor, kind: Tensor, blur: Tensor) -> Tensor:
    """Ink of each image's texture: (2, B, H, W) in periods, (B, 1, F, F) in [0, 1], (B,), (B,) → (B, H, W)."""
    x, y = (torch.remainder(mesh, 1) - 0.5).abs_()  # distance to the middle of a cell
    blur = blur[:, None, None]
    stripes, across = coverage(x - 0.25, blur), coverage(y - 0.25, blur)
    inks = {
        "plain": torch.zeros_like(x),
        "striped": stripes,
        "dotted": coverage(torch.hypot(x, y) - 0.32, blur),
        "mottled": coverage(0.5 - F.interpolate(blots, size=x.shape[1:], mode="bilinear")[:, 0], 0.2),
        "checked": stripes + across - 2 * stripes * across,
    }
    return torch.stack([inks[name] for name in TEXTURES])[kind, torch.arange(len(kind))]
