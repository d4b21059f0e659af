"""One rule for every tolerance that comes from rounding.

    |actual − expected| ≤ 4 · eps · scale · √terms · gain

eps     of the coarser of the two dtypes
scale   size of the numbers in the sums: the largest |expected| unless given; give it if large terms cancel
terms   total length of the sums for one entry, over all layers or steps. Rounding errors are independent, so the error
        of a sum grows with √terms
gain    factor by which a relative error grows afterwards, 1 unless given: 1/τ for exp(−d2/τ), a condition number
4       the largest error of many entries is a few standard deviations; exp, log and pow have errors of up to 2 ulp

The rule holds for any order of summation, number of threads and instruction set. A tolerance with another cause (a
finite sample, a finite difference, an iteration that stops early, an approximation of a library) is written in the
test, together with its cause.
"""

from __future__ import annotations

import math
from typing import Any

import torch

MARGIN = 4.0


def bound(dtype: torch.dtype, scale: float, terms: int = 1, gain: float = 1.0) -> float:
    """Largest difference that can be due to rounding."""
    return MARGIN * torch.finfo(dtype).eps * scale * math.sqrt(terms) * gain


def close(
    actual: Any, expected: Any, *, terms: int = 1, scale: float | None = None, gain: float = 1.0, where: str = ""
) -> None:
    """Assert that two results differ only by rounding: numbers, tensors, arrays, or dicts and sequences of them."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), where
        for key in expected:
            close(actual[key], expected[key], terms=terms, scale=scale, gain=gain, where=f"{where}[{key!r}]")
        return
    if isinstance(expected, list | tuple):
        assert len(actual) == len(expected), where
        for index, (a, e) in enumerate(zip(actual, expected, strict=True)):
            close(a, e, terms=terms, scale=scale, gain=gain, where=f"{where}[{index}]")
        return
    a, e = as_tensor(actual), as_tensor(expected)
    dtype = max((a.dtype, e.dtype), key=lambda kind: torch.finfo(kind).eps)
    a, e = a.detach().double(), e.detach().double()
    finite = e[e.isfinite()]
    if scale is None:
        scale = float(finite.abs().max()) if finite.numel() else 0.0
    allowed = bound(dtype, scale, terms, gain)
    torch.testing.assert_close(
        a, e, rtol=0, atol=allowed, equal_nan=True, msg=lambda text: f"{where}: {text}" if where else text
    )


def as_tensor(x: Any) -> torch.Tensor:
    """Convert to a floating-point tensor; a Python number becomes float64. Integers must be compared with ==."""
    found = (
        x if isinstance(x, torch.Tensor) else torch.as_tensor(x, dtype=None if hasattr(x, "dtype") else torch.float64)
    )
    assert found.is_floating_point(), f"{found.dtype} is exact: compare with =="
    return found
