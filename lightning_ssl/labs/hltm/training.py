"""Train networks of all widths, ranges of ρ and seeds on the same samples, and measure their nodes.

Measures: the correlation of nodes with latents, and the norm of the covariance operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lightning_ssl.labs.hltm.networks import LOSSES, Networks
from lightning_ssl.labs.hltm.tree import Samples, find_latent, polarities
from lightning_ssl.labs.lab import track, use_threads

STEPS_PER_DRAW = 10
CURVE_SAMPLES = 4096
CHUNK = 128
OPERATOR_SAMPLES = 4096


class Correlation:
    """Accumulates the largest |corr(z_μ, f̃_j)| among the nodes j of one latent."""

    def __init__(self, name: str, depth: int) -> None:
        self.layer, self.position = find_latent(name, depth)
        self.sums = torch.zeros(())

    def add(self, networks: Networks, nodes: Sequence[Tensor], z: Sequence[Tensor]) -> None:
        """Add samples: f̃ of the nodes (R, n, N, h) and the latents z, bool (R, n, N), of every layer."""
        f, t = (values[self.layer][:, self.position].to(torch.float64) for values in (nodes, z))
        t = t[..., None].expand_as(f)
        sums = torch.stack([x.sum(1) for x in (torch.ones_like(f), t, f, t * t, f * f, t * f)])  # (6, R, h)
        self.sums = self.sums + sums

    def value(self) -> Tensor:
        """The largest |corr| of every run, (R,); that of a constant node is 0."""
        n, t, f, tt, ff, tf = self.sums
        spread = ((tt / n - (t / n) ** 2).clamp_min(0) * (ff / n - (f / n) ** 2).clamp_min(0)).sqrt()
        corr = (tf / n - t * f / n**2) / spread
        return torch.where(spread < 1e-6, 0.0, corr).abs().clamp(max=1.0).float().amax(1)


class OperatorNorm:
    """Accumulates the covariance operator of one latent and gives its Frobenius norm.

    z_0 has two values, so OP_μ = V_{z0}[K̄] = π_0 π_1 D Dᵀ with D = E[K | z_0=1] − E[K | z_0=0], K = f_ch ⊗ J_μᵀ, and
    ‖OP_μ‖_F = π_0 π_1 ‖DᵀD‖_F. As in the released program, J_μ = ∂f/∂f̃_μ excludes the l2-normalization.
    """

    def __init__(self, name: str, depth: int) -> None:
        layer, position = find_latent(name, depth)
        self.path = [(layer + up, position >> up) for up in range(depth - layer, -1, -1)]  # root … μ
        self.sum = self.count = torch.zeros(())

    def add(self, networks: Networks, nodes: Sequence[Tensor], z: Sequence[Tensor]) -> None:
        """Add samples, as in `Correlation`."""
        R, _, N, h = nodes[-1].shape
        J = torch.eye(h).expand(R, N, h, h)
        for layer, position in self.path[1:]:
            W = networks.W[layer][:, position]  # (R, h, h), from this latent's nodes to its parent's
            J = (J.flatten(1, 2) @ W.mT).unflatten(1, (N, h)) * (nodes[layer][:, position] > 0)[:, :, None]
        layer, position = self.path[-1]
        children = nodes[layer - 1][:, 2 * position : 2 * position + 2]
        f_ch = children.relu().transpose(1, 2).flatten(2)  # (R, N, 2h or 2)
        z0 = z[-1]  # (R, 1, N)
        label = torch.cat([~z0, z0], 1).to(f_ch.dtype)  # (R, 2, N)
        K = (label[:, :, None] * f_ch.mT[:, None]).flatten(1, 2) @ J.flatten(2)  # (R, 2·|ch|, h_L·h)
        self.sum = self.sum + K.unflatten(1, (2, -1)).unflatten(3, (h, h))
        self.count = self.count + label.sum(2)

    def value(self) -> Tensor:
        """‖OP_μ‖_F of every run, (R,)."""
        mean = self.sum / self.count[:, :, None, None, None]
        D = (mean[:, 1] - mean[:, 0]).movedim(2, 3).flatten(1, 2)  # (R, |ch|·h, h_L)
        share = self.count / self.count.sum(1, keepdim=True)
        return share.prod(1) * torch.linalg.matrix_norm(D.mT @ D)


@torch.no_grad()
def evaluate(networks: Networks, samples: Samples, latents: Sequence[str], operators: Sequence[str], n: int) -> Tensor:
    """Measure the best |corr| of each latent, then each operator norm: (R, len(latents) + len(operators)).

    Both on n new samples; the operators on at most `OPERATOR_SAMPLES` of them.
    """
    measures: list[Correlation | OperatorNorm] = [Correlation(name, networks.depth) for name in latents]
    measures += [OperatorNorm(name, networks.depth) for name in operators]
    for start in range(0, n, CHUNK):
        z = samples.draw(min(CHUNK, n - start))
        nodes = networks.nodes(z[0])
        for measure in measures if start < OPERATOR_SAMPLES else measures[: len(latents)]:
            measure.add(networks, nodes, z)
    return torch.stack([measure.value() for measure in measures], 1)


# The tensors are small: a second thread gains nothing.
@use_threads(1)
def train(
    depth: int,
    widths: Sequence[int],
    delta_lower: Sequence[float],
    latents: Sequence[str],
    operators: Sequence[str],
    settings: dict[str, Any],
    progress: bool = False,
) -> tuple[Tensor, Tensor]:
    """Train all widths × δ × seeds; best correlations and operator norms, (epochs+1, W, D, S, latents | operators).

    Epochs 0, 1 and the last are measured on `samples` new samples, the others on `CURVE_SAMPLES`. `settings` are the
    arguments of `run` that this signature lacks.
    """
    s = settings
    seeds = range(s["first_seed"], s["first_seed"] + s["seeds"])
    rho = polarities(depth, delta_lower, seeds, s["signed"])
    training_samples, test_samples = Samples(rho, seeds, 2), Samples(rho, seeds, 3)
    groups = [Networks(depth, width, seeds, len(delta_lower), bias=s["bias"]) for width in widths]
    measured = []
    for epoch in track(range(s["epochs"] + 1), f"tree of depth {depth}", progress):
        if epoch and not s["fresh"]:
            training_samples.restart()
        steps = s["samples"] // s["batch"] if epoch else 0
        for first in range(0, steps, STEPS_PER_DRAW):
            count = min(STEPS_PER_DRAW, steps - first)
            leaves = training_samples.draw(count * s["batch"], (2, 1))[0].unflatten(2, (3, count, s["batch"]))
            for k in range(count):
                index = groups[0].table_index(leaves[:, :, :, k].flatten(2))
                for networks in groups:
                    networks.step(index, LOSSES[s["loss"]], s["tau"], s["lr"], s["normalize"])
        n = s["samples"] if epoch in (0, 1, s["epochs"]) else min(CURVE_SAMPLES, s["samples"])
        measured.append(torch.stack([evaluate(networks, test_samples, latents, operators, n) for networks in groups]))
    correlation, norm = torch.stack(measured).split([len(latents), len(operators)], 3)
    shape = (len(delta_lower), len(seeds))
    return correlation.unflatten(2, shape), norm.unflatten(2, shape)
