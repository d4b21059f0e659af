"""Importances that are the solution of a concave regularizer r, and the solver of their rows.

    α_i = argmin_{α ≥ 0, Σ_j α_ij = 1} Σ_j α_ij c_ij − Σ_j r(α_ij),   c = d2_neg

This is the min player of the α-CL paper. A shift of a row of c does not change its α.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lightning_ssl.checks import require, require_finite, require_positive
from lightning_ssl.losses.importance import Importance, Rows, refuse_second_derivative


def solve_top_weight(
    newton: Callable[[Tensor], tuple[Tensor, Tensor]], log_count: Tensor, start_high: bool
) -> tuple[Tensor, int]:
    """Solve every row for the logarithm of its largest weight; return it, (M,), and the number of iterations.

    KKT: r'(α_ij) = c_ij − μ_i on the support. Shift c so that the nearest pair of the row has c = 0. This pair has the
    largest weight t_i, μ_i = −r'(t_i), and 1/K ≤ t_i ≤ 1 is a bracket of t_i for every concave r.

    newton      log_t (M,) → f and the next log_t, (M,) each. f = log Σ_j α_ij(t) increases and is zero at the solution.
                The step is Newton's in ν = r'(t) on r'(mean_j α_ij). If all distances of a row are equal, this function
                is linear in ν and one step suffices; other rows need a few steps
    log_count   log K_i, (M,)
    start_high  start at t = 1 and not at t = 1/K

    Bisection replaces a step that leaves the bracket. After a third of the iterations it also replaces a step after
    which |f| was not halved.
    """
    eps = torch.finfo(log_count.dtype).eps
    log_t = torch.zeros_like(log_count) if start_high else -log_count
    margin = 8 * eps * (1 + log_count)  # rows of equal distances have their solution at the edge
    low, high = -log_count - margin, margin
    previous = torch.full_like(log_t, torch.inf)
    iteration = 0
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
    return log_t, iteration


MAX_ITERATIONS = 60


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

    A subclass defines `fit`, `weigh` and `vjp`. For your own r, use `Regularized`.

    >>> d2_neg = torch.rand(4, 100)
    >>> [isinstance(each, Solved) and each(d2_neg[:, 0], d2_neg).sum().round() for each in (Inverse(), Square())]
    [tensor(4.), tensor(4.)]
    """

    def __call__(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None = None) -> Tensor:
        wide = torch.promote_types(d2_neg.dtype, torch.float32)
        alpha: Tensor = ImplicitRows.apply(d2_neg.to(wide), d2_pos.to(wide), valid, self)
        return alpha.to(d2_neg.dtype)

    @staticmethod
    def rows(params: list[Tensor], weights: Tensor) -> Rows:
        """Make `Rows` of the given weights, (M, K), divided by their sum.

        The division makes the rows sum to 1 to the last digit, although the root is only accurate to rounding.
        """
        # A float32 sum of many equal weights is less accurate than that. MPS has no float64.
        total = weights.sum(1, dtype=None if weights.device.type == "mps" else torch.float64)
        scale = (1 / total).to(weights.dtype)
        return Rows(torch.stack([*params, scale]), (total > 0).to(weights.dtype))

    @staticmethod
    def shift(d2_neg: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return d2_neg minus the smallest of the row (+inf where not valid), this smallest, and log K.

        Shapes: (M, K), (M,), (M,).
        """
        if valid is None:
            nearest = d2_neg.amin(1)
            return d2_neg - nearest[:, None], nearest, d2_neg.new_full((len(d2_neg),), math.log(d2_neg.shape[1]))
        c = d2_neg.masked_fill(~valid, torch.inf)
        nearest = c.amin(1)
        nearest = nearest.masked_fill(nearest.isinf(), 0.0)
        return c.sub_(nearest[:, None]), nearest, valid.sum(1).clamp(min=1).to(d2_neg.dtype).log()


@dataclass(frozen=True)
class Tsallis(Solved):
    """The solution for the Tsallis regularizer r_q(α) = −τ α^q / (q(q−1)).

        α_ij = t_i (1 + (1−q) c_ij t_i^{1−q}/τ)₊^{−1/(1−q)},   t_i the largest weight of the row (KKT)

    tau  strength τ of the regularizer
    q    q → 1 is `Entropy`, q = 2 is `Square`, q = 1−γ is `Inverse`. If q ≤ 1 every pair has a weight above 0; if q > 1
         distant pairs have weight 0

    >>> Tsallis(tau=0.5, q=1.5)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.6963, 0.2856, 0.0181]])
    """

    tau: float = 0.5
    q: float = 1.0

    def __post_init__(self) -> None:
        require_positive("tau", self.tau)
        require_finite("q", self.q)

    def fit(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None = None) -> Rows:
        c, nearest, log_count = self.shift(d2_neg, valid)

        def newton(log_t: Tensor) -> tuple[Tensor, Tensor]:
            base, a = self._ratio(c, self._rate(log_t)[:, None])
            total = a.sum(1)
            slope = a.div_(base)  # ∂α/∂t = (α/t)^{2−q} = a/base
            if self.q > 1:
                slope = slope.masked_fill_(base == 0, 0.0)
            f = total.log() + log_t
            if self.q == 1:
                return f, log_t - f
            # ν is a multiple of t^{q−1}; the step is converted to log t
            ratio = torch.expm1((1 - self.q) * f) * total / slope.sum(1)
            return f, log_t - ratio.log1p() / (1 - self.q)

        log_t, _ = solve_top_weight(newton, log_count, start_high=self.q > 1)
        rate = self._rate(log_t)
        # At the root t = 1/Σ_j a_ij.
        return self.rows([nearest, rate], self._ratio(c, rate[:, None])[1])

    def weigh(self, d2_neg: Tensor, params: Tensor) -> Tensor:
        nearest, rate, scale = params
        return self._ratio((d2_neg - nearest).clamp_(min=0), rate)[1] * scale

    def _rate(self, log_t: Tensor) -> Tensor:
        """(1−q) t^{1−q}/τ, or 1/τ if q = 1."""
        if self.q == 1:
            return torch.full_like(log_t, 1 / self.tau)
        rate = ((1 - self.q) * log_t).exp() * (abs(1 - self.q) / self.tau)
        # Not 0 and not ∞: 0·∞ would be NaN.
        limits = torch.finfo(rate.dtype)
        return rate.clamp(limits.tiny, limits.max) * (1 if self.q < 1 else -1)

    def _ratio(self, c: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        """Return base = (1 + rate·c)₊ and a = α/t = base^{−1/(1−q)}."""
        if self.q == 1:
            return torch.ones_like(c), (c * -rate).exp_()
        x = c * rate
        power = -1 / (1 - self.q)
        if power in FAST_POWERS:
            base = x.add_(1).clamp_(min=0)
            return base, base.pow(power)
        x.clamp_(min=-1)  # log1p is accurate if q is near 1 and x is tiny
        return x + 1, x.log1p().mul_(power).exp_()

    def vjp(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        # r''(α_j) dα_j = dc_j − dμ and Σ_j dα_j = 0, with −1/r'' = α^{2−q}/τ on the support.
        return implicit_vjp(torch.where(alpha > 0, alpha.pow(2 - self.q) / self.tau, 0.0), cotangent)


FAST_POWERS = (-0.5, -1.0, -2.0, 0.5, 1.0, 2.0)  # torch computes these without exp and log


def implicit_vjp(sensitivity: Tensor, cotangent: Tensor) -> Tensor:
    """−s_j (e_j − Σ_k s_k e_k / Σ_k s_k), with s = −1/r''(α) and the cotangent e: the vjp of a solved row."""
    # If one pair has all the weight of a row, e_j equals the mean and the result is 0.
    mean = (sensitivity * cotangent).sum(1, keepdim=True) / sensitivity.sum(1, keepdim=True).clamp(
        min=torch.finfo(cotangent.dtype).tiny
    )
    return sensitivity * (mean - cotangent)


@dataclass(frozen=True)
class Inverse(Solved):
    """The solution for the regularizer r(α) = τ/(1−γ) α^{1−γ}, γ > 1.

        α_ij = (τ/(c_ij − μ_i))^{1/γ},   with μ_i such that the row sums to 1

    tau    strength τ of the regularizer
    gamma  exponent γ, above 1

    >>> Inverse(tau=0.5, gamma=2.0)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.3458, 0.3341, 0.3201]])
    """

    tau: float = 0.5
    gamma: float = 2.0

    def __post_init__(self) -> None:
        require_positive("tau", self.tau)
        require(1 < self.gamma < math.inf, "gamma", self.gamma, "a finite number above 1")

    @property
    def _tsallis(self) -> Tsallis:
        return Tsallis(tau=self.gamma * self.tau, q=1 - self.gamma)

    def fit(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None = None) -> Rows:
        return self._tsallis.fit(d2_pos, d2_neg, valid)

    def weigh(self, d2_neg: Tensor, params: Tensor) -> Tensor:
        return self._tsallis.weigh(d2_neg, params)

    def vjp(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        return self._tsallis.vjp(d2_neg, alpha, cotangent)


@dataclass(frozen=True)
class Square(Solved):
    """The solution for the regularizer r(α) = −τ/2 α²: the Euclidean projection of −c_i/τ onto the simplex.

        α_ij = (μ_i − c_ij)₊/τ,   with μ_i such that the row sums to 1

    The algorithm is that of Michelot 1986. It recomputes μ_i = (τ + Σ_{support} c_ij)/|support| until the support
    does not shrink any more; the result is exact. Rows that need too many iterations are sorted instead.

    tau  strength τ of the regularizer; distant pairs have weight 0 if it is small

    >>> Square(tau=0.5)(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]]))
    tensor([[0.8000, 0.2000, 0.0000]])
    """

    tau: float = 5.0

    def __post_init__(self) -> None:
        require_positive("tau", self.tau)

    def fit(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None = None) -> Rows:
        c, nearest, _ = self.shift(d2_neg, valid)
        support = torch.isfinite(c)
        count = support.sum(1)
        for _ in range(MAX_ITERATIONS):
            mu = self._threshold(c, support)
            support = c < mu[:, None]
            shrunk = support.sum(1)
            if torch.equal(shrunk, count):
                break
            count = shrunk
        else:
            mu = self._threshold_by_sort(c)
        return self.rows([nearest, mu], (mu[:, None] - c).clamp_(min=0))

    def _threshold(self, c: Tensor, support: Tensor) -> Tensor:
        """μ of a given support: (M,)."""
        size = support.sum(1).clamp(min=1)
        return (self.tau + torch.where(support, c, 0.0).sum(1)) / size

    def _threshold_by_sort(self, c: Tensor) -> Tensor:
        """μ of the optimal support: (M,)."""
        ordered = c.sort(1).values  # (M, K)
        sizes = torch.arange(1, c.shape[1] + 1, device=c.device)
        thresholds = (self.tau + ordered.cumsum(1)) / sizes
        size = (ordered < thresholds).sum(1, keepdim=True).clamp(min=1)
        return thresholds.gather(1, size - 1).squeeze(1)

    def weigh(self, d2_neg: Tensor, params: Tensor) -> Tensor:
        nearest, mu, scale = params  # nearest + mu as one number would lose digits of mu
        return (mu - (d2_neg - nearest)).clamp_(min=0) * scale

    def vjp(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        return implicit_vjp((alpha > 0).to(alpha.dtype) / self.tau, cotangent)


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

    def fit(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None = None) -> Rows:
        c, nearest, log_count = self.shift(d2_neg, valid)
        count = log_count.exp()

        def newton(log_t: Tensor) -> tuple[Tensor, Tensor]:
            nu = self.r_prime(log_t.exp())  # −μ
            alpha, slope = self._invert_with_slope(c + nu[:, None])
            mean = alpha.sum(1) / count
            at_mean = self.r_prime(mean)
            # d r'(mean)/dν = r''(mean) mean_j (r'⁻¹)'(c_j + ν), and r'' is 1 over the slope of the inverse.
            slope_of_mean = slope.sum(1) / count / self._invert_with_slope(at_mean)[1]
            step = nu - (at_mean - self.r_prime(1 / count)) / slope_of_mean
            return mean.log() + log_count, self._invert(step).log()

        log_t, _ = solve_top_weight(newton, log_count, start_high=self._drops_pairs())
        top = self.r_prime(log_t.exp())
        return self.rows([nearest, top], self._invert(c + top[:, None]))

    def weigh(self, d2_neg: Tensor, params: Tensor) -> Tensor:
        nearest, top, scale = params
        return self._invert((d2_neg - nearest).clamp_(min=0) + top) * scale

    def _drops_pairs(self) -> bool:
        """Whether r'(0) is finite."""
        return bool(torch.isfinite(self.r_prime(torch.zeros(1, dtype=torch.float64))).all())

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
