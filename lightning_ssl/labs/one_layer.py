"""One nonlinear layer has a local optimum for every pattern of the data, where a linear layer has a single one.

Source: "On the Role of Nonlinearity in Training Dynamics of Contrastive Learning on One-layer Network", Lemmas 1-3,
Theorems 1-3, Corollary 2, Appendix B, Figure 1.

Claim. With unit filters and a homogeneous activation, h(wᵀx) = wᵀx̃ with x̃ = x·h'(wᵀx), contrastive learning climbs
ẇ = (I − wwᵀ) A(w) w, A(w) = C_α[x̃] (Lemma 3). A locally maximal eigenvector of A(w) is stable when λ_gap > ρ, ρ the
local roughness (Theorem 1). The lab computes A(w) and the dynamics exactly, on the support points of the data, and
shows
- Eqns 34 and 35: A(u_m) of the latent categorical and the latent summation model, and the threshold q < (3 − √5)/2
  below which u_m is stable, found here by perturbing u_m and watching whether the dynamics comes back;
- Lemmas 1 and 2: the features of the Gaussian α, and C_α → Σ_l z_l² V_{p̃_l} as the batch grows;
- Theorem 2 and Corollary 2: the bound on ρ, and r(α_gauss) = z_0 r(α_uniform), on a bounded density in the plane;
- Theorem 3 and Figure 1 (right): power iteration for nearly orthogonal patterns;
- the number of local optima and the sizes of their basins: linear, ReLU with uniform α, ReLU with Gaussian α.

Conventions. C_α has the paper's factor 1/(2N²), so that α ≡ 1 without augmentation gives the plain variance. The
Gaussian α is exp(−(h(wᵀx_i) − h(wᵀx_j))²/2τ) on un-augmented samples, recomputed from the current w, never
differentiated. h'(0) = 0 as in Appendix B.1. Everything is double precision; the leading dimensions are seeds S and
filters I.

What we found beyond the paper.
- Under the Gaussian α the summation model has a closed form too, with κ = exp(−(1 − q)/(2τq)), on span(U):
      A(u_m) = κ(1 − q)² u_m u_mᵀ + (q² + κq(1 − q)) (I − u_m u_mᵀ).
  With α *held* at its value in u_m, u_m is stable while κ(1 − q)(1 − 2q) > q²: stricter than uniform α (κ = 1), for at
  the clean u_m no sample is near the plane, ρ = 0, and lower roughness (Corollary 2) has nothing to win. With α
  *following* w, as in every contrastive loss, its own change adds κ(1 − q)²/τ to the restoring force, and u_m is stable
  while κ(1 − q)²(1 + 1/τ) > q² + κq(1 − q): laxer than uniform α for moderate τ (q < 0.424 at τ = 2). Both thresholds
  are met by the dynamics.
- On noisy data, where samples do lie near the plane, the count of local optima grows severalfold as τ falls.
- The categorical model puts all other patterns exactly on the plane at u_m, where A jumps and ρ is infinite, so Theorem
  1 is silent; the jump pushes back towards u_m, and u_m is stable nevertheless.
- On finitely many points the energy has ridges (−E[h]² has concave kinks), A(w) jumps there, and Theorem 3's Lipschitz
  constant does not exist: the ascent needs shrinking steps to settle, and the further U is from orthogonal, the more
  power iterations end in a small cycle across a ridge near u_m rather than in a point. The curves are medians.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lightning_ssl.checks import require
from lightning_ssl.labs.lab import PALETTE, Claim, Result, mean_std, panels, per_seed, track

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THRESHOLD = (3 - math.sqrt(5)) / 2  # below Eqn. 35
DTYPE = torch.float64
EDGE = 1e-9  # h'(0) = 0 has to survive rounding: a sample on the plane wᵀx = 0 is not active


# --------------------------------------------------------------------------------------------- the data of Appendix B.1


def categorical(U: Tensor) -> tuple[Tensor, Tensor]:
    """The latent categorical model, x = u_m with equal probabilities: points (S, M, d), probabilities (M,)."""
    return U, U.new_full((U.shape[1],), 1 / U.shape[1])


def summation(U: Tensor, q: float) -> tuple[Tensor, Tensor]:
    """The latent summation model: all its points (S, 2^M, d) and their probabilities (2^M,).

    x = Σ_m y_m u_m with y_m = √((1 − q)/q) with probability q, −√(q/(1 − q)) otherwise, U (S, M, d).
    """
    M = U.shape[1]
    on = torch.tensor(list(itertools.product((False, True), repeat=M)))  # (2^M, M)
    on_, off = on.to(U), (~on).to(U)
    y = math.sqrt((1 - q) / q) * on_ - math.sqrt(q / (1 - q)) * off
    return y @ U, (q * on_ + (1 - q) * off).prod(1)


def patterns(seeds: int, M: int, d: int, skew: float = 0.0, first_seed: int = 0) -> Tensor:
    """M unit patterns per seed, orthonormal up to a Gaussian perturbation of size `skew`: (S, M, d)."""

    def draw(generator: torch.Generator) -> Tensor:
        U = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=DTYPE))[0][:M]
        U = U + skew * torch.randn(M, d, generator=generator, dtype=DTYPE) / math.sqrt(d)
        return U / U.norm(dim=1, keepdim=True)

    return per_seed(draw, seeds, first_seed, stream=1)


def noisy_samples(seeds: int, M: int, n: int, noise: float, first_seed: int = 0) -> Tensor:
    """n samples of a balanced categorical model with Gaussian noise, centred: (S, n, M)."""

    def draw(generator: torch.Generator) -> Tensor:
        U = torch.linalg.qr(torch.randn(M, M, generator=generator, dtype=DTYPE))[0]
        x = U[torch.arange(n) % M] + noise * torch.randn(n, M, generator=generator, dtype=DTYPE)
        return x - x.mean(0)

    return per_seed(draw, seeds, first_seed, stream=2)


def filters(seeds: int, count: int, d: int, first_seed: int = 0) -> Tensor:
    """`count` random unit filters per seed: (S, count, d)."""

    def draw(generator: torch.Generator) -> Tensor:
        w = torch.randn(count, d, generator=generator, dtype=DTYPE)
        return w / w.norm(dim=1, keepdim=True)

    return per_seed(draw, seeds, first_seed, stream=3)


# ------------------------------------------------------------------------------------------------------- A(w), Lemma 3


def gaussian_alpha(h: Tensor, tau: float) -> Tensor:
    """α_ij = exp(−(h_i − h_j)²/2τ) of outputs h (..., n): (..., n, n)."""
    return torch.exp((h[..., :, None] - h[..., None, :]).square() / (-2 * tau))


def covariance(g: Tensor, prob: Tensor, alpha: Tensor | None = None) -> Tensor:
    """C_α[g] over support points, without augmentation: (..., d, d) of g (..., n, d).

    C_α[g] = ½ Σ_ij p_i p_j α_ij (g_i − g_j)(g_i − g_j)ᵀ
    """
    weighted = prob[:, None] * g
    if alpha is None:
        mean = weighted.sum(-2)
        return weighted.mT @ g - mean[..., :, None] * mean[..., None, :]
    return weighted.mT @ ((alpha @ prob)[..., None] * g) - weighted.mT @ alpha @ weighted


def gated_covariance(w: Tensor, x: Tensor, prob: Tensor, alpha: Tensor | None = None) -> Tensor:
    """A(w) = C_α[x̃], x̃ = x·1[wᵀx > 0]: (S, I, d, d) of filters w (S, I, d), points x (S, n, d), α (S, I, n, n)."""
    active = (w @ x.mT) > EDGE  # (S, I, n)
    return covariance(active[..., None] * x[:, None], prob, alpha)


def alpha_of(w: Tensor, x: Tensor, tau: float | None) -> Tensor | None:
    """The Gaussian α of the filters' own outputs, (S, I, n, n), or None for uniform α."""
    return None if tau is None else gaussian_alpha((w @ x.mT).relu(), tau)


