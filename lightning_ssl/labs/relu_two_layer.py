"""Two ReLU layers on an orthogonal mixture: weights stick at zero, one node picks a mode, several may keep more.

Source: "Understanding Deep Contrastive Learning via Coordinate-wise Optimization", Lemmas 3, 13 and 14,
Theorems 4 to 6, Figure 3. Data (Assumption 1): x[i] = a_i e_{m(i)} with a_i > 0, and the augmented view is γ_i x[i].
The network is z = W_2 max(W_1 x, 0) under ‖W_1‖_F = ‖W_2‖_F = 1, and α is fixed. What is checked, for every seed:

- Lemma 3 and Theorem 4: with W_1 ≥ 0 the ReLU network's own gradient is that of the linear network on the positive
  entries and zero on the others; the two simulations, one through samples and ReLU gates and one through X_α with the
  sticky rule, walk the same path.
- Lemmas 13, 14: all off-diagonal entries of X_α are negative, and its top eigenvector has entries of both signs.
- Theorem 5: one hidden node ends at e_m. The histogram shows how m depends on the diagonal of X_α.
- Theorem 6: several nodes end with rank(W_1) > 1 or at v e_mᵀ; a rank-one end that is not one-hot does not occur.

Conventions. X_α = C_α[x, x] is a mean over anchors of one view, the energy is tr(W_2 W_1 X_α W_1ᵀ W_2ᵀ). A step that
would carry a weight below zero sets it to zero; by Lemma 3 this changes no output. Networks of different widths share
one batch: a node whose weights are all zero receives no gradient, so narrower networks are padded with zero nodes.
Steps are divided by the run's larger layer gradient, as in `deep_linear`.

Found. The paper shows one end of rank above one (Figure 3) and gives neither its data nor its augmentation. With mild
augmentation no seed ends there: every end is v e_mᵀ. The reason: at a fixed point with v the top eigenvector of
W_1 X_α W_1ᵀ and p = X_α W_1ᵀ v, W_1 is (v₊ p₊ᵀ + v₋ p₋ᵀ)/E, a split into two blocks with modes p₊ and p₋; shifting
weight between the blocks raises the energy unless (r₁ + r₂)ᵀ X_α (r₁ + r₂) < 0 for their unit mode vectors r ≥ 0. As
the off-diagonal of X_α is negative, such r exist only if λ_min(X_α) < 0. Hence, sharper than Theorem 6: if the
augmentation leaves X_α positive semidefinite, every local maximum with positive energy is v e_mᵀ, and it takes strong
augmentation for several nodes to keep several modes. The default sweeps `augmentation` across that border.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from lightning_ssl.checks import require, require_positive
from lightning_ssl.labs.deep_linear import fixed_alpha, mean_covariance
from lightning_ssl.labs.lab import PALETTE, Claim, Result, panels, per_seed, track

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A rank or an entry below this is called zero.
ZERO = 1e-3
# A run whose tangential gradient is below this times ‖X_α‖ is at a fixed point.
SETTLED = 1e-6


def mixture(modes: int, samples: int, augmentation: float, seeds: int, first_seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two views of the orthogonal mixture: x[i] = a_i e_{m(i)} and γ_i x[i], each (seeds, samples, modes).

    Every mode is present, at random frequencies; a is uniform on [½, 1½], log γ on ±`augmentation`.
    """

    def draw(g: torch.Generator) -> Tensor:
        frequency = 0.3 + torch.rand(modes, generator=g).double()
        rest = torch.multinomial(frequency, samples - modes, replacement=True, generator=g)
        mode = torch.cat([torch.arange(modes), rest])
        a = 0.5 + torch.rand(samples, generator=g).double()
        gamma = (augmentation * (2 * torch.rand(samples, generator=g).double() - 1)).exp()
        x = torch.nn.functional.one_hot(mode, modes).double() * a[:, None]
        return torch.stack([x, gamma[:, None] * x])

    both = per_seed(draw, seeds, first_seed, 0)
    return both[:, 0], both[:, 1]


