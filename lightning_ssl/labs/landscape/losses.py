"""The losses of every run at once, and the suite's importances by name."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lightning_ssl.checks import require
from lightning_ssl.losses.energy import PairLoss
from lightning_ssl.losses.families import InfoNCE, Quadratic
from lightning_ssl.losses.importance import Direct, Entropy, FromFamily, Gaussian, Importance
from lightning_ssl.losses.solved import Inverse, Square, Tsallis

NAMED: dict[str, Callable[[float], Importance]] = {
    "infonce": lambda tau: FromFamily(InfoNCE(tau=tau, eps=1.0)),
    "entropy": lambda tau: Entropy(tau=tau),
    "inverse": lambda tau: Inverse(tau=tau, gamma=2.0),
    "square": lambda tau: Square(tau=5.0),
    "tsallis": lambda tau: Tsallis(tau=tau, q=1.5),
    "direct": lambda tau: Direct(tau=tau, p=4.0),
    "uniform": lambda tau: FromFamily(Quadratic()),
    "gaussian": lambda tau: Gaussian(tau=tau),
}
IMPORTANCES = tuple(NAMED)


def normalize(y: Tensor) -> Tensor:
    """y/‖y‖ over the units, the second last dimension. `torch.nn.functional.normalize` is slow in that direction."""
    return y * y.square().sum(-2, keepdim=True).clamp_min(1e-24).rsqrt()


def negative_cosine(y: Tensor, target: Tensor) -> Tensor:
    """−cos(y, target), mean over views and samples, of every run (R,); both (V, R, m, N)."""
    return -(normalize(y) * normalize(target)).sum(-2).mean((0, 2))


def squared_distance(y: Tensor, target: Tensor, normalized: bool) -> Tensor:
    """Eqn. 4: ‖y − target‖², mean over samples, of unit vectors if `normalized`, of every run (R,)."""
    if normalized:
        return 2 + 2 * negative_cosine(y, target)
    return (y - target).square().sum(2).mean((0, 2))


def pair_losses(y: Tensor, loss: PairLoss, clean: Tensor | None = None) -> Tensor:
    """A pair loss of both views of every run, (R,); y (2, R, m, N).

    `clean` (R, m, N) are the outputs of un-augmented samples, for importances that weigh their distances.
    """
    z_clean = [None] * y.shape[1] if clean is None else normalize(clean).mT
    # One run after the other: the working memory of one run (5 MB at N = 512) fits into the cache and is reused.
    return torch.stack([loss(z1, z2, c) for z1, z2, c in zip(*normalize(y).mT, z_clean, strict=True)])


def importance_named(name: str, tau: float) -> Importance:
    """Build an importance of the suite by name, with the temperature of NT-Xent where it has one."""
    require(name in NAMED, "importances", name, f"some of {', '.join(NAMED)}")
    return NAMED[name](tau)
