"""Pair importance α: how much each negative pair of a batch counts.

`importance(d2_pos, d2_neg, valid=None) -> alpha`, with d2_pos (M,), d2_neg (M, K), an optional mask (M, K) and
α ≥ 0 (M, K), zero where not valid. d2 is always ½‖a − b‖²: small means similar.

An importance is written in two steps, so that the kernel in `energy` can weigh any tile of the M×K matrix alone:

    rows = importance.fit(d2_pos, d2_neg, valid)       # what a row must know of itself
    alpha = importance.weigh(d2_neg, rows.params)      # elementwise from there on

Three kinds:
  `Streaming`  α_ij = mass_i · softmax_j ℓ(d2_neg_ij): one running sum per row is all there is to know
  `Solved`     α_i = argmin over the simplex of Σ_j α_ij c_ij − Σ_j r(α_ij), r concave: one unknown per row
  `FromFamily` α_ij = φ'(ξ_i) ψ'(d2_pos_i − d2_neg_ij), Theorem 1

Your own: subclass one of these, or pass any callable with the signature above (slower, still exact).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl.families import ExponentialFamily, Family
from lightning_ssl.validation import require, require_finite, require_positive


class Rows(NamedTuple):
    """What is known of each row once it has been seen whole."""

    params: Tensor  # (P, M): enough to weigh any pair of the row
    mass: Tensor  # (M,): Σ_j α_ij
    value: Tensor | None = None  # (M,): φ(ξ_i), where the importance comes from a loss


class Importance(ABC):
    """A rule that gives every negative pair its weight."""

    weighs_clean: ClassVar[bool] = False
    """Whether the distances weighed are those of the un-augmented view (d2_neg is then of that view)."""

    @property
    def streams(self) -> bool:
        """Whether `log_kernel` and `mass` say it all (see `Streaming`)."""
        return False

    @abstractmethod
    def fit(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None = None) -> Rows:
        """Learn from whole rows, (M,) and (M, K), what `weigh` needs."""

    @abstractmethod
    def weigh(self, d2_neg: Tensor, params: Tensor) -> Tensor:
        """α of any pairs, elementwise: d2_neg (m, k), params (P, m, 1) → (m, k). It knows nothing of masks."""

    def __call__(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None = None) -> Tensor:
        check_distances(d2_pos, d2_neg, valid)
        dtype = d2_neg.dtype
        if dtype in (torch.float16, torch.bfloat16):
            d2_pos, d2_neg = d2_pos.float(), d2_neg.float()
        alpha = self.weigh(d2_neg, self.fit(d2_pos, d2_neg, valid).params[..., None])
        if valid is not None:
            alpha = alpha.masked_fill(~valid, 0.0)
        return alpha.to(dtype)

    def pullback(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        """∂/∂d2_neg_ij of Σ_k cotangent_ik α_ik, the cotangent held fixed: what `backprop_alpha` adds to α."""
        raise ValueError(f"backprop_alpha=True: {type(self).__name__} has no derivative of its weights to propagate")


def check_distances(d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None) -> None:
    """Refuse shapes that would broadcast silently."""
    require(d2_neg.ndim == 2, "d2_neg", tuple(d2_neg.shape), "of shape (M, K)")
    require(d2_pos.shape == d2_neg.shape[:1], "d2_pos", tuple(d2_pos.shape), f"of shape ({d2_neg.shape[0]},)")
    if valid is not None:
        require(valid.dtype == torch.bool, "valid", valid.dtype, "a bool mask")
        require(valid.shape == d2_neg.shape, "valid", tuple(valid.shape), f"of shape {tuple(d2_neg.shape)}")


# ---------------------------------------------------------------------------------------------------------------------
# Streaming: known from one sum over the row


class Streaming(Importance):
    """α_ij = mass_i · softmax_j ℓ(d2_neg_ij): the running sum of exp ℓ is all there is to know of a row."""

    @property
    def streams(self) -> bool:
        return True

    @abstractmethod
    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        """ℓ, elementwise. It may overwrite its argument, and the caller may overwrite what it returns."""

    def mass(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        """Σ_j α_ij, from log Σ_j exp ℓ(d2_neg_ij): (M,), (M,) → (M,). As it stands, rows sum to 1."""
        return torch.ones_like(log_sum)

    def value(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor | None:
        """φ(ξ_i), where the importance comes from a loss."""
        return None

    def fit(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None = None) -> Rows:
        logits = self._logits(d2_neg)  # (M, K)
        if valid is not None:
            # A row without negatives keeps its logits here; its weights are masked, and its mass is 0.
            empty = ~valid.any(1, keepdim=True)
            logits = logits.masked_fill(~(valid | empty), -torch.inf)
        top = logits.amax(1)
        total = (logits - top[:, None]).exp().sum(1)
        log_sum = top + total.log()
        mass = self.mass(log_sum, d2_pos)
        if valid is not None:
            mass = mass.masked_fill(empty[:, 0], 0.0)
        # The sum stands beside the largest logit and not in a logarithm, which has few digits left at small τ.
        return Rows(torch.stack([top, mass / total]), mass, self.value(log_sum, d2_pos))

    def weigh(self, d2_neg: Tensor, params: Tensor) -> Tensor:
        top, scale = params
        # `top` can come from a product of another shape: at d2 ≥ 1e12 their roundings differ by more than exp can take.
        return (self._logits(d2_neg) - top).clamp_(max=0).exp() * scale

    def _logits(self, d2_neg: Tensor) -> Tensor:
        # Where every logit of a row overflows, its pairs count alike.
        return self.log_kernel(d2_neg.clone()).clamp(min=torch.finfo(d2_neg.dtype).min)


@dataclass(frozen=True)
class Entropy(Streaming):
    """α = softmax(−d2_neg/τ): r(α) = −τ α log α, the gradient of InfoNCE with ε = 0."""

    tau: float = 0.5

    def __post_init__(self) -> None:
        require_positive("tau", self.tau)

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        return d2_neg.mul_(-1 / self.tau)

    def pullback(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        centre = (alpha * cotangent).sum(1, keepdim=True)
        return alpha * (centre - cotangent) / self.tau


@dataclass(frozen=True)
class Direct(Streaming):
    """α_ij ∝ exp(−d_ij^p/τ) with d = √d2 (Eqn. 12); `normalize=False` leaves out the row sum (Eqn. 44)."""

    tau: float = 0.5
    p: float = 4.0
    normalize: bool = True

    def __post_init__(self) -> None:
        require_positive("tau", self.tau)
        require(1 < self.p < math.inf, "p", self.p, "a finite number above 1")

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        return d2_neg.pow_(self.p / 2).mul_(-1 / self.tau)

    def mass(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        return super().mass(log_sum, d2_pos) if self.normalize else log_sum.exp()

    def pullback(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        # When p < 2, ℓ' grows without bound towards d2 = 0. Such a pair's own gradient vanishes, but as a difference of
        # large terms: below the rounding of a unit vector's d2 they would only lose digits.
        slope = d2_neg.clamp(min=torch.finfo(d2_neg.dtype).eps).pow(self.p / 2 - 1) * (-self.p / (2 * self.tau))  # ℓ'
        if self.normalize:
            cotangent = cotangent - (alpha * cotangent).sum(1, keepdim=True)
        return slope * alpha * cotangent


@dataclass(frozen=True)
class Uniform(Streaming):
    """α_ij = 1: every negative counts the same, and a row counts as much as it has negatives."""

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        return d2_neg.zero_()

    def mass(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        return log_sum.exp()

    def pullback(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        return torch.zeros_like(alpha)


@dataclass(frozen=True)
class Gaussian(Streaming):
    """α_ij = exp(−‖g(x0_i) − g(x0_j)‖²/2τ) on un-augmented samples x0: a kernel that the views cannot move."""

    weighs_clean: ClassVar[bool] = True
    tau: float = 0.5

    def __post_init__(self) -> None:
        require_positive("tau", self.tau)

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        return d2_neg.mul_(-1 / self.tau)

    def mass(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        return log_sum.exp()


@dataclass(frozen=True)
class Exact(Streaming):
    """α_ij = ξ(r_ij), r_ij the d2 of the two un-augmented samples: the weights under which Theorem 3 is exact.

    `kind="infonce"`      ξ(r) = τ⁻¹ e^{−r/τ} / (1 + e^{−r/τ})
    `kind="soft_triplet"` ξ(r) = e^{−(r−r0)/τ} / (1 + e^{−(r−r0)/τ})
    """

    weighs_clean: ClassVar[bool] = True
    tau: float = 0.5
    kind: Literal["infonce", "soft_triplet"] = "infonce"
    r0: float = 0.0

    def __post_init__(self) -> None:
        require_positive("tau", self.tau)
        require(self.kind in ("infonce", "soft_triplet"), "kind", self.kind, "'infonce' or 'soft_triplet'")
        require_finite("r0", self.r0)
        require(self.r0 == 0 or self.kind == "soft_triplet", "r0", self.r0, "0 unless kind='soft_triplet'")

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        if self.kind == "infonce":
            return F.logsigmoid(d2_neg.mul_(-1 / self.tau)).sub_(math.log(self.tau))
        return F.logsigmoid((self.r0 - d2_neg) / self.tau)

    def mass(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        return log_sum.exp()


# ---------------------------------------------------------------------------------------------------------------------
# From a loss


@dataclass(frozen=True)
class FromFamily(Streaming):
    """α_ij = φ'(ξ_i) ψ'(d2_pos_i − d2_neg_ij): descent of the loss is ascent of E_{sg(α)} (Theorem 1)."""

    family: Family

    def __post_init__(self) -> None:
        require(isinstance(self.family, Family), "family", self.family, "a lightning_ssl.families.Family")

    @property
    def streams(self) -> bool:
        return isinstance(self.family, ExponentialFamily)

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        assert isinstance(self.family, ExponentialFamily)
        return d2_neg.mul_(-1 / self.family.tau)

    def mass(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        assert isinstance(self.family, ExponentialFamily)
        return self.family.gain(self.family.log_xi(log_sum, d2_pos))

    def value(self, log_sum: Tensor, d2_pos: Tensor) -> Tensor:
        assert isinstance(self.family, ExponentialFamily)
        return self.family.phi_of_log(self.family.log_xi(log_sum, d2_pos))

    def fit(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None = None) -> Rows:
        if self.streams:
            return super().fit(d2_pos, d2_neg, valid)
        xi = self.family.xi(d2_pos, d2_neg, valid)
        gain = self.family.phi_prime(xi)
        if self.family.averages:
            gain = gain / self.family.negatives(d2_neg, valid)
        psi_prime = self.family.psi_prime(d2_pos[:, None] - d2_neg)
        if valid is not None:
            psi_prime = psi_prime.masked_fill(~valid, 0.0)
        return Rows(torch.stack([d2_pos, gain]), gain * psi_prime.sum(1), self.family.phi(xi))

    def weigh(self, d2_neg: Tensor, params: Tensor) -> Tensor:
        if self.streams:
            return super().weigh(d2_neg, params)
        d2_pos, gain = params
        return self.family.psi_prime(d2_pos - d2_neg) * gain


# ---------------------------------------------------------------------------------------------------------------------
# Solved: the min player's best answer to a concave regularizer


def solve_top_weight(
    newton: Callable[[Tensor], tuple[Tensor, Tensor]], log_count: Tensor, start_high: bool
) -> tuple[Tensor, int]:
    """Solve every row for the log of its largest weight; returns it, (M,), and the number of iterations.

    KKT: r'(α_ij) = c_ij − μ_i on the support. With c shifted so that the nearest pair of the row has c = 0, that pair
    carries the largest weight t_i, μ_i = −r'(t_i), and 1/K ≤ t_i ≤ 1 brackets it for every concave r.

    `newton(log_t)`, (M,) → two (M,): f = log Σ_j α_ij(t), increasing and zero at the answer, and where Newton's step in
    ν = r'(t) on r'(mean_j α_ij) leads. That mean is ν shifted for tied rows, so they take one step; others few. A step
    that leaves the bracket is replaced by bisection, and so, late, is one that did not halve |f|. `log_count`: log K_i.
    """
    eps = torch.finfo(log_count.dtype).eps
    log_t = torch.zeros_like(log_count) if start_high else -log_count
    margin = 8 * eps * (1 + log_count)  # tied rows have their answer on the very edge
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


def refuse_second_derivative(who: str) -> None:
    """Called in a backward: a graph of the gradient is being asked for, and would silently be a constant."""
    if torch.is_grad_enabled():
        raise RuntimeError(f"create_graph=True: {who} can be differentiated once; the gradient is a closed form")


class ImplicitRows(torch.autograd.Function):
    """Solved rows, differentiated by their optimality condition and not through the iterations."""

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
        return ctx.solved.pullback(d2_neg, alpha, cotangent), None, None, None


class Solved(Importance):
    """α_i = argmin_{α ≥ 0, Σ_j α_ij = 1} Σ_j α_ij c_ij − Σ_j r(α_ij); a shift of c changes nothing, so c = d2_neg."""

    def __call__(self, d2_pos: Tensor, d2_neg: Tensor, valid: Tensor | None = None) -> Tensor:
        wide = torch.promote_types(d2_neg.dtype, torch.float32)
        alpha: Tensor = ImplicitRows.apply(d2_neg.to(wide), d2_pos.to(wide), valid, self)
        return alpha.to(d2_neg.dtype)

    @staticmethod
    def rows(params: list[Tensor], weights: Tensor) -> Rows:
        """Rows of the given weights, (M, K), over their sum: exact whatever the last digit of the root."""
        # In float32 the sum of many equal weights drifts by more than the row sum may (and one device has no float64).
        total = weights.sum(1, dtype=None if weights.device.type == "mps" else torch.float64)
        scale = (1 / total).to(weights.dtype)
        return Rows(torch.stack([*params, scale]), (total > 0).to(weights.dtype))

    @staticmethod
    def shift(d2_neg: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Distances above the row's nearest, +inf where not valid, with that nearest and log K: (M, K), (M,), (M,)."""
        if valid is None:
            nearest = d2_neg.amin(1)
            return d2_neg - nearest[:, None], nearest, d2_neg.new_full((len(d2_neg),), math.log(d2_neg.shape[1]))
        c = d2_neg.masked_fill(~valid, torch.inf)
        nearest = c.amin(1)
        nearest = nearest.masked_fill(nearest.isinf(), 0.0)
        return c.sub_(nearest[:, None]), nearest, valid.sum(1).clamp(min=1).to(d2_neg.dtype).log()


