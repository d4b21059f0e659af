"""Time per run-epoch of the laboratories: all seeds as one tensor program against a plain one-seed loop.

    python benchmarks/labs.py [--seeds 10] [--repeats 7] [--threads N]

The plain loops below are what one would write first, and how the papers' programs are built: a Dataset that augments
one sample, a DataLoader, torch's own layers, autograd and SGD, one seed at a time. The tight loops are the same without
Dataset and DataLoader: whole batches are drawn and masked as tensors. All sides do the same work on the same sizes, in
one process, taking turns; medians are reported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from bars import median_seconds
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from lightning_ssl.app.commands.parser import Command
from lightning_ssl.labs.hltm.training import train as train_trees
from lightning_ssl.labs.landscape.data import sparse_codes
from lightning_ssl.labs.landscape.tables import MODELS, Row
from lightning_ssl.labs.landscape.training import Setting, train


@dataclass(frozen=True)
class Case:
    """One comparison: `batched(seeds)`, `plain()` and `tight()` all train `epochs` epochs."""

    name: str
    epochs: int
    batched: Callable[[int], object]
    plain: Callable[[], object]
    tight: Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Median milliseconds per run-epoch of all sides."""

    name: str
    seeds: int
    batched: float
    plain: float
    tight: float


# ----------------------------------------------------------------------------------------- landscape, one seed, plainly


