"""Images per second of `lightning-ssl fit` against its bars: the bare network, and the usual way with lightly.

    lightning-ssl bench train [--quick] [--threads 1] [--turns 7] [--batch 256] [--json FILE]

resnet_tiny on shapes, batches of 256. The ways take turns in one process, and medians over the turns are compared:

    fit         the command as it is, with all its callbacks: slicing, augmentation, the loss, the probe, the recorder
    bare        the same network, loss, optimizer and memory format on two views that lie ready: forward, backward, step
    contiguous  `fit` with --model.channels_last false
    lightly     the same network with lightly's SimCLR transform on PIL images in two DataLoader workers, and its loss,
                in torch's default memory format, as lightly's examples are; left out where lightly is not installed

A turn is an epoch of a few steps, so that the probe, which learns before a validation only, has its share of it.
Validation and checkpoints are not part of a step, and the first steps of a turn are not counted. `bare` takes a step
after each step of `fit`, so that other work on the machine slows both alike.
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
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from lightning_ssl import data
from lightning_ssl.commands import fit
from lightning_ssl.data.download import Images
from lightning_ssl.methods import SimCLR
from lightning_ssl.runs import Run

WARM = 1  # steps of a turn before the clock


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
    """Seconds of each training step, and of a step of another way taken after it."""

    def __init__(self, other: Callable[[], None] = lambda: None) -> None:
        self.other = other
        self.own: list[float] = []
        self.others: list[float] = []
        self.mark = 0.0

    def on_train_epoch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        self.mark = time.perf_counter()

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        now = time.perf_counter()
        self.own.append(now - self.mark)
        self.other()
        self.mark = time.perf_counter()
        self.others.append(self.mark - now)


def by_fit(batch: int, steps: int, *flags: str, other: Callable[[], None] = lambda: None) -> tuple[float, float]:
    """Seconds per step of the command, and of the other way."""
    options = {"train_images": batch * steps, "test_images": 256}
    argv = [
        "--model=SimCLR", "--model.backbone=resnet_tiny", "--model.augment=paper_cifar", "--trainer.accelerator=cpu",
        f"--data.batch_size={batch}", f"--data.options={json.dumps(options)}", "--trainer.max_epochs=1", *flags,
    ]  # fmt: skip
    watch = Stopwatch(other)
    with tempfile.TemporaryDirectory() as folder, fit.quiet():
        command = fit.Fit([*argv, "--trainer.enable_progress_bar=false"])
        command.build_objects()
        trainer = command.make_trainer(Run(Path(folder) / "run"), command.as_dict())
        getattr(trainer, "callbacks").append(watch)  # noqa: B009  mypy does not see it; after the recorder
        trainer.fit(command.model, command.datamodule)
    return statistics.mean(watch.own[WARM:]), statistics.mean(watch.others[WARM:])


def network(**settings: Any) -> SimCLR:
    torch.manual_seed(0)
    return SimCLR(backbone="resnet_tiny", augment="paper_cifar", **settings)


def bare(images: Images, batch: int) -> Callable[[], None]:
    """A step of forward, backward and optimizer on views that lie ready."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    views = model.views(images.images[:batch])

    def step() -> None:
        loss = model.compute_loss(views)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


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
    model, criterion = network(channels_last=False), NTXentLoss(temperature=0.5)
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
    bare_step = bare(images, batch)
    off = ("--probe=null", "--knn=null", "--spectrum=null", "--importance_monitor=null")
    ways: dict[str, Callable[[], tuple[float, ...]]] = {
        "fit, bare": lambda: by_fit(batch, steps, other=bare_step),
        "fit without callbacks": lambda: by_fit(batch, steps, *off)[:1],
        "fit contiguous": lambda: by_fit(batch, steps, "--model.channels_last=false")[:1],
    }
    if find_spec("lightly"):
        ways["lightly"] = lambda: (by_lightly(images, batch, steps),)
    spent: dict[str, list[float]] = {name: [] for names in ways for name in names.split(", ")}
    for turn in range(turns + 1):
        for names, way in ways.items():
            for name, seconds in zip(names.split(", "), way(), strict=True):
                if turn:
                    spent[name].append(seconds)
                print(f"turn {turn} {name}: {batch / seconds:.0f} images/s", file=sys.stderr, flush=True)
    speed = {name: batch / statistics.median(seconds) for name, seconds in spent.items()}

    def against(name: str, other: str, bar: float | None) -> Bar:
        ratio = statistics.median(b / a for a, b in zip(spent[name], spent[other], strict=True))
        return Bar(f"{name} over {other}", ratio, bar, f"{speed[name]:.0f} against {speed[other]:.0f} images/s")

    return [
        against("fit", "bare", 0.92),
        against("fit without callbacks", "bare", None),
        against("fit", "fit contiguous", 1.2),
        # Its two workers take cores of their own: a bar only where `fit` has a second one as well.
        *([against("fit", "lightly", 1.5 if torch.get_num_threads() > 1 else None)] if "lightly" in spent else []),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line per bar; exit code 1 if one is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one turn of few steps: that it runs, not how fast")
    parser.add_argument("--threads", type=int, default=1, help="two suffer wherever another process takes a core")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=40, help="of a turn")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--json", type=Path, default=None, help="also write the figures to a file")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    steps, turns = (WARM + 2, 1) if options.quick else (options.steps, options.turns)
    bars = measure(options.batch, steps, turns)
    for bar in bars:
        print(bar)
    if options.json:
        options.json.write_text(json.dumps([asdict(bar) for bar in bars], indent=2))
    return 0 if options.quick or all(bar.reached for bar in bars) else 1


if __name__ == "__main__":
    raise SystemExit(main())
