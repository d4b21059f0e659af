"""L-BFGS for a batch of smooth convex problems."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

MAX_HALVINGS = 20

Objective = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Points (g, P) and the indices of their problems (g,) → values (g,) and gradients (g, P)."""


def minimize(
    objective: Objective,
    start: Tensor,
    tolerance: float,
    iterations: int,
    memory: int = 10,
    advance: Callable[[], None] = lambda: None,
) -> tuple[Tensor, int, bool]:
    """Minimize G problems in parallel by L-BFGS (Nocedal & Wright 2006, Algorithm 7.5), from points (G, P).

    A problem leaves the batch when no entry of its gradient is above the tolerance, or when no step decreases its
    value, which means that the precision of the dtype is reached. Returns the minimizers, the number of iterations, and
    whether every gradient is below the tolerance.

    memory      number of pairs for the estimate of the inverse Hessian
    advance     called after every iteration
    """
    found, converged, taken = start.clone(), True, 0
    ids, w = torch.arange(len(start), device=start.device), start
    value, gradient = objective(w, ids)
    pairs: list[tuple[Tensor, Tensor]] = []  # (s, y): differences of points and of gradients, newest last
    while len(ids) and taken < iterations:
        direction = -inverse_hessian(gradient, pairs)
        if not pairs:
            direction = direction / gradient.norm(dim=1, keepdim=True).clamp(min=1)
        new, new_value, new_gradient = line_search(objective, w, value, gradient, direction, ids)
        pairs = [*pairs[-(memory - 1) :], (new - w, new_gradient - gradient)]
        moved = (new != w).any(1)
        w, value, gradient = new, new_value, new_gradient
        found[ids] = w
        taken += 1
        small = gradient.abs().amax(1) <= tolerance
        converged &= bool((small | moved).all())
        if not (left := moved & ~small).all():
            ids, w, value, gradient = ids[left], w[left], value[left], gradient[left]
            pairs = [(s[left], y[left]) for s, y in pairs]
        advance()
    return found, taken, converged and not len(ids)


def inverse_hessian(gradient: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The estimate of H⁻¹ times the gradients (g, P), by the two-loop recursion (Algorithm 7.4)."""
    q, past = gradient, []
    for s, y in reversed(pairs):
        rho = reciprocal((s * y).sum(1, keepdim=True))  # (g, 1)
        a = rho * (s * q).sum(1, keepdim=True)
        q = q - a * y
        past.append((rho, a, s, y))
    if pairs:
        s, y = pairs[-1]
        q = q * (s * y).sum(1, keepdim=True).clamp(min=0) * reciprocal(y.square().sum(1, keepdim=True))
    for rho, a, s, y in reversed(past):
        q = q + (a - rho * (y * q).sum(1, keepdim=True)) * s
    return q


def reciprocal(x: Tensor) -> Tensor:
    """1/x where x > 0, else 0. So a pair with sᵀy ≤ 0, which is rounding error, has no effect."""
    return torch.where(x > 0, 1 / x, 0)


def line_search(
    objective: Objective, w: Tensor, value: Tensor, gradient: Tensor, direction: Tensor, ids: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Backtracking line search: halve each step until the value decreases enough, else keep the point."""
    slope = (gradient * direction).sum(1)  # (g,), negative
    slack = 4 * torch.finfo(w.dtype).eps * value.abs()  # bound of the rounding error
    step = torch.ones_like(value)
    new = w + direction
    new_value, new_gradient = objective(new, ids)
    for _ in range(MAX_HALVINGS):
        # Written so that NaN counts as no decrease.
        failed = (~(new_value <= value + 1e-4 * step * slope + slack)).nonzero()[:, 0]
        if not len(failed):
            return new, new_value, new_gradient
        step[failed] /= 2
        new[failed] = w[failed] + step[failed, None] * direction[failed]
        new_value[failed], new_gradient[failed] = objective(new[failed], ids[failed])
    failed = ~(new_value <= value + 1e-4 * step * slope + slack)
    new[failed], new_value[failed], new_gradient[failed] = w[failed], value[failed], gradient[failed]
    return new, new_value, new_gradient
