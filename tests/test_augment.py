"""Views equal those of torchvision for the same parameters; parameters have the distribution of torchvision."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from helpers.closeness import close
from helpers.refusals import refused
from scipy import stats
from torch import Tensor
from torchvision.transforms.v2 import functional as TF

from lightning_ssl.augment import PRESETS, Parameters, TwoViews, View, apply, matrices, sample
from lightning_ssl.augment.matrices import gaussian
from lightning_ssl.augment.parameters import TRIES, crop

IDENTITY = View((1.0, 1.0), (1.0, 1.0), flip=0.0, jitter=0.0, gray=0.0)  # changes nothing in a square image


# torchvision's luminance weights sum to 0.9999.
LUMINANCE = 2e-4


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_images(count: int, height: int, width: int, low: int = 0, high: int = 255, seed: int = 0) -> Tensor:
    """Smooth coloured noise with edges, every image filling the range [low, high]: uint8 (count, 3, height, width)."""
    coarse = torch.rand(count, 3, 6, 6, generator=seeded(seed))
    x = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic")
    x[:, :, height // 3 : height // 2, width // 4 :] = torch.rand(count, 3, 1, 1, generator=seeded(seed + 1))
    x += 0.1 * torch.rand(x.shape, generator=seeded(seed + 2))
    floor, ceiling = x.amin((1, 2, 3), keepdim=True), x.amax((1, 2, 3), keepdim=True)
    return (low + (high - low) * (x - floor) / (ceiling - floor)).round().to(torch.uint8)


def terms(images: Tensor, size: int) -> int:
    """Length of the sums in a view: rows and columns of the crop, of its mean and of the blur, and the colours."""
    return 2 * sum(images.shape[2:]) + 2 * size + 4


def draw(view: View, images: Tensor, seed: int = 0) -> Parameters:
    """Parameters of one view, (1, B)."""
    return sample([view], len(images), images.shape[2], images.shape[3], seeded(seed))


def torchvision_view(image: Tensor, p: Parameters, i: int, size: int) -> Tensor:
    """torchvision's view of one image (uint8, or float in [0, 1]) with the same parameters, without hue."""
    top, left, height, width = (int(field[0, i]) for field in p[:4])
    x = TF.resized_crop(image, top, left, height, width, [size, size], antialias=True)
    if p.flip[0, i]:
        x = TF.horizontal_flip(x)
    x = TF.adjust_brightness(x, float(p.brightness[0, i]))
    x = TF.adjust_contrast(x, float(p.contrast[0, i]))
    x = TF.adjust_saturation(x, float(p.saturation[0, i]))
    if p.sigma[0, i] > 0:
        kernel = 2 * max(size // 20, 1) + 1
        x = TF.gaussian_blur(x, [kernel, kernel], [float(p.sigma[0, i])])
    return TF.solarize(x, 128 if x.dtype == torch.uint8 else 0.5) if p.solarize[0, i] else x


# ---------------------------------------------------------------------------------------------------------------------
# The same parameters give the image of torchvision

SIZES = [((32, 32), 32), ((96, 96), 96), ((40, 56), 24), ((61, 33), 48), ((8, 8), 32)]


@pytest.mark.parametrize(("shape", "size"), SIZES)
def test_crop_resize_and_flip_equal_torchvision(shape: tuple[int, int], size: int) -> None:
    images = make_images(48, *shape)
    p = draw(View(jitter=0.0, gray=0.0), images)
    assert 0 < p.flip.sum() < 48
    ours = apply(images, p, size)[0]
    for i, image in enumerate(images):
        exact = torchvision_view(image.float() / 255, p, i, size)
        rounded = torchvision_view(image, p, i, size).float() / 255
        close(ours[i], exact, terms=terms(images, size), scale=1)
        assert (ours[i] - rounded).abs().mean() < 1 / 255  # uint8


def test_whole_view_equals_torchvision_without_clamping() -> None:
    images = make_images(64, 96, 96, low=90, high=150)
    p = draw(View(hue=0.0, blur=0.5, solarize=0.5), images)
    assert 0 < p.solarize.sum() < 64
    assert 0 < (p.sigma > 0).sum() < 64
    ours = apply(images, p, 96)[0]
    for i, image in enumerate(images):
        assert (ours[i] - torchvision_view(image.float() / 255, p, i, 96)).abs().max() < 5 * LUMINANCE


@pytest.mark.parametrize("strength", [0.4, 0.8])
def test_jitter_differs_from_torchvision_no_more_than_orders_of_its_operations_differ(strength: float) -> None:
    """With clamping: compares the distance to torchvision with that between two orders of torchvision's operations."""
    images = make_images(64, 32, 32)
    view = replace(IDENTITY, jitter=1.0, brightness=strength, contrast=strength, saturation=strength, hue=0.0)
    p = draw(view, images)
    operations = (TF.adjust_brightness, TF.adjust_contrast, TF.adjust_saturation)
    steps = list(zip(operations, (p.brightness[0], p.contrast[0], p.saturation[0]), strict=True))
    views = []
    for order in itertools.permutations(steps):
        x = list(images / 255)
        for adjust, factors in order:
            x = [adjust(image, float(f)) for image, f in zip(x, factors, strict=True)]
        views.append(torch.stack(x))
    ours = apply(images, p, 32)[0]
    distance = torch.stack([(ours - x).abs().mean() for x in views]).mean()
    spread = torch.stack([(x - y).abs().mean() for x, y in itertools.combinations(views, 2)]).mean()
    assert distance < 1.2 * spread


def test_hue_rotation_approximates_torchvisions_hue() -> None:
    """A rotation about the gray axis has the direction of HSV's hue shift and reduces the distance to it."""
    images = make_images(32, 32, 32, low=40, high=215)
    p = draw(replace(IDENTITY, jitter=1.0, brightness=0.0, contrast=0.0, saturation=0.0, hue=0.2), images)
    ours, still = apply(images, p, 32)[0], images / 255
    theirs = torch.stack([TF.adjust_hue(x, float(h)) for x, h in zip(still, p.hue[0], strict=True)])
    assert (ours - theirs).abs().mean() < 0.7 * (still - theirs).abs().mean()
    assert torch.cosine_similarity((ours - still).flatten(1), (theirs - still).flatten(1)).min() > 0.7


@pytest.mark.parametrize("hue", [-1 / 3, 0.0, 1 / 3])
def test_a_third_of_a_turn_permutes_the_channels(hue: float) -> None:
    images = make_images(4, 32, 32)
    p = draw(IDENTITY, images)._replace(hue=torch.full((1, 4), hue))
    ours = apply(images, p, 32)[0]
    close(ours, (images / 255).roll(round(3 * hue), 1), terms=terms(images, 32), scale=1)


def test_hue_comes_before_contrast_saturation_and_gray() -> None:
    """A third of a turn is exact; the other steps must use the luminance of the permuted channels."""
    images = make_images(8, 32, 32, low=80, high=160)
    turned = (images / 255).roll(1, 1)
    p = draw(View(hue=0.0, gray=0.5), images)
    ours = apply(images, p._replace(hue=torch.full((1, 8), 1 / 3)), 32)[0]
    for i, image in enumerate(turned):
        assert (ours[i] - torchvision_view(image, p, i, 32)).abs().max() < 5 * LUMINANCE


def test_solarize_then_normalize_equals_solarize_in_normalized_units() -> None:
    images = make_images(8, 32, 32)
    p = draw(replace(IDENTITY, solarize=0.5), images)
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
    ours = apply(images, p, 32, mean, std)[0]
    for i, image in enumerate(images):
        expected = TF.normalize(torchvision_view(image.float() / 255, p, i, 32), list(mean), list(std))
        close(ours[i], expected, terms=terms(images, 32), scale=1 / min(std))


# ---------------------------------------------------------------------------------------------------------------------
# The parameters have the distribution of torchvision


def crop_by_loop(u: list[float], view: View, height: int, width: int) -> tuple[int, int, int, int]:
    """RandomResizedCrop for one image: the first candidate that fits, else the central crop."""
    for attempt in range(TRIES):
        area = height * width * (view.scale[0] + (view.scale[1] - view.scale[0]) * u[attempt])
        low, high = math.log(view.ratio[0]), math.log(view.ratio[1])
        ratio = math.exp(low + (high - low) * u[TRIES + attempt])
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(u[-2] * (height - h + 1)), int(u[-1] * (width - w + 1)), h, w
    w, h = width, height
    if width / height < view.ratio[0]:
        h = round(width / view.ratio[0])
    elif width / height > view.ratio[1]:
        w = round(height * view.ratio[1])
    return (height - h) // 2, (width - w) // 2, h, w


CROPS = [
    (View(), 32, 32),
    (View(scale=(0.2, 1.0)), 96, 96),
    (View(scale=(0.9, 1.0), ratio=(0.5, 2.0)), 48, 48),
    (View(scale=(0.5, 1.0)), 20, 90),  # too wide for most candidates
    (View(scale=(0.5, 1.0)), 90, 20),
    (View(scale=(1.0, 1.0), ratio=(3.0, 4.0)), 33, 47),  # no candidate fits
]


@pytest.mark.parametrize(("view", "height", "width"), CROPS)
def test_crops_equal_a_loop_on_the_same_random_numbers(view: View, height: int, width: int) -> None:
    u = torch.rand(2 * TRIES + 2, 3000, generator=seeded())
    ours = torch.stack(crop([view], u[None], height, width), 2)[0].tolist()
    loop = [list(crop_by_loop(column, view, height, width)) for column in u.double().T.tolist()]
    # float32 may round a side near k + 1/2 to the other integer.
    assert sum(a != b for a, b in zip(ours, loop, strict=True)) <= 3


def test_a_crop_stays_inside_if_a_uniform_number_rounds_to_one() -> None:
    u = torch.full((1, 2 * TRIES + 2, 1), 1 - 2**-24)
    for side in (32, 33, 96, 224):
        top, left, height, width = crop([View(scale=(0.08, 0.3))], u, side, side)
        assert top + height <= side
        assert left + width <= side


def test_factors_are_uniform_in_the_ranges_of_torchvision() -> None:
    view = View(jitter=1.0, brightness=0.4, contrast=0.8, saturation=1.5, hue=0.2, gray=0.0)
    p = sample([view], 20_000, 32, 32, seeded())
    ranges = {"brightness": (0.6, 1.4), "contrast": (0.2, 1.8), "saturation": (0.0, 2.5), "hue": (-0.2, 0.2)}
    for name, (low, high) in ranges.items():
        values = getattr(p, name)[0].numpy()
        assert stats.kstest(values, "uniform", (low, high - low)).pvalue > 1e-3, name


def test_each_step_is_applied_with_its_probability() -> None:
    count = 40_000
    p = sample([View(flip=0.5, jitter=0.8, gray=0.2, blur=0.3, solarize=0.1)], count, 32, 32, seeded())
    rates = {
        0.5: p.flip,
        0.8: p.brightness != 1,
        0.2: p.saturation == 0,
        0.3: p.sigma > 0,
        0.1: p.solarize,
    }
    for probability, happened in rates.items():
        error = 4 * math.sqrt(probability * (1 - probability) / count)
        assert abs(float(happened.float().mean()) - probability) < error
    # The steps of one image are drawn independently.
    joint = (p.flip & (p.brightness != 1) & (p.saturation == 0)).float().mean()
    assert abs(float(joint) - 0.5 * 0.8 * 0.2) < 4 * math.sqrt(0.08 * 0.92 / count)


# ---------------------------------------------------------------------------------------------------------------------
# Batches


@pytest.mark.parametrize("preset", PRESETS)
def test_views_are_a_function_of_the_seed(preset: str) -> None:
    two = TwoViews(preset)
    images = make_images(16, 32, 32)
    x1, x2 = two(images, seeded(3))
    y1, y2 = two(images, seeded(3))
    assert torch.equal(x1, y1)
    assert torch.equal(x2, y2)
    assert not torch.equal(x1, x2)
    assert not torch.equal(x1, two(images, seeded(4))[0])
    assert len(two(images[:1].expand(16, -1, -1, -1))[0].flatten(1).unique(dim=0)) == 16  # each image has its own
    for x in (x1, x2):
        assert x.shape == (16, 3, 32, 32)
        assert x.dtype == torch.float32
        assert x.is_contiguous()


def test_an_image_does_not_depend_on_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    two = TwoViews("simclr_stl10", size=24)
    images = make_images(21, 40, 36)
    p = two.sample(images, seeded())
    whole = apply(images, p, 24)
    alone = torch.cat([apply(images[i : i + 1], Parameters(*(f[:, i : i + 1] for f in p)), 24) for i in range(21)], 1)
    close(alone, whole, terms=terms(images, 24), scale=1)
    monkeypatch.setitem(matrices.CHUNK_PIXELS, "cpu", 2 * 40 * 36 * 8)  # chunks of 8, 8 and 5 images
    close(apply(images, p, 24), whole, terms=terms(images, 24), scale=1)


def test_recipes_with_the_same_seed_share_parameters() -> None:
    p, q = (sample([view], 100, 32, 32, seeded()) for view in (View(), View(hue=0.0, blur=1.0, solarize=0.5)))
    for name in ("top", "left", "height", "width", "flip", "brightness", "saturation"):
        assert torch.equal(getattr(p, name), getattr(q, name))


def test_the_clean_view_is_the_normalized_image() -> None:
    images = make_images(4, 32, 32)
    mean, std = [0.5, 0.4, 0.3], [0.2, 0.25, 0.3]
    two = TwoViews(clean=True, mean=tuple(mean), std=tuple(std))
    _, _, clean = two(images, seeded())
    close(clean, TF.normalize(images / 255, mean, std), terms=terms(images, 32), scale=1 / min(std))
    small = TwoViews(size=20, normalize=False).unaugmented(images)
    close(small, TF.resize(images / 255, [20, 20], antialias=True), terms=terms(images, 20), scale=1)


def test_a_normalized_preset_normalizes_its_views() -> None:
    images = make_images(64, 32, 32)
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
    plain, _ = TwoViews("paper_cifar", normalize=False)(images, seeded())
    ours, _ = TwoViews("paper_cifar", mean=mean, std=std)(images, seeded())
    close(ours, TF.normalize(plain, list(mean), list(std)), terms=terms(images, 32), scale=1 / min(std))
    assert plain.min() >= 0
    assert plain.max() <= 1


def test_half_precision_does_not_change_views() -> None:
    images = make_images(8, 32, 32)
    two = TwoViews()
    expected = two(images, seeded())[0]
    two.to(torch.bfloat16)
    assert not two.state_dict()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(two(images, seeded())[0], expected)


def test_a_move_to_another_device_keeps_the_parameters() -> None:
    images = make_images(8, 32, 32)
    p = draw(View(blur=0.5, solarize=0.5), images)
    moved = p.to(torch.device("cpu:0"))
    assert moved is not p
    for old, new in zip(p, moved, strict=True):
        assert old.dtype == new.dtype
        assert torch.equal(old, new)


def test_parameters_go_to_a_gpu_in_one_pinned_copy_for_which_the_host_does_not_wait(monkeypatch) -> None:
    calls: list[object] = []
    to = Tensor.to

    def moved(tensor: Tensor, target: object, **options: bool) -> Tensor:
        if isinstance(target, torch.dtype):
            return to(tensor, target)
        calls.append((str(target), options))
        return tensor

    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: calls.append("pinned") or tensor)
    monkeypatch.setattr(Tensor, "to", moved)
    draw(View(), make_images(8, 32, 32)).to(torch.device("cuda"))
    assert calls == ["pinned", ("cuda", {"non_blocking": True})]


