"""Collective operations over the ranks of a distributed run. With one process they return their input."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def is_distributed() -> bool:
    """Whether a process group is initialized."""
    return dist.is_available() and dist.is_initialized()


def gather_into(whole: Tensor, mine: Tensor) -> None:
    """Fill `whole` with the tensors of all ranks in the order of the ranks."""
    # torch 2.13 renamed the function.
    gather = dist.all_gather_single if hasattr(dist, "all_gather_single") else dist.all_gather_into_tensor
    gather(whole, mine)


def sum_scattered(x: Tensor) -> Tensor:
    """Sum a tensor with a row for each rank over the ranks, and return the row of this rank: (ranks, L) → (L,)."""
    # torch 2.13 renamed the function.
    scatter = dist.reduce_scatter_single if hasattr(dist, "reduce_scatter_single") else dist.reduce_scatter_tensor
    mine = x.new_empty(x.shape[1])
    scatter(mine, x.flatten())
    return mine


def sum_over_ranks(*tensors: Tensor) -> list[Tensor]:
    """Sum each tensor over the ranks, with one all-reduce for all. They must share one dtype and one device."""
    if not is_distributed():
        return list(tensors)
    flat = torch.cat([x.flatten() for x in tensors])
    dist.all_reduce(flat)
    parts = flat.split([x.numel() for x in tensors])
    return [part.view(x.shape) for part, x in zip(parts, tensors, strict=True)]


def gather_equal_rows(x: Tensor) -> Tensor:
    """Return the rows of all ranks in the order of the ranks, where every rank has the same number of rows."""
    if not is_distributed():
        return x
    whole = x.new_empty(dist.get_world_size() * len(x), *x.shape[1:])
    gather_into(whole, x.contiguous())
    return whole


def gather_rows(x: Tensor) -> Tensor:
    """Return the rows of all ranks in the order of the ranks. Ranks may have different numbers of rows."""
    if not is_distributed():
        return x
    from torchmetrics.utilities.distributed import gather_all_tensors  # here, as losses need no torchmetrics

    return torch.cat(gather_all_tensors(x))
