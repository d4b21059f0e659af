"""Importances that are the solution of a concave regularizer r. row_solver.py has the solvers of their rows.

    α_i = argmin_{α ≥ 0, Σ_j α_ij = 1} Σ_j α_ij c_ij − Σ_j r(α_ij),   c = d2_neg

This is the min player of the α-CL paper. A shift of a row of c does not change its α.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from lightning_ssl.base.checks import is_number, require
from lightning_ssl.losses.device import Workspace, is_accelerator
from lightning_ssl.losses.families import require_scale
from lightning_ssl.losses.interface import Importance, refuse_second_derivative
from lightning_ssl.losses.row_solver import divide_bracket, solve_top_weight
from lightning_ssl.losses.rows import Negatives, Rows, relative_to_nearest

__all__ = ["Inverse", "Regularized", "Solved", "Square", "Tsallis"]


class ImplicitRows(torch.autograd.Function):
    """Solved rows with the derivative of their optimality condition, not of the iterations."""

    @staticmethod
    def forward(ctx: Any, d2_neg: Tensor, d2_pos: Tensor, valid: Tensor | None, solved: Solved) -> Tensor:
        alpha = Importance.__call__(solved, d2_pos, d2_neg, valid)
        ctx.save_for_backward(d2_neg, alpha)
        ctx.solved = solved
        return alpha

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, None, None, None]:
        refuse_second_derivative(str(ctx.solved))
        d2_neg, alpha = ctx.saved_tensors
        return ctx.solved.vjp(d2_neg, alpha, cotangent), None, None, None


class Solved(Importance):
    """α_i = argmin_{α ≥ 0, Σ_j α_ij = 1} Σ_j α_ij c_ij − Σ_j r(α_ij), with c = d2_neg and a concave r.

    A subclass defines `solve` and `vjp`. For your own r, use `Regularized`.

    >>> d2_neg = torch.rand(4, 100)
    >>> [isinstance(each, Solved) and each(d2_neg[:, 0], d2_neg).sum().round() for each in (Inverse(), Square())]
    [tensor(4.), tensor(4.)]
    """

    @abstractmethod
    def solve(self, c: Tensor, mean: Tensor, count: Tensor) -> Tensor:
        """A multiple of each row of α: (M, K). It may overwrite c.

        c      (M, K)  d2_neg minus the smallest of its row; ∞ at pairs that are not negatives
        mean   (M, 1)  mean of c over the negatives of the row
        count  (M, 1)  number K of negatives of the row
        """

    def __call__(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None = None) -> Tensor:
        wide = torch.promote_types(d2_neg.dtype, torch.float32)
        alpha: Tensor = ImplicitRows.apply(d2_neg.to(wide), d2_pos.to(wide), valid, self)
        return alpha.to(d2_neg.dtype)

    def rows(self, d2_pos: Tensor, d2_neg: Tensor, negatives: Negatives) -> Rows:
        count = negatives.count(d2_neg)
        mean = negatives.exclude_(d2_neg, 0.0).sum(1, keepdim=True).div_(count)
        c, nearest = relative_to_nearest(d2_neg, negatives)
        alpha = self.solve(c, mean.sub_(nearest), count)
        # The division makes the rows sum to 1, although the root is only accurate to rounding.
        return Rows(alpha.div_(alpha.sum(1, keepdim=True)), torch.ones_like(d2_pos))


@dataclass(frozen=True)
class Tsallis(Solved):
    """The solution for the Tsallis regularizer r_q(α) = −τ α^q / (q(q−1)).

        α_ij = t_i (1 + (1−q) c_ij t_i^{1−q}/τ)₊^{−1/(1−q)},   t_i the largest weight of the row (KKT)

    tau  strength τ of the regularizer
    q    from −5 to 3. q → 1 is `Entropy`, q = 2 is `Square`, q = 1−γ is `Inverse`. If q ≤ 1 every pair has a weight
         above 0; if q > 1 distant pairs have weight 0. If q > 2, a rounding error ε of a distance moves a weight at the
         edge of the support by ε^{1/(q−1)}; q above 3 is refused for this reason

    The solver is Newton's method for y_i = t_i^{q−1}:

        F(y) = (Σ_j (y + κ c_ij)₊^{−1/(1−q)})^{q−1} = 1,   κ = (1−q)/τ

    F increases. It is concave if q < 1 and convex if 1 < q ≤ 2, so the iterates approach the root from one side and
    need no bracket. At q = 2 this is the algorithm of Michelot 1986 for the projection onto the simplex. If q > 2, F is
    neither: a CPU brackets the root (`solve_top_weight`), an accelerator divides the bracket (`divide_bracket`).

    >>> Tsallis(tau=0.5, q=1.5)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.6963, 0.2856, 0.0181]])
    """

    source = "ours: one family with Entropy, Inverse and Square as members"
    tau: float = 0.5
    q: float = 1.0

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)
        require(is_number(self.q) and MIN_Q <= self.q <= MAX_Q, "q", self.q, f"a number from {MIN_Q:g} to {MAX_Q:g}")

    def solve(self, c: Tensor, mean: Tensor, count: Tensor) -> Tensor:
        if self.q == 1:
            return c.mul_(-1 / self.tau).exp_()
        if self.q <= 2:
            return self._monotone(c, mean, count)
        return self._divided(c, count) if is_accelerator(c) else self._bracketed(c, count)

    def _monotone(self, c: Tensor, mean: Tensor, count: Tensor) -> Tensor:
        d, kappa, eps = 1 - self.q, (1 - self.q) / self.tau, torch.finfo(c.dtype).eps
        x = c.mul_(kappa)  # (M, K)
        # A concave F is at most y and at most K^{q−1} times the mean of y + κc; a convex F is at least these. So this
        # y is on the side of the root from which the iterates approach it.
        y = torch.sub(count.pow(d), mean, alpha=kappa)
        if d > LARGEST_EXACT_D:  # a pair whose κc overflows would still have a weight: such a row becomes NaN
            y.add_(mean * (kappa * c.shape[1]), alpha=0)
        y = y.clamp_(min=1) if d > 0 else y.clamp_(max=1)
        strict, loose = 4 * eps * (1 + abs(d)), 0.1 * min(1, abs(d)) + 64 * eps
        ratio, power = iteration_memory(x)
        for _ in range(newton_steps(d)):
            weights, total, slope = self._powers(torch.div(x, y, out=ratio), power)
            target, gain = total.pow(d), total / slope
            # Solved: the step or the residual is as small as rounding.
            if not is_accelerator(c) and bool(((target - y).abs_() * gain.clamp(max=1) <= strict * y).all()):
                return x.copy_(weights)
            previous, y = y, torch.lerp(y, target, gain)
        # A row that is not solved by now becomes NaN and not a wrong number.
        y.masked_fill_((target - previous).abs_() > loose * previous, torch.nan)
        return self._weights(x / y)

    def _bracketed(self, c: Tensor, count: Tensor) -> Tensor:
        d = 1 - self.q
        x = c.mul_(d / self.tau)  # (M, K)
        ratio, power = iteration_memory(x)

        def newton(log_t: Tensor) -> tuple[Tensor, Tensor]:
            _, total, slope = self._powers(torch.mul(x, (d * log_t).exp_(), out=ratio), power)
            f = total.log() + log_t
            step = torch.expm1(d * f) * total / slope
            return f, log_t - step.log1p() / d

        log_t = solve_top_weight(newton, count.log(), start_high=True)
        return self._weights(x * (d * log_t).exp_())

    def _divided(self, c: Tensor, count: Tensor) -> Tensor:
        s = 1 / (self.q - 1)  # α_ij = (y − b_ij)₊^s
        b = c.mul_((self.q - 1) / self.tau).unsqueeze(1)  # (M, 1, K)

        def totals(y: Tensor) -> Tensor:
            return (y - b).clamp_(min=0).pow_(s).sum(2, keepdim=True)  # (M, 3, 1)

        y = divide_bracket(totals, count, self.q - 1)
        return torch.sub(y, b.squeeze(1)).clamp_(min=0).pow_(s)

    def _weights(self, x: Tensor) -> Tensor:
        """(1 + x)₊ to the power −1/(1−q). Overwrites x."""
        return power_of_one_plus(x if self.q < 1 else x.clamp_(min=-1), -1 / (1 - self.q))[1]

    def _powers(self, x: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """With base = (1 + x)₊ and p = −1/(1−q): base^p, (M, K), its sum, and the sum of base^{p−1}. Overwrites x."""
        p = -1 / (1 - self.q)
        if self.q < 1:  # base can be ∞
            base, weights = power_of_one_plus(x, p, out)
            slope = torch.div(weights, base, out=base)
        else:  # base can be 0
            base, slope = power_of_one_plus(x.clamp_(min=-1), p - 1, out)
            if self.q > 2:
                slope.masked_fill_(base == 0, 0.0)
            weights = base if self.q == 2 else base.mul_(slope)
        return weights, weights.sum(1, keepdim=True), slope.sum(1, keepdim=True)

    def vjp(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        # r''(α_j) dα_j = dc_j − dμ and Σ_j dα_j = 0, with −1/r'' = α^{2−q}/τ on the support.
        sensitivity = alpha.pow(2 - self.q).div_(self.tau)
        if self.q >= 2:
            sensitivity.masked_fill_(alpha == 0, 0.0)
        return implicit_vjp(sensitivity, cotangent)


MIN_Q, MAX_Q = -5, 3  # below, K^{1−q} overflows float32
LARGEST_EXACT_D = 3  # up to this 1−q, a weight whose κc overflows float32 is below its eps, also times many pairs


def newton_steps(d: float) -> int:
    """A number of Newton steps that solves every row, at d = 1−q; tests/losses/test_solver.py searches for others."""
    return 4 + math.ceil(8 * min(1, abs(d))) + max(0, math.ceil(d) - 2)


MEMORY = Workspace()


def iteration_memory(x: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Two blocks of the shape of x that every iteration of a solver overwrites; None lets torch allocate them."""
    return MEMORY.block("ratio", x, *x.shape), MEMORY.block("power", x, *x.shape)


