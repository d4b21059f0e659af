"""Image files of other kinds: depth is converted or refused, and only regular files of known formats are opened."""

import os
import subprocess

import numpy as np
import pytest
import torch
from PIL import Image

from lightning_ssl import data
from lightning_ssl.data.folder import why_unreadable
from lightning_ssl.data.pixels import decode, from_anything

RAMP = np.linspace(0, 1, 64 * 64).reshape(64, 64)


WHOLE = (RAMP * 65535).round()
# The ramp, from black to white, in images of more than 8 bits
PICTURES = {
    "16 bits": Image.fromarray(WHOLE.astype(np.uint16)),
    "16 bits, big endian": Image.frombytes("I;16B", (64, 64), WHOLE.astype(">u2").tobytes()),
    "float": Image.fromarray(RAMP.astype(np.float32)),
    "float above 1": Image.fromarray((RAMP * 255).astype(np.float32)),
    "not a number": Image.fromarray(np.full((64, 64), np.nan, np.float32)),
    "32 bits": Image.fromarray(WHOLE.astype(np.int32)),
}
EIGHT_BITS = torch.from_numpy((RAMP * 255).round().astype(np.uint8)).expand(3, -1, -1).int()


def require_ramp(found):
    assert (found.int() - EIGHT_BITS).abs().max() <= 1


def require_refused(file, picture, line):
    """An image is refused as a file and as an object."""
    assert why_unreadable(str(file)).startswith(line)
    for read, image in ((decode, str(file)), (from_anything, picture)):
        with pytest.raises(ValueError, match=line):
            read(image, 64)


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [("16 bits", ".png"), ("16 bits", ".tif"), ("16 bits, big endian", ".tif"), ("float", ".tif")],
)
def test_images_of_other_depths_are_scaled_to_eight_bits(tmp_path, kind, suffix):
    file = tmp_path / f"ramp{suffix}"
    PICTURES[kind].save(file)
    require_ramp(decode(str(file), 64))
    require_ramp(from_anything(PICTURES[kind], 64))
    assert why_unreadable(str(file)) == ""


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("float above 1", "float values from 0 to 255; expected"),
        ("not a number", "float values from nan to nan; expected"),
        ("32 bits", "integers of 32 bits; expected 8 or 16 bits"),
    ],
)
def test_images_without_a_known_scale_are_refused(tmp_path, kind, line):
    file = tmp_path / "ramp.tif"
    PICTURES[kind].save(file)
    require_refused(file, PICTURES[kind], line)


@pytest.mark.parametrize("highest", [65535, 4095])
@pytest.mark.parametrize("kind", ["P2", "P5"])
def test_a_gray_image_of_netpbm_with_16_bits_is_scaled_to_eight(tmp_path, kind, highest):
    """Pillow opens it with the mode of 32 bits, scaled to 65535."""
    file, values = tmp_path / "ramp.ppm", (RAMP * highest).round().astype(">u2")
    content = values.tobytes() if kind == "P5" else " ".join(map(str, values.ravel())).encode()
    file.write_bytes(f"{kind}\n64 64\n{highest}\n".encode() + content)
    require_ramp(decode(str(file), 64))
    assert why_unreadable(str(file)) == ""


@pytest.mark.parametrize("size", [(1, 1_000_000), (60_000, 1), (51, 1)])
def test_a_strip_is_refused_before_it_is_decoded(tmp_path, monkeypatch, size):
    """Its shorter side was resized to that of the stored images, 1 × 1,000,000 pixels to 256 × 256,000,000."""
    file, strip = tmp_path / "strip.png", Image.new("RGB", size)
    strip.save(file)
    line = f"{size[0]} × {size[1]} pixels; expected a longer side of at most 50 times the shorter"
    monkeypatch.setattr(Image.Image, "load", lambda *_: pytest.fail("it is decoded"))
    require_refused(file, strip, line)


def test_an_image_of_fifty_to_one_is_read(tmp_path):
    Image.new("RGB", (50, 1)).save(tmp_path / "wide.png")
    assert decode(str(tmp_path / "wide.png"), 4).shape == (3, 4, 4)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"


def test_a_file_of_another_format_starts_no_program(tmp_path, monkeypatch):
    file = tmp_path / "photo.jpg"
    file.write_bytes(EPS)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a program was started"))
    assert why_unreadable(str(file)) == "none of JPEG, PNG, WEBP, BMP, PPM, TIFF, GIF"
    with pytest.raises(ValueError, match=r"photo.jpg is not a readable image: none of JPEG"):
        decode(str(file), 64)


@pytest.mark.parametrize("kind", ["pipe", "folder", "broken link", "device"])
def test_only_regular_files_are_opened(tmp_path, kind):
    file = tmp_path / "photo.jpg"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.symlink_to("/dev/zero" if kind == "device" else tmp_path / "nothing")
    assert why_unreadable(str(file)) in ("not a regular file", f"[Errno 2] No such file or directory: '{file}'")


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif", "bmp", "gif", "webp", "ppm"])
def test_a_damaged_image_is_one_reason(tmp_path, suffix):
    file = tmp_path / f"a.{suffix}"
    Image.fromarray((RAMP * 255).astype(np.uint8)).save(file)
    whole = file.read_bytes()
    generator = np.random.default_rng(0)
    for _ in range(40):
        place, value = generator.integers(len(whole)), generator.integers(256)
        file.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :][: generator.integers(len(whole))])
        assert "\n" not in why_unreadable(str(file))  # it never raises


@pytest.mark.parametrize("target", ["train", "train/b", "train/a", "."])
def test_a_folder_that_is_reached_twice_is_refused(tmp_path, target):
    for name in ("a", "b"):
        (tmp_path / "train" / name).mkdir(parents=True)
        for k in range(3):
            Image.new("RGB", (8, 8)).save(tmp_path / "train" / name / f"{k}.png")
    (tmp_path / "train" / "a" / "loop").symlink_to(tmp_path / target)
    with pytest.raises(ValueError, match=r"is the same folder as .*, by a link; remove the link"):
        data.load("folder", tmp_path, "train", store_size=8)


def test_a_link_to_a_folder_elsewhere_is_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "elsewhere" / "a.png")
    (tmp_path / "photos" / "train").mkdir(parents=True)
    (tmp_path / "photos" / "train" / "a").symlink_to(tmp_path / "elsewhere")
    assert len(data.load("folder", tmp_path / "photos", "train", store_size=8)) == 1
