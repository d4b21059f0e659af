"""Time and memory of the loss kernel: forward and backward, float32, D = 128.

    lightning-ssl bench loss [--quick] [--threads 2] [--only NAME] [--json FILE]

Contenders take turns in one process and their medians are compared, so other work on the machine slows all of them.
Peak memory is the increase of the resident size of a new process during one step. "Matrix products alone" are the
products that every kernel needs: the upper triangle of z zᵀ once, and W z.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from bars import Bar, conclude, median_seconds, require_new
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl.app.commands.parser import Command
from lightning_ssl.base.checks import UserError
from lightning_ssl.losses.energy import FamilyLoss, PairLoss
from lightning_ssl.losses.families import InfoNCE
from lightning_ssl.losses.importance import Direct, Entropy
from lightning_ssl.losses.kernel import TILE_SIDE
from lightning_ssl.losses.pairs import Pairs
from lightning_ssl.losses.solved import Inverse, Square, Tsallis

WIDTH = 128
Loss = Callable[[Tensor, Tensor], Tensor]


def make_views(samples: int) -> list[Tensor]:
    """Two views of random unit vectors: (samples, WIDTH) each."""
    generator = torch.Generator().manual_seed(0)
    return [F.normalize(torch.randn(samples, WIDTH, generator=generator), dim=1).requires_grad_() for _ in range(2)]


def step(loss: Loss, views: list[Tensor]) -> Callable[[], None]:
    """One forward and backward pass, as a function without arguments."""

    def run() -> None:
        for z in views:
            z.grad = None
        loss(*views).backward()

    return run


def milliseconds(contenders: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Median time of each contender, after one call that is not counted."""
    for run in contenders.values():
        run()
    return {name: 1e3 * median for name, median in median_seconds(contenders, repeats).items()}


def matrix_products(views: list[Tensor]) -> Callable[[], None]:
    """The upper triangle of z zᵀ once, and W z, in tiles of the kernel's size and in preallocated memory."""
    z = torch.cat([view.detach() for view in views])
    tiles = list(Pairs(views[0], views[1]).tiles(TILE_SIDE))
    w, out = torch.zeros(TILE_SIDE, TILE_SIDE), torch.zeros_like(z)

    def run() -> None:
        for tile in tiles:
            rows, columns = tile.shape
            block = w[:rows, :columns] if (rows, columns) == (TILE_SIDE, TILE_SIDE) else z.new_empty(rows, columns)
            torch.mm(z[tile.rows], z[tile.columns].T, out=block)
            out[tile.rows].addmm_(block, z[tile.columns])
            if tile.mirrored:
                out[tile.columns].addmm_(block.T, z[tile.rows])

    return run


def lightly_ntxent() -> Loss:
    """The NT-Xent loss of lightly."""
    try:
        from lightly.loss import NTXentLoss
    except ImportError:
        raise UserError("lightly is not installed: `make bench` installs what the benchmarks compare with") from None
    loss: Loss = NTXentLoss(temperature=0.5)
    return loss


PEAK = """
import lightning_ssl, sys, torch
sys.path.insert(0, {folder!r})
import loss as bench
torch.set_num_threads({threads})
bench.step({loss}, bench.make_views(64))()          # libraries allocate buffers on first use
views = bench.make_views({samples})
def status(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key))
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")        # resets VmHWM
bench.step({loss}, views)()
print(1024 * (status("VmHWM") - before))
"""


def peak_memory(loss: str, samples: int, threads: int) -> float:
    """Increase of the resident memory during one step, in MiB, measured in a new process."""
    code = PEAK.format(folder=str(Path(__file__).parent), loss=loss, samples=samples, threads=threads)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(result.stderr)
    return int(result.stdout) / 2**20


