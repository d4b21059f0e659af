"""Images per second of `lightning-ssl fit` against its bars: the bare network, and the usual way with lightly.

    lightning-ssl bench train [--quick] [--threads 2] [--batch 256] [--json FILE]

resnet_tiny on shapes, batches of 256. Three ways take turns in one process, and medians are compared:

    fit      the command as it is, with all its callbacks: slicing, augmentation, the loss, the probe, the recorder
    bare     the same network, loss and optimizer on two views that lie ready: forward, backward, step
    lightly  the same network with lightly's SimCLR transform on PIL images in two DataLoader workers, and its loss

A turn is a few steps, timed from the end of the first two; validation and checkpoints are not part of a step. A turn
of `fit` is an epoch, so that the probe, which learns before a validation only, has its share of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from lightning_ssl import data, fit
from lightning_ssl.data.sources import Images
from lightning_ssl.methods import SimCLR
from lightning_ssl.runs import Run

WARM = 2  # steps of a turn before the clock


@dataclass
class Bar:
    """One line of the table: a ratio of speeds, what it must reach, and the raw numbers behind it."""

    name: str
    measured: float
    bar: float | None
    detail: str

    @property
    def reached(self) -> bool:
        return self.bar is None or self.measured >= self.bar

    def __str__(self) -> str:
        verdict = "" if self.bar is None else f"≥ {self.bar:<4g} {'reached' if self.reached else 'MISSED'}"
        return f"{self.name:<44} {self.measured:6.2f}  {verdict:<16} {self.detail}"


class Stopwatch(pl.Callback):
    """Seconds per step, from the end of step `WARM` to the end of the last."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self.marks.append(time.perf_counter())

    def seconds(self) -> float:
        return (self.marks[-1] - self.marks[WARM - 1]) / (len(self.marks) - WARM)


def by_fit(batch: int, steps: int, *flags: str) -> float:
    """Seconds per step of the command."""
    options = {"train_images": batch * steps, "test_images": 256}
    argv = [
        "--model=SimCLR", "--model.backbone=resnet_tiny", "--model.augment=paper_cifar", "--trainer.accelerator=cpu",
        f"--data.batch_size={batch}", f"--data.options={json.dumps(options)}", "--trainer.max_epochs=1", *flags,
    ]  # fmt: skip
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder, fit.quiet():
        command = fit.Fit([*argv, "--trainer.enable_progress_bar=false"])
        command.build_objects()
        trainer = command.make_trainer(Run(Path(folder) / "run"), command.as_dict())
        getattr(trainer, "callbacks").append(watch)  # noqa: B009  mypy does not see it; after the recorder
        trainer.fit(command.model, command.datamodule)
    return watch.seconds()


def network() -> SimCLR:
    torch.manual_seed(0)
    return SimCLR(backbone="resnet_tiny", augment="paper_cifar")


def bare(images: Images, batch: int, steps: int) -> float:
    """Seconds per step of forward, backward and optimizer on views that lie ready."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    views = model.views(images.images[:batch])
    marks = []
    for _ in range(steps):
        loss = model.loss_of(views)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        marks.append(time.perf_counter())
    return (marks[-1] - marks[WARM - 1]) / (steps - WARM)


class Pictures(Dataset[Any]):
    """Images one by one, as PIL has them."""

    def __init__(self, images: Images, transform: Callable[[Image.Image], Any]) -> None:
        self.pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images.images]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.pictures[index])


def by_lightly(images: Images, batch: int, steps: int) -> float:
    """Seconds per step of the usual loop with lightly's transform, a DataLoader and lightly's loss."""
    from lightly.loss import NTXentLoss
    from lightly.transforms import SimCLRTransform

    transform = SimCLRTransform(input_size=32, cj_strength=0.5, gaussian_blur=0.0)
    loader: Any = DataLoader(Pictures(images, transform), batch, shuffle=True, num_workers=2, drop_last=True)
    model, criterion = network(), NTXentLoss(temperature=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    marks: list[float] = []
    while len(marks) < steps:
        for x1, x2 in loader:
            z1, z2 = model.embed(torch.cat([x1, x2])).chunk(2)
            loss = criterion(z1, z2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            marks.append(time.perf_counter())
            if len(marks) == steps:
                break
    return (marks[-1] - marks[WARM - 1]) / (steps - WARM)


def measure(batch: int, steps: int, turns: int) -> list[Bar]:
    """All ways in turn; the first turn is not counted."""
    images = data.load("shapes", split="train", train_images=batch * steps)
    off = ("--probe=null", "--knn=null", "--rank=null", "--alpha=null")
    ways: dict[str, Callable[[], float]] = {
        "fit": lambda: by_fit(batch, steps),
        "fit without callbacks": lambda: by_fit(batch, steps, *off),
        "bare": lambda: bare(images, batch, steps),
        "lightly": lambda: by_lightly(images, batch, steps),
    }
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name, way in ways.items():
            seconds = way()
            if turn:
                spent[name].append(seconds)
            print(f"turn {turn} {name}: {batch / seconds:.0f} images/s", file=sys.stderr, flush=True)
    speed = {name: batch / statistics.median(seconds) for name, seconds in spent.items()}

    def against(name: str, other: str, bar: float | None) -> Bar:
        ratio = statistics.median(b / a for a, b in zip(spent[name], spent[other], strict=True))
        return Bar(f"{name} over {other}", ratio, bar, f"{speed[name]:.0f} against {speed[other]:.0f} images/s")

    return [
        against("fit", "bare", 0.85),
        against("fit without callbacks", "bare", None),
        against("fit", "lightly", 1.5),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line per bar; exit code 1 if one is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one turn of few steps: that it runs, not how fast")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=39, help="of a turn; 39 are an epoch of shapes")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", type=Path, default=None, help="also write the figures to a file")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    steps, turns = (4, 1) if options.quick else (options.steps, options.turns)
    bars = measure(options.batch, steps, turns)
    for bar in bars:
        print(bar)
    if options.json:
        options.json.write_text(json.dumps([asdict(bar) for bar in bars], indent=2))
    return 0 if options.quick or all(bar.reached for bar in bars) else 1


if __name__ == "__main__":
    raise SystemExit(main())
