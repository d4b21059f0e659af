"""`shapes`: images depend on the seed only, classes need shape and texture, pixels are not linearly separable."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lightning_ssl import data
from lightning_ssl.data import shapes


@pytest.fixture(scope="module")
def train():
    return data.load("shapes", split="train")


@pytest.fixture(scope="module")
def test():
    return data.load("shapes", split="test")


def test_images_are_uint8_with_ten_named_classes(train):
    assert train.images.shape == (10_000, 3, 32, 32)
    assert train.images.dtype == torch.uint8
    assert len(set(train.classes)) == 10
    assert torch.bincount(train.labels, minlength=10).min() > 900


def test_images_depend_on_the_seed_and_not_on_their_number(train):
    again = data.load("shapes", split="train", train_images=300)
    other = data.load("shapes", split="train", train_images=300, seed=1)
    assert torch.equal(again.images, train.images[:300])  # independent of how many are drawn
    assert torch.equal(again.labels, train.labels[:300])
    assert not torch.equal(other.images, again.images)


def test_no_test_image_is_a_training_image(train, test):
    seen = {image.numpy().tobytes() for image in train.images}
    assert len(seen) == len(train)
    assert not any(image.numpy().tobytes() in seen for image in test.images)


def test_mean_and_std_equal_the_stated_ones(train):
    std, mean = torch.std_mean(train.images.float() / 255, (0, 2, 3))
    info, finite_sample = data.info("shapes"), 4e-3
    assert mean.tolist() == pytest.approx(info.mean, abs=finite_sample)
    assert std.tolist() == pytest.approx(info.std, abs=finite_sample)


def plane(side):
    axis = torch.linspace(-2, 2, side)
    return torch.stack(torch.meshgrid(axis, axis, indexing="xy"))[:, None]  # (2, 1, H, W)


@pytest.mark.parametrize("shape", range(len(shapes.OUTLINES)))
def test_shapes_have_equal_areas(shape):
    inside = shapes.distance(plane(400), torch.tensor([shape])) < 0
    assert inside.double().mean() * 16 == pytest.approx(math.pi, rel=0.01)  # 400 × 400 pixels


@pytest.mark.parametrize(
    ("name", "share"),
    [("plain", 0), ("striped", 0.5), ("dotted", math.pi * 0.32**2), ("mottled", 0.5), ("checked", 0.5)],
)
def test_textures_cover_the_expected_area(name, share):
    noise = torch.rand(1, 1, 40, 40, generator=torch.Generator().manual_seed(0))
    kind = torch.tensor([shapes.TEXTURES.index(name)])
    cover = shapes.texture(plane(400), noise, kind, torch.tensor([0.01]))
    assert cover.mean() == pytest.approx(share, abs=0.03)  # few periods


def test_the_class_needs_both_shape_and_texture():
    pairs = list(zip(shapes.SHAPE_OF, shapes.TEXTURE_OF, strict=True))
    assert len(set(pairs)) == 10
    assert all(shapes.SHAPE_OF.count(i) == shapes.TEXTURE_OF.count(i) == 2 for i in range(5))


def test_edges_are_antialiased():
    depth = torch.tensor([-2.0, -0.5, -0.25, 0.0, 0.25, 0.5, 2.0])  # in pixels, negative inside
    assert shapes.coverage(depth, 1.0).tolist() == [1, 1, 0.75, 0.5, 0.25, 0, 0]


def test_a_larger_size_is_the_same_image_with_more_pixels():
    generators = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    (small, y), (large, y_large) = (shapes.draw(50, size, g) for size, g in zip((32, 96), generators, strict=True))
    assert torch.equal(y, y_large)
    assert (F.avg_pool2d(large.float(), 3) - small.float()).abs().mean() < 8  # of 255; noise and texture edges


def accuracy(model, train, test, epochs, lr, weight_decay):
    torch.manual_seed(0)
    x, x_test = (((split.images.float() / 255 - 0.5) / 0.23) for split in (train, test))
    steps = epochs * (len(x) // 128)
    optimizer = torch.optim.AdamW(model.parameters(), lr, weight_decay=weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps)
    for _ in range(steps):
        ids = torch.randint(len(x), (128,))
        loss = F.cross_entropy(model(x[ids]), train.labels[ids])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        right = torch.cat([model(part).argmax(1) for part in x_test.split(500)]) == test.labels
    return right.double().mean().item()


def test_linear_classifier_on_pixels_has_low_accuracy(train, test):
    assert accuracy(nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)), train, test, 4, 1e-3, 0.1) < 0.45


@pytest.mark.slow
def test_small_network_has_high_accuracy(train, test):
    widths = (3, 24, 48, 96, 96)
    layers = []
    for i, (wide, wider) in enumerate(pairwise(widths)):
        layers += [nn.Conv2d(wide, wider, 3, 1 if i == 0 else 2, 1, bias=False), nn.BatchNorm2d(wider), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 10))
    assert accuracy(model, train, test, 5, 6e-3, 0.01) > 0.85
