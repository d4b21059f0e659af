"""The pairs of a batch: their distances, the mask of the negatives, and the share of each rank.

Every sample has an id in the global batch that does not depend on the number of ranks: sample i of rank r has the id
r·B + i, with the local batch size B. Anchors are numbered by view, then by sample. So the positive of anchor i is
i ± N, and the excluded pairs are diagonals of the M×M distance matrix. This matrix is symmetric and is never stored. It
is divided into tiles on and above the diagonal, and each rank computes its share of the tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from lightning_ssl.checks import require
from lightning_ssl.distributed import gather_into, is_distributed

Anchors = Literal["both", "one"]


class Distances:
    """d2 of any block of pairs by one matrix product: d2_ij = ⟨(−z_i, ½‖z_i‖², 1), (z_j, 1, ½‖z_j‖²)⟩.

    Rounding can give tiny negative values. The error grows with the norms, so the points should be centred.
    """

    def __init__(self, z: Tensor) -> None:
        self.half_norms = (z * z).sum(1, keepdim=True).mul_(0.5)  # (M, 1)
        one = torch.ones_like(self.half_norms)
        self.left = torch.cat([-z, self.half_norms, one], 1)  # (M, D+2)
        self.right = torch.cat([z, one, self.half_norms], 1)  # (M, D+2)

    def tile(self, rows: slice, columns: slice, out: Tensor | None = None) -> Tensor:
        """d2 of a block of the M×M matrix."""
        return torch.mm(self.left[rows], self.right[columns].T, out=out)


class Tile(NamedTuple):
    """A block of the symmetric M×M matrix. A block above the diagonal also represents its transpose."""

    rows: slice
    columns: slice

    @property
    def mirrored(self) -> bool:
        return self.rows != self.columns

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    @property
    def numel(self) -> int:
        return self.shape[0] * self.shape[1]


class Pairs:
    """The anchors of all ranks with their positives, and this rank's share of the tiles.

    points      (M, D)   every anchor, centred, in float32 or wider
    difference  (N, D)   z1 − z2 of every sample
    d2_pos      (M,)     d2 of every anchor and its positive
    distances            d2 between anchors
    weight_distances     d2 for the importance: between anchors, or between un-augmented samples
    """

    def __init__(
        self,
        z1: Tensor,
        z2: Tensor,
        clean: Tensor | None = None,
        anchors: Anchors = "both",
        check_finite: bool = True,
    ) -> None:
        self.rank, self.ranks = (dist.get_rank(), dist.get_world_size()) if is_distributed() else (0, 1)
        if self.ranks > 1:
            check_every_rank(z1, z2, clean)
        else:
            check_views(z1, z2, clean)
        self.local = len(z1)
        views = [z1, z2] if clean is None else [z1, z2, clean]
        views = [self._gather(z.detach()) for z in views]
        self.samples = len(views[0])
        require(self.samples >= 2, "N", self.samples, "at least 2 samples: a single one has no negatives")

        z = torch.cat(views[:2])  # (2N, D)
        z -= z.mean(0)  # a shift does not change the distances
        self.difference = z[: self.samples] - z[self.samples :]
        d2_pos = self.difference.square().sum(1).mul_(0.5)
        both = anchors == "both"
        self.points, self.d2_pos = (z, torch.cat([d2_pos, d2_pos])) if both else (z[: self.samples], d2_pos)
        self.distances = self.weight_distances = Distances(self.points)
        if clean is not None:
            c = views[2] - views[2].mean(0)
            self.weight_distances = Distances(torch.cat([c, c]) if both else c)
        # Anchor i is not a negative of itself, and with both views as anchors not a negative of its positive.
        self.excluded = (0, self.samples, -self.samples) if both else (0,)
        if check_finite:
            # These sums are not finite if an embedding is not, or if its square overflows. All ranks see the same sums.
            seen = d2_pos.sum() + self.distances.half_norms.sum()
            if clean is not None:
                seen = seen + self.weight_distances.half_norms.sum()
            if not math.isfinite(seen.item()):
                raise ValueError(f"{self._non_finite(views)} (check_finite=False skips this check)")

    @staticmethod
    def _non_finite(views: list[Tensor]) -> str:
        """The error message for embeddings that are not finite or too large."""
        for name, z in zip(("z1", "z2", "clean"), views, strict=False):
            bad = int((~z.isfinite()).any(1).sum())
            if bad:
                return f"{name}: {bad} of {len(z)} embeddings are not finite; all must be"
        return f"embeddings up to {max(z.abs().max().item() for z in views):.3g}: their squared norms overflow"

    def __len__(self) -> int:
        return len(self.points)

    # -- masks --------------------------------------------------------------------------------------------------------

    def exclude_(self, x: Tensor, tile: Tile, value: float | bool) -> Tensor:
        """Write a value, in place, at the pairs of a block that are not negatives."""
        for offset in self.excluded:
            diagonal = tile.rows.start + offset - tile.columns.start
            if -x.shape[0] < diagonal < x.shape[1]:
                x.diagonal(diagonal).fill_(value)
        return x

    def valid(self, rows: slice) -> Tensor:
        """The mask of the negatives of the given anchors: bool (m, M)."""
        everything = torch.ones(rows.stop - rows.start, len(self), dtype=torch.bool, device=self.points.device)
        return self.exclude_(everything, Tile(rows, slice(0, len(self))), False)

    # -- the share of this rank ---------------------------------------------------------------------------------------

    def tiles(self, size: int) -> Iterator[Tile]:
        """This rank's share of the tiles on and above the diagonal."""
        # Tiles on and off the diagonal have different costs, so each kind is distributed separately.
        blocks = list(spans(0, len(self), size))
        on = (Tile(a, a) for a in blocks)
        off = (Tile(a, b) for i, a in enumerate(blocks) for b in blocks[i + 1 :])
        yield from islice(on, self.rank, None, self.ranks)
        yield from islice(off, self.ranks - 1 - self.rank, None, self.ranks)

    def strips(self, height: int) -> Iterator[slice]:
        """This rank's share of the rows, in slices of at most the given height."""
        start, stop = (len(self) * r // self.ranks for r in (self.rank, self.rank + 1))
        return spans(start, stop, height)

    def own(self, x: Tensor) -> list[Tensor]:
        """This rank's rows of a tensor over samples or anchors, one block for each view."""
        start = self.rank * self.local
        return [x[view + start : view + start + self.local] for view in range(0, len(x), self.samples)]

    # -- ranks --------------------------------------------------------------------------------------------------------

    def sum_over_ranks(self, x: Tensor) -> Tensor:
        """Sum a tensor over the ranks, in place."""
        if self.ranks > 1:
            dist.all_reduce(x)
        return x

    def _gather(self, z: Tensor) -> Tensor:
        """The rows of all ranks in the order of their ids, in float32 or wider."""
        if z.dtype in (torch.float16, torch.bfloat16):
            z = z.float()
        if self.ranks == 1:
            return z
        whole = z.new_empty(self.ranks * len(z), *z.shape[1:])
        gather_into(whole, z.contiguous())
        return whole


def spans(start: int, stop: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most the given size."""
    for at in range(start, stop, size):
        yield slice(at, min(at + size, stop))


def check_views(z1: Tensor, z2: Tensor, clean: Tensor | None) -> None:
    """Refuse views whose shapes, dtypes or devices do not match."""
    for name, z in (("z1", z1), ("z2", z2)):
        require(isinstance(z, Tensor), name, z, "a tensor")
    require(z1.ndim == 2, "z1", tuple(z1.shape), "of shape (N, D)")
    require(z1.is_floating_point(), "z1", z1.dtype, "of a floating type")
    require(z1.shape[0] >= 1 and z1.shape[1] >= 1, "z1", tuple(z1.shape), "of shape (N, D) with N and D above 0")
    require(z2.shape == z1.shape, "z2", tuple(z2.shape), f"of z1's shape {tuple(z1.shape)}")
    others = {"z2": z2} if clean is None else {"z2": z2, "clean": clean}
    for name, z in others.items():
        require(z.device == z1.device, name, z.device, f"on z1's device {z1.device}")
        require(z.dtype == z1.dtype, name, z.dtype, f"of z1's dtype {z1.dtype}")
    if clean is not None:
        require(clean.ndim == 2 and len(clean) == len(z1), "clean", tuple(clean.shape), f"of shape ({len(z1)}, D)")


def check_every_rank(z1: Tensor, z2: Tensor, clean: Tensor | None) -> None:
    """Raise on every rank if the views of one rank are refused; otherwise the other ranks would wait forever."""
    complaint = ""
    try:
        check_views(z1, z2, clean)
    except ValueError as error:
        complaint = str(error)
    width = 0 if clean is None else clean.shape[-1]
    facts = [not complaint, len(z1), z1.shape[-1], width, DTYPES.index(z1.dtype) if z1.dtype in DTYPES else -1]
    mine = torch.tensor(facts, device=z1.device)
    table = mine.new_empty(dist.get_world_size() * len(mine))
    gather_into(table, mine)
    fine, batches, widths, clean_widths, dtypes = table.view(-1, len(mine)).T.tolist()
    if not all(fine):
        raise ValueError(complaint or f"rank {fine.index(0)} refused its views; its own message says why")
    require(len(set(batches)) == 1, "local batch", batches, "the same on every rank (drop the last, incomplete one)")
    require(len(set(widths)) == 1, "width of z1", widths, "the same on every rank")
    require(len(set(clean_widths)) == 1, "width of clean", clean_widths, "the same on every rank")
    names = [str(DTYPES[code]) for code in dtypes]
    require(len(set(names)) == 1, "dtype of z1", names, "the same on every rank")


DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