def power_of_one_plus(x: Tensor, power: float, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return 1 + x, in place of x, and its power, in `out` if given.

    The power is accurate also if x is tiny and the power large; 0⁰ = 0.
    """
    if power == 0:
        return x.add_(1), torch.sign(x, out=out)
    if power in FAST_POWERS or (abs(power) <= 1 and is_accelerator(x)):  # one launch and not three
        return x.add_(1), torch.pow(x, power, out=out)
    # On a CPU, exp of −∞ takes ten times longer than exp2.
    result = torch.log1p(x, out=out).mul_(power * math.log2(math.e)).exp2_()
    return x.add_(1), result


FAST_POWERS = (-0.5, -1.0, -2.0, 0.5, 1.0, 2.0)  # torch computes these without exp and log


def implicit_vjp(sensitivity: Tensor, cotangent: Tensor) -> Tensor:
    """−s_j (e_j − Σ_k s_k e_k / Σ_k s_k), with s = −1/r''(α) and the cotangent e: the vjp of a solved row."""
    # If one pair has all the weight of a row, e_j equals the mean and the result is 0.
    mean = (sensitivity * cotangent).sum(1, keepdim=True) / sensitivity.sum(1, keepdim=True).clamp(
        min=torch.finfo(cotangent.dtype).tiny
    )
    return sensitivity * (mean - cotangent)


class SolvedByTsallis(Solved):
    """A regularizer that is Tsallis's with other parameters."""

    @property
    @abstractmethod
    def tsallis(self) -> Tsallis:
        """The same regularizer, up to a constant."""

    def solve(self, c: Tensor, mean: Tensor, count: Tensor) -> Tensor:
        return self.tsallis.solve(c, mean, count)

    def vjp(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        return self.tsallis.vjp(d2_neg, alpha, cotangent)


@dataclass(frozen=True)
class Inverse(SolvedByTsallis):
    """The solution for the regularizer r(α) = τ/(1−γ) α^{1−γ}, γ > 1.

        α_ij = (τ/(c_ij − μ_i))^{1/γ},   with μ_i such that the row sums to 1

    tau    strength τ of the regularizer
    gamma  exponent γ, above 1 and up to 6

    >>> Inverse(tau=0.5, gamma=2.0)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.3458, 0.3341, 0.3201]])
    """

    source = (
        "α-CL, Section 6; solved for μ, which the released code does not do. With the γ and τ of the paper the rows "
        "are uniform: the row Inverse"
    )
    symbols: ClassVar = {"gamma": "γ"}

    tau: float = 0.5
    gamma: float = 2.0

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)
        allowed = is_number(self.gamma) and 1 < self.gamma <= 1 - MIN_Q
        require(allowed, "gamma", self.gamma, f"a number above 1 and up to {1 - MIN_Q:g}")

    @property
    def tsallis(self) -> Tsallis:
        return Tsallis(tau=self.gamma * self.tau, q=1 - self.gamma)


@dataclass(frozen=True)
class Square(SolvedByTsallis):
    """The solution for the regularizer r(α) = −τ/2 α²: the Euclidean projection of −c_i/τ onto the simplex.

        α_ij = (μ_i − c_ij)₊/τ,   with μ_i such that the row sums to 1

    tau  strength τ of the regularizer; distant pairs have weight 0 if it is small

    >>> Square(tau=0.5)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.8000, 0.2000, 0.0000]])
    """

    source = "α-CL, Section 6; with rows that sum to 1, which the released code does not have"

    tau: float = 5.0

    def __post_init__(self) -> None:
        require_scale("tau", self.tau)

    @property
    def tsallis(self) -> Tsallis:
        return Tsallis(tau=self.tau, q=2.0)


@dataclass(frozen=True)
class Regularized(Solved):
    """The solution for any concave regularizer r.

        α_ij = r'⁻¹(c_ij − μ_i),   with μ_i such that the row sums to 1

    r_prime          r', decreasing on (0, 1], elementwise. If r'(0) is finite, distant pairs have weight 0
    r_prime_inverse  the inverse function of r', elementwise; autograd computes its slope
    name             for the printed form

    >>> burg = Regularized(lambda a: 0.5 / a, lambda x: 0.5 / x, "½ log α")
    >>> burg(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.4102, 0.3292, 0.2606]])
    >>> burg
    Regularized(½ log α)
    """

    source = "α-CL, Definition 1, for any concave r"

    r_prime: Callable[[Tensor], Tensor]
    r_prime_inverse: Callable[[Tensor], Tensor]
    name: str = "your r"

    def __repr__(self) -> str:
        return f"Regularized({self.name})"  # a function prints as an address, which differs between runs

    def __post_init__(self) -> None:
        require(callable(self.r_prime), "r_prime", self.r_prime, "a function of a tensor")
        require(callable(self.r_prime_inverse), "r_prime_inverse", self.r_prime_inverse, "a function of a tensor")
        at = torch.tensor([0.1, 0.5, 1.0], dtype=torch.float64)
        slopes = self.r_prime(at)
        require(bool((slopes.diff() < 0).all()), "r_prime", slopes.tolist(), "decreasing (r concave) at 0.1, 0.5, 1")
        back = self.r_prime_inverse(slopes)
        require(torch.allclose(back, at, rtol=1e-4), "r_prime_inverse", back.tolist(), f"{at.tolist()} at r' of these")

    def solve(self, c: Tensor, mean: Tensor, count: Tensor) -> Tensor:
        t = self._divide(c, count) if is_accelerator(c) else self._bracket(c, count)
        return self._invert(c + self.r_prime(t))

    def _divide(self, c: Tensor, count: Tensor) -> Tensor:
        """The largest weight of each row, (M, 1), in a fixed number of steps."""
        largest = min(self._at_zero, torch.finfo(c.dtype).max)

        def totals(t: Tensor) -> Tensor:
            x = c.unsqueeze(1) + self.r_prime(t)  # (M, 3, K)
            return self.r_prime_inverse(x.clamp_(max=largest)).sum(2, keepdim=True)

        return divide_bracket(totals, count, 1.0)

    def _bracket(self, c: Tensor, count: Tensor) -> Tensor:
        """The largest weight of each row, (M, 1), in as few steps as the rows need."""
        log_count = count.log()

        def newton(log_t: Tensor) -> tuple[Tensor, Tensor]:
            nu = self.r_prime(log_t.exp())  # −μ
            alpha, slope = self._invert_with_slope(c + nu)
            total = alpha.sum(1, keepdim=True)
            at_mean = self.r_prime(total / count)
            # d r'(mean)/dν = r''(mean) mean_j (r'⁻¹)'(c_j + ν), and r'' is 1 over the slope of the inverse.
            slope_of_mean = slope.sum(1, keepdim=True) / count / self._invert_with_slope(at_mean)[1]
            step = nu - (at_mean - self.r_prime(1 / count)) / slope_of_mean
            return total.log(), self._invert(step).log()

        return solve_top_weight(newton, log_count, start_high=math.isfinite(self._at_zero)).exp()

    @functools.cached_property
    def _at_zero(self) -> float:
        """r'(0)."""
        return self.r_prime(torch.zeros(1, dtype=torch.float64)).item()

    def _invert(self, x: Tensor) -> Tensor:
        """r'⁻¹(x), and 0 if x ≥ r'(0)."""
        inside, beyond = self._inside(x)
        return self.r_prime_inverse(inside).masked_fill(beyond, 0.0)

    def _invert_with_slope(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`_invert` and its derivative."""
        with torch.inference_mode(False), torch.enable_grad():
            inside, beyond = self._inside(x.detach().clone())
            alpha = self.r_prime_inverse(inside.requires_grad_())
            (slope,) = torch.autograd.grad(alpha.sum(), inside)
        return alpha.detach().masked_fill(beyond, 0.0), slope.masked_fill(beyond, 0.0)

    def _inside(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return x with r'(1) in place of values outside of the domain of r'⁻¹, and the mask of these."""
        beyond = x >= self.r_prime(x.new_zeros(()))
        return torch.where(beyond, self.r_prime(x.new_ones(())), x), beyond

    def vjp(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        slope = self._invert_with_slope(self.r_prime(alpha))[1]
        return implicit_vjp(torch.where(alpha > 0, -slope, 0.0), cotangent)
