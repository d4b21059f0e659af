"""One image as uint8 (3, size, size): from a file, a PIL image, an array or a tensor.

A file is opened only if it is regular and has one of `FORMATS`, whatever its name is. Pillow starts Ghostscript for
others. Gray images of 16 bits are scaled to 8 bits; float images must be in [0, 1]. A strip, such as 1 × 1,000,000
pixels, is refused: resized to a square of usual size, it would take gigabytes before the crop.
"""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from lightning_ssl.base.checks import UserError

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "PPM", "TIFF", "GIF")  # as Pillow names them
MAX_ASPECT = 50  # longer side of an image by its shorter side
EXPECTED = "expected a PIL image, or an array or tensor of shape (3, H, W), (H, W, 3) or (H, W), uint8 or in [0, 1]"


def decode(file: str, size: int) -> Tensor:
    """Decode one file to uint8 (3, size, size)."""
    try:
        with opened(file) as encoded:
            encoded.draft("RGB", (2 * size, 2 * size))  # JPEG: decode at a lower resolution, still twice the target
            return from_picture(encoded, size)
    except Exception as error:  # Pillow's decoders raise many kinds for damaged files: SyntaxError, IndexError, …
        raise UserError(f"{file} is not a readable image: {reason_of(error)}") from error


@contextmanager
def opened(file: str) -> Iterator[Image.Image]:
    """Open an image file. A pipe or a device, whose reading can wait for ever, is an OSError."""
    if not stat.S_ISREG(os.stat(file).st_mode):
        raise OSError("not a regular file")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about metadata and many pixels; twice as many are an error
        with Image.open(file, formats=FORMATS) as encoded:
            check_aspect(encoded)
            yield encoded


def check_aspect(picture: Image.Image) -> None:
    """Refuse an image that is a strip."""
    if max(picture.size) > MAX_ASPECT * min(picture.size):
        size = " × ".join(map(str, picture.size))
        raise UserError(f"{size} pixels; expected a longer side of at most {MAX_ASPECT} times the shorter")


def reason_of(error: BaseException) -> str:
    """Why an image cannot be read, in one line."""
    if isinstance(error, UnidentifiedImageError):
        return f"none of {', '.join(FORMATS)}"
    return " ".join(str(error).split()) or type(error).__name__


def as_rgb(picture: Image.Image) -> Image.Image:
    """Any PIL image as RGB of 8 bits. Pillow's own conversion clips 16 bits at 255, and floats at 0 and 1."""
    if picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format == "PPM"):  # PGM: 0 to 65535
        gray = np.asarray(picture).astype(np.uint16)  # in this machine's order of bytes
        picture = Image.fromarray(np.round(gray / 257).astype(np.uint8))
    elif picture.mode == "F":
        gray = np.asarray(picture)
        if not (gray.min() >= 0 and gray.max() <= 1):
            raise UserError(f"float values from {gray.min():.3g} to {gray.max():.3g}; expected [0, 1], or 8 or 16 bits")
        picture = Image.fromarray(np.round(gray * 255).astype(np.uint8))
    elif picture.mode == "I":
        raise UserError("integers of 32 bits; expected 8 or 16 bits")
    return picture.convert("RGB")


def from_picture(picture: Image.Image, size: int) -> Tensor:
    """Resize the shorter side of a PIL image to `size` with antialiasing and crop the centre."""
    check_aspect(picture)
    picture = as_rgb(picture)
    scale = size / min(picture.size)
    width, height = (max(size, round(side * scale)) for side in picture.size)
    picture = picture.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=3.0)
    left, top = (width - size) // 2, (height - size) // 2
    pixels = np.array(picture.crop((left, top, left + size, top + size)))  # (size, size, 3)
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def from_anything(image: Any, size: int | None = None) -> Tensor:
    """An image of a user's data set as uint8 (3, size, size); its shorter side is the size if None is given."""
    if isinstance(image, Image.Image):
        return from_picture(image, size or min(image.size))
    found = channels_first(image)  # (3, H, W)
    size = size or min(found.shape[1:])
    if tuple(found.shape[1:]) != (size, size):
        return from_picture(Image.fromarray(found.permute(1, 2, 0).numpy()), size)
    return found


def channels_first(image: Any) -> Tensor:
    """An array or tensor as uint8 (3, H, W)."""
    if not isinstance(image, Tensor | np.ndarray):
        raise UserError(f"an image of type {type(image).__name__}; {EXPECTED}")
    found = torch.as_tensor(np.ascontiguousarray(image) if isinstance(image, np.ndarray) else image).detach().cpu()
    shape = tuple(found.shape)
    if found.ndim == 2:
        found = found[None]
    elif found.ndim == 3 and shape[2] in (1, 3, 4) and (isinstance(image, np.ndarray) or shape[0] not in (1, 3, 4)):
        found = found.permute(2, 0, 1)
    if found.ndim != 3 or found.shape[0] not in (1, 3, 4) or 0 in found.shape:
        raise UserError(f"an image of shape {shape}; {EXPECTED}")
    found = found[:3] if len(found) >= 3 else found.expand(3, -1, -1)  # a fourth channel is transparency
    if found.is_floating_point():
        low, high = found.aminmax()
        if not (low >= 0 and high <= 1):
            raise UserError(f"an image with values from {low:.3g} to {high:.3g}; {EXPECTED}; do not normalize")
        found = found.mul(255).round().to(torch.uint8)
    if found.dtype != torch.uint8:
        raise UserError(f"an image of {found.dtype}; {EXPECTED}")
    return found.contiguous()
