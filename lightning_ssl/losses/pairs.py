"""The pairs of a batch: their distances, the mask of the negatives, and the share of each rank.

Every sample has an id in the global batch that does not depend on the number of ranks: sample i of rank r has the id
r·B + i, with the local batch size B. Anchors are numbered by view, then by sample. So the positive of anchor i is
i ± N, and the excluded pairs are diagonals of the M×M distance matrix. This matrix is symmetric and is never stored. It
is divided into tiles on and above the diagonal, and each rank computes its share of the tiles.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor

from lightning_ssl.base.checks import UserError, require
from lightning_ssl.base.distributed import gather_into, is_distributed, sum_scattered
from lightning_ssl.losses.device import is_accelerator
from lightning_ssl.losses.rows import Negatives

Anchors = Literal["both", "one"]


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


class Distances:
    """d2 of any block of pairs: d2_ij = ½‖z_i‖² + ½‖z_j‖² − ⟨z_i, z_j⟩.

    Rounding can give tiny negative values. The error grows with the norms, so the points should be centred.
    """

    def __init__(self, z: Tensor) -> None:
        self.z = z
        self.half_norms = half_squares(z)

    @functools.cached_property
    def factors(self) -> tuple[Tensor, Tensor]:
        """(−z, ½‖z‖², 1) and (z, 1, ½‖z‖²), (M, D+2) each: d2_ij is the product of row i and row j."""
        one = torch.ones_like(self.half_norms)
        return torch.cat([-self.z, self.half_norms, one], 1), torch.cat([self.z, one, self.half_norms], 1)

    def strip(self, rows: slice, out: Tensor | None = None) -> Tensor:
        """d2 of whole rows, (m, M), by one product: the fewest operators."""
        left, right = self.factors
        return torch.mm(left[rows], right.T, out=out)

    def tile(self, tile: Tile, out: Tensor) -> Tensor:
        """d2 of a tile, in flat memory of its size. It needs no `factors`: less work for few samples."""
        norms = torch.add(self.half_norms[tile.rows], self.half_norms[tile.columns].T, out=out.view(tile.shape))
        return norms.addmm_(self.z[tile.rows], self.z[tile.columns].T, alpha=-1)


class Pairs:
    """The anchors of all ranks with their positives, and this rank's share of the tiles.

    points      (M, D)   every anchor, centred, in float32 or wider
    difference  (N, D)   z1 − z2 of every sample
    d2_pos      (M,)     d2 of every anchor and its positive
    distances            d2 between anchors
    weight_distances     d2 for the importance: between anchors, or between un-augmented samples
    """

    @torch.no_grad()
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
        self.samples = self.local * self.ranks
        require(self.samples >= 2, "N", self.samples, "at least 2 samples: a single one has no negatives")

        z, c = self._gather(z1, z2, clean)  # (2N, D), (N, D')
        shifted = z - mean(z)  # a shift does not change the distances
        self.difference = shifted[: self.samples] - shifted[self.samples :]
        d2_pos = half_squares(self.difference).squeeze(1)
        both = anchors == "both"
        self.points, self.d2_pos = (shifted, torch.cat([d2_pos, d2_pos])) if both else (shifted[: self.samples], d2_pos)
        self.distances = self.weight_distances = Distances(self.points)
        if c is not None:
            centred = c - mean(c)
            self.weight_distances = Distances(torch.cat([centred, centred]) if both else centred)
        # Anchor i is not a negative of itself, and with both views as anchors not a negative of its positive.
        self.excluded = (0, self.samples, -self.samples) if both else (0,)
        if check_finite and not is_accelerator(z):
            # These sums are not finite if an embedding is not, or if its square overflows. All ranks see the same sums.
            seen = d2_pos.sum() + self.distances.half_norms.sum()
            if c is not None:
                seen = seen + self.weight_distances.half_norms.sum()
            if not math.isfinite(seen.item()):
                views = [*z.split(self.samples), *([] if c is None else [c])]
                raise UserError(f"{self._non_finite(views)} (check_finite=False skips this check)")

    @staticmethod
    def _non_finite(views: list[Tensor]) -> str:
        """The error message for embeddings that are not finite or too large."""
        for name, z in zip(("z1", "z2", "clean"), views, strict=False):
            bad = int((~z.isfinite()).any(1).sum())
            if bad:
                return f"{name}: {bad} of {len(z)} embeddings are not finite; all must be"
        return f"embeddings up to {max(z.abs().max().item() for z in views):.3g}: their squared norms overflow"

    def __len__(self) -> int:
        return self.points.shape[0]  # faster than `len` of a tensor

    # -- masks --------------------------------------------------------------------------------------------------------

    def exclude_(self, x: Tensor, tile: Tile, value: float | bool) -> Tensor:
        """Write a value, in place, at the pairs of a block that are not negatives."""
        if x.shape[0] == len(self):  # the whole matrix
            views = len(self) // self.samples
            x.view(views, self.samples, views, self.samples).diagonal(dim1=1, dim2=3).fill_(value)
            return x
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
        """All tiles on and above the diagonal of the matrix."""
        blocks = list(spans(0, len(self), size))
        return (Tile(a, b) for i, a in enumerate(blocks) for b in blocks[i:])

    def own_slices(self, length: int) -> list[slice]:
        """This rank's slices of a tensor over samples or anchors, one for each view."""
        starts = range(self.rank * self.local, length, self.samples)
        return [slice(start, start + self.local) for start in starts]

    def strips(self, height: int) -> Iterator[slice]:
        """This rank's anchors, in slices of at most the given height."""
        owned = self.own_slices(len(self)) if self.ranks > 1 else [slice(0, len(self))]
        for own in owned:
            yield from spans(own.start, own.stop, height)

    def own(self, x: Tensor) -> list[Tensor]:
        """This rank's rows of a tensor over samples or anchors, one block for each view."""
        return [x[own] for own in self.own_slices(len(x))]

    # -- ranks --------------------------------------------------------------------------------------------------------

    def own_sums(self, x: Tensor, total: Tensor) -> tuple[list[Tensor], Tensor]:
        """Sum a tensor over anchors, (M, D), and a scalar over the ranks. Return this rank's rows and the scalar."""
        if self.ranks == 1:
            return self.own(x), total
        by_rank = x.view(-1, self.ranks, self.local, x.shape[1]).transpose(0, 1)  # (ranks, views, B, D)
        everything = torch.cat([by_rank.flatten(1), total.expand(self.ranks, 1)], 1)
        mine = sum_scattered(everything)
        return list(mine[:-1].view(by_rank.shape[1:])), mine[-1]

    def _gather(self, z1: Tensor, z2: Tensor, clean: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """z1 over z2, and the clean view, of all ranks in the order of their ids, in float32 or wider."""
        wide = torch.promote_types(z1.dtype, torch.float32)
        if self.ranks == 1:
            return torch.cat([z1, z2]).to(wide), None if clean is None else clean.to(wide)
        views = [z1, z2] if clean is None else [z1, z2, clean]
        flat = torch.cat([z.flatten() for z in views])
        whole = flat.new_empty(self.ranks * len(flat))
        gather_into(whole, flat)
        whole = whole.view(self.ranks, -1)
        width = z1.shape[1]
        z = whole[:, : 2 * z1.numel()].view(self.ranks, 2, self.local, width).transpose(0, 1).reshape(-1, width)
        c = None if clean is None else whole[:, 2 * z1.numel() :].reshape(-1, clean.shape[1]).to(wide)
        return z.to(wide), c


class StripNegatives(Negatives):
    """The negatives of some anchors: all columns except those of the anchor and its positive."""

    def __init__(self, pairs: Pairs, rows: slice) -> None:
        self.pairs, self.tile = pairs, Tile(rows, slice(0, len(pairs)))

    def mask(self) -> Tensor:
        return self.pairs.valid(self.tile.rows)

    def exclude_(self, x: Tensor, value: float) -> Tensor:
        return self.pairs.exclude_(x, self.tile, value)

    def count(self, x: Tensor) -> Tensor:
        views = len(self.pairs) // self.pairs.samples
        return x.new_full((len(x), 1), len(self.pairs) - views)


# The next two are products, because a sum would wake the other threads of a CPU, which takes longer than a small sum.


def mean(z: Tensor) -> Tensor:
    """The mean over the rows, (1, D)."""
    return torch.mm(z.new_full((1, z.shape[0]), 1 / z.shape[0]), z)


def half_squares(z: Tensor) -> Tensor:
    """½‖z‖² of each row, (M, 1)."""
    return torch.mm(z * z, z.new_full((z.shape[1], 1), 0.5))


def spans(start: int, stop: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most the given size."""
    for at in range(start, stop, size):
        yield slice(at, min(at + size, stop))


def check_views(z1: Tensor, z2: Tensor, clean: Tensor | None) -> None:
    """Refuse views whose shapes, dtypes or devices do not match."""
    for name, z in (("z1", z1), ("z2", z2)):
        require(isinstance(z, Tensor), name, z, "a tensor")
    require(z1.ndim == 2 and z1.numel() > 0, "z1", tuple(z1.shape), "of shape (N, D) with N and D above 0")
    require(z1.is_floating_point(), "z1", z1.dtype, "of a floating type")
    require(z2.shape == z1.shape, "z2", tuple(z2.shape), f"of z1's shape {tuple(z1.shape)}")
    for name, z in (("z2", z2), ("clean", z1 if clean is None else clean)):
        require(z.device == z1.device, name, z.device, f"on z1's device {z1.device}")
        require(z.dtype == z1.dtype, name, z.dtype, f"of z1's dtype {z1.dtype}")
    if clean is not None:
        require(clean.ndim == 2 and len(clean) == len(z1), "clean", tuple(clean.shape), f"of shape ({len(z1)}, D)")


def check_every_rank(z1: Tensor, z2: Tensor, clean: Tensor | None) -> None:
    """Raise on every rank if the views of one rank are refused; otherwise the other ranks would wait forever.

    This needs a collective and a read. On a CPU it is done for every batch. On an accelerator it is done for the first
    batch and when the shapes change, which must be at the same batch on all ranks: a later change on one rank alone
    ends in collectives that do not match, which only the backend can report.
    """
    width = 0 if clean is None else clean.shape[-1]
    facts = (len(z1), z1.shape[-1], width, DTYPES.index(z1.dtype) if z1.dtype in DTYPES else -1)
    group = dist.group.WORLD
    if is_accelerator(z1) and AGREED.get(group) == facts:
        check_views(z1, z2, clean)
        return
    complaint = ""
    try:
        check_views(z1, z2, clean)
    except ValueError as error:
        complaint = str(error)
    mine = torch.tensor([not complaint, *facts], device=z1.device)
    table = mine.new_empty(dist.get_world_size() * len(mine))
    gather_into(table, mine)
    fine, *seen = table.view(-1, len(mine)).T.tolist()
    if not all(fine):
        raise UserError(complaint or f"rank {fine.index(0)} refused its views; its own message says why")
    seen[-1] = [str(DTYPES[code]) for code in seen[-1]]
    for name, by_rank in zip(("local batch", "width of z1", "width of clean", "dtype of z1"), seen, strict=True):
        require(len(set(by_rank)) == 1, name, by_rank, "the same on every rank (drop the last, incomplete batch)")
    AGREED[group] = facts


DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
AGREED: WeakKeyDictionary[Any, tuple[int, ...]] = WeakKeyDictionary()  # by process group: what all ranks last passed