def against_lightly(repeats: int, threads: int) -> list[Bar]:
    """Time and memory of `Direct` and of lightly's NT-Xent."""
    bars = []
    for samples, bar, times in ((4096, 8.0, repeats), (128, 2.0, 40 * repeats)):
        views = make_views(samples)
        t = milliseconds({"direct": step(PairLoss(Direct()), views), "lightly": step(lightly_ntxent(), views)}, times)
        detail = f"{t['direct']:.2f} ms against {t['lightly']:.2f} ms"
        bars.append(Bar(f"Direct p=4, N={samples}: times faster than lightly", t["lightly"] / t["direct"], bar, detail))
    ours = peak_memory("bench.PairLoss(bench.Direct())", 4096, threads)
    theirs = peak_memory("bench.lightly_ntxent()", 4096, threads)
    name = "Direct p=4, N=4096: share of lightly's peak extra memory"
    return [*bars, Bar(name, ours / theirs, 0.25, f"{ours:.0f} MiB against {theirs:.0f} MiB", at_least=False)]


def against_products(repeats: int, threads: int) -> list[Bar]:
    """Time of the kernel and of the matrix products alone."""
    views = make_views(4096)
    losses = {"Entropy": PairLoss(Entropy()), "Direct": PairLoss(Direct()), "InfoNCE": FamilyLoss(InfoNCE())}
    contenders = {name: step(loss, views) for name, loss in losses.items()}
    t = milliseconds({**contenders, "products": matrix_products(views)}, repeats)
    return [
        Bar(
            f"{name}, N=4096: time over the matrix products alone",
            t[name] / t["products"],
            2.0,
            f"{t[name]:.1f} ms against {t['products']:.1f} ms",
            at_least=False,
        )
        for name in losses
    ]


def solved_rows(repeats: int, threads: int) -> list[Bar]:
    """Time of the importances with a row solver and of `Entropy`."""
    views = make_views(1024)
    solved = {
        "Inverse": Inverse(),
        "Square": Square(),
        "Tsallis q=0.5": Tsallis(q=0.5),
        "Tsallis q=1.5": Tsallis(q=1.5),
    }
    others = {f"Tsallis q={q:g}": Tsallis(q=q) for q in (-2, 0.7, 1.25, 1.75)}  # with a logarithm for each pair
    contenders = {
        name: step(PairLoss(rule), views) for name, rule in (solved | others | {"Entropy": Entropy()}).items()
    }
    t = milliseconds(contenders, 3 * repeats)
    bars = [
        Bar(
            f"{name}, N=1024: time over Entropy",
            t[name] / t["Entropy"],
            3.0,
            f"{t[name]:.1f} ms against {t['Entropy']:.1f} ms",
            at_least=False,
        )
        for name in solved
    ]
    print("without a bar, N=1024: " + ", ".join(f"{name} {t[name] / t['Entropy']:.1f}x Entropy" for name in others))
    return bars


def large_batch(repeats: int, threads: int) -> list[Bar]:
    """Peak memory of a step with 65,536 samples."""
    start = time.perf_counter()
    peak = peak_memory("bench.PairLoss(bench.Direct(), tile=512)", 65_536, threads)
    detail = f"{time.perf_counter() - start:.0f} s, with the start of the process"
    return [Bar("Direct p=4, N=65536, tile=512: GiB of peak extra memory", peak / 1024, 3.0, detail, at_least=False)]


GROUPS = {"lightly": against_lightly, "products": against_products, "solved": solved_rows, "large": large_batch}


def run(
    *,
    threads: int = 2,
    repeats: int = 11,
    quick: bool = False,
    only: Literal[tuple(GROUPS)] | None = None,  # type: ignore[valid-type]
    json: str | None = None,
) -> int:
    """Speed of the losses against their bars. The exit code is 1 if a bar is missed.

    Args:
        threads: torch threads
        repeats: turns of each contender
        quick: three turns, without the large batch
        only: one group of bars
        json: also write the figures to this new file
    """
    require_new(json)
    torch.set_num_threads(threads)
    bars: list[Bar] = []
    for name in [only] if only else [name for name in GROUPS if not (quick and name == "large")]:
        for bar in GROUPS[name](3 if quick else repeats, threads):
            print(bar, flush=True)
            bars.append(bar)
    return conclude(bars, json)


main = Command("bench loss", run, __doc__, {"threads": (1, 1024), "repeats": (1, 10_000)})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
