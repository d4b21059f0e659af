"""Every contrastive update of a deep ReLU network is a covariance operator applied to its weights.

Source: "Understanding Self-supervised Learning with Dual Deep Networks", Theorems 1 to 4, Corollary 1, Lemma 2 and
Eqns. 7, 56 and 79.

The population is finite: X samples x, each with A equally likely views x ± σ·noise. Every expectation is then a finite
sum, and every statement can be checked to rounding (float64), for R random networks at once.

With the connection K_l(x) = f_{l−1}(x) ⊗ J_l(x)ᵀ, each of the paper's operators is one quadratic form in the K of the
V = X·A views, OP = Σ_uv M_uv K_u K_vᵀ; losses differ only in the weights M (V × V). The update is ΔW_l = OP vec(W_l).
- simple loss: M = within-sample mean − overall mean (Theorem 3);
- (1 + β) r₊ − r₋: VE − β EV (Corollary 1);
- soft triplet and InfoNCE with one negative: M from ∂L/∂r₋ of every triple of views (Lemma 2), against the paper's
  ½ V^ξ, whose M is the Laplacian of ξ(r) between un-augmented samples, hence positive semi-definite (Theorem 4). What
  remains is the residue θ.

Found, where the paper is silent or differs:
- The theorems differentiate the tower of x₁ only. With tied weights both towers move, and the update is twice that.
- Eqn. 7's loss has no residue: the operator alone gives its gradient to rounding.
- The residue is proportional to σ² for weak augmentation. It is a tenth to a fifth of the update at σ = 0.1 (samples of
  unit variance) and outweighs the operator from σ = 0.3 on: that the operator dominates is a matter of how far views of
  a sample stay together, and no general fact. The bound of Eqn. 79 holds and is loose by a factor of some thousands.
- Section 4.1 expects the residue to shrink in training. Here its share grows: training drives the distances r beyond τ,
  where ξ(r) falls exponentially and the triples that still pull are those that the noise of the views has brought near.
  (The same with the weights held at their first norm, and with τ = 2.)
- β > 0 gives the operator negative eigenvalues in every network, however small β: VE has directions without variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl.checks import require
from lightning_ssl.labs.lab import PALETTE, Claim, Result, panels, per_seed, track

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Loss:
    """A contrastive loss: `value` of r₊ (…) and r₋ (…, H), and `pull` = −∂L/∂r₋ for one negative, elementwise."""

    value: Callable[[Tensor, Tensor], Tensor]
    pull: Callable[[Tensor, Tensor], Tensor]


def simple() -> Loss:
    """L = r₊ − r₋."""
    return Loss(lambda r_pos, r_neg: r_pos - r_neg.mean(-1), lambda r_pos, r_neg: torch.ones_like(r_pos + r_neg))


def soft_triplet(tau: float, margin: float) -> Loss:
    """L = τ log(1 + e^{(r₊ − r₋ + r_0)/τ}), mean over negatives."""
    return Loss(
        lambda r_pos, r_neg: tau * F.softplus((r_pos[..., None] - r_neg + margin) / tau).mean(-1),
        lambda r_pos, r_neg: torch.sigmoid((r_pos - r_neg + margin) / tau),
    )


def infonce(tau: float) -> Loss:
    """L = −log(e^{−r₊/τ} / (e^{−r₊/τ} + Σ_k e^{−r_k₋/τ})) (Eqn. 2)."""

    def value(r_pos: Tensor, r_neg: Tensor) -> Tensor:
        return torch.logsumexp(torch.cat([-r_pos[..., None], -r_neg], -1) / tau, -1) + r_pos / tau

    return Loss(value, lambda r_pos, r_neg: torch.sigmoid((r_pos - r_neg) / tau) / tau)


def forward(W: list[Tensor], x: Tensor) -> list[Tensor]:
    """Activations f_0 … f_L of bias-free ReLU networks, no ReLU at the top; x (R, V, n_0), W_l (R, n_l, n_{l−1})."""
    f = [x]
    for layer, weight in enumerate(W):
        pre = f[-1] @ weight.mT
        f.append(pre if layer == len(W) - 1 else pre.relu())
    return f


def connections(W: list[Tensor], x: Tensor) -> list[Tensor]:
    """K_l = f_{l−1} ⊗ J_lᵀ of every layer, each (R, V, n_l n_{l−1}, n_L), vec stacking columns (Definition 1)."""
    f = forward(W, x)
    R, V, n_L = f[-1].shape
    J = torch.eye(n_L, dtype=x.dtype).expand(R, V, n_L, n_L)  # ∂f_L/∂f̃_l
    found: list[Tensor] = []
    for layer in range(len(W), 0, -1):
        below = f[layer - 1]
        found.append((below[..., :, None, None] * J.mT[..., None, :, :]).flatten(2, 3))
        J = (J @ W[layer - 1][:, None]) * (below > 0)[..., None, :]
    return found[::-1]


def vec(W: Tensor) -> Tensor:
    """The columns of each matrix on top of each other: (R, n, m) → (R, m·n)."""
    return W.mT.flatten(1)


def operator(K: Tensor, M: Tensor) -> Tensor:
    """Σ_uv M_uv K_u K_vᵀ: K (R, V, p, c), M (V, V) or (R, V, V) → (R, p, p)."""
    mixed = (M @ K.flatten(2)).unflatten(2, K.shape[2:])
    return torch.einsum("rvpc,rvqc->rpq", K, mixed)


def same_sample(X: int, A: int) -> Tensor:
    """1/(X A²) between views of one sample, else 0: the second moment E_x[K̄ K̄ᵀ] as weights, (V, V)."""
    return torch.block_diag(*[torch.full((A, A), 1 / (X * A**2), dtype=torch.float64)] * X)


def inter(X: int, A: int) -> Tensor:
    """VE = V_x[E_aug[K]] as weights (Theorem 3; Eqn. 10)."""
    return same_sample(X, A) - 1 / (X * A) ** 2


def intra(X: int, A: int) -> Tensor:
    """EV = E_x[V_aug[K]] as weights (Eqn. 9)."""
    return torch.eye(X * A, dtype=torch.float64) / (X * A) - same_sample(X, A)


def extended(X: int, A: int, beta: float) -> Tensor:
    """−β EV + VE (Corollary 1)."""
    return inter(X, A) - beta * intra(X, A)


def half_distances(f: Tensor, g: Tensor) -> Tensor:
    """r = ½‖f − g‖² of all pairs: (R, V, c), (R, U, c) → (R, V, U)."""
    return (f[:, :, None] - g[:, None]).square().sum(-1) / 2


def of_loss(f: Tensor, X: int, loss: Loss) -> Tensor:
    """Weights of a loss with one negative, averaged over every anchor, positive and negative view (Lemma 2): (R, V, V).

    E[−∂L/∂r₋ K(x₁)(K(x₊) − K(x₋))ᵀ], f (R, V, n_L) being the outputs.
    """
    A = f.shape[1] // X
    views = half_distances(f, f).unflatten(1, (X, A)).unflatten(3, (X, A))  # (R, x, a, x', a')
    r_pos = views.diagonal(dim1=1, dim2=3).movedim(-1, 1)  # (R, x, a₁, a₊)
    c = loss.pull(r_pos[..., None, None], views[:, :, :, None]) / (X * A**2 * X * A)  # (R, x, a₁, a₊, x', a₋)
    M = -c.sum(3).flatten(3).flatten(1, 2)
    towards = torch.zeros_like(views)
    towards.diagonal(dim1=1, dim2=3).copy_(c.sum((4, 5)).movedim(1, -1))
    return M + towards.flatten(3).flatten(1, 2)


def of_pairs(xi: Tensor, A: int) -> Tensor:
    """½ V^ξ[K̄(x) − K̄(x')] as weights, the Laplacian of ξ between samples (Theorem 4): (R, X, X) → (R, V, V)."""
    X = xi.shape[-1]
    laplacian = torch.diag_embed(xi.sum(-1)) - xi
    return (laplacian / (X * A) ** 2).repeat_interleave(A, 1).repeat_interleave(A, 2)


class Population:
    """X samples with A views each of R seeds, and R random networks."""

    def __init__(self, sizes: tuple[int, ...], X: int, A: int, sigma: float, seeds: int, first_seed: int) -> None:
        self.X, self.A = X, A

        def normal(*shape: int, stream: int) -> Tensor:
            return per_seed(
                lambda g: torch.randn(shape, generator=g, dtype=torch.float64), seeds, first_seed, stream=stream
            )

        self.clean = normal(X, sizes[0], stream=0)  # (R, X, n_0)
        noise = normal(X, A // 2, sizes[0], stream=1)
        # Views in opposite pairs: their mean is the sample itself, as a mean over the whole augmentation would be.
        self.views = (self.clean[:, :, None] + sigma * torch.cat([noise, -noise], 2)).flatten(1, 2)  # (R, V, n_0)
        shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
        # He's scale keeps the outputs, and with them the distances r, of order one.
        self.W = [normal(*shape, stream=2 + k) * (2 / shape[1]) ** 0.5 for k, shape in enumerate(shapes)]
        self.other = [normal(*shape, stream=100 + k) * (2 / shape[1]) ** 0.5 for k, shape in enumerate(shapes)]

    def paper_weights(self, loss: Loss) -> Tensor:
        """Theorem 4's M: ξ(r) = −∂L/∂r₋ at r₊ = 0 and r₋ = r between un-augmented samples."""
        r = self.clean_distances()
        return of_pairs(loss.pull(torch.zeros_like(r), r), self.A)

    def clean_distances(self) -> Tensor:
        """r(x, x') of un-augmented samples, (R, X, X)."""
        f = forward(self.W, self.clean)[-1]
        return half_distances(f, f)


def update(K: Tensor, M: Tensor, f: Tensor) -> Tensor:
    """OP vec(W_l) without forming OP: Σ_uv M_uv K_u f_v, for K_vᵀ vec(W_l) = f_L(x_v) in bias-free networks: (R, p)."""
    return torch.einsum("rvpc,rvc->rp", K, M @ f)


def residue_share(population: Population, loss: Loss, K: list[Tensor], f: Tensor, M: Tensor) -> Tensor:
    """‖θ vec(W)‖ / ‖OP vec(W)‖ over all layers together, (R,), M being the weights of the loss itself."""
    paper = population.paper_weights(loss)
    theta, main = (torch.cat([update(k, weights, f) for k in K], 1) for weights in (M - paper, paper))
    return theta.norm(dim=1) / main.norm(dim=1)


def residue_bound(population: Population, loss: Loss, slope: float) -> tuple[Tensor, Tensor]:
    """‖θ‖ (largest singular value, worst layer) and its bound by Eqn. 79, each (R,).

    slope: a bound of |∂²L/∂r²|, 1/τ² for InfoNCE and 1/τ for the soft triplet; for M_K the spectral norm of K is taken.
    """
    X, A = population.X, population.A
    f, f_clean = forward(population.W, population.views)[-1], forward(population.W, population.clean)[-1]
    of_sample = f.unflatten(1, (X, A))
    variance = of_sample.var(2, correction=0).sum(2)  # tr V_aug[f | x], (R, X)
    shift = (f_clean - of_sample.mean(2)).norm(dim=2)  # c_0(x)
    distance = (2 * population.clean_distances()).sqrt()
    spread = 2 * (distance * (variance.sqrt() + shift)[:, :, None]).mean((1, 2)) + 3 * variance.mean(1)
    theta = of_loss(f, X, loss) - population.paper_weights(loss)
    norms, bounds = [], []
    for K in connections(population.W, population.views):
        norms.append(torch.linalg.matrix_norm(operator(K, theta), ord=2))
        bounds.append(2 * slope * torch.linalg.matrix_norm(K, ord=2).amax(1) ** 2 * spread)
    ratio = torch.stack(norms) / torch.stack(bounds)
    worst = ratio.argmax(0, keepdim=True)
    return torch.stack(norms).gather(0, worst)[0], torch.stack(bounds).gather(0, worst)[0]


def train(population: Population, loss: Loss, lr: float, steps: int, progress: bool = False) -> Tensor:
    """Descend the loss over the whole population, in place; residue shares along the way, (steps + 1, R)."""
    shares: list[Tensor] = []
    for _ in track(range(steps + 1), "residue in training", progress):
        f = forward(population.W, population.views)[-1]
        M = of_loss(f, population.X, loss)
        K = connections(population.W, population.views)
        shares.append(residue_share(population, loss, K, f, M))
        for W, k in zip(population.W, K, strict=True):
            moved = update(k, M, f).unflatten(1, (W.shape[2], W.shape[1])).mT
            W.add_(moved, alpha=2 * lr)  # both towers
    return torch.stack(shares)


def tower_gradient(
    W: list[Tensor], f_other: Tensor, x: Tensor, value: Callable[[Tensor, Tensor], Tensor]
) -> list[Tensor]:
    """Autograd's gradient for W of Σ_runs value(f(x; W), f_other), the other tower held fixed."""
    leaves = [weight.detach().clone().requires_grad_() for weight in W]
    with torch.enable_grad():
        total = value(forward(leaves, x)[-1], f_other.detach()).sum()
        return list(torch.autograd.grad(total, leaves))


def population_loss(X: int, loss: Loss) -> Callable[[Tensor, Tensor], Tensor]:
    """The expected loss over anchors f (R, V, c), and positives and negatives g (R, V, c): (R,)."""

    def value(f: Tensor, g: Tensor) -> Tensor:
        A = f.shape[1] // X
        views = half_distances(f, g).unflatten(1, (X, A)).unflatten(3, (X, A))
        r_pos = views.diagonal(dim1=1, dim2=3).movedim(-1, 1)  # (R, x, a₁, a₊)
        r_pos, r_neg = torch.broadcast_tensors(r_pos[..., None, None], views[:, :, :, None])
        return loss.value(r_pos, r_neg[..., None]).flatten(1).mean(1)

    return value


def relative(ours: Tensor, reference: Tensor) -> Tensor:
    """‖ours − reference‖ / ‖reference‖ of each run, (R,)."""
    return (ours - reference).flatten(1).norm(dim=1) / reference.flatten(1).norm(dim=1)


def gradient_error(population: Population, M: Tensor, value: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Relative error of −OP vec(W) against autograd's gradient of `value`, worst layer, (R,)."""
    W, x = population.W, population.views
    f = forward(W, x)[-1]
    autograd = tower_gradient(W, f, x, value)
    K = connections(W, x)
    errors = [
        relative(operator(k, -M) @ vec(w)[..., None], vec(g)[..., None]) for k, w, g in zip(K, W, autograd, strict=True)
    ]
    return torch.stack(errors).amax(0)


def smallest_eigenvalue(population: Population, M: Tensor) -> Tensor:
    """λ_min/λ_max of OP, most negative layer, (R,)."""
    ratios = []
    for K in connections(population.W, population.views):
        eigenvalues = torch.linalg.eigvalsh(operator(K, M))
        ratios.append(eigenvalues[:, 0] / eigenvalues[:, -1])
    return torch.stack(ratios).amin(0)


def normalized_asymmetry(population: Population) -> Tensor:
    """‖OP − OPᵀ‖/‖OP‖ of the simple loss with l2-normalized outputs (Eqn. 56), mean over layers, (R,)."""
    f = forward(population.W, population.views)[-1]
    y = F.normalize(f, dim=-1)
    P = torch.eye(f.shape[-1], dtype=f.dtype) - y[..., :, None] * y[..., None, :]
    M, found = inter(population.X, population.A), []
    for K in connections(population.W, population.views):
        K_n = K / f.norm(dim=-1).clamp_min(1e-12)[..., None, None]  # a dead output has K = 0
        mixed = (M @ K_n.flatten(2)).unflatten(2, K.shape[2:])
        OP = torch.einsum("rvpc,rvqc->rpq", K_n @ P, mixed)
        found.append((OP - OP.mT).flatten(1).norm(dim=1) / OP.flatten(1).norm(dim=1))
    return torch.stack(found).mean(0)


def theorem2(loss: Loss, r_pos: Tensor, r_neg: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """∂L/∂r₊ (N,), ∂L/∂r₋ (N, H), and their sum (N,)."""
    r_pos, r_neg = r_pos.clone().requires_grad_(), r_neg.clone().requires_grad_()
    with torch.enable_grad():
        pos, neg = torch.autograd.grad(loss.value(r_pos, r_neg).sum(), (r_pos, r_neg))
    return pos, neg, pos + neg.sum(1)


def run(
    *,
    sizes: tuple[int, ...] = (6, 8, 8, 4),
    samples: int = 12,
    views: int = 6,
    sigma: float = 0.1,
    sigmas: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    betas: tuple[float, ...] = (-1.0, -0.5, -0.2, 0.0, 0.05, 0.1, 0.2, 0.5),
    tau: float = 0.5,
    margin: float = 1.0,
    lr: float = 0.01,
    steps: int = 100,
    seeds: int = 20,
    first_seed: int = 0,
    quick: bool = False,
    progress: bool = False,
) -> Result:
    """Gradients and covariance operators of random ReLU networks on a finite population.

    sizes: nodes n_0 … n_L of the network
    samples: samples X of the population
    views: views A of each sample
    sigma: strength of the augmentation
    sigmas: strengths for which the residue is measured
    betas: for (1 + β) r₊ − r₋
    tau: temperature of InfoNCE and of the soft triplet
    margin: r_0 of the soft triplet
    lr: step size of the training that watches the residue
    steps: steps of it
    seeds: networks and populations
    first_seed: seed of the first of them
    quick: four of them, ten steps
    progress: show a progress bar
    """
    require(len(sizes) >= 2 and min(sizes) >= 1, "sizes", sizes, "at least two whole numbers, of at least 1")
    require(samples >= 2, "samples", samples, "at least 2")
    require(views >= 2 and views % 2 == 0, "views", views, "an even number of at least 2")
    require(sigma > 0, "sigma", sigma, "more than 0")
    require(len(sigmas) > 0 and min(sigmas) > 0, "sigmas", sigmas, "numbers above 0")
    require(tau > 0, "tau", tau, "more than 0")
    require(lr > 0, "lr", lr, "more than 0")
    require(steps >= 1, "steps", steps, "at least 1")
    require(seeds >= 1, "seeds", seeds, "at least 1")
    if quick:
        seeds, steps = min(seeds, 4), min(steps, 10)
    settings = {"sizes": sizes, "samples": samples, "views": views, "sigma": sigma, "sigmas": sigmas, "betas": betas}
    settings |= {"tau": tau, "margin": margin, "lr": lr, "steps": steps, "seeds": seeds, "first_seed": first_seed}

    def population(strength: float) -> Population:
        return Population(sizes, samples, views, strength, seeds, first_seed)

    here = population(sigma)
    X, A = samples, views
    losses: dict[str, tuple[Loss, float]] = {
        "soft triplet": (soft_triplet(tau, margin), 1 / tau),
        "InfoNCE": (infonce(tau), 1 / tau**2),
    }
    claims = [Claim.at_most("Theorem 1: gradient of ½‖f₁ − f₂‖², relative error", theorem1_error(here), 1e-9)]
    generator = torch.Generator().manual_seed(first_seed)
    r = 3 * torch.rand(200, 6, generator=generator, dtype=torch.float64)
    for name, loss in {"simple": simple(), **{name: pair[0] for name, pair in losses.items()}}.items():
        pos, neg, total = theorem2(loss, r[:, 0], r[:, 1:])
        claims.append(Claim.at_most(f"Theorem 2, {name}: |∂L/∂r₊ + Σ ∂L/∂r₋|", total.abs(), 1e-9))
        claims.append(
            Claim.at_least(f"Theorem 2, {name}: smallest of ∂L/∂r₊ and −∂L/∂r₋", torch.minimum(pos, -neg.amax(1)), 0.0)
        )
    simple_error = gradient_error(here, inter(X, A), population_loss(X, simple()))
    claims.append(Claim.at_most("Theorem 3: −V[K̄] vec(W) against the gradient, relative error", simple_error, 1e-9))
    claims.append(Claim.at_least("Theorem 3: λ_min/λ_max of V[K̄]", smallest_eigenvalue(here, inter(X, A)), -1e-9))

    arrays: dict[str, Tensor] = {}
    for name, (loss, slope) in losses.items():
        lemma = gradient_error(here, of_loss(forward(here.W, here.views)[-1], X, loss), population_loss(X, loss))
        claims.append(Claim.at_most(f"Lemma 2, {name}: gradient, relative error", lemma, 1e-9))
        paper = here.paper_weights(loss)
        claims.append(
            Claim.at_least(f"Theorem 4, {name}: λ_min/λ_max of ½V^ξ", smallest_eigenvalue(here, paper), -1e-9)
        )
        claims.append(Claim.at_most(f"Eqn. 7, {name}: exact loss, relative error", exact_error(here, loss), 1e-9))
        norm, bound = residue_bound(here, loss, slope)
        claims.append(Claim.at_most(f"Eqn. 79, {name}: ‖θ‖ over its bound", norm / bound, 1.0))
        shares = torch.stack([train(population(strength), loss, lr, 0)[0] for strength in sigmas])
        arrays[f"residue {name}"] = shares  # (sigmas, R)
        weakest = f"Theorem 4, {name}: residue share at σ = {min(sigmas):g}"
        claims.append(Claim.at_most(weakest, shares[sigmas.index(min(sigmas))], 0.05))
        path = train(population(sigma), loss, lr, steps, progress)
        arrays[f"training {name}"] = path  # (steps + 1, R)
        ended, began = path[-1].median().item(), path[0].median().item()
        rule = "median at the end below the median at the start"
        label = f"Section 4.1, {name}: residue share after {steps} steps"
        claims.append(Claim(label, ended, path[-1].std().item(), began, None, rule, ended < began, "≤"))

    lowest = torch.stack([smallest_eigenvalue(here, extended(X, A, beta)) for beta in betas])  # (betas, R)
    arrays["smallest_eigenvalue"] = lowest
    for k, beta in enumerate(betas):
        value = beta_loss(X, beta)
        claims.append(
            Claim.at_most(
                f"Corollary 1, β = {beta:g}: gradient, relative error",
                gradient_error(here, extended(X, A, beta), value),
                1e-9,
            )
        )
        if beta <= 0:
            claims.append(Claim.at_least(f"Corollary 1, β = {beta:g}: λ_min/λ_max", lowest[k], -1e-9))
    indefinite = ", ".join(
        f"{(lowest[k] < -1e-9).double().mean():.0%} at β = {b:g}" for k, b in enumerate(betas) if b > 0
    )
    asymmetry = normalized_asymmetry(here)
    arrays["normalized_asymmetry"] = asymmetry
    slopes = []
    for name in losses:
        weak, weaker = (arrays[f"residue {name}"][k].median().item() for k in _two_weakest(sigmas))
        s1, s0 = (sigmas[k] for k in _two_weakest(sigmas))
        if len(sigmas) > 1:
            slopes.append(f"{name} ∝ σ^{math.log(weak / weaker) / math.log(s1 / s0):.2f}")
    notes = [
        f"with l2-normalized outputs the operator is not symmetric (Eqn. 56): ‖OP − OPᵀ‖/‖OP‖ = "
        f"{asymmetry.mean():.2f} ± {asymmetry.std():.2f}",
    ]
    if slopes:
        notes.append(f"residue share for weak augmentation, median: {', '.join(slopes)}")
    if indefinite:
        notes.append(f"share of networks whose operator has a negative eigenvalue: {indefinite}")
    return Result("covariance_operator", settings, arrays, claims, notes, _draw)


def theorem1_error(population: Population) -> Tensor:
    """Relative error of K₁[K₁ᵀ vec(W₁) − K₂ᵀ vec(W₂)], summed over pairs of views, against autograd, worst layer, (R,).

    The two towers have different weights; view v of the first is paired with view V−1−v of the second.
    """
    W1, W2, x1 = population.W, population.other, population.views
    x2 = x1.flip(1)
    f2 = forward(W2, x2)[-1]
    autograd = tower_gradient(W1, f2, x1, lambda f, g: (f - g).square().sum((1, 2)) / 2)
    errors = []
    for K1, K2, w1, w2, g in zip(connections(W1, x1), connections(W2, x2), W1, W2, autograd, strict=True):
        inner = torch.einsum("rvpc,rp->rvc", K1, vec(w1)) - torch.einsum("rvpc,rp->rvc", K2, vec(w2))
        errors.append(relative(torch.einsum("rvpc,rvc->rp", K1, inner), vec(g)))
    return torch.stack(errors).amax(0)


def exact_error(population: Population, loss: Loss) -> Tensor:
    """Relative error of Theorem 4's operator alone against the gradient of Σ sg(ξ(r)) (r₊ − r₋) (Eqn. 7), (R,)."""
    X, A, r = population.X, population.A, population.clean_distances()
    xi = loss.pull(torch.zeros_like(r), r)  # (R, x, x')

    def value(f: Tensor, g: Tensor) -> Tensor:
        views = half_distances(f, g).unflatten(1, (X, A)).unflatten(3, (X, A))
        positive = views.diagonal(dim1=1, dim2=3).mean((1, 2))  # E[r₊ | x], (R, x)
        negative = views.mean((2, 4))  # E[r₋ | x, x'], (R, x, x')
        return (xi * (positive[:, :, None] - negative)).mean((1, 2))

    return gradient_error(population, of_pairs(xi, A), value)


def beta_loss(X: int, beta: float) -> Callable[[Tensor, Tensor], Tensor]:
    """The expectation of (1 + β) r₊ − r₋ over the population."""

    def value(f: Tensor, g: Tensor) -> Tensor:
        views = half_distances(f, g).unflatten(1, (X, -1)).unflatten(3, (X, -1))
        return (1 + beta) * views.diagonal(dim1=1, dim2=3).mean((1, 2, 3)) - views.mean((1, 2, 3, 4))

    return value


def _two_weakest(sigmas: tuple[float, ...]) -> tuple[int, int]:
    """Positions of the second smallest and the smallest strength."""
    order = sorted(range(len(sigmas)), key=lambda k: sigmas[k])
    return order[min(1, len(order) - 1)], order[0]


def _draw(result: Result) -> Figure:
    settings, arrays = result.settings, result.arrays
    figure, (left, middle, right) = panels(1, 3, (13.5, 4.3))
    names = [name.removeprefix("residue ") for name in arrays if name.startswith("residue ")]
    sigmas = torch.tensor(settings["sigmas"])
    for k, name in enumerate(names):
        low, median, high = arrays[f"residue {name}"].quantile(
            torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64), dim=1
        )
        left.plot(sigmas, median, "os"[k % 2] + "-", color=PALETTE[k], label=name)
        left.fill_between(sigmas, low, high, color=PALETTE[k], alpha=0.15, linewidth=0)
        low, median, high = arrays[f"training {name}"].quantile(
            torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64), dim=1
        )
        middle.plot(median, color=PALETTE[k], label=name)
        middle.fill_between(range(len(median)), low, high, color=PALETTE[k], alpha=0.15, linewidth=0)
    for ax in (left, middle):
        ax.set(ylabel="‖θ vec(W)‖ / ‖OP vec(W)‖", yscale="log")
        ax.legend(frameon=False, fontsize=9)
    left.set(title="Residue at the start (band: 10 to 90 %)", xlabel="strength of augmentation σ", xscale="log")
    middle.set(title=f"Residue in training, σ = {settings['sigma']:g}", xlabel="step")
    lowest = arrays["smallest_eigenvalue"]
    right.axhline(0, color="0.4", linewidth=1)
    right.plot(settings["betas"], lowest, color=PALETTE[2], alpha=0.35, linewidth=0.8)
    right.plot(settings["betas"], lowest.mean(1), "o-", color=PALETTE[2], label="mean of the networks")
    right.set(title="−β EV + VE, most negative layer", xlabel="β", ylabel="λ_min / λ_max")
    right.legend(frameon=False, fontsize=9)
    figure.suptitle("The covariance operator of a contrastive update: what Theorem 4 leaves over, and what β does")
    return figure
