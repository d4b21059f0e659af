"""Two augmented views of 32×32 images against their bars: images per second, the paper_cifar recipe.

    lightning-ssl bench augment [--quick] [--threads 2] [--batch 256] [--json FILE]

The same images go through three pipelines that take turns in one process; medians of whole passes are compared, so that
a busy machine slows all. Torchvision's is the usual one: a Dataset of PIL images, transformed one by one in as many
DataLoader workers as there are threads. Kornia's is its batched one, with crops by resampling, the faster of its two
ways. The batched ones run with one thread or with all, whichever a first pass finds faster: on a busy machine every
operation of two threads waits for the slower core.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from lightning_ssl.augment import PRESETS, TwoViews

SIZE = 32
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
VIEW = PRESETS["paper_cifar"].first
JITTER = (VIEW.brightness, VIEW.contrast, VIEW.saturation, VIEW.hue)
Pass = Callable[[], Tensor]


@dataclass
class Bar:
    """One line of the table: how many times faster, what it must reach, and the raw numbers behind it."""

    name: str
    measured: float
    bar: float
    detail: str

    @property
    def reached(self) -> bool:
        return self.measured >= self.bar

    def __str__(self) -> str:
        verdict = "reached" if self.reached else "MISSED"
        return f"{self.name:<56} {self.measured:7.2f}  ≥ {self.bar:<4g} {verdict:<8} {self.detail}"


def make_images(count: int) -> Tensor:
    """Smooth coloured noise: uint8 (count, 3, SIZE, SIZE)."""
    coarse = torch.rand(count, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    smooth = torch.nn.functional.interpolate(coarse, (SIZE, SIZE), mode="bilinear")
    return (255 * smooth).to(torch.uint8)


# ---------------------------------------------------------------------------------------------------------------------
# The contenders: each makes two views of every image, batch by batch, and returns the last batch


def ours(images: Tensor, batch: int) -> Pass:
    augment = TwoViews("paper_cifar", SIZE, MEAN, STD)

    def run() -> Tensor:
        for part in images.split(batch):
            x1, _ = augment(part)
        return x1

    return run


class Pictures(Dataset[tuple[Tensor, Tensor]]):
    """Two transformed views of one image, as torchvision's CIFAR and lightly's two-view transforms give them."""

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
    loader = DataLoader(Pictures(images), batch, num_workers=workers, persistent_workers=True)

    def run() -> Tensor:
        for x1, _ in loader:  # noqa: B007
            pass
        return x1

    return run


def kornia(images: Tensor, batch: int) -> Pass:
    try:
        from kornia import augmentation
    except ImportError:
        raise ValueError("kornia is not installed: `make bench` installs what the benchmarks compare with") from None
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


def seconds(run: Pass) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def with_best_threads(run: Pass, most: int) -> Pass:
    """The same with one thread or with all, whichever is faster here and now."""

    def run_with(threads: int) -> Tensor:
        torch.set_num_threads(threads)
        return run()

    first = {threads: partial(run_with, threads) for threads in (1, most)}
    return min(first.values(), key=lambda run: min(seconds(run), seconds(run)))


def medians(contenders: dict[str, Pass], repeats: int) -> dict[str, float]:
    """Seconds of each, taking turns."""
    for name, run in contenders.items():
        moments = run().mean(), run().std()
        if not (abs(moments[0]) < 0.5 and 0.3 < moments[1] < 1.5):
            raise RuntimeError(f"{name} does not normalize: mean {moments[0]:.2f}, deviation {moments[1]:.2f}")
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in contenders.items():
            times[name].append(seconds(run))
    return {name: statistics.median(values) for name, values in times.items()}


def measure(images: Tensor, batch: int, threads: int, repeats: int) -> list[Bar]:
    contenders = {
        "ours": with_best_threads(ours(images, batch), threads),
        "torchvision": torchvision(images, batch, threads),
        "kornia": with_best_threads(kornia(images, batch), threads),
    }
    t = medians(contenders, repeats)
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


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="lightning-ssl bench augment", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2, help="torch threads, and worker processes (default: 2)")
    parser.add_argument("--batch", type=int, default=256, help="images of a batch (default: 256)")
    parser.add_argument("--repeats", type=int, default=7, help="turns that each contender takes (default: 7)")
    parser.add_argument("--quick", action="store_true", help="three turns over fewer images")
    parser.add_argument("--json", type=Path, help="write the figures to a file as well")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    images = make_images((4 if options.quick else 8) * options.batch)
    bars = measure(images, options.batch, options.threads, 3 if options.quick else options.repeats)
    print(*bars, sep="\n")
    if options.json:
        options.json.write_text(json.dumps([asdict(bar) | {"reached": bar.reached} for bar in bars], indent=1) + "\n")
    missed = sum(not bar.reached for bar in bars)
    print(f"{len(bars) - missed} of {len(bars)} bars reached, {options.threads} threads, torch {torch.__version__}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
