"""Tree-shaped ReLU networks and their losses.

Speed. All trials and all ranges of ρ are one batch. A node of layer t depends on 2^t bits, so up to layer 3 a node is
computed once for each of the 4, 16 or 256 possible leaf patterns instead of once for each sample.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lightning_ssl.labs.hltm.tree import patterns
from lightning_ssl.labs.lab import seeded_generator

Loss = Callable[[Tensor, Tensor, float, int], Tensor]
"""r₊, r₋ (R, B), temperature τ, width h → the loss of every run (R,)."""

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

    def gradient(self, index: Tensor, loss: Loss, tau: float, normalize: bool = True) -> list[Tensor]:
        """Compute ∂L/∂W of every layer, then ∂L/∂b; `index` has anchors, then positives, then negatives."""
        f = self.forward(index)[0][-1]
        y = f / (torch.linalg.vector_norm(f, dim=2, keepdim=True) + NORM_EPS) if normalize else f
        anchor, positive, negative = y.chunk(3, 1)
        r_pos, r_neg = ((other - anchor).square().sum(2) / 2 for other in (positive, negative))
        # Runs share no weight, so the gradient of the sum is each run's own gradient.
        return list(torch.autograd.grad(loss(r_pos, r_neg, tau, self.width).sum(), self.W + self.b))

    def step(self, index: Tensor, loss: Loss, tau: float, lr: float, normalize: bool) -> None:
        """Take one step of gradient descent, W ← W − lr ∂L/∂W."""
        parameters = self.W + self.b if self.bias else self.W
        for parameter, gradient in zip(parameters, self.gradient(index, loss, tau, normalize), strict=False):
            parameter.data.sub_(gradient, alpha=lr)

    def nodes(self, leaves: Tensor) -> list[Tensor]:
        """Compute f̃ of the nodes of layers 0 … L, each (R, n_l, N, h). The value of a leaf is itself, h = 1."""
        pre, _ = self.forward(self.table_index(leaves))
        found = [leaves[..., None].to(pre[0].dtype)]
        for layer, of_layer in enumerate(pre, start=1):
            f = of_layer.unflatten(0, (self.runs, -1))
            if layer <= self.table:
                index = patterns(leaves, layer).to(torch.int64)
                f = f.gather(2, index[..., None].expand(-1, -1, -1, self.width))
            found.append(f)
        return found


def batch_nce(r_pos: Tensor, r_neg: Tensor, tau: float, width: int) -> Tensor:
    """The released program's loss: L = −σ((n − p)/τ), p = 2⟨r₊⟩/h and n = 2⟨r₋⟩/h averaged over the batch."""
    return -torch.sigmoid((r_neg - r_pos).mean(1) * (2 / (width * tau)))


def nce(r_pos: Tensor, r_neg: Tensor, tau: float, width: int) -> Tensor:
    """InfoNCE with one negative (Eqn. 2): L = ⟨log(1 + e^{(r₊ − r₋)/τ})⟩."""
    return torch.nn.functional.softplus((r_pos - r_neg) / tau).mean(1)


def simple(r_pos: Tensor, r_neg: Tensor, tau: float, width: int) -> Tensor:
    """The simple contrastive loss: L = ⟨r₊ − r₋⟩."""
    return (r_pos - r_neg).mean(1)


LOSSES: dict[str, Loss] = {"nce": nce, "batch_nce": batch_nce, "simple": simple}
