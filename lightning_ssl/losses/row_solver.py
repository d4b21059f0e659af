"""The solvers of the rows of a regularizer: one unknown per row, between two known bounds.

solve_top_weight  brackets the root and stops when every row is solved, for a CPU
divide_bracket    a fixed number of steps without a read, for an accelerator
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

MAX_ITERATIONS = 60


def solve_top_weight(newton: Callable[[Tensor], tuple[Tensor, Tensor]], log_count: Tensor, start_high: bool) -> Tensor:
    """Solve every row for the logarithm of its largest weight, (M, 1).

    KKT: r'(α_ij) = c_ij − μ_i on the support. Shift c so that the nearest pair of the row has c = 0. This pair has the
    largest weight t_i, μ_i = −r'(t_i), and 1/K ≤ t_i ≤ 1 is a bracket of t_i for every concave r.

    newton      log_t → f and the next log_t, (M, 1) each. f = log Σ_j α_ij(t) increases and is zero at the solution.
                The step is Newton's in ν = r'(t) on r'(mean_j α_ij). If all distances of a row are equal, this function
                is linear in ν and one step suffices; other rows need a few steps
    log_count   log K_i, (M, 1)
    start_high  start at t = 1 and not at t = 1/K

    Bisection replaces a step that leaves the bracket. After a third of the iterations it also replaces a step after
    which |f| was not halved. This solver reads whether all rows are solved, so it is for a CPU.
    """
    eps = torch.finfo(log_count.dtype).eps
    log_t = torch.zeros_like(log_count) if start_high else -log_count
    margin = 8 * eps * (1 + log_count)  # rows of equal distances have their solution at the edge
    low, high = -log_count - margin, margin
    previous = torch.full_like(log_t, torch.inf)
    for iteration in range(1, MAX_ITERATIONS + 1):
        f, step = newton(log_t)
        low, high = torch.where(f <= 0, log_t, low), torch.where(f >= 0, log_t, high)
        size = f.abs()
        done = (size <= 16 * eps) | (high - low <= 2 * eps * (1 + log_count))
        if bool(done.all()):
            break
        trusted = (step > low) & (step < high)
        if iteration > MAX_ITERATIONS // 3:
            trusted &= size <= previous / 2
        step = torch.where(trusted, step, (low + high) / 2)
        log_t, previous = torch.where(done, log_t, step), size
    return log_t


def divide_bracket(totals: Callable[[Tensor], Tensor], count: Tensor, power: float) -> Tensor:
    """Solve totals(x) = 1 for every row, in a fixed number of steps without a read: (M, 1). For an accelerator.

    totals  increases in x: (M, 3, 1) → (M, 3, 1)
    count   K_i, (M, 1)
    power   the root is between K_i^{−power} and 1

    Each step tries three points that divide the bracket into four parts of the same ratio, and keeps one part. After
    the last step the ends of the bracket differ by the rounding of x, whatever the rows are.
    """
    ratio = torch.arange(1, 4, device=count.device, dtype=count.dtype)[:, None] * (power * count.log())[:, None]
    x = count.pow(-power)[:, None]  # (M, 1, 1), the lower end
    for _ in range(division_steps(count.dtype)):
        tried = ratio.mul_(0.25).exp().mul_(x)  # (M, 3, 1)
        x = torch.where(totals(tried) < 1, tried, x).amax(1, keepdim=True)
    return x.squeeze(1)


def division_steps(dtype: torch.dtype) -> int:
    """The number n of steps such that a bracket with ends of the ratio e^28 has ends of the ratio 1 + eps after it."""
    return math.ceil(math.log(28 / torch.finfo(dtype).eps, 4))