def ascent_direction(w: Tensor, x: Tensor, prob: Tensor, alpha: Tensor | None = None, linear: bool = False) -> Tensor:
    """A(w)w, the gradient of ½C_α[h(wᵀx)] (Lemma 3), without forming A; shapes as in `gated_covariance`."""
    a = w @ x.mT  # (S, I, n)
    gate = torch.ones_like(a) if linear else (a > EDGE).to(a)
    h = a * gate
    ph = prob * h
    if alpha is None:
        return ph @ x - ((prob * gate) @ x) * ph.sum(2, keepdim=True)
    inner = (alpha @ ph[..., None])[..., 0]
    return (prob * ((alpha @ prob) * h - gate * inner)) @ x


def unit(w: Tensor) -> Tensor:
    """w/‖w‖ over the last dimension."""
    return w * (w * w).sum(-1, keepdim=True).clamp_min(1e-300).rsqrt()


def power_iteration(w: Tensor, x: Tensor, prob: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Eqn. 94: the last filters, and ‖w(t+1) − w(t)‖ of every step (steps, S, I)."""
    moved = []
    for _ in range(steps):
        new = unit(ascent_direction(w, x, prob))
        moved.append((new - w).norm(dim=2))
        w = new
    return w, torch.stack(moved)


def ascend(w: Tensor, x: Tensor, prob: Tensor, steps: int, tau: float | None = None, linear: bool = False) -> Tensor:
    """Projected gradient ascent with steps relative to ‖A(w)w‖ that shrink like t^−3/2 after a first phase."""
    for t in range(steps):
        step = ascent_direction(w, x, prob, alpha_of(w, x, tau), linear)
        size = 2.0 * min(1.0, (steps / 5 / (t + 1)) ** 1.5)
        w = unit(w + size * unit(step))
    return w


def distinct(w: Tensor, cosine: float = 0.97, signed: bool = True) -> tuple[Tensor, Tensor]:
    """How many filters of each seed differ, (S,), and the sizes of the groups, largest first, (S, I)."""
    similar = w @ w.mT
    near = (similar if signed else similar.abs()) > cosine  # (S, I, I)
    # a filter leads its group when no earlier one is near it
    first = near.to(torch.uint8).argmax(2)  # (S, I)
    leads = first == torch.arange(w.shape[1])
    sizes = torch.zeros(first.shape, dtype=torch.long).scatter_add_(1, first, torch.ones_like(first))
    return leads.sum(1), (sizes * leads).sort(1, descending=True).values


def stable(
    w: Tensor,
    x: Tensor,
    prob: Tensor,
    tau: float | None = None,
    hold: bool = False,
    steps: int = 300,
    push: float = 1e-5,
) -> Tensor:
    """Whether filters w (S, I, d) come back after a small random push, α following them or held: (S, I)."""
    held = alpha_of(w, x, tau)
    noise = per_seed(lambda g: torch.randn(w.shape[1:], generator=g, dtype=w.dtype), w.shape[0], stream=4)
    v = w + push * noise
    away = []
    for t in range(steps):
        v = unit(v)
        if t in (steps // 2, steps - 1):
            away.append((v - w).norm(dim=2))
        v = v + unit(ascent_direction(v, x, prob, held if hold else alpha_of(v, x, tau)))
    # the second half tells: a push decays at once along what A does not see, also at an unstable w
    return (away[1] < away[0]) | (away[1] < 1e-10)


def threshold(U: Tensor, tau: float | None = None, hold: bool = False, bisections: int = 10) -> float:
    """The largest q at which every u_m of the summation model is stable, by bisection of the dynamics' own answer."""
    low, high = 0.3, 0.5
    for _ in range(bisections):
        q = (low + high) / 2
        x, prob = summation(U, q)
        low, high = (q, high) if bool(stable(U, x, prob, tau, hold).all()) else (low, q)
    return (low + high) / 2


def gaussian_threshold(tau: float, hold: bool) -> float:
    """The largest q at which u_m is stable under Gaussian α in closed form; see the module's docstring.

    κ(1 − q)² > q² + κq(1 − q) with α held at u_m; κ(1 − q)²(1 + 1/τ) > q² + κq(1 − q) with α following w.
    """
    q = torch.linspace(1e-3, 0.5, 200_001, dtype=DTYPE)
    kappa = torch.exp(-(1 - q) / (2 * tau * q))
    along = kappa * (1 - q).square() * (1 if hold else 1 + 1 / tau)
    holds = along > q.square() + kappa * q * (1 - q)
    return float(q[holds][-1]) if bool(holds.any()) else 0.0


# ---------------------------------------------------------------------------------- Lemmas 1, 2, Theorem 2, Corollary 2


def gaussian_features(h: Tensor, tau: float, terms: int) -> Tensor:
    """Lemma 1 for a scalar h ≥ 0: the features φ_l of the Gaussian α, (terms, ..., n) of h (..., n).

    φ_l(h) = e^{−h²/2τ} (h/√τ)^l/√l!, so that α_ij = Σ_l φ_l(h_i) φ_l(h_j)
    """
    order = torch.arange(terms, dtype=h.dtype).view(-1, *[1] * h.dim())
    log_h = (h / math.sqrt(tau)).clamp_min(1e-300).log()
    return torch.exp(order * log_h - torch.lgamma(order + 1) / 2 - h.square() / (2 * tau))


def kernel_covariance(g: Tensor, prob: Tensor, phi: Tensor) -> Tensor:
    """Lemma 2 without augmentation: (d, d) of g (n, d) and phi (L, n).

    Σ_l z_l² V_{p̃_l}[g] = Σ_l (z_l E[φ_l ggᵀ] − E[φ_l g] E[φ_l g]ᵀ)
    """
    weight = prob * phi  # (L, n)
    z = weight.sum(1)  # (L,)
    mean = weight @ g  # (L, d)
    return g.T @ ((z @ weight)[:, None] * g) - mean.T @ mean


def batch_covariance_error(seeds: int, sizes: tuple[int, ...], tau: float, first_seed: int = 0) -> Tensor:
    """Relative error of C_α of a batch with augmentation against Lemma 2's limit, g(x) = x̃: (sizes, S).

    Samples come from the latent summation model (M = 3, q = 0.3); a view adds Gaussian noise. The limit averages x̃
    over the noise.
    """
    d, sigma, q = 3, 0.3, 0.3
    x, prob = summation(torch.eye(d, dtype=DTYPE)[None], q)
    x0, w = x[0], torch.tensor([1.0, 0.5, -0.25], dtype=DTYPE)
    w = w / w.norm()
    # E[x̃ | x0] of x = x0 + σε: with s = σ (|w| = 1), a = wᵀx0/σ, E = x0 Φ(a) + σ w φ(a)
    a = x0 @ w / sigma
    normal = torch.distributions.Normal(torch.zeros((), dtype=DTYPE), torch.ones((), dtype=DTYPE))
    mean_view = x0 * normal.cdf(a)[:, None] + sigma * normal.log_prob(a).exp()[:, None] * w
    phi = gaussian_features((x0 @ w).relu(), tau, 60)
    limit = kernel_covariance(mean_view, prob, phi)

    errors = []
    for size in sizes:

        def draw(generator: torch.Generator, size: int = size) -> Tensor:
            y0 = x0[torch.multinomial(prob, size, replacement=True, generator=generator)]
            views = y0 + sigma * torch.randn(2, size, d, generator=generator, dtype=DTYPE)
            return torch.cat([y0[None], views])

        drawn = per_seed(draw, seeds, first_seed, stream=5)  # (S, 3, n, d)
        gated = ((drawn[:, 1:] @ w) > 0)[..., None] * drawn[:, 1:]  # (S, 2, n, d)
        alpha = gaussian_alpha((drawn[:, 0] @ w).relu(), tau)
        apart = gated[:, 0] - gated[:, 1]
        even = x0.new_full((size,), 1 / size)
        within = apart.mT @ ((alpha @ even)[..., None] * apart) / (2 * size)
        found = covariance(gated[:, 0], even, alpha) - within
        errors.append((found - limit).flatten(1).norm(dim=1) / limit.norm())
    return torch.stack(errors)


def roughness_in_the_plane(taus: tuple[float, ...], cells: int = 400) -> dict[str, Tensor]:
    """Theorem 2 and Corollary 2 on a smooth density over the unit disc, by quadrature.

    The density is ∝ 1 + 0.9·x_1 (C_0 = 1), w = (1, 0). For uniform α (first entry) and each Gaussian τ: ρ by a finite
    rotation of w, the bound C_0³ vol(C_0) r/π, r, z_0 and the exact first-order ratio ρ_gauss/ρ_uniform = E[φ_0 h]/E[h]
    that the proof's only first-order term gives.
    """
    radius = (torch.arange(cells, dtype=DTYPE) + 0.5) / cells
    angle = (torch.arange(4 * cells, dtype=DTYPE) + 0.5) / (4 * cells) * 2 * math.pi
    x = torch.stack([radius[:, None] * angle.cos(), radius[:, None] * angle.sin()], 2).reshape(-1, 2)
    density = (1 + 0.9 * x[:, 0]) / math.pi
    prob = density * radius[:, None].expand(cells, 4 * cells).reshape(-1)
    prob = prob / prob.sum()
    w = torch.tensor([1.0, 0.0], dtype=DTYPE)
    h = (x @ w).relu()
    # the turn is a whole number of angular cells, so that the quadrature has no error of its own at the gate's edge
    turn = 2 * math.pi * 8 / (4 * cells)
    v = torch.tensor([math.cos(turn), math.sin(turn)], dtype=DTYPE)
    on_plane = 1 / math.pi  # max of the density where wᵀx = 0
    rho, r, z0, exact = [], [], [], []
    for tau in (None, *taus):
        phi = torch.ones(1, len(x), dtype=DTYPE) if tau is None else gaussian_features(h, tau, 40)
        change = [kernel_covariance(((x @ u) > 0)[:, None] * x, prob, phi) for u in (v, w)]
        rho.append(((change[0] - change[1]) @ w).norm() / (v - w).norm())
        z = (prob * phi).sum(1)
        # Σ_l z_l² max p̃_l = Σ_l z_l max φ_l p on the plane, where h = 0 and only φ_0 is not zero
        phi_plane = torch.ones(1) if tau is None else gaussian_features(torch.zeros(1, dtype=DTYPE), tau, 40)[:, 0]
        r.append((z * phi_plane).sum() * on_plane)
        z0.append(z[0])
        exact.append((prob * phi[0] * h).sum() / (prob * h).sum())
    bound = torch.stack(r) * math.pi / math.pi  # C_0 = 1, vol = π
    return {
        "rho": torch.stack(rho),
        "r": torch.stack(r),
        "z0": torch.stack(z0),
        "exact": torch.stack(exact),
        "bound": bound,
    }


# -------------------------------------------------------------------------------------------------------------- the lab


def run(
    *,
    patterns_count: int = 6,
    dimension: int = 10,
    skews: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2, 0.4),
    taus: tuple[float, ...] = (1.0, 0.3, 0.1, 0.03),
    noise: float = 0.3,
    samples: int = 64,
    filters_count: int = 64,
    steps: int = 200,
    q: float = 0.2,
    seeds: int = 5,
    quick: bool = False,
    progress: bool = False,
) -> Result:
    """Check Lemmas 1–3, Theorems 1–3, Corollary 2 and Figure 1 of the one-layer paper.

    patterns_count: M, the number of patterns u_m
    dimension: d, the dimension of the input
    skews: sizes of the perturbation that makes the patterns less than orthogonal
    taus: temperatures of the Gaussian α
    noise: standard deviation of the noise in the study of local optima
    samples: number of samples in the study of local optima
    filters_count: random filters per seed, each falling into some basin
    steps: steps of ascent in the study of local optima
    q: probability of y_m > 0 in the power iteration of the summation model
    """
    settings = {name: value for name, value in locals().items() if name != "progress"}
    require(2 <= patterns_count <= 12, "patterns_count", patterns_count, "2 to 12 (2^M points are enumerated)")
    require(dimension >= patterns_count, "dimension", dimension, f"at least patterns_count = {patterns_count}")
    require(0 < q < 0.5, "q", q, "a probability in (0, 0.5)")
    require(min(taus, default=0) > 0, "taus", taus, "positive temperatures")
    require(min(skews, default=-1) >= 0, "skews", skews, "non-negative sizes")
    require(samples >= patterns_count, "samples", samples, "at least one per pattern")
    require(
        min(filters_count, steps, seeds) >= 1,
        "filters_count, steps, seeds",
        (filters_count, steps, seeds),
        "at least 1",
    )
    if quick:
        seeds, samples, filters_count, steps, taus = (
            min(seeds, 2),
            min(samples, 32),
            min(filters_count, 24),
            60,
            taus[::2],
        )
    M, d = patterns_count, dimension
    claims, arrays = [], {}
    stages = track(range(6), "one layer", progress)

    next(stages)  # closed forms and the threshold
    U = patterns(seeds, M, d)
    outer = U[..., :, None] * U[..., None, :]  # (S, M, d, d)
    x, prob = categorical(U)
    error = (gated_covariance(U, x, prob) - (1 / M) * (1 - 1 / M) * outer).abs().amax((1, 2, 3))
    claims.append(Claim.at_most("Eqn 34, categorical: |A(u_m) − p(1−p)u_m u_mᵀ|", error, 1e-4))
    come_back = stable(U, x, prob).double().mean(1)
    claims.append(Claim.at_least("  share of its u_m that are stable, though ρ = ∞", come_back, 1.0))
    x, prob = summation(U, q)
    form = (1 - q) ** 2 * outer + q * (U.mT @ U)[:, None] - q * outer
    error = (gated_covariance(U, x, prob) - form).abs().amax((1, 2, 3))
    claims.append(Claim.at_most("Eqn 35, summation: |A(u_m) − closed form| on span(U)", error, 1e-4))
    few = patterns(1, 3, 3)
    bisections = 8 if quick else 10
    found = threshold(few, bisections=bisections)
    claims.append(Claim.near("stability threshold of q, uniform α (dynamics)", found, THRESHOLD, tolerance=2e-3))
    gauss = gated_covariance(U, x, prob, alpha_of(U, x, 1.0))
    kappa = math.exp(-(1 - q) / (2 * q))
    form = kappa * (1 - q) ** 2 * outer + (q**2 + kappa * q * (1 - q)) * ((U.mT @ U)[:, None] - outer)
    claims.append(Claim.at_most("ours: Gaussian α, |A(u_m) − closed form|", (gauss - form).abs().amax((1, 2, 3)), 1e-4))
    for tau, hold in ((10.0, True), (10.0, False), (2.0, False)):
        found, name = threshold(few, tau, hold, bisections), "held" if hold else "following w"
        expected = gaussian_threshold(tau, hold)
        claims.append(
            Claim.near(f"ours: threshold of q, Gaussian α {name}, τ = {tau:g}", found, expected, tolerance=2e-3)
        )
    arrays["q"] = torch.linspace(0.02, 0.5, 49, dtype=DTYPE)

    next(stages)  # Theorem 1
    xs, probs = summation(U, q)
    A = gated_covariance(U, xs, probs)
    eigenvalues = torch.linalg.eigvalsh(A)
    holds = (eigenvalues[..., -1] - eigenvalues[..., -2]) > 0  # ρ = 0: no point lies on the plane at u_m
    fraction = stable(U, xs, probs).double()[holds].mean() if bool(holds.any()) else torch.zeros(())
    claims.append(Claim.at_least("Theorem 1: share of u_m with λ_gap > ρ that are stable", fraction, 1.0))

    next(stages)  # Figure 1, right
    curves, cosines, off, cycling = [], [], [], []
    for skew in skews:
        Us = patterns(seeds, M, d, skew)
        xs, probs = summation(Us, q)
        w, moved = power_iteration(Us, xs, probs, 60 if quick else 200)
        curves.append(moved.flatten(1).median(1).values)
        cycling.append((moved[-1] > 1e-6).double().mean(1))
        cosines.append((w * Us).sum(2).amin(1))
        off.append(torch.linalg.matrix_norm(Us @ Us.mT - torch.eye(M, dtype=DTYPE), 2))
    arrays["power_iteration"] = torch.stack(curves)  # (skews, steps)
    arrays["skew_norm"] = torch.stack(off)  # (skews, S)
    arrays["power_iteration_cosine"] = torch.stack(cosines)  # (skews, S)
    arrays["power_iteration_cycling"] = torch.stack(cycling)  # (skews, S)
    for k, skew in enumerate(skews):
        if skew <= 0.1:
            name = f"Theorem 3: min_m cos(w*, u_m), ‖UᵀU − I‖ = {float(off[k].mean()):.2f}"
            claims.append(Claim.at_least(name, cosines[k], 0.9))
            name = f"  median last ‖w(t+1) − w(t)‖, ‖UᵀU − I‖ = {float(off[k].mean()):.2f}"
            claims.append(Claim.at_most(name, curves[k][-1], 1e-6))

    next(stages)  # Lemmas 1 and 2
    h = torch.linspace(0, 2, 50, dtype=DTYPE)
    phi = gaussian_features(h, 0.5, 80)
    claims.append(
        Claim.at_most("Lemma 1: |α − Σ_l φ_l φ_l|, 80 terms", (phi.T @ phi - gaussian_alpha(h, 0.5)).abs().max(), 1e-6)
    )
    sizes = (32, 128, 512)
    errors = batch_covariance_error(32, sizes, 0.5)
    arrays["batch_sizes"], arrays["lemma2_error"] = torch.tensor(sizes), errors
    slope = torch.linalg.lstsq(
        torch.stack([torch.tensor(sizes, dtype=DTYPE).log(), torch.ones(len(sizes), dtype=DTYPE)], 1),
        errors.mean(1).log()[:, None],
    ).solution[0, 0]
    claims.append(Claim.near("Lemma 2: error ∝ N^slope", slope, -0.5, tolerance=0.2))

    next(stages)  # Theorem 2, Corollary 2
    rough = roughness_in_the_plane(taus, 200 if quick else 400)
    arrays |= {f"plane_{name}": value for name, value in rough.items()}
    claims.append(Claim.at_most("Theorem 2: ρ / bound", rough["rho"] / rough["bound"], 1.0))
    for k, tau in enumerate(taus, 1):
        ratio = rough["r"][k] / rough["r"][0]
        claims.append(
            Claim.near(
                f"Corollary 2: r(Gaussian)/r(uniform), τ = {tau:g}", ratio, float(rough["z0"][k]), tolerance=1e-4
            )
        )
        ratio = rough["rho"][k] / rough["rho"][0]
        claims.append(
            Claim.near(f"ours: ρ(Gaussian)/ρ(uniform), τ = {tau:g}", ratio, float(rough["exact"][k]), tolerance=0.02)
        )

    next(stages)  # local optima and basins
    x = noisy_samples(seeds, M, samples, noise)
    prob = x.new_full((samples,), 1 / samples)
    w0 = filters(seeds, filters_count, M)
    # a linear layer is a power iteration: its slowest runs need the more steps the closer the two leading eigenvalues
    linear, _ = distinct(ascend(w0, x, prob, 20 * steps, linear=True), signed=False)
    counts, basins = [], []
    for temperature in (None, *taus):
        found_w = ascend(w0, x, prob, steps, temperature)
        count, size = distinct(found_w)
        counts.append(count)
        basins.append(size)
    arrays["linear_optima"], arrays["optima"] = linear, torch.stack(counts)  # (S,), (1 + taus, S)
    arrays["basins"] = torch.stack(basins)  # (1 + taus, S, I)
    claims.append(Claim.near("linear layer: number of optima up to sign", linear.double(), 1.0, tolerance=0.0))
    claims.append(Claim.at_least("ReLU, uniform α: number of local optima", counts[0].double(), 2.0))
    more = counts[-1].double() / counts[0]
    claims.append(Claim.at_least(f"Gaussian α (τ = {taus[-1]:g}) / uniform α: number of optima", more, 1.0))
    for _ in stages:
        pass
    means = [mean_std(count.double())[0] for count in (linear, *counts)]
    names = ["linear", "uniform α", *(f"Gaussian τ={tau:g}" for tau in taus)]
    notes = [
        f"local optima of {filters_count} random filters, {M} patterns with noise {noise:g}, mean over seeds: "
        + ", ".join(f"{name} {mean:.1f}" for name, mean in zip(names, means, strict=True)),
        "power iteration ends in a small cycle across a ridge instead of a point for a share of the patterns: "
        + ", ".join(
            f"{float(c.mean()):.2f} at ‖UᵀU − I‖ = {float(o.mean()):.2f}" for c, o in zip(cycling, off, strict=True)
        ),
        "Gaussian α widens the range of stable q only because it follows w; held fixed it narrows it (docstring)",
    ]
    return Result("one_layer", settings | {"ran_taus": taus}, arrays, claims, notes, _draw)


