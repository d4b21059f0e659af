"""Tree-shaped ReLU networks and their losses.

Speed. All trials and all ranges of ρ are one batch. A node of layer t depends on 2^t bits, so up to layer 3 a node is
computed once for each of the 4, 16 or 256 possible leaf patterns instead of once for each sample.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lightning_ssl.labs.hltm.tree import Latent, patterns
from lightning_ssl.labs.lab import seeded_generator

Loss = Callable[[Tensor, Tensor], Tensor]
"""r₊, r₋ (R, B) → the loss of every run (R,)."""

# Patterns are 8-bit numbers up to layer 3. Layer 4 has 65,536 patterns, more than any batch has samples.
TABLE_LAYER = 3
NORM_EPS = 1e-4  # of the released program: y = f / (‖f‖ + ε)


class Networks:
    """R tree-shaped ReLU networks of one width, with their gradients.

    f̃_μ = b_μ + Σ_{ν ∈ ch(μ)} W_νᵀ ψ(f̃_ν); for a leaf ν, ψ(f̃_ν) is the leaf itself. `W[l−1]` holds the W_ν of the
    children of layer l, (R, n_{l−1}, h_{l−1}, h); `b[l−1]` is (R, n_l, h). Up to layer `table` nodes are computed per
    leaf pattern.
    """

    def __init__(
        self, depth: int, width: int, seeds: range, repeat: int = 1, table: int = TABLE_LAYER, bias: bool = True
    ) -> None:
        self.depth, self.width, self.runs, self.bias = depth, width, repeat * len(seeds), bias
        self.table = min(table, depth - 1)
        generators = [seeded_generator(seed, 1) for seed in seeds]
        self.W: list[Tensor] = []
        self.b: list[Tensor] = []
        for layer in range(1, depth + 1):
            fan = 1 if layer == 1 else width
            bound = (2 * fan) ** -0.5
            shape = (2 ** (depth - layer + 1), fan, width)
            W = torch.stack([torch.rand(shape, generator=g) for g in generators])
            b = torch.stack([torch.rand(shape[0] // 2, width, generator=g) for g in generators])
            self.W.append(((2 * W - 1) * bound).repeat(repeat, 1, 1, 1).requires_grad_())
            self.b.append(((2 * b - 1) * bound * bias).repeat(repeat, 1, 1).requires_grad_())

    def forward(self, index: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Compute f̃ of layers 1 … L and the input ψ(f̃) of each, given the `table_index` of the leaves.

        Shapes: (R·n, P, h) for P patterns up to layer T, then (R·n, N, h).
        """
        T = self.table
        pre: list[Tensor] = []
        inputs = [torch.tensor([[0.0], [1.0]]).expand(self.runs * 2**self.depth, 2, 1)]
        for layer, (W_runs, b_runs) in enumerate(zip(self.W, self.b, strict=True), start=1):
            W, b = W_runs.flatten(0, 1), b_runs.flatten(0, 1)  # runs and latents in one axis
            below, bias = inputs[-1], b[:, None]
            if layer <= T:
                # the contribution of each child, for each of its patterns
                q = torch.bmm(below, W).unflatten(0, (-1, 2))
                pre.append(((q[:, 0] + bias)[:, :, None] + q[:, 1][:, None]).flatten(1, 2))
            elif layer == T + 1:
                left, right = torch.bmm(below, W).flatten(0, 1).index_select(0, index).chunk(2)
                pre.append((left + right).unflatten(0, (len(b), -1)).add_(bias))
            else:
                pair, block = below.unflatten(0, (-1, 2)), W.unflatten(0, (-1, 2))
                pre.append(torch.baddbmm(bias, pair[:, 0], block[:, 0]).baddbmm_(pair[:, 1], block[:, 1]))
            inputs.append(pre[-1].relu())
        return pre, inputs[:-1]

    def table_index(self, leaves: Tensor) -> Tensor:
        """Rows of layer T's table with the left, then the right children of layer T+1: int64 (2·R·n_{T+1}·N,)."""
        index = patterns(leaves, self.table).unflatten(1, (-1, 2)).to(torch.int64)  # (R, n_{T+1}, 2, N)
        runs, parents = index.shape[:2]
        start = torch.arange(runs * parents * 2).view(runs, parents, 2, 1) * 2 ** (2**self.table)
        return (index + start).movedim(2, 0).flatten()

    def gradient(self, index: Tensor, loss: Loss, normalize: bool = True) -> list[Tensor]:
        """Compute ∂L/∂W of every layer, then ∂L/∂b; `index` has anchors, then positives, then negatives."""
        f = self.forward(index)[0][-1]
        y = f / (torch.linalg.vector_norm(f, dim=2, keepdim=True) + NORM_EPS) if normalize else f
        anchor, positive, negative = y.chunk(3, 1)
        r_pos, r_neg = ((other - anchor).square().sum(2) / 2 for other in (positive, negative))
        # Runs share no weight, so the gradient of the sum is each run's own gradient.
        return list(torch.autograd.grad(loss(r_pos, r_neg).sum(), self.W + self.b))

    def step(self, index: Tensor, loss: Loss, lr: float, normalize: bool = True) -> None:
        """Take one step of gradient descent, W ← W − lr ∂L/∂W."""
        parameters = self.W + self.b if self.bias else self.W
        for parameter, gradient in zip(parameters, self.gradient(index, loss, normalize), strict=False):
            parameter.data.sub_(gradient, alpha=lr)

    def nodes(self, leaves: Tensor, wanted: set[Latent]) -> dict[Latent, Tensor]:
        """Compute f̃ of the nodes of the wanted latents, each (R, N, h). The value of a leaf is itself, (R, N, 1)."""
        pre, _ = self.forward(self.table_index(leaves))
        found: dict[Latent, Tensor] = {}
        for layer, position in wanted:
            if layer == 0:
                found[layer, position] = leaves[:, position, :, None].to(pre[0].dtype)
                continue
            of_latent = pre[layer - 1].unflatten(0, (self.runs, -1))[:, position]
            if layer <= self.table:
                index = patterns(leaves, layer)[:, position].to(torch.int64)
                of_latent = of_latent.gather(1, index[..., None].expand(-1, -1, self.width))
            found[layer, position] = of_latent
        return found


def batch_nce(tau: float, width: int) -> Loss:
    """The released program's loss: L = −σ((n − p)/τ), p = 2⟨r₊⟩/h and n = 2⟨r₋⟩/h averaged over the batch."""
    return lambda r_pos, r_neg: -torch.sigmoid((r_neg - r_pos).mean(1) * (2 / (width * tau)))


def nce(tau: float, width: int) -> Loss:
    """InfoNCE with one negative (Eqn. 2): L = ⟨log(1 + e^{(r₊ − r₋)/τ})⟩."""
    return lambda r_pos, r_neg: torch.nn.functional.softplus((r_pos - r_neg) / tau).mean(1)


def simple(tau: float, width: int) -> Loss:
    """The simple contrastive loss: L = ⟨r₊ − r₋⟩."""
    return lambda r_pos, r_neg: (r_pos - r_neg).mean(1)


LOSSES: dict[str, Callable[[float, int], Loss]] = {"nce": nce, "batch_nce": batch_nce, "simple": simple}
