"""Images per second of two augmented views of 32×32 images, the recipe paper_cifar.

    lightning-ssl bench augment [--quick] [--threads 2] [--batch 256] [--json FILE]

Three pipelines take turns on the same images in one process, and medians of whole passes are compared, so other work on
the machine slows all of them. The pipeline of torchvision is a Dataset of PIL images, transformed one by one in as many
DataLoader workers as there are threads. The pipeline of kornia is batched, with crops by resampling, which is faster
than its other mode. The batched pipelines run with one thread or with all threads: a first pass finds which is faster.
On a busy machine one thread can be faster, because two threads wait for the slower core at every operation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import torch
from bars import Bar, conclude, median_seconds, require_new, seconds
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from lightning_ssl.app.commands.parser import Command
from lightning_ssl.augment import PRESETS, TwoViews
from lightning_ssl.base.checks import UserError

SIZE = 32
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
VIEW = PRESETS["paper_cifar"].first
JITTER = (VIEW.brightness, VIEW.contrast, VIEW.saturation, VIEW.hue)
Pass = Callable[[], Tensor]


def make_images(count: int) -> Tensor:
    """Smooth coloured noise: uint8 (count, 3, SIZE, SIZE)."""
    coarse = torch.rand(count, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    smooth = torch.nn.functional.interpolate(coarse, (SIZE, SIZE), mode="bilinear")
    return (255 * smooth).to(torch.uint8)


# ---------------------------------------------------------------------------------------------------------------------
# The contenders. Each makes two views of every image, batch by batch, and returns the first view of the last batch


def ours(images: Tensor, batch: int) -> Pass:
    """`TwoViews` on whole batches."""
    augment = TwoViews("paper_cifar", SIZE, MEAN, STD)

    def run() -> Tensor:
        for part in images.split(batch):
            x1, _ = augment(part)
        return x1

    return run


class TwoViewImages(Dataset[tuple[Tensor, Tensor]]):
    """Two transformed views of one PIL image."""

    def __init__(self, images: Tensor) -> None:
        self.pixels = images.permute(0, 2, 3, 1).numpy()
        self.transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(SIZE, VIEW.scale, VIEW.ratio),
                transforms.RandomHorizontalFlip(VIEW.flip),
                transforms.RandomApply([transforms.ColorJitter(*JITTER)], VIEW.jitter),
                transforms.RandomGrayscale(VIEW.gray),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD),
            ]
        )

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = Image.fromarray(self.pixels[index])
        return self.transform(image), self.transform(image)


def torchvision(images: Tensor, batch: int, workers: int) -> Pass:
    """torchvision's transforms on PIL images, in DataLoader workers."""
    loader = DataLoader(TwoViewImages(images), batch, num_workers=workers, persistent_workers=True)

    def run() -> Tensor:
        for x1, _ in loader:  # noqa: B007
            pass
        return x1

    return run


def kornia(images: Tensor, batch: int) -> Pass:
    """kornia's transforms on whole batches."""
    try:
        from kornia import augmentation
    except ImportError:
        raise UserError("kornia is not installed: `make bench` installs what the benchmarks compare with") from None
    augment = augmentation.AugmentationSequential(
        augmentation.RandomResizedCrop((SIZE, SIZE), VIEW.scale, VIEW.ratio, cropping_mode="resample"),
        augmentation.RandomHorizontalFlip(p=VIEW.flip),
        augmentation.ColorJitter(*JITTER, p=VIEW.jitter),
        augmentation.RandomGrayscale(p=VIEW.gray),
        augmentation.Normalize(torch.tensor(MEAN), torch.tensor(STD)),
        data_keys=["input"],
    )

    def run() -> Tensor:
        for part in images.split(batch):
            x = part / 255
            x1, _ = augment(x), augment(x)
        return x1

    return run


def with_best_threads(run: Pass, most: int) -> Pass:
    """Return the faster of the same pass with one thread and with all threads."""

    def run_with(threads: int) -> Tensor:
        torch.set_num_threads(threads)
        return run()

    choices = [partial(run_with, threads) for threads in (1, most)]
    return min(choices, key=lambda run: min(seconds(run), seconds(run)))


def check_normalized(name: str, run: Pass) -> None:
    """Refuse a contender whose views are not normalized."""
    mean, deviation = run().mean(), run().std()
    if not (abs(mean) < 0.5 and 0.3 < deviation < 1.5):
        raise RuntimeError(f"{name} does not normalize: mean {mean:.2f}, deviation {deviation:.2f}")


def measure(images: Tensor, batch: int, threads: int, repeats: int) -> list[Bar]:
    """Time all contenders; return one bar for each of the others."""
    contenders = {
        "ours": with_best_threads(ours(images, batch), threads),
        "torchvision": torchvision(images, batch, threads),
        "kornia": with_best_threads(kornia(images, batch), threads),
    }
    for name, run in contenders.items():
        check_normalized(name, run)
    t = median_seconds(contenders, repeats)
    rate = {name: f"{len(images) / median:,.0f}" for name, median in t.items()}
    return [
        Bar(
            f"{what}: times faster",
            t[name] / t["ours"],
            bar,
            f"{rate['ours']} against {rate[name]} images/s, two views",
        )
        for name, what, bar in (
            ("torchvision", f"torchvision on PIL images, {threads} workers", 15.0),
            ("kornia", "kornia on whole batches", 3.0),
        )
    ]


def run(*, threads: int = 2, batch: int = 256, repeats: int = 7, quick: bool = False, json: str | None = None) -> int:
    """Speed of the augmentation against its bars. The exit code is 1 if a bar is missed.

    Args:
        threads: torch threads and worker processes
        batch: images per batch
        repeats: turns of each contender
        quick: three turns over fewer images
        json: also write the figures to this new file
    """
    require_new(json)
    torch.set_num_threads(threads)
    images = make_images((4 if quick else 8) * batch)
    bars = measure(images, batch, threads, 3 if quick else repeats)
    print(*bars, sep="\n")
    return conclude(bars, json)


LIMITS = {"threads": (1, 1024), "batch": (1, 65_536), "repeats": (1, 10_000)}
main = Command("bench augment", run, __doc__, LIMITS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