class Encoder(nn.Module):
    """Linear, batch normalization, symmetric ReLU."""

    def __init__(self, p: int, m: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(p, m), nn.BatchNorm1d(m, affine=False, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.linear(x))
        return F.relu(h) - F.relu(2 * self.linear.bias - h)


def sparse_coding(setting: Setting) -> Tensor:
    """The data of one seed: (samples, p)."""
    s, generator = setting, torch.Generator().manual_seed(0)
    M = torch.linalg.qr(torch.randn(s.p, s.d))[0]
    z = sparse_codes("permuted", s.samples, s.d, 0.1, generator)
    return z @ M.T + s.sigma0 * torch.randn(s.samples, s.p)


class Masked(Dataset[Tensor]):
    """Two views of one sample."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Tensor:
        return self.x[index] * (torch.rand(2, self.x.shape[1]) < 0.5)


def plain_batches(x: Tensor, s: Setting, drop_last: bool) -> Iterator[Tensor]:
    """Views (2, N, p), sample by sample."""
    for views in DataLoader(Masked(x), s.batch, shuffle=True, drop_last=drop_last):
        yield views.transpose(0, 1)


def tight_batches(x: Tensor, s: Setting, drop_last: bool) -> Iterator[Tensor]:
    """Views (2, N, p), batch by batch."""
    for index in torch.randperm(s.samples).split(s.batch):
        if len(index) == s.batch or not drop_last:
            yield x[index] * (torch.rand(2, len(index), s.p) < 0.5)


def dual(setting: Setting, batches: Callable[[Tensor, Setting, bool], Iterator[Tensor]]) -> None:
    """NCL-basic: two encoders, updated in turn."""
    s, x = setting, sparse_coding(setting)
    encoders = [Encoder(s.p, s.m), Encoder(s.p, s.m)]
    optimizers = [torch.optim.SGD(encoder.parameters(), lr=0.025) for encoder in encoders]
    for _ in range(s.epochs):
        for step, views in enumerate(batches(x, s, False)):
            k = step % 2
            with torch.no_grad():
                target = F.normalize(encoders[1 - k](views[1 - k]))
            loss = (F.normalize(encoders[k](views[k])) - target).square().sum(1).mean()
            optimizers[k].zero_grad()
            loss.backward()
            optimizers[k].step()


def pairs(setting: Setting, batches: Callable[[Tensor, Setting, bool], Iterator[Tensor]]) -> None:
    """CL-basic: one encoder, NT-Xent."""
    s, x = setting, sparse_coding(setting)
    encoder = Encoder(s.p, s.m)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.025)
    own = torch.eye(2 * s.batch, dtype=torch.bool)
    partner = torch.arange(2 * s.batch).roll(s.batch)
    for _ in range(s.epochs):
        for views in batches(x, s, True):
            z = F.normalize(torch.cat([encoder(views[0]), encoder(views[1])]))
            loss = F.cross_entropy((z @ z.T / s.tau).masked_fill(own, -torch.inf), partner)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


# --------------------------------------------------------------------------------------- latent tree, one seed, plainly


class Tree(nn.Module):
    """A tree-shaped ReLU network: every latent has `width` nodes that read the nodes of its two children."""

    def __init__(self, depth: int, width: int) -> None:
        super().__init__()
        fans = [2] + [2 * width] * (depth - 1)
        shapes = [(2 ** (depth - 1 - t), fan, width) for t, fan in enumerate(fans)]
        self.W = nn.ParameterList([(torch.rand(shape) * 2 - 1) / shape[1] ** 0.5 for shape in shapes])
        self.b = nn.ParameterList([(torch.rand(n, width) * 2 - 1) / fan**0.5 for n, fan, width in shapes])

    def forward(self, leaves: Tensor) -> Tensor:
        f = leaves[..., None]  # (N, 2^L, 1)
        for t, (W, b) in enumerate(zip(self.W, self.b, strict=True)):
            below = (f.relu() if t else f).flatten(1).unflatten(1, (W.shape[0], W.shape[1]))  # (N, n, 2h)
            f = torch.einsum("Nnf,nfh->Nnh", below, W) + b
        return f[:, 0]


def triples(roots: Tensor, depth: int, rho: float) -> Tensor:
    """Leaves (3, N, 2^depth) of an anchor, a positive of the same root and a negative; roots (2, N)."""
    z = torch.stack([roots[0], roots[0], roots[1]])[..., None]
    for _ in range(depth):
        z = z.repeat_interleave(2, 2)
        z = z ^ (torch.rand(z.shape) < (1 - rho) / 2)
    return z.float()


class Triples(Dataset[Tensor]):
    """Anchor, positive and negative, drawn when asked for."""

    def __init__(self, samples: int, depth: int, rho: float) -> None:
        self.samples, self.depth, self.rho = samples, depth, rho

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Tensor:
        return triples(torch.rand(2, 1) < 0.5, self.depth, self.rho)[:, 0]


def tree(loaded: bool, depth: int = 5, width: int = 10, samples: int = 1280, batch: int = 128) -> None:
    """One epoch of one trial of the latent tree, sample by sample (`loaded`) or batch by batch."""
    network, rho, tau = Tree(depth, width), 0.85, 0.1
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    batches: Iterable[Tensor]
    if loaded:
        batches = (leaves.transpose(0, 1) for leaves in DataLoader(Triples(samples, depth, rho), batch))
    else:
        batches = (triples(torch.rand(2, batch) < 0.5, depth, rho) for _ in range(samples // batch))
    for leaves in batches:
        anchor, positive, negative = F.normalize(network(leaves.flatten(0, 1))).chunk(3)
        gap = (negative - anchor).square().mean() - (positive - anchor).square().mean()
        loss = -torch.sigmoid(gap / tau)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# --------------------------------------------------------------------------------------------------------------- timing


def cases() -> list[Case]:
    """What is compared: the papers' sizes, few epochs."""
    many, few = Setting(epochs=10), Setting(epochs=3)

    def batched(model: str, setting: Setting) -> Callable[[int], object]:
        return lambda seeds: train(Row("", model, MODELS[model], 0.5), [0.1], range(seeds), setting)

    def batched_tree(seeds: int) -> object:
        settings: dict[str, Any] = {"epochs": 1, "samples": 1280, "batch": 128, "lr": 0.1, "tau": 0.1, "loss": "nce"}
        settings |= dict.fromkeys(("signed", "fresh", "bias", "normalize"), True) | {"first_seed": 0, "seeds": seeds}
        return train_trees(5, (10,), (0.7,), ("root",), (), settings)

    return [
        Case(
            "landscape, NCL-basic",
            many.epochs,
            batched("ncl_basic", many),
            lambda: dual(many, plain_batches),
            lambda: dual(many, tight_batches),
        ),
        Case(
            "landscape, CL-basic",
            few.epochs,
            batched("cl_basic", few),
            lambda: pairs(few, plain_batches),
            lambda: pairs(few, tight_batches),
        ),
        Case("hltm, width 10", 1, batched_tree, lambda: tree(True), lambda: tree(False)),
    ]


def measure(case: Case, seeds: int, repeats: int) -> Timing:
    """Take turns, batched, plain, tight, after one round that is not counted."""
    sides = {"batched": lambda: case.batched(seeds), "plain": case.plain, "tight": case.tight}
    median_seconds(sides, 1)
    found = {name: 1e3 * value / case.epochs for name, value in median_seconds(sides, repeats).items()}
    return Timing(case.name, seeds, found["batched"] / seeds, found["plain"], found["tight"])


def run(*, seeds: int = 10, repeats: int = 7, threads: int | None = None) -> int:
    """Time per run-epoch of the laboratories.

    Args:
        seeds: seeds of a batched run
        repeats: turns of each side
        threads: torch threads (default: torch's own choice)
    """
    if threads is not None:
        torch.set_num_threads(threads)
    print(f"{seeds} seeds, {torch.get_num_threads()} threads; ms per run-epoch, medians of {repeats}")
    for case in cases():
        t = measure(case, seeds, repeats)
        print(
            f"{t.name:22s} batched {t.batched:7.2f}   plain loop {t.plain:7.2f} ({t.plain / t.batched:5.1f} x)   "
            f"tight loop {t.tight:7.2f} ({t.tight / t.batched:4.1f} x)",
            flush=True,
        )
    return 0


LIMITS = {"seeds": (1, 10_000), "repeats": (1, 10_000), "threads": (1, 1024)}
main = Command("bench labs", run, __doc__, LIMITS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