@dataclass(frozen=True)
class Tsallis(Solved):
    """r_q(α) = −τ α^q / (q(q−1)): q → 1 is Entropy, q = 2 is Square, q = 1−γ is Inverse.

    KKT gives α_ij = t_i (1 + (1−q) c_ij t_i^{1−q}/τ)₊^{−1/(1−q)}, t_i the row's largest weight. q ≤ 1 keeps every
    pair, q > 1 drops the far ones.
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
            # ν is a multiple of t^{q−1}; the step, in log t
            ratio = torch.expm1((1 - self.q) * f) * total / slope.sum(1)
            return f, log_t - ratio.log1p() / (1 - self.q)

        log_t, _ = solve_top_weight(newton, log_count, start_high=self.q > 1)
        rate = self._rate(log_t)
        # At the root t = 1/Σ_j a_ij
        return self.rows([nearest, rate], self._ratio(c, rate[:, None])[1])

    def weigh(self, d2_neg: Tensor, params: Tensor) -> Tensor:
        nearest, rate, scale = params
        return self._ratio((d2_neg - nearest).clamp_(min=0), rate)[1] * scale

    def _rate(self, log_t: Tensor) -> Tensor:
        """(1−q) t^{1−q}/τ; at q = 1, where it vanishes, 1/τ."""
        if self.q == 1:
            return torch.full_like(log_t, 1 / self.tau)
        rate = ((1 - self.q) * log_t).exp() * (abs(1 - self.q) / self.tau)
        # Kept off 0 and ∞, whose products with an infinite or a zero distance are no numbers.
        limits = torch.finfo(rate.dtype)
        return rate.clamp(limits.tiny, limits.max) * (1 if self.q < 1 else -1)

    def _ratio(self, c: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        """base = (1 + rate·c)₊ and a = α/t = base^{−1/(1−q)}."""
        if self.q == 1:
            return torch.ones_like(c), (c * -rate).exp_()
        x = c * rate
        power = -1 / (1 - self.q)
        if power in FAST_POWERS:
            base = x.add_(1).clamp_(min=0)
            return base, base.pow(power)
        x.clamp_(min=-1)  # log1p keeps its digits where q is near 1 and x tiny
        return x + 1, x.log1p().mul_(power).exp_()

    def pullback(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        # Implicitly: r''(α_j) dα_j = dc_j − dμ and Σ_j dα_j = 0, with −1/r'' = α^{2−q}/τ on the support.
        return implicit_pullback(torch.where(alpha > 0, alpha.pow(2 - self.q) / self.tau, 0.0), cotangent)


FAST_POWERS = (-0.5, -1.0, -2.0, 0.5, 1.0, 2.0)  # those torch computes without exp and log


def implicit_pullback(sensitivity: Tensor, cotangent: Tensor) -> Tensor:
    """−s_j (e_j − Σ_k s_k e_k / Σ_k s_k), with s = −1/r''(α): the derivative of the solved row along e."""
    # A row whose one supported pair takes all the weight does not move: there e_j equals its own mean.
    mean = (sensitivity * cotangent).sum(1, keepdim=True) / sensitivity.sum(1, keepdim=True).clamp(
        min=torch.finfo(cotangent.dtype).tiny
    )
    return sensitivity * (mean - cotangent)


@dataclass(frozen=True)
class Inverse(Solved):
    """r(α) = τ/(1−γ) α^{1−γ}, γ > 1: α_ij = (τ/(c_ij − μ_i))^{1/γ}, with μ_i solved so that the row sums to 1."""

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

    def pullback(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        return self._tsallis.pullback(d2_neg, alpha, cotangent)


@dataclass(frozen=True)
class Square(Solved):
    """r(α) = −τ/2 α²: α_i is the Euclidean projection of −c_i/τ onto the simplex, α_ij = (μ_i − c_ij)₊/τ.

    Exact: the support only shrinks as μ_i = (τ + Σ_{support} c_ij)/|support| is recomputed, and at the support that
    stays the projection is found (Michelot 1986). Rows that take longer than the solver's limit are sorted instead.
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
        size = support.sum(1).clamp(min=1)
        return (self.tau + torch.where(support, c, 0.0).sum(1)) / size

    def _threshold_by_sort(self, c: Tensor) -> Tensor:
        ordered = c.sort(1).values  # (M, K)
        sizes = torch.arange(1, c.shape[1] + 1, device=c.device)
        thresholds = (self.tau + ordered.cumsum(1)) / sizes
        size = (ordered < thresholds).sum(1, keepdim=True).clamp(min=1)
        return thresholds.gather(1, size - 1).squeeze(1)

    def weigh(self, d2_neg: Tensor, params: Tensor) -> Tensor:
        nearest, mu, scale = params  # nearest + mu in one would lose the digits of mu
        return (mu - (d2_neg - nearest)).clamp_(min=0) * scale

    def pullback(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        return implicit_pullback((alpha > 0).to(alpha.dtype) / self.tau, cotangent)


@dataclass(frozen=True)
class Regularized(Solved):
    """Any concave r, given r' (decreasing on (0, 1]) and its inverse, both elementwise on tensors.

    >>> burg = Regularized(lambda a: 0.5 / a, lambda x: 0.5 / x)            # r(α) = ½ log α
    >>> burg(torch.zeros(1), torch.tensor([[0.2, 0.5, 0.9]])).sum()
    tensor(1.)

    Where r'(0) is finite, pairs beyond it get weight 0. The slope of the inverse is taken by autograd.
    """

    r_prime: Callable[[Tensor], Tensor]
    r_prime_inverse: Callable[[Tensor], Tensor]
    name: str = "your r"

    def __repr__(self) -> str:
        return f"Regularized({self.name})"  # a function prints as an address, which no two runs share

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
            # d r'(mean)/dν = r''(mean) mean_j (r'⁻¹)'(c_j + ν), and r'' is one over the slope of the inverse
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
        return bool(torch.isfinite(self.r_prime(torch.zeros(1, dtype=torch.float64))).all())

    def _invert(self, x: Tensor) -> Tensor:
        """r'⁻¹, 0 beyond r'(0)."""
        inside, beyond = self._inside(x)
        return self.r_prime_inverse(inside).masked_fill(beyond, 0.0)

    def _invert_with_slope(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.inference_mode(False), torch.enable_grad():
            inside, beyond = self._inside(x.detach().clone())
            alpha = self.r_prime_inverse(inside.requires_grad_())
            (slope,) = torch.autograd.grad(alpha.sum(), inside)
        return alpha.detach().masked_fill(beyond, 0.0), slope.masked_fill(beyond, 0.0)

    def _inside(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x where r'⁻¹ is defined, and where it is not."""
        beyond = x >= self.r_prime(x.new_zeros(()))
        return torch.where(beyond, self.r_prime(x.new_ones(())), x), beyond

    def pullback(self, d2_neg: Tensor, alpha: Tensor, cotangent: Tensor) -> Tensor:
        slope = self._invert_with_slope(self.r_prime(alpha))[1]
        return implicit_pullback(torch.where(alpha > 0, -slope, 0.0), cotangent)
