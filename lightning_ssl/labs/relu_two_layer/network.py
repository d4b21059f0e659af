"""The orthogonal mixture, and the two-layer ReLU network: its gradients, its steps and its ascent.

The leading dimensions of weights are augmentation strengths × widths × seeds.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lightning_ssl.labs.deep_linear.data import mean_covariance
from lightning_ssl.labs.lab import normal, per_seed, track

# Singular values and entries below this count as zero.
ZERO = 1e-3


def mixture(modes: int, samples: int, augmentation: float, seeds: int, first_seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw two views of the orthogonal mixture: x[i] = a_i e_{m(i)} and γ_i x[i], each (seeds, samples, modes).

    Every mode is present, with random frequencies; a is uniform on [½, 1½], log γ on ±`augmentation`.
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
    """Nonnegative W_1 (K, seeds, n, modes) and Gaussian W_2 (K, seeds, outputs, n) of unit norm, n the widest of K.

    init: positive draws W_1 uniform on (0, 1); gaussian clamps a Gaussian, so that about half of the weights start at
    zero. A node without a positive weight would stay at zero, so its signs are flipped.
    """
    widest = max(hidden)

    def lower(g: torch.Generator) -> Tensor:
        if init == "positive":
            return torch.rand(widest, modes, generator=g).double()
        w = torch.randn(widest, modes, generator=g).double()
        return torch.where((w > 0).any(1, keepdim=True), w, -w).clamp_min(0)

    w1 = per_seed(lower, seeds, first_seed, 1)
    w2 = normal((outputs, widest), seeds, first_seed, 2).double()
    alive = (torch.arange(widest) < torch.tensor(hidden)[:, None])[:, None]  # (K, 1, n)
    return unit(w1 * alive[..., None]), unit(w2 * alive[..., None, :])


def unit(w: Tensor) -> Tensor:
    """Each run's matrix over its Frobenius norm."""
    return w / w.norm(dim=(-2, -1), keepdim=True)


def sticky_gradients(w1: Tensor, w2: Tensor, x_alpha: Tensor) -> tuple[Tensor, Tensor]:
    """Theorem 4: the linear ascent directions, with weights at zero kept at zero.

    G_1 = [W_1 > 0] ⊙ W_2ᵀ W_2 W_1 X_α,  G_2 = W_2 W_1 X_α W_1ᵀ.
    """
    wx = w1 @ x_alpha
    return (w1 > 0) * (w2.mT @ (w2 @ wx)), w2 @ (wx @ w1.mT)


def relu_gradients(w1: Tensor, w2: Tensor, x1: Tensor, x2: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """Half the gradient of tr C_α[z, z] for z = W_2 max(W_1 x, 0), from the samples and the ReLU gates, by autograd."""

    def energy(w1: Tensor, w2: Tensor) -> Tensor:
        z1, z2 = ((x @ w1.mT).relu() @ w2.mT for x in (x1, x2))
        return mean_covariance(z1, z2, alpha).diagonal(dim1=-2, dim2=-1).sum() / 2

    g1, g2 = torch.func.grad(energy, argnums=(0, 1))(w1, w2)
    return g1, g2


def step(w1: Tensor, w2: Tensor, g1: Tensor, g2: Tensor, lr: float) -> tuple[Tensor, Tensor]:
    """One ascent step over the run's larger gradient norm, then projection on W_1 ≥ 0 and unit norms."""
    largest = torch.maximum(g1.norm(dim=(-2, -1)), g2.norm(dim=(-2, -1))).clamp_min(1e-300)
    rate = (lr / largest)[..., None, None]
    return unit((w1 + rate * g1).clamp_min(0)), unit(w2 + rate * g2)


def classify(w1: Tensor) -> tuple[Tensor, Tensor]:
    """The numerical rank of W_1 and the number of modes (columns) with a weight above zero."""
    rank = (torch.linalg.svdvals(w1) > ZERO).sum(-1)
    modes = (w1.norm(dim=-2) > ZERO).sum(-1)
    return rank, modes


def energy(w1: Tensor, w2: Tensor, x_alpha: Tensor) -> Tensor:
    """tr(W_2 W_1 X_α W_1ᵀ W_2ᵀ)."""
    w = w2 @ w1
    return (w @ x_alpha * w).sum((-2, -1))


def compare_paths(steps: int, lr: float, w1: Tensor, w2: Tensor, x1: Tensor, x2: Tensor, alpha: Tensor) -> Tensor:
    """Largest difference of W_1 and W_2 between the paths of the ReLU network and of the sticky linear one."""
    x_alpha = mean_covariance(x1, x2, alpha)
    v1, v2, gaps = w1, w2, []
    for _ in range(steps):
        w1, w2 = step(w1, w2, *relu_gradients(w1, w2, x1, x2, alpha), lr)
        v1, v2 = step(v1, v2, *sticky_gradients(v1, v2, x_alpha), lr)
        gaps += [(w1 - v1).abs().amax((-2, -1)), (w2 - v2).abs().amax((-2, -1))]
    return torch.stack(gaps).amax(0)


def train(
    w1: Tensor, w2: Tensor, x_alpha: Tensor, steps: int, lr: float, progress: bool
) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
    """Climb the energy under the sticky rule, recording at logarithmic intervals.

    The weights at the end, how often a weight of each run left zero, and energy (…, T) and number of positive weights
    (…, T) at the recorded steps (T,).
    """
    rows: list[tuple[Tensor, Tensor, Tensor]] = []  # energy, positive weights, step
    revived = torch.zeros(w1.shape[:-2], dtype=torch.int64)
    for t in track(range(steps), "two ReLU layers", progress):
        if t in (0, steps - 1) or math.log(t + 1) >= math.log(int(rows[-1][2]) + 1) + 0.05:
            rows.append((energy(w1, w2, x_alpha), (w1 > 0).sum((-2, -1)), torch.tensor(t)))
        at_zero = w1 == 0
        w1, w2 = step(w1, w2, *sticky_gradients(w1, w2, x_alpha), lr)
        revived += (at_zero & (w1 > 0)).sum((-2, -1))
    energies, alive, recorded_at = (torch.stack(column, -1) for column in zip(*rows, strict=True))
    return w1, w2, revived, {"energy": energies, "alive": alive, "recorded_at": recorded_at}
