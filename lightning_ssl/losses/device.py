"""What the kernel does differently on a CPU and on an accelerator.

On an accelerator every operator is a launch, and reading a number waits for all launches before it. So the blocks are
as large as memory allows, and no number is read. On a CPU a block should fit in the cache, and reading is free.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

CPU_BLOCK_BYTES = 2**21  # near the cache of a core; smaller blocks make products slow, larger ones the solvers
MAX_KEPT_BLOCK = 2**25  # bytes; larger blocks are those of a user's `tile`
MEMORY_SHARE = 1 / 8  # of an accelerator's memory, for the blocks of the loss
LIVE_BLOCKS = 8  # tensors of the size of a block that exist at the same time; up to 12 with the functions of a user
LARGE_CARD = 80 * 2**30  # 16,384 anchors are one block on such a card
UNKNOWN_CARD = 8 * 2**30

_acts_as_accelerator = False


@contextlib.contextmanager
def acting_as_accelerator() -> Iterator[None]:
    """Make the choices of a large accelerator on any device, to count its operators on a CPU."""
    global _acts_as_accelerator
    before, _acts_as_accelerator = _acts_as_accelerator, True
    try:
        yield
    finally:
        _acts_as_accelerator = before


def is_accelerator(x: Tensor) -> bool:
    """Whether a number of this tensor must not be read on the host, and blocks should be large."""
    return _acts_as_accelerator or x.device.type != "cpu"


def block_rows(x: Tensor, columns: int) -> int:
    """The number of rows, at least 16, of a block with the given number of columns and the dtype of x."""
    available = MEMORY_SHARE * memory_of(x.device) / LIVE_BLOCKS if is_accelerator(x) else CPU_BLOCK_BYTES
    return max(16, int(available) // (columns * x.element_size()))


@functools.cache
def memory_of(device: torch.device) -> int:
    """The memory of an accelerator in bytes."""
    if device.type in ("cpu", "meta"):
        return LARGE_CARD
    module: Any = getattr(torch, device.type, None)
    if hasattr(module, "get_device_properties"):
        total: int = module.get_device_properties(device).total_memory
        return total
    if hasattr(module, "recommended_max_memory"):  # MPS
        recommended: int = module.recommended_max_memory()
        return recommended
    return UNKNOWN_CARD


class Workspace(threading.local):
    """Memory that a loss or a solver reuses at every step. On a CPU, new memory pages cost more than exponentials.

    Each thread has its own. It is not saved or copied with the loss.
    """

    def __init__(self) -> None:
        self.flat: dict[str, Tensor] = {}

    def take(self, name: str, like: Tensor, numel: int) -> Tensor:
        """Return a flat tensor of `numel` elements on the CPU, with the dtype of `like`."""
        flat = self.flat.get(name)
        if flat is None or flat.dtype != like.dtype or flat.numel() < numel:
            with torch.inference_mode(False):  # a later step outside of inference mode uses it too
                flat = self.flat[name] = torch.empty(numel, dtype=like.dtype)
        return flat[:numel]

    def block(self, name: str, like: Tensor, rows: int, columns: int) -> Tensor | None:
        """Return a block for `out=…`, with the dtype of `like`; None lets torch allocate.

        The allocators of accelerators reuse freed memory, and a large block is not kept.
        """
        if is_accelerator(like) or rows * columns * like.element_size() > MAX_KEPT_BLOCK:
            return None
        return self.take(name, like, rows * columns).view(rows, columns)

    def __reduce__(self) -> tuple[type[Workspace], tuple[()]]:
        return Workspace, ()


@contextlib.contextmanager
def exact_products(device_type: str) -> Iterator[None]:
    """Compute matrix products of float32 in float32: no autocast, no TF32, no bfloat16, whatever the user has set."""
    settings: list[Any] = [torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul")]  # noqa: B009  for mypy
    # An empty setting is the precise default.
    reduced = [(setting, setting.fp32_precision) for setting in settings]
    reduced = [(setting, before) for setting, before in reduced if before not in ("ieee", "none")]
    for setting, _ in reduced:
        setting.fp32_precision = "ieee"
    autocast = torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)
    try:
        with torch.autocast(device_type, enabled=False) if autocast else contextlib.nullcontext():
            yield
    finally:
        for setting, before in reduced:
            setting.fp32_precision = "none"  # inherit from torch.backends.fp32_precision
            if setting.fp32_precision != before:
                setting.fp32_precision = before