# ---------------------------------------------------------------------------------------------------------------------
# Recipes and invalid settings


def test_presets_equal_the_recipes_of_the_papers() -> None:
    cifar, stl10 = PRESETS["paper_cifar"], PRESETS["paper_stl10"]
    assert cifar.first == cifar.second == View((0.08, 1), (3 / 4, 4 / 3), 0.5, 0.8, 0.4, 0.4, 0.4, 0.1, 0.2)
    assert cifar.normalize
    assert stl10.first == stl10.second == View((0.08, 1), (3 / 4, 4 / 3), 0.5, 0.8, 0.8, 0.8, 0.8, 0.2, 0.2, blur=1.0)
    assert not stl10.normalize
    assert (gaussian(torch.ones(1), 96)[0, 48] > 0).sum() == 9


def test_byol_solarizes_only_its_second_view() -> None:
    p = TwoViews("byol_cifar").sample(make_images(500, 32, 32), seeded())
    assert p.solarize[0].sum() == 0
    assert 60 < p.solarize[1].sum() < 140


test_invalid_settings_are_rejected_by_name = refused(
    (lambda: TwoViews("simclr_imagenet"), r"preset='simclr_imagenet': preset must be one of paper_cifar"),
    (lambda: TwoViews(size=0), r"size=0"),
    (lambda: TwoViews(std=(0.2, 0.0, 0.2)), r"std=\(0.2, 0.0, 0.2\): std must be three finite numbers above 0"),
    (lambda: View(flip=1.5), r"flip=1.5: flip must be a probability"),
    (lambda: View(hue=0.6), r"hue=0.6"),
    (lambda: View(contrast=-0.1), r"contrast=-0.1"),
    (lambda: View(scale=(0.5, 0.2)), r"scale=\(0.5, 0.2\)"),
    (lambda: View(scale=(0.5, 1.2)), r"at most 1"),
    (lambda: View(sigma=(0.1, math.nan)), r"sigma"),
    (lambda: TwoViews()(torch.rand(2, 3, 8, 8)), r"images=torch.float32: images must be uint8"),
    (lambda: TwoViews()(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)), r"of shape \(B, 3, H, W\)"),
    (lambda: TwoViews()(torch.zeros(3, 8, 8, dtype=torch.uint8)), r"of shape \(B, 3, H, W\)"),
)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_augment_like_one_process(ranks: int) -> None:
    images = make_images(12, 16, 16)
    two = TwoViews("paper_cifar", size=16)
    whole = two(images, seeded(3))
    share = 12 // ranks
    for rank in range(ranks):
        here = slice(rank * share, (rank + 1) * share)
        part = two(images[here], seeded(3), rank, ranks)
        for x, expected in zip(part, whole, strict=True):
            close(x, expected[here], terms=terms(images, 16), scale=1 / min(two.std))