def initial(
    modes: int, hidden: tuple[int, ...], outputs: int, init: str, seeds: int, first_seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Nonnegative W_1 (R, K, modes) and Gaussian W_2 (R, outputs, K) of unit norm, R = len(hidden)·seeds, K the widest.

    init: positive draws W_1 uniform on (0, 1); gaussian clamps a Gaussian, so that about half the weights start stuck
    (a node with no positive weight would never live: its signs are turned).
    """
    widest = max(hidden)

    def lower(g: torch.Generator) -> Tensor:
        if init == "positive":
            return torch.rand(widest, modes, generator=g).double()
        w = torch.randn(widest, modes, generator=g).double()
        return torch.where((w > 0).any(1, keepdim=True), w, -w).clamp_min(0)

    w1 = per_seed(lower, seeds, first_seed, 1).repeat(len(hidden), 1, 1)
    w2 = per_seed(lambda g: torch.randn(outputs, widest, generator=g).double(), seeds, first_seed, 2)
    w2 = w2.repeat(len(hidden), 1, 1)
    alive = torch.arange(widest) < torch.tensor(hidden).repeat_interleave(seeds)[:, None]  # (R, K)
    return unit(w1 * alive[:, :, None]), unit(w2 * alive[:, None, :])


def unit(w: Tensor) -> Tensor:
    """Each run's matrix over its Frobenius norm."""
    return w / w.norm(dim=(1, 2), keepdim=True)


def sticky_gradients(w1: Tensor, w2: Tensor, x_alpha: Tensor) -> tuple[Tensor, Tensor]:
    """Theorem 4: the linear ascent directions, with the weights at zero held.

    G_1 = [W_1 > 0] ⊙ W_2ᵀ W_2 W_1 X_α,  G_2 = W_2 W_1 X_α W_1ᵀ.
    """
    wx = w1 @ x_alpha
    return (w1 > 0) * (w2.mT @ (w2 @ wx)), w2 @ (wx @ w1.mT)


def relu_gradients(w1: Tensor, w2: Tensor, x1: Tensor, x2: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """Half the gradient of tr C_α[z, z] for z = W_2 max(W_1 x, 0), from the samples and the ReLU gates, by autograd."""
    w1, w2 = w1.detach().requires_grad_(True), w2.detach().requires_grad_(True)
    z1, z2 = ((x @ w1.mT).relu() @ w2.mT for x in (x1, x2))
    energy = mean_covariance(z1, z2, alpha).diagonal(dim1=1, dim2=2).sum() / 2
    g1, g2 = torch.autograd.grad(energy, (w1, w2))
    return g1, g2


def step(w1: Tensor, w2: Tensor, g1: Tensor, g2: Tensor, lr: float) -> tuple[Tensor, Tensor]:
    """One ascent step with the run's own clock, back to W_1 ≥ 0 and unit norms."""
    clock = torch.maximum(g1.norm(dim=(1, 2)), g2.norm(dim=(1, 2))).clamp_min(1e-300)
    rate = (lr / clock)[:, None, None]
    return unit((w1 + rate * g1).clamp_min(0)), unit(w2 + rate * g2)


def classify(w1: Tensor) -> tuple[Tensor, Tensor]:
    """The numerical rank of W_1 (R,) and the number of modes (columns) it still sees (R,)."""
    rank = (torch.linalg.svdvals(w1) > ZERO).sum(1)
    modes = (w1.norm(dim=1) > ZERO).sum(1)
    return rank, modes


def run(
    *,
    modes: int = 8,
    hidden: tuple[int, ...] = (1, 2, 5, 10),
    outputs: int = 10,
    samples: int = 80,
    augmentation: tuple[float, ...] = (0.5, 1.0, 1.25, 1.5, 1.75),
    alpha: Literal["uniform", "entropy", "random"] = "uniform",
    tau: float = 0.5,
    init: Literal["positive", "gaussian"] = "positive",
    steps: int = 5000,
    lr: float = 0.1,
    seeds: int = 120,
    first_seed: int = 0,
    quick: bool = False,
    progress: bool = False,
) -> Result:
    """Theorems 4 to 6 for every augmentation, number of hidden nodes and seed in one batch.

    modes: M, the modes of the mixture
    hidden: numbers of hidden nodes K
    outputs: output width
    samples: anchors from which X_α is made, every mode at least once
    augmentation: strengths; views differ by factors up to exp(±augmentation)
    alpha: the fixed importance: uniform, entropy (softmax over input distances) or random
    tau: temperature of alpha=entropy
    init: positive (all weights start above zero) or gaussian (about half start stuck at zero)
    steps: projected gradient steps
    lr: step over the run's larger layer gradient
    seeds: runs per augmentation and number of hidden nodes
    first_seed: seed of the first run
    quick: seconds instead of minutes
    progress: show a progress bar
    """
    require(modes >= 2, "modes", modes, "2 or more")
    require(min(hidden, default=0) >= 1, "hidden", hidden, "one or more widths of at least 1")
    require(outputs >= 1, "outputs", outputs, "1 or more")
    require(samples > modes, "samples", samples, f"more than modes={modes}")
    require(min(augmentation, default=-1) >= 0, "augmentation", augmentation, "one or more strengths of at least 0")
    require(alpha in ("uniform", "entropy", "random"), "alpha", alpha, "uniform, entropy or random")
    require(init in ("positive", "gaussian"), "init", init, "positive or gaussian")
    require_positive("tau", tau)
    require_positive("lr", lr)
    require(steps >= 1, "steps", steps, "1 or more")
    require(seeds >= 1, "seeds", seeds, "1 or more")
    if quick:
        steps, seeds = min(steps, 1500), min(seeds, 15)
    settings = {
        "modes": modes, "hidden": hidden, "outputs": outputs, "samples": samples, "augmentation": augmentation,
        "alpha": alpha, "tau": tau, "init": init, "steps": steps, "lr": lr,
        "seeds": seeds, "first_seed": first_seed, "quick": quick,
    }  # fmt: skip
    shape = (len(augmentation), len(hidden), seeds)
    views = [mixture(modes, samples, g, seeds, first_seed) for g in augmentation]
    x1, x2 = (torch.cat([view[v] for view in views]) for v in (0, 1))  # (A·seeds, N, M)
    noise = per_seed(lambda g: torch.rand(samples, samples, generator=g).double(), seeds, first_seed, 3)
    fixed = fixed_alpha(x1, alpha, tau, noise.repeat(len(augmentation), 1, 1))
    x_alpha = mean_covariance(x1, x2, fixed)  # (A·seeds, M, M)
    eigenvalues, eigenvectors = torch.linalg.eigh(x_alpha)
    # The sign of an eigenvector is free: "has a negative entry" means entries of both signs.
    both_signs = torch.minimum(eigenvectors[:, :, -1].amax(1), -eigenvectors[:, :, -1].amin(1))
    off_diagonal = x_alpha.masked_fill(torch.eye(modes, dtype=torch.bool), -torch.inf).amax((1, 2))

    def for_every_width(per_problem: Tensor) -> Tensor:
        rest = per_problem.shape[1:]
        return per_problem.view(shape[0], 1, seeds, *rest).expand(*shape, *rest).reshape(-1, *rest)

    w1, w2 = (w.repeat(len(augmentation), 1, 1) for w in initial(modes, hidden, outputs, init, seeds, first_seed))
    everywhere = for_every_width(x_alpha)
    lam_max, lam_min = for_every_width(eigenvalues[:, -1]), for_every_width(eigenvalues[:, 0])
    some = torch.arange(len(w1)).view(shape)[..., : min(seeds, 3)].flatten()  # samples are heavier than X_α
    sampled = [for_every_width(v)[some] for v in (x1, x2, fixed)]
    path_gap = compare_paths(w1[some], w2[some], sampled[0], sampled[1], sampled[2], lr, min(steps, 100))
    alive: list[Tensor] = []
    energy: list[Tensor] = []
    at: list[int] = []
    revived = torch.zeros(len(w1), dtype=torch.int64)
    for t in track(range(steps), "two ReLU layers", progress):
        if t in (0, steps - 1) or math.log(t + 1) >= math.log(at[-1] + 1) + 0.05:
            energy.append(energy_of(w1, w2, everywhere))
            alive.append((w1 > 0).sum((1, 2)))
            at.append(t)
        stuck = w1 == 0
        w1, w2 = step(w1, w2, *sticky_gradients(w1, w2, everywhere), lr)
        revived += (stuck & (w1 > 0)).sum((1, 2))
    end = energy_of(w1, w2, everywhere)
    reached = (end / lam_max).view(shape)
    g1, g2 = sticky_gradients(w1, w2, everywhere)
    # At a fixed point of the constrained ascent each gradient is radial.
    residual = torch.maximum(_tangential(w1, g1), _tangential(w2, g2)) / torch.maximum(lam_max, -lam_min)
    rank, seen = (v.view(shape) for v in classify(w1))
    settled = (residual < SETTLED).view(shape)
    positive = (end > 0).view(shape)  # Theorem 6 speaks of E > 0; where λ_max < 0 there is no such end
    one_hot, neither = (rank == 1) & (seen == 1), (rank == 1) & (seen > 1)
    unexplained = (rank > 1) & positive & (lam_min >= 0).view(shape)
    diagonal = for_every_width(x_alpha.diagonal(dim1=1, dim2=2))  # (R, M)
    best = (diagonal.amax(1) / lam_max).view(shape)

    claims = [
        Claim.at_most("Thm 4: largest gap of ReLU and sticky paths", path_gap, 1e-9),
        Claim.at_most("Thm 4: weights that left zero again", revived.double(), 0.0),
        Claim.at_most("Lemma 14: largest off-diagonal entry of X_α", off_diagonal, 0.0),
        Claim.at_least("Lemma 13: top eigenvector, smaller of largest + and −", both_signs, 1e-6),
    ]
    for k, nodes in enumerate(hidden):
        if nodes == 1:
            claims.append(_share("Thm 5: K=1, share of ends at e_m", one_hot[:, k], 1.0))
        elif bool((counted := (settled & positive)[:, k]).any()):
            claims.append(_share(f"Thm 6: K={nodes}, share rank one but not one-hot", neither[:, k][counted], 0.0))
    if max(hidden) > 1:
        diverse = ((rank > 1) & settled & positive)[:, [n > 1 for n in hidden]].double()
        mean = float(diverse.mean())
        rule = "happens for at least one seed"
        claims.append(Claim("Fig 3: share of ends of rank > 1, all K > 1", mean, 0.0, 0.0, None, rule, mean > 0, ">"))
        claims.append(_share("ours: share of rank > 1 although λ_min ≥ 0", unexplained, 0.0))
    notes = [
        f"{float(settled.double().mean()):.1%} of runs are settled (tangential gradient < {SETTLED:g} ‖X_α‖), "
        f"{float((~positive).double().mean()):.1%} end with E ≤ 0; Theorem 6 and Figure 3 count settled runs with E > 0"
    ]
    for g, strength in enumerate(augmentation):
        by_width = ", ".join(f"K={n}: {float((rank[g, k] > 1).double().mean()):.1%}" for k, n in enumerate(hidden))
        negative = float((lam_min.view(shape)[g, 0] < 0).double().mean())
        above = float((reached[g] > best[g] + 1e-6).double().mean())
        notes.append(
            f"augmentation {strength:g}: λ_min(X_α) < 0 for {negative:.0%} of seeds; rank > 1: {by_width}; "
            f"energy above the best one-hot end: {above:.1%} of runs"
        )
    # The example drawn: of the widest networks, the one with the largest second singular value.
    widest = (torch.tensor(hidden) == max(hidden))[:, None]
    second = torch.linalg.svdvals(w1)[:, min(1, modes - 1, max(hidden) - 1)]
    shown = int((second * (settled & positive & widest).flatten()).argmax())
    nodes = hidden[shown // seeds % len(hidden)]
    kept = w1.amax(1).argmax(1)
    arrays = {
        "rank": rank, "modes_seen": seen, "settled": settled, "reached": reached, "best_one_hot": best,
        "lam_min": lam_min.view(shape)[:, 0], "lam_max": lam_max.view(shape)[:, 0],
        "kept_mode": kept.view(shape), "kept_place": (diagonal > diagonal.gather(1, kept[:, None])).sum(1).view(shape),
        "alive": torch.stack(alive, 1).view(*shape, -1), "recorded_at": torch.tensor(at),
        "energy": (torch.stack(energy, 1) / lam_max[:, None]).view(*shape, -1),
        "example_w1": w1[shown, :nodes], "example_w2_gram": (w2[shown].mT @ w2[shown])[:nodes, :nodes],
    }  # fmt: skip
    return Result("relu_two_layer", settings, arrays, claims, notes, _draw)


def energy_of(w1: Tensor, w2: Tensor, x_alpha: Tensor) -> Tensor:
    """tr(W_2 W_1 X_α W_1ᵀ W_2ᵀ), (R,)."""
    w = w2 @ w1
    return (w @ x_alpha * w).sum((1, 2))


def compare_paths(w1: Tensor, w2: Tensor, x1: Tensor, x2: Tensor, alpha: Tensor, lr: float, steps: int) -> Tensor:
    """Largest difference of W_1 and W_2 between the ReLU network's path and the sticky linear one, (R,)."""
    x_alpha = mean_covariance(x1, x2, alpha)
    v1, v2, gap = w1, w2, torch.zeros(len(w1)).double()
    for _ in range(steps):
        w1, w2 = step(w1, w2, *relu_gradients(w1, w2, x1, x2, alpha), lr)
        v1, v2 = step(v1, v2, *sticky_gradients(v1, v2, x_alpha), lr)
        gap = torch.stack([gap, (w1 - v1).abs().amax((1, 2)), (w2 - v2).abs().amax((1, 2))]).amax(0)
    return gap


def _tangential(w: Tensor, g: Tensor) -> Tensor:
    return (g - (g * w).sum((1, 2), keepdim=True) * w).norm(dim=(1, 2))


def _share(name: str, happened: Tensor, paper: float) -> Claim:
    return Claim.near(name, happened.double(), paper, tolerance=0)


def _draw(result: Result) -> Figure:
    fig, axes = panels(2, 3, (14, 8))
    sticky, kept, ranks, border, lower, upper = axes
    a, hidden, modes = result.arrays, result.settings["hidden"], result.settings["modes"]
    strengths = result.settings["augmentation"]
    for k, nodes in enumerate(hidden):
        share = a["alive"][:, k].double().mean((0, 1)) / (nodes * modes)
        sticky.plot(a["recorded_at"] + 1, share, color=PALETTE[k % 8], label=f"K = {nodes}")
    sticky.set(title="Weights that reach zero stay there (Thm 4)", xlabel="step", ylabel="share of W₁ above zero")
    sticky.set(xscale="log", ylim=(0, 1.02))
    sticky.legend(frameon=False)

    places = a["kept_place"][:, 0].flatten()
    counts = torch.bincount(places, minlength=modes).double() / len(places)
    kept.bar(range(1, modes + 1), counts.tolist(), color=PALETTE[0])
    kept.set(title=f"The mode that K = {hidden[0]} keeps (Thm 5)", ylabel="share of runs")
    kept.set(xlabel="place of the kept mode by X_mm, 1 = largest")

    highest = int(a["rank"].max())
    width = 0.8 / len(hidden)
    for k, nodes in enumerate(hidden):
        final = a["rank"][-1, k]
        share = torch.bincount(final, minlength=highest + 1).double()[1:] / len(final)
        place = torch.arange(1, highest + 1) + (k - (len(hidden) - 1) / 2) * width
        ranks.bar(place.tolist(), share.tolist(), width, color=PALETTE[k % 8], label=f"K = {nodes}")
    ranks.set(title=f"Ranks at the end (Thm 6), augmentation {strengths[-1]:g}", xlabel="rank of W₁")
    ranks.set(ylabel="share of seeds")
    ranks.set_xticks(range(1, highest + 1))
    ranks.legend(frameon=False)

    for k, nodes in enumerate(hidden):
        share = (a["rank"][:, k] > 1).double().mean(1)
        border.plot(strengths, share, "o-", color=PALETTE[k % 8], label=f"rank > 1, K = {nodes}")
    border.plot(strengths, (a["lam_min"] < 0).double().mean(1), "k:", label="λ_min(X_α) < 0")
    border.set(title="Several modes need strong augmentation", xlabel="augmentation (log-scale jitter)")
    border.set(ylabel="share of seeds", ylim=(-0.03, 1.03))
    border.legend(frameon=False)

    for ax, name, title in (
        (lower, "example_w1", "One end: W₁"),
        (upper, "example_w2_gram", "The same end: W₂ᵀW₂"),
    ):
        values = a[name]
        limit = float(values.abs().max())
        image = ax.imshow(values.numpy(), cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto")
        fig.colorbar(image, ax=ax)
        ax.grid(False)
        ax.locator_params(integer=True)
        ax.set(title=title, ylabel="hidden node", xlabel="mode" if name == "example_w1" else "hidden node")
    return fig