def _draw(result: Result) -> Figure:
    arrays, settings = result.arrays, result.settings
    taus = settings["ran_taus"]
    figure, (spectrum, curves, lemma, rough, optima, basins) = panels(2, 3, (14, 8))
    q = arrays["q"]
    spectrum.plot(q, (1 - q) ** 2, color=PALETTE[0], label="along u_m: (1 − q)²")
    spectrum.plot(q, q, color=PALETTE[1], label="across: q")
    spectrum.axvline(THRESHOLD, color="0.4", linestyle=":", label="(3 − √5)/2")
    spectrum.set(title="Summation model: eigenvalues of A(u_m)", xlabel="q", ylabel="eigenvalue")
    spectrum.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 0.12))
    for k, moved in enumerate(arrays["power_iteration"]):
        label = f"{float(arrays['skew_norm'][k].mean()):.2f}"
        curves.semilogy(range(1, len(moved) + 1), moved.clamp_min(1e-17), color=PALETTE[k % 8], label=label)
    curves.set(
        title="Power iteration from u_m (Figure 1, right), median", xlabel="iteration t", ylabel="‖w(t+1) − w(t)‖"
    )
    curves.legend(title="‖UᵀU − I‖", frameon=False)
    sizes, error = arrays["batch_sizes"], arrays["lemma2_error"]
    lemma.loglog(sizes, error, "o", color=PALETTE[5], alpha=0.6)
    lemma.loglog(sizes, error.mean(1), color=PALETTE[0], label="mean over seeds")
    lemma.loglog(sizes, error.mean(1)[0] * (sizes[0] / sizes).sqrt(), color="0.4", linestyle=":", label="N^(−1/2)")
    lemma.set(title="Lemma 2: C_α of a batch against its limit", xlabel="batch size N", ylabel="relative error")
    lemma.set_xticks(sizes.tolist(), [str(size) for size in sizes.tolist()])
    lemma.minorticks_off()
    lemma.legend(frameon=False)
    ratio = arrays["plane_rho"][1:] / arrays["plane_rho"][0]
    rough.plot(taus, ratio, "o-", color=PALETTE[0], label="roughness ρ, measured")
    rough.plot(taus, arrays["plane_exact"][1:], "x", color="black", markersize=9, label="E[φ₀h]/E[h]")
    rough.plot(taus, arrays["plane_z0"][1:], "s--", color=PALETTE[1], label="z₀ (Corollary 2: its bound)")
    rough.set(title="Gaussian over uniform α: roughness", xlabel="τ", ylabel="ratio", xscale="log", ylim=(0, None))
    rough.legend(frameon=False)
    count = arrays["optima"].double()
    place = range(len(count) + 1)
    means = [float(arrays["linear_optima"].double().mean()), *count.mean(1).tolist()]
    colours = [PALETTE[6], PALETTE[0], *[PALETTE[1]] * len(taus)]
    optima.bar(place, means, color=colours)
    for k, values in enumerate([arrays["linear_optima"].double(), *count]):
        optima.plot([k] * len(values), values, "o", color="0.35", markersize=3)
    names = ["linear", "uniform α", *[f"τ = {tau:g}" for tau in taus]]
    optima.set_xticks(list(place), names, rotation=20)
    optima.axhline(settings["patterns_count"], color="0.4", linestyle=":")
    optima.set(title="Local optima found (dotted: patterns; τ: Gaussian α)", ylabel="number per seed")
    for k, sizes_k in enumerate(arrays["basins"]):
        mean_size = sizes_k.double().mean(0) / sizes_k.double().sum(1).mean()
        shown = mean_size[mean_size > 0]
        basins.plot(range(1, len(shown) + 1), shown, "o-", markersize=3, color=PALETTE[k % 8], label=names[k + 1])
    basins.set(title="Basins, largest first", xlabel="rank of the basin", ylabel="share of random filters")
    basins.legend(frameon=False)
    return figure
