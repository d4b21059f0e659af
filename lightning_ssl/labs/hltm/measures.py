"""Measures of trained networks: the correlation of nodes with latents, and the norm of the covariance operator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_ssl.labs.hltm.networks import Networks
from lightning_ssl.labs.hltm.tree import Samples, find_latent

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
