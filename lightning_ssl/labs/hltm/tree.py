"""The symmetric binary latent tree: its polarities ρ, its samples, and the probabilities of its leaf patterns."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_ssl.base.checks import require
from lightning_ssl.labs.lab import random_bits, seeded_generator


def find_latent(name: str, depth: int, argument: str = "latents") -> tuple[int, int]:
    """Layer (0: leaves, depth: root) and position, from the left, of a latent named as in the paper.

    The name is `root`, or `s` and the path: s010 is left-right-left.
    """
    path = "" if name == "root" else name.removeprefix("s")
    known = name in ("root", "s") or (name.startswith("s") and not set(path) - {"0", "1"})
    require(known and len(path) < depth, argument, name, f"root, or s and fewer than {depth} digits 0 or 1")
    return depth - len(path), int(path or "0", 2)


def polarities(depth: int, delta_lower: Sequence[float], seeds: range, signed: bool = True) -> list[Tensor]:
    """Draw ρ of the edge above every latent of layers 0 … depth−1, each (D·S, 2^{depth−l}); runs are ordered (δ, seed).

    ρ = ±(δ + u (1 − δ)), u ~ U[0, 1]. The D trees of one seed share u and the sign.
    """
    edges = 2 ** (depth + 1) - 2
    u, coin = torch.stack(
        [torch.rand(2, edges, generator=seeded_generator(seed, 0)) for seed in seeds], 1
    )  # (S, edges)
    sign = torch.where(coin < 0.5, -1.0, 1.0) if signed else torch.ones_like(coin)
    lower = torch.tensor(delta_lower)[:, None, None]
    rho = ((lower + u * (1 - lower)) * sign).flatten(0, 1)
    return list(rho.split([2 ** (depth - layer) for layer in range(depth)], dim=1))


def pattern_probabilities(rho: list[Tensor], layer: int) -> Tensor:
    """Enumerate P(leaf pattern below μ | z_μ) of every latent μ of `layer`: (R, n_layer, 2, 2^(2^layer))."""
    p = torch.eye(2, dtype=torch.float64).expand(*rho[0].shape, 2, 2)
    for t in range(layer):
        flip = (1 - rho[t].double()[..., None, None]) / 2
        p = ((1 - flip) * p + flip * p.flip(2)).unflatten(1, (-1, 2))  # given the parent's value
        p = (p[:, :, 0, :, :, None] * p[:, :, 1, :, None, :]).flatten(3)
    return p


class Samples:
    """Draws samples of R = D·S trees. The D trees of one seed share their random numbers."""

    def __init__(self, rho: list[Tensor], seeds: range, stream: int) -> None:
        self.depth, self.seeds, self.stream = len(rho), seeds, stream
        # A child differs from its parent with probability (1 − ρ)/2. Sixteen random bits decide it, which rounds
        # probabilities to multiples of 2⁻¹⁶.
        differ = ((1 - torch.cat(rho, 1)) / 2 * 2**16 - 2**15).round().clamp(-(2**15), 2**15 - 1).to(torch.int16)
        self.threshold = differ.unflatten(0, (-1, len(seeds)))[..., None]  # (D, S, edges, 1)
        self.restart()

    def restart(self) -> None:
        """Restart the stream, so that the same samples are drawn again."""
        self.generators = [seeded_generator(seed, self.stream) for seed in self.seeds]

    def draw(self, roots: int, views: Sequence[int] = (1,)) -> list[Tensor]:
        """Draw the latents of layers 0 … depth, each bool (R, n_l, Σ views · roots), samples ordered (view, root).

        `views = (2, 1)` gives anchors, positives of the same roots, and negatives of other roots.
        """
        S, edges, n, groups = len(self.seeds), self.threshold.shape[2], roots * sum(views), len(views) * roots
        u, root_bits = random_bits(self.generators, edges * n + groups).split([edges * n, groups], 1)
        z0 = (root_bits < 0).unflatten(1, (len(views), roots))
        z0 = torch.cat([z0[:, k].repeat(1, count) for k, count in enumerate(views)], 1)  # (S, n)
        flips = (u.unflatten(1, (edges, n)) < self.threshold).flatten(0, 1)  # (R, edges, n)
        layers = [z0.repeat(flips.shape[0] // S, 1)[:, None]]
        for flip in reversed(flips.split([2 ** (self.depth - layer) for layer in range(self.depth)], 1)):
            layers.append((layers[-1][:, :, None] ^ flip.unflatten(1, (-1, 2))).flatten(1, 2))
        return layers[::-1]


def patterns(leaves: Tensor, layer: int) -> Tensor:
    """Read the leaves below each latent of `layer` ≤ 3 as a binary number: bool (R, n_0, N) → uint8 (R, n_layer, N)."""
    index = leaves.to(torch.uint8)
    for t in range(layer):
        pair = index.unflatten(1, (-1, 2))
        index = pair[:, :, 0] * 2 ** (2**t) + pair[:, :, 1]
    return index
