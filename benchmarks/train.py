"""Images per second of `lightning-ssl fit`, compared with a bare training loop and with lightly.

    lightning-ssl bench train [--quick] [--threads 1] [--turns 7] [--batch 256] [--json FILE]

The network is resnet_tiny on shapes, in batches of 256. The contenders take turns in one process, and medians over the
turns are compared:

    fit         the whole command with its callbacks: slicing, augmentation, loss, probe, recorder
    bare        forward, backward and optimizer step of the same network, loss, optimizer and memory format, on two
                views that are computed before
    contiguous  `fit` with --model.channels_last false
    lightly     the same network with lightly's SimCLR transform on PIL images in two DataLoader workers and lightly's
                loss, in torch's default memory format, as in lightly's examples; only if lightly is installed

A turn is an epoch of a few steps, because the probe trains only before a validation and its time must be included.
Validation and checkpoints do not count, nor do the first steps of a turn. `bare` takes a step after each step of `fit`,
so other work on the machine slows both.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytorch_lightning as pl
import torch
from bars import Bar, conclude, require_new
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from lightning_ssl import data
from lightning_ssl.app.commands.parser import Command
from lightning_ssl.app.config.configuration import Configuration
from lightning_ssl.app.runs.folder import RunFolder
from lightning_ssl.app.training.run import quiet
from lightning_ssl.app.training.trainer import make_trainer
from lightning_ssl.data import Images
from lightning_ssl.methods import SimCLR
from lightning_ssl.methods.base import Optimization

WARMUP_STEPS = 1  # of a turn, not counted


class Stopwatch(pl.Callback):
    """Measures the seconds of each training step, and of a step of another contender after it."""

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
    """Seconds per step of the command, and of the other contender."""
    options = {"train_images": batch * steps, "test_images": 256}
    argv = [
        "--model=SimCLR", "--model.backbone=resnet_tiny", "--model.augment=paper_cifar", "--trainer.accelerator=cpu",
        f"--data.batch_size={batch}", f"--data.options={json.dumps(options)}", "--trainer.max_epochs=1", *flags,
    ]  # fmt: skip
    watch = Stopwatch(other)
    with tempfile.TemporaryDirectory() as folder, quiet():
        config = Configuration.parse([*argv, "--trainer.enable_progress_bar=false"])
        parts = config.build()
        trainer = make_trainer(parts, RunFolder(folder), config.stored())
        getattr(trainer, "callbacks").append(watch)  # noqa: B009  mypy does not see it; after the recorder
        trainer.fit(parts.method, parts.data)
    return statistics.mean(watch.own[WARMUP_STEPS:]), statistics.mean(watch.others[WARMUP_STEPS:])


def network(**settings: Any) -> SimCLR:
    """The network of all contenders."""
    torch.manual_seed(0)
    return SimCLR(backbone="resnet_tiny", augment="paper_cifar", **settings)


def bare(images: Images, batch: int) -> Callable[[], None]:
    """Return a function that takes one step of forward, backward and optimizer on the same views every time."""
    model = network(optimization=Optimization(lr=0.01))
    optimizer = model.make_optimizer()
    views = model.views(images.images[:batch])

    def step() -> None:
        loss = model.compute_loss(views)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


class PILImages(Dataset[Any]):
    """Transformed PIL images, one at a time."""

    def __init__(self, images: Images, transform: Callable[[Image.Image], Any]) -> None:
        self.images = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images.images]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.images[index])


def by_lightly(images: Images, batch: int, steps: int) -> float:
    """Seconds per step of a loop with lightly's transform, a DataLoader and lightly's loss."""
    from lightly.loss import NTXentLoss
    from lightly.transforms import SimCLRTransform

    transform = SimCLRTransform(input_size=32, cj_strength=0.5, gaussian_blur=0.0)
    loader: Any = DataLoader(PILImages(images, transform), batch, shuffle=True, num_workers=2, drop_last=True)
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
    return (marks[-1] - marks[WARMUP_STEPS - 1]) / (steps - WARMUP_STEPS)


def measure(batch: int, steps: int, turns: int) -> list[Bar]:
    """Time all contenders in turns; the first turn is not counted."""
    images = data.load("shapes", split="train", train_images=batch * steps)
    bare_step = bare(images, batch)
    off = ("--probe=null", "--knn=null", "--spectrum=null", "--importance_monitor=null")
    contenders: dict[str, Callable[[], tuple[float, ...]]] = {
        "fit, bare": lambda: by_fit(batch, steps, other=bare_step),
        "fit without callbacks": lambda: by_fit(batch, steps, *off)[:1],
        "fit contiguous": lambda: by_fit(batch, steps, "--model.channels_last=false")[:1],
    }
    if find_spec("lightly"):
        contenders["lightly"] = lambda: (by_lightly(images, batch, steps),)
    spent: dict[str, list[float]] = {name: [] for names in contenders for name in names.split(", ")}
    for turn in range(turns + 1):
        for names, run in contenders.items():
            for name, seconds in zip(names.split(", "), run(), strict=True):
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
        # lightly's two workers use further cores. The comparison has a bar only if `fit` has a second core too.
        *([against("fit", "lightly", 1.5 if torch.get_num_threads() > 1 else None)] if "lightly" in spent else []),
    ]


def run(
    *, quick: bool = False, threads: int = 1, batch: int = 256, steps: int = 40, turns: int = 7, json: str | None = None
) -> int:
    """Speed of a training against its bars. The exit code is 1 if a bar is missed.

    Args:
        quick: one turn of few steps, to test that it runs
        threads: torch threads; with two, another process on one core slows both
        batch: images per step
        steps: steps per turn
        turns: turns of each contender
        json: also write the figures to this new file
    """
    require_new(json)
    torch.set_num_threads(threads)
    bars = measure(batch, *((WARMUP_STEPS + 2, 1) if quick else (steps, turns)))
    print(*bars, sep="\n")
    code = conclude(bars, json)
    return 0 if quick else code


LIMITS = {"threads": (1, 1024), "batch": (1, 65_536), "steps": (1, 10_000), "turns": (1, 10_000)}
main = Command("bench train", run, __doc__, LIMITS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
