"""Tree-shaped ReLU networks and their losses, with written-out gradients.

Speed. All trials and all ranges of ρ are one batch. A node of layer t depends on 2^t bits, so up to layer 3 a node is
computed once for each of the 4, 16 or 256 possible leaf patterns instead of once for each sample.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lightning_ssl.labs.hltm.tree import Latent, patterns
from lightning_ssl.labs.lab import seeded_generator

Slope = Callable[[Tensor, Tensor], Tensor]
"""r₊, r₋ (R, B) → ∂L/∂r₊ = −∂L/∂r₋ (R, B), Theorem 2."""

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
            self.W.append(((2 * W - 1) * bound).repeat(repeat, 1, 1, 1))
            self.b.append(((2 * b - 1) * bound * bias).repeat(repeat, 1, 1))

    def forward(self, index: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Compute f̃ of layers 1 … L and the input ψ(f̃) of each, given the `table_index` of the leaves.

        Shapes: (R·n, P, h) for P patterns up to layer T, then (R·n, N, h).
        """
        T = self.table
        pre: list[Tensor] = []
        inputs = [torch.tensor([[0.0], [1.0]]).expand(self.runs * 2**self.depth, 2, 1)]
        for layer, (W, b) in enumerate(zip(_merge_runs(self.W), _merge_runs(self.b), strict=True), start=1):
            below, bias = inputs[-1], b[:, None]
            if layer <= T:
                q = torch.bmm(below, W).unflatten(
                    0, (-1, 2)
                )  # the contribution of each child, for each of its patterns
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

    def gradient(self, index: Tensor, slope: Slope, normalize: bool = True) -> list[Tensor]:
        """Compute ∂L/∂W of every layer, then ∂L/∂b; `index` has anchors, then positives, then negatives."""
        T, L, h = self.table, self.depth, self.width
        pre, inputs = self.forward(index)
        gW, gb = [torch.empty(0)] * L, [torch.empty(0)] * L
        g = output_gradient(pre[-1], slope, normalize)  # ∂L/∂f̃, (R·n_l, P or N, h)
        for layer in range(L, 0, -1):
            below, W = inputs[layer - 1], self.W[layer - 1].flatten(0, 1)
            gb[layer - 1] = g.sum(1).view_as(self.b[layer - 1])
            # The gradient of each child's contribution.
            if layer <= T:
                size = 2 ** (2 ** (layer - 1))
                grid = g.unflatten(1, (size, size))
                g = torch.stack([grid.sum(2), grid.sum(1)], 1).flatten(0, 1)
            elif layer == T + 1:
                size, g = 2 ** (2**T), g.flatten(0, 1)
                total = g.new_zeros(len(below) * size, h).scatter_add_(
                    0, index[:, None].expand(-1, h), torch.cat([g, g])
                )
                g = total.unflatten(0, (len(below), size))
            else:
                g = g.repeat_interleave(2, 0)
            gW[layer - 1] = torch.bmm(below.mT, g).view_as(self.W[layer - 1])
            if layer > 1:
                g = torch.ops.aten.threshold_backward(torch.bmm(g, W.mT), below, 0)
        return gW + gb

    def step(self, index: Tensor, slope: Slope, lr: float, normalize: bool = True) -> None:
        """Take one step of gradient descent, W ← W − lr ∂L/∂W."""
        parameters = self.W + self.b if self.bias else self.W
        for parameter, gradient in zip(parameters, self.gradient(index, slope, normalize), strict=False):
            parameter.sub_(gradient, alpha=lr)

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


def _merge_runs(parameters: list[Tensor]) -> list[Tensor]:
    """Merge the axes of runs and latents: (R, n, ...) → (R·n, ...)."""
    return [parameter.flatten(0, 1) for parameter in parameters]


def output_gradient(f: Tensor, slope: Slope, normalize: bool = True) -> Tensor:
    """Compute ∂L/∂f of outputs f (R, 3·B, h): anchors, positives, negatives.

    With y = f/(‖f‖ + ε), r± = ½‖y − y±‖² and c = ∂L/∂r₊ = −∂L/∂r₋:
    ∂L/∂y = c (y₋ − y₊), ∂L/∂y₊ = c (y₊ − y), ∂L/∂y₋ = −c (y₋ − y).
    """
    norm = torch.linalg.vector_norm(f, dim=2, keepdim=True) if normalize else f.new_tensor(1.0)
    scale = 1 / (norm + NORM_EPS) if normalize else norm
    y = f * scale
    anchor, positive, negative = y.chunk(3, 1)
    to_pos, to_neg = positive - anchor, negative - anchor
    c = slope(to_pos.square().sum(2) / 2, to_neg.square().sum(2) / 2)[..., None]
    g = torch.cat([c * (negative - positive), c * to_pos, -c * to_neg], 1)
    if not normalize:
        return g
    # The derivative of y with its ε: (I − y yᵀ (‖f‖ + ε)/‖f‖)/(‖f‖ + ε).
    return scale * (g - y * ((y * g).sum(2, keepdim=True) / (norm * scale).clamp_min(1e-12)))


def batch_nce(tau: float, width: int) -> Slope:
    """The released program's loss: L = −σ((n − p)/τ), p = 2⟨r₊⟩/h and n = 2⟨r₋⟩/h averaged over the batch."""

    def slope(r_pos: Tensor, r_neg: Tensor) -> Tensor:
        B, scale = r_pos.shape[1], 2 / (width * tau)
        s = torch.sigmoid((r_neg - r_pos).mean(1, keepdim=True) * scale)
        return (s * (1 - s) * (scale / B)).expand(-1, B)

    return slope


def nce(tau: float, width: int) -> Slope:
    """InfoNCE with one negative (Eqn. 2): L = ⟨log(1 + e^{(r₊ − r₋)/τ})⟩."""
    return lambda r_pos, r_neg: torch.sigmoid((r_pos - r_neg) / tau) / (tau * r_pos.shape[1])


def simple(tau: float, width: int) -> Slope:
    """The simple contrastive loss: L = ⟨r₊ − r₋⟩."""
    return lambda r_pos, r_neg: torch.full_like(r_pos, 1 / r_pos.shape[1])


LOSSES: dict[str, Callable[[float, int], Slope]] = {"nce": nce, "batch_nce": batch_nce, "simple": simple}
