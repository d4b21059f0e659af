"""Hidden nodes of a deep ReLU network learn the latent variables of a tree that nobody shows them.

Source: "Understanding Self-supervised Learning with Dual Deep Networks", Section 6, Theorems 5 and 6, Tables 4 and 6,
Figures 13 and 14.

The data. In a symmetric binary latent tree of depth L every latent z_μ ∈ {0, 1} equals its parent with probability
(1 + ρ)/2. The 2^L leaves are the input. Two views of a sample share the root z_0 and nothing else; a negative has a
root of its own (the same one in half of the cases).

The network has the tree's shape: latent μ owns |N_μ| nodes, fed by the nodes of its two children only. It is trained to
bring two views together and negatives apart. Shown before training, after one epoch and at the end: the largest
|corr(z_μ, f̃_j)| among the nodes j ∈ N_μ (Table 6; Table 4 is its root rows), and through training the Frobenius norm
of the covariance operator OP_μ = V_{z0}[E[f_ch ⊗ J_μᵀ | z_0]].

How it is fast. All trials and all ranges of ρ are one batch, and all widths see its samples. A node of layer t depends
on 2^t bits, so up to layer 3 nodes are computed for the 4, 16, 256 possible patterns instead of for the samples. The
gradient is written out.

What the paper leaves open (each has a flag), and what was found:
- The loss. The text names InfoNCE with one negative (Eqn. 2), `nce`, the default. The released program computes
  something else, `batch_nce`: −σ((n − p)/τ), without logarithm, p and n being mean squared differences over the whole
  batch and over the output nodes, which makes the temperature τ|N_μ|/2. Both meet all 90 cells of Table 6 in ten
  trials (mean |difference| 0.039 for `nce` after 50 epochs, 0.043 for `batch_nce` after 49), but with `batch_nce`
  more of the narrow networks die: for |N_μ| = 2, ρ ~ U[0.8, 1], after eight epochs of the same 30 trials, the root is
  constant in 13 % of the networks (`nce`: 7 %) and its mean correlation 0.58 (`nce`: 0.68); the paper ends at 0.72.
- τ, the sign of ρ, fresh samples. The released program's defaults are τ = 0.01 and 20 epochs; its README and the text
  have 0.1 and 50. There ρ has a random sign, in the text none; there samples are drawn anew in every epoch, in the
  text they are a data set of 64000. Sign and freshness hardly matter. After one epoch, for |N_μ| = 10, ρ ~ U[0.8, 1]
  and 16 trials, the mean |difference| from the paper is 0.009 (`nce`), 0.009 (τ = 0.5), 0.010 (no signs), 0.006
  (`batch_nce`), 0.007 (`simple`), 0.011 (no biases), and 0.029 for `batch_nce` with τ = 0.01. Without biases |N_μ| =
  2 falls behind: 0.065, not 0.034.
- The correlation is absolute and taken of the pre-activation f̃, as in the released program; that of ψ(f̃) is lower,
  at the start by 0.10 to 0.15 for |N_μ| = 2. Weights and biases start uniform in ±1/√fan-in. There is no BatchNorm,
  in the program or in this part of the text.
- Theorem 6 has o_μ = ρ_{0μ}²(1 − ρ_{0μ}²) in the main text; its proof (Eqn. 178) ends with ρ_{0μ}²(1 − ρ_0²), where
  ρ_0 = P(z_0=1) − P(z_0=0). Enumeration agrees with the proof.
- Theorem 5 asks for about a hundred times more nodes than are needed; the paper says as much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from lightning_ssl import papers
from lightning_ssl.labs.lab import PALETTE, Claim, Result, panels, require, track

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Latent = tuple[int, int]  # layer (0: leaves, depth: root), position in the layer from the left
Weight = Callable[[Tensor, Tensor], Tensor]  # r₊, r₋ (R, B) → ∂L/∂r₊ = −∂L/∂r₋ (R, B), Theorem 2

TABLE6_LATENTS = ("root", "s0", "s1", "s101", "s0111")
FIGURE_OPERATORS = ("s0", "s1", "s010", "s1100")
STAGES = ("initial", "after epoch 1", "converged")
PAPER_WIDTHS = (2, 10)
PAPER_SAMPLES = 64_000
CONVERGED = 20  # epochs; fewer are not compared with the paper's last column
# Patterns are 8-bit numbers up to layer 3; 65,536 of them, at layer 4, would outnumber any batch.
TABLE_LAYER = 3
NORM_EPS = 1e-4  # of the released program: y = f / (‖f‖ + ε)
STEPS_PER_DRAW = 10
CHUNK = 128
OPERATOR_SAMPLES = 4096


def latent(name: str, depth: int, knob: str = "latents") -> Latent:
    """Layer and position of a latent named as in the paper: `root`, or `s` and the path, s010 for left-right-left."""
    path = "" if name == "root" else name.removeprefix("s")
    known = name in ("root", "s") or (name.startswith("s") and not set(path) - {"0", "1"})
    require(known and len(path) < depth, knob, name, f"root, or s and fewer than {depth} digits 0 or 1")
    return depth - len(path), int(path or "0", 2)


def polarities(depth: int, delta_lower: Sequence[float], seeds: range, signed: bool = True) -> list[Tensor]:
    """ρ of the edge above every latent of layers 0 … depth−1, each (D·S, 2^{depth−l}); runs are ordered (δ, seed).

    ρ = ±(δ + u (1 − δ)), u ~ U[0, 1]. The D trees of one seed share u and sign.
    """
    edges = 2 ** (depth + 1) - 2
    u, coin = torch.stack([torch.rand(2, edges, generator=_generator(seed, 0)) for seed in seeds], 1)  # (S, edges) each
    sign = torch.where(coin < 0.5, -1.0, 1.0) if signed else torch.ones_like(coin)
    lower = torch.tensor(delta_lower)[:, None, None]
    rho = ((lower + u * (1 - lower)) * sign).flatten(0, 1)
    return list(rho.split([2 ** (depth - layer) for layer in range(depth)], dim=1))


def pattern_probabilities(rho: list[Tensor], layer: int) -> Tensor:
    """P(leaf pattern below μ | z_μ) of every latent μ of `layer`, by enumeration: (R, n_layer, 2, 2^(2^layer))."""
    p = torch.eye(2, dtype=torch.float64).expand(*rho[0].shape, 2, 2)
    for t in range(layer):
        flip = (1 - rho[t].double()[..., None, None]) / 2
        p = ((1 - flip) * p + flip * p.flip(2)).unflatten(1, (-1, 2))  # given the parent's value
        p = (p[:, :, 0, :, :, None] * p[:, :, 1, :, None, :]).flatten(3)
    return p


class Samples:
    """Draws samples of R = D·S trees; the D trees of one seed see the same random numbers."""

    def __init__(self, rho: list[Tensor], seeds: range, stream: int) -> None:
        self.depth, self.seeds, self.stream = len(rho), seeds, stream
        # A child differs from its parent with probability (1 − ρ)/2. Sixteen random bits decide it, which rounds
        # probabilities to multiples of 2⁻¹⁶.
        differ = ((1 - torch.cat(rho, 1)) / 2 * 2**16 - 2**15).round().clamp(-(2**15), 2**15 - 1).to(torch.int16)
        self.threshold = differ.unflatten(0, (-1, len(seeds)))[..., None]  # (D, S, edges, 1)
        self.restart()

    def restart(self) -> None:
        """Begin the stream of samples again."""
        self.generators = [_generator(seed, self.stream) for seed in self.seeds]

    def draw(self, roots: int, views: Sequence[int] = (1,)) -> list[Tensor]:
        """Latents of layers 0 … depth, each bool (R, n_l, Σ views · roots), sample axis ordered (view, root).

        `views = (2, 1)` gives anchors, positives of the same roots, and negatives of other roots.
        """
        S, edges, n, groups = len(self.seeds), self.threshold.shape[2], roots * sum(views), len(views) * roots
        words = torch.empty(S, -(-(edges * n + groups) // 4), dtype=torch.int64)
        for row, generator in zip(words, self.generators, strict=True):
            row.random_(-(2**63), None, generator=generator)
        u = words.view(torch.int16)
        z0 = (u[:, edges * n : edges * n + groups] < 0).unflatten(1, (len(views), roots))
        z0 = torch.cat([z0[:, k].repeat(1, count) for k, count in enumerate(views)], 1)  # (S, n)
        flips = (u[:, : edges * n].unflatten(1, (edges, n)) < self.threshold).flatten(0, 1)  # (R, edges, n)
        layers = [z0.repeat(flips.shape[0] // S, 1)[:, None]]
        for flip in reversed(flips.split([2 ** (self.depth - layer) for layer in range(self.depth)], 1)):
            layers.append((layers[-1][:, :, None] ^ flip.unflatten(1, (-1, 2))).flatten(1, 2))
        return layers[::-1]


def patterns(leaves: Tensor, layer: int) -> Tensor:
    """The leaves below each latent of `layer` ≤ 3 as a binary number: bool (R, n_0, N) → uint8 (R, n_layer, N)."""
    index = leaves.to(torch.uint8)
    for t in range(layer):
        pair = index.unflatten(1, (-1, 2))
        index = pair[:, :, 0] * 2 ** (2**t) + pair[:, :, 1]
    return index


class Networks:
    """R tree-shaped ReLU networks of one width, with their gradients.

    f̃_μ = b_μ + Σ_{ν ∈ ch(μ)} W_νᵀ ψ(f̃_ν), with the leaf itself for ψ(f̃_ν) at the bottom. `W[l−1]` holds the W_ν of the
    children of layer l, (R, n_{l−1}, h_{l−1}, h); `b[l−1]` is (R, n_l, h). Up to layer `table` nodes are computed per
    leaf pattern.
    """

    def __init__(
        self, depth: int, width: int, seeds: range, repeat: int = 1, table: int = TABLE_LAYER, bias: bool = True
    ) -> None:
        self.depth, self.width, self.runs, self.bias = depth, width, repeat * len(seeds), bias
        self.table = min(table, depth - 1)
        generators = [_generator(seed, 1) for seed in seeds]
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

    def forward(self, rows: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """f̃ of layers 1 … L and the inputs ψ(f̃) of each: (R·n, P, h) for P patterns up to layer T, then (R·n, N, h)."""
        T = self.table
        pre: list[Tensor] = []
        inputs = [torch.tensor([[0.0], [1.0]]).expand(self.runs * 2**self.depth, 2, 1)]
        for layer, (W, b) in enumerate(zip(self._flat(self.W), self._flat(self.b), strict=True), start=1):
            below, bias = inputs[-1], b[:, None]
            if layer <= T:
                q = torch.bmm(below, W).unflatten(0, (-1, 2))  # what each child adds, for each of its patterns
                pre.append(((q[:, 0] + bias)[:, :, None] + q[:, 1][:, None]).flatten(1, 2))
            elif layer == T + 1:
                left, right = torch.bmm(below, W).flatten(0, 1).index_select(0, rows).chunk(2)
                pre.append((left + right).unflatten(0, (len(b), -1)).add_(bias))
            else:
                pair, block = below.unflatten(0, (-1, 2)), W.unflatten(0, (-1, 2))
                pre.append(torch.baddbmm(bias, pair[:, 0], block[:, 0]).baddbmm_(pair[:, 1], block[:, 1]))
            inputs.append(pre[-1].relu())
        return pre, inputs[:-1]

    def rows(self, leaves: Tensor) -> Tensor:
        """Where layer T+1 finds its left, then its right children in layer T's flat table: int64 (2·R·n_{T+1}·N,)."""
        index = patterns(leaves, self.table).unflatten(1, (-1, 2)).to(torch.int64)  # (R, n_{T+1}, 2, N)
        runs, parents = index.shape[:2]
        start = torch.arange(runs * parents * 2).view(runs, parents, 2, 1) * 2 ** (2**self.table)
        return (index + start).movedim(2, 0).flatten()

    def gradient(self, rows: Tensor, weight: Weight, normalize: bool = True) -> list[Tensor]:
        """∂L/∂W of every layer, then ∂L/∂b, for the `rows` of anchors, then positives, then negatives."""
        T, L, h = self.table, self.depth, self.width
        pre, inputs = self.forward(rows)
        gW, gb = [torch.empty(0)] * L, [torch.empty(0)] * L
        g = output_gradient(pre[-1], weight, normalize)  # ∂L/∂f̃, (R·n_l, P or N, h)
        for layer in range(L, 0, -1):
            below, W = inputs[layer - 1], self.W[layer - 1].flatten(0, 1)
            gb[layer - 1] = g.sum(1).view_as(self.b[layer - 1])
            # The gradient of what each child adds.
            if layer <= T:
                size = 2 ** (2 ** (layer - 1))
                grid = g.unflatten(1, (size, size))
                g = torch.stack([grid.sum(2), grid.sum(1)], 1).flatten(0, 1)
            elif layer == T + 1:
                size, g = 2 ** (2**T), g.flatten(0, 1)
                total = g.new_zeros(len(below) * size, h).scatter_add_(
                    0, rows[:, None].expand(-1, h), torch.cat([g, g])
                )
                g = total.unflatten(0, (len(below), size))
            else:
                g = g.repeat_interleave(2, 0)
            gW[layer - 1] = torch.bmm(below.mT, g).view_as(self.W[layer - 1])
            if layer > 1:
                g = torch.ops.aten.threshold_backward(torch.bmm(g, W.mT), below, 0)
        return gW + gb

    def step(self, rows: Tensor, weight: Weight, lr: float, normalize: bool = True) -> None:
        """One step of gradient descent, W ← W − lr ∂L/∂W."""
        parameters = self.W + self.b if self.bias else self.W
        for parameter, gradient in zip(parameters, self.gradient(rows, weight, normalize), strict=False):
            parameter.sub_(gradient, alpha=lr)

    def nodes(self, leaves: Tensor, wanted: set[Latent]) -> dict[Latent, Tensor]:
        """f̃ of the nodes of the wanted latents, each (R, N, h); a leaf stands for itself, (R, N, 1)."""
        pre, _ = self.forward(self.rows(leaves))
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

    @staticmethod
    def _flat(parameters: list[Tensor]) -> list[Tensor]:
        return [parameter.flatten(0, 1) for parameter in parameters]


def output_gradient(f: Tensor, weight: Weight, normalize: bool = True) -> Tensor:
    """∂L/∂f of outputs f (R, 3·B, h): anchors, positives, negatives.

    With y = f/(‖f‖ + ε), r± = ½‖y − y±‖² and c = ∂L/∂r₊ = −∂L/∂r₋:
    ∂L/∂y = c (y₋ − y₊), ∂L/∂y₊ = c (y₊ − y), ∂L/∂y₋ = −c (y₋ − y).
    """
    norm = torch.linalg.vector_norm(f, dim=2, keepdim=True) if normalize else f.new_tensor(1.0)
    scale = 1 / (norm + NORM_EPS) if normalize else norm
    y = f * scale
    anchor, positive, negative = y.chunk(3, 1)
    to_pos, to_neg = positive - anchor, negative - anchor
    c = weight(to_pos.square().sum(2) / 2, to_neg.square().sum(2) / 2)[..., None]
    g = torch.cat([c * (negative - positive), c * to_pos, -c * to_neg], 1)
    if not normalize:
        return g
    # The derivative of y with its ε: (I − y yᵀ (‖f‖ + ε)/‖f‖)/(‖f‖ + ε).
    return scale * (g - y * ((y * g).sum(2, keepdim=True) / (norm * scale).clamp_min(1e-12)))


def batch_nce(tau: float, width: int) -> Weight:
    """The released program's loss: L = −σ((n − p)/τ), p = 2⟨r₊⟩/h and n = 2⟨r₋⟩/h averaged over the batch."""

    def weight(r_pos: Tensor, r_neg: Tensor) -> Tensor:
        B, scale = r_pos.shape[1], 2 / (width * tau)
        s = torch.sigmoid((r_neg - r_pos).mean(1, keepdim=True) * scale)
        return (s * (1 - s) * (scale / B)).expand(-1, B)

    return weight


def nce(tau: float, width: int) -> Weight:
    """InfoNCE with one negative (Eqn. 2): L = ⟨log(1 + e^{(r₊ − r₋)/τ})⟩."""
    return lambda r_pos, r_neg: torch.sigmoid((r_pos - r_neg) / tau) / (tau * r_pos.shape[1])


def simple(tau: float, width: int) -> Weight:
    """The simple contrastive loss: L = ⟨r₊ − r₋⟩."""
    return lambda r_pos, r_neg: torch.full_like(r_pos, 1 / r_pos.shape[1])


LOSSES: dict[str, Callable[[float, int], Weight]] = {"nce": nce, "batch_nce": batch_nce, "simple": simple}


class Correlation:
    """Accumulates |corr(z, f̃_j)| over chunks of samples."""

    def __init__(self) -> None:
        self.sums: Tensor | None = None

    def add(self, z: Tensor, f: Tensor) -> None:
        """Add samples: z (R, N) of two values, f (R, N, h)."""
        t, f = z.to(torch.float64)[..., None].expand_as(f), f.to(torch.float64)
        sums = torch.stack([x.sum(1) for x in (torch.ones_like(f), t, f, t * t, f * f, t * f)])  # (6, R, h)
        self.sums = sums if self.sums is None else self.sums + sums

    def value(self) -> Tensor:
        """|corr| of every node, (R, h); 0 for a node that never changes."""
        assert self.sums is not None
        n, t, f, tt, ff, tf = self.sums
        spread = ((tt / n - (t / n) ** 2).clamp_min(0) * (ff / n - (f / n) ** 2).clamp_min(0)).sqrt()
        corr = (tf / n - t * f / n**2) / spread
        return torch.where(spread < 1e-6, 0.0, corr).abs().clamp(max=1.0).float()


class OperatorNorm:
    """Accumulates the covariance operator of one latent and gives its Frobenius norm.

    z_0 has two values, so OP_μ = V_{z0}[K̄] = π_0 π_1 D Dᵀ with D = E[K | z_0=1] − E[K | z_0=0], K = f_ch ⊗ J_μᵀ, and
    ‖OP_μ‖_F = π_0 π_1 ‖DᵀD‖_F. As in the released program J_μ = ∂f/∂f̃_μ stops below the l2-normalization.
    """

    def __init__(self, name: str, depth: int) -> None:
        layer, position = latent(name, depth)
        self.path = [(layer + up, position >> up) for up in range(depth - layer, -1, -1)]  # root … μ
        self.children = [(layer - 1, 2 * position), (layer - 1, 2 * position + 1)]
        self.sum: Tensor | float = 0.0
        self.count: Tensor | float = 0.0

    @property
    def needs(self) -> set[Latent]:
        """The latents whose nodes `add` reads."""
        return {*self.path, *self.children}

    def add(self, networks: Networks, nodes: dict[Latent, Tensor], z0: Tensor) -> None:
        """Add samples with roots z0 (R, N)."""
        R, N, h = nodes[self.path[0]].shape
        J = torch.eye(h).expand(R, N, h, h)
        for layer, position in self.path[1:]:
            W = networks.W[layer][:, position]  # (R, h, h), from this latent's nodes to its parent's
            J = (J.flatten(1, 2) @ W.mT).unflatten(1, (N, h)) * (nodes[layer, position] > 0)[:, :, None]
        f_ch = torch.cat([nodes[child].relu() for child in self.children], 2)  # (R, N, 2h or 2)
        label = torch.stack([~z0, z0], 1).to(f_ch.dtype)  # (R, 2, N)
        K = (label[:, :, None] * f_ch.mT[:, None]).flatten(1, 2) @ J.flatten(2)  # (R, 2·|ch|, h_L·h)
        self.sum = self.sum + K.unflatten(1, (2, -1)).unflatten(3, (h, h))
        self.count = self.count + label.sum(2)

    def value(self) -> Tensor:
        """‖OP_μ‖_F of every run, (R,)."""
        assert isinstance(self.sum, Tensor)
        assert isinstance(self.count, Tensor)
        mean = self.sum / self.count[:, :, None, None, None]
        D = (mean[:, 1] - mean[:, 0]).movedim(2, 3).flatten(1, 2)  # (R, |ch|·h, h_L)
        share = self.count / self.count.sum(1, keepdim=True)
        return share.prod(1) * torch.linalg.matrix_norm(D.mT @ D)


def evaluate(
    networks: Networks, samples: Samples, latents: Sequence[str], operators: Sequence[str], n: int
) -> tuple[Tensor, Tensor]:
    """Best |corr| of each latent, (R, len(latents)), and operator norms, (R, len(operators)), on n fresh samples."""
    depth = networks.depth
    at = [latent(name, depth) for name in latents]
    corr, norms = [Correlation() for _ in at], [OperatorNorm(name, depth) for name in operators]
    for start in range(0, n, CHUNK):
        z = samples.draw(min(CHUNK, n - start))
        measured = norms if start < OPERATOR_SAMPLES else []
        nodes = networks.nodes(z[0], set(at).union(*(norm.needs for norm in measured)))
        for one, (layer, position) in zip(corr, at, strict=True):
            one.add(z[layer][:, position], nodes[layer, position])
        for norm in measured:
            norm.add(networks, nodes, z[depth][:, 0])
    none = torch.empty(networks.runs, 0)
    best = torch.stack([one.value().amax(1) for one in corr], 1) if corr else none
    return best, torch.stack([norm.value() for norm in norms], 1) if norms else none


def theorem6(rho: list[Tensor], networks: Networks, layer: int) -> tuple[Tensor, Tensor]:
    """V_{z0}[E[f_ch | z_0]] of every latent of `layer` by enumeration, and o_μ a_μ a_μᵀ: each (R, n, 2h, 2h).

    o_μ = ρ_{0μ}²(1 − ρ_0²) with ρ_0 = 0 here, a_μ = [ρ_{μν} s_k] over the nodes k of both children ν,
    s_k = ½(E[f_k | z_ν=1] − E[f_k | z_ν=0]).
    """
    below = layer - 1
    require(below <= networks.table, "layer", layer, f"at most {networks.table + 1}, to enumerate leaf patterns")
    R, depth = networks.runs, networks.depth
    rows = networks.rows(torch.zeros(R, 2**depth, 1, dtype=torch.bool))
    _, inputs = networks.forward(rows)
    f = inputs[below].unflatten(0, (R, -1)).double()  # (R, n_below, P, h)
    v = pattern_probabilities(rho, below) @ f  # E[f_k | z_ν], (R, n_below, 2, h)
    # P(z_ν | z_0): the product of the 2×2 transition matrices on the path, not of their ρ.
    step = [torch.stack([1 + r, 1 - r, 1 - r, 1 + r], -1).unflatten(-1, (2, 2)).double() / 2 for r in rho]
    chain = torch.eye(2, dtype=torch.float64).expand(R, 1, 2, 2)
    product = torch.ones(R, 1, dtype=torch.float64)
    for down in range(depth - 1, below - 1, -1):
        above = product
        product = above.repeat_interleave(2, 1) * rho[down]
        chain = chain.repeat_interleave(2, 1) @ step[down]
    given_root = (chain @ v).unflatten(1, (-1, 2)).movedim(2, 3).flatten(3)  # (R, n, 2, 2h)
    centred = given_root - given_root.mean(2, keepdim=True)
    enumerated = centred.mT @ centred / 2
    s = (v[:, :, 1] - v[:, :, 0]) / 2
    a = (rho[below].double()[..., None] * s).unflatten(1, (-1, 2)).flatten(2)
    return enumerated, (above**2)[..., None, None] * a[..., None] * a[..., None, :]


def lucky_width(c: float, gamma: float, eta: float) -> int:
    """Nodes |N_μ| that Theorem 5 asks for (Eqn. 128), with R̂ by the exact Mills ratio (Eqns. 116 to 121)."""

    def mills(y: float) -> float:
        return (math.pi / 2) ** 0.5 * float(torch.special.erfcx(torch.tensor(y / 2**0.5, dtype=torch.float64)))

    k1 = (c / (1 - gamma**2)) ** 0.5
    k2 = gamma * k1
    e1, e2 = 1 / mills(k1) - k1, 1 / mills(k2) - k2
    R = max(mills(k1) * mills(k2 + gamma * e1), mills(k2) * mills(k1 + gamma * e2))
    return math.ceil(2 * math.pi * math.exp(c / 2) / ((1 - gamma**2) ** 0.5 * R) * math.log(1 / eta))


def theorem5(rho: float, c: float, eta: float, children: int, seeds: range) -> Tensor:
    """Which nodes of random layers as wide as Theorem 5 asks for are lucky: bool (S, |N_μ|).

    The children are perfectly selective: node k answers 2v̄_k to one value of its latent and 0 to the other (σ_l = 0,
    s_k = ±v̄_k), half of them on each of the two child latents and half of each sign. Lucky: the pre-activation gap is
    positive and |s_j| ≥ 3σ_w²/(4v̄_j) · mean_k s_k² ((c + 6)ρ²/6 − 1) (Eqn. 130), with v_j(z_μ) enumerated over the
    children's values and σ_w = 1.
    """
    require(children >= 4 and children % 4 == 0, "children", children, "a multiple of 4")
    gamma = (1 - rho**2) / (1 + rho**2)  # Eqn. 129 for these children
    width = lucky_width(c, gamma, eta)
    draws = [_generator(seed, 4) for seed in seeds]
    mean = torch.stack([torch.rand(children // 4, generator=g, dtype=torch.float64) for g in draws]).repeat(1, 4)
    w = torch.stack([torch.rand(width, children, generator=g, dtype=torch.float64) for g in draws])
    w = (2 * w - 1) * (3 / children) ** 0.5
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat_interleave(children // 4).repeat(2)
    s = mean * sign  # (S, children): first half below ν_1, second half below ν_2
    below = torch.arange(children) >= children // 2
    v = torch.zeros(2, *w.shape[:2], dtype=torch.float64)  # v_j(z_μ)
    for z1 in (-1, 1):
        for z2 in (-1, 1):
            f = mean + torch.where(below, z2, z1) * s
            answer = torch.einsum("snk,sk->sn", w, f).relu()
            for z in (-1, 1):
                v[(z + 1) // 2] += (1 + rho * z * z1) * (1 + rho * z * z2) / 4 * answer
    gap = torch.einsum("snk,sk->sn", w, rho * s)
    middle, selectivity = (v[1] + v[0]) / 2, (v[1] - v[0]).abs() / 2
    bound = 0.75 * s.square().mean(1, keepdim=True) * ((c + 6) * rho**2 / 6 - 1)
    # Multiplied by v̄_j, so that a node that never answers is not divided by zero: it is not lucky, for bound > 0.
    return (gap > 0) & (selectivity * middle >= bound)


@contextmanager
def _one_thread() -> Iterator[None]:
    """The tensors are small: a second thread gains nothing, and on a busy machine it waits more than it computes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@_one_thread()
def study(
    depth: int,
    widths: Sequence[int],
    delta_lower: Sequence[float],
    seeds: range,
    *,
    epochs: int,
    samples: int = PAPER_SAMPLES,
    batch: int = 128,
    lr: float = 0.1,
    tau: float = 0.1,
    loss: str = "nce",
    signed: bool = True,
    fresh: bool = True,
    bias: bool = True,
    normalize: bool = True,
    latents: Sequence[str] = ("root",),
    operators: Sequence[str] = (),
    curve_samples: int = 4096,
    progress: bool = False,
) -> tuple[Tensor, Tensor]:
    """Train all widths × δ × seeds; best correlations and operator norms, (epochs+1, W, D, S, latents | operators)."""
    rho = polarities(depth, delta_lower, seeds, signed)
    data, fresh_data = Samples(rho, seeds, 2), Samples(rho, seeds, 3)
    groups = [Networks(depth, width, seeds, len(delta_lower), bias=bias) for width in widths]
    weights = [LOSSES[loss](tau, width) for width in widths]
    correlation, norm = [], []
    for epoch in track(range(epochs + 1), f"tree of depth {depth}", progress):
        if epoch:
            steps = max(samples // batch, 1)
            if not fresh:
                data.restart()
            for done in range(0, steps, STEPS_PER_DRAW):
                n = min(STEPS_PER_DRAW, steps - done)
                leaves = data.draw(n * batch, (2, 1))[0].unflatten(2, (3, n, batch))
                for k in range(n):
                    rows = groups[0].rows(leaves[:, :, :, k].flatten(2))
                    for networks, weight in zip(groups, weights, strict=True):
                        networks.step(rows, weight, lr, normalize)
        n = samples if epoch in (0, 1, epochs) else min(curve_samples, samples)
        found = [evaluate(networks, fresh_data, latents, operators, n) for networks in groups]
        shape = (len(widths), len(delta_lower), len(seeds), -1)
        correlation.append(torch.stack([c for c, _ in found]).view(shape))
        norm.append(torch.stack([o for _, o in found]).view(shape))
    return torch.stack(correlation), torch.stack(norm)


def run(
    *,
    depth: int = 5,
    widths: tuple[int, ...] = PAPER_WIDTHS,
    delta_lower: tuple[float, ...] = (0.7, 0.8, 0.9),
    epochs: int = 50,
    samples: int = PAPER_SAMPLES,
    batch: int = 128,
    lr: float = 0.1,
    tau: float = 0.1,
    loss: Literal["nce", "batch_nce", "simple"] = "nce",
    signed: bool = True,
    fresh: bool = True,
    bias: bool = True,
    normalize: bool = True,
    latents: tuple[str, ...] | None = None,
    operators: tuple[str, ...] | None = None,
    other_depths: tuple[int, ...] = (3, 4),
    seeds: int = 10,
    first_seed: int = 0,
    quick: bool = False,
    progress: bool = False,
) -> Result:
    """Train tree-shaped networks on latent trees and compare with Table 6 and Figures 13 and 14.

    depth: layers L of the tree; it has 2^L leaves
    widths: nodes |N_μ| per latent
    delta_lower: ρ ~ Uniform[δ, 1] for each δ
    epochs: an epoch is `samples` triples; the last is compared with the paper's "converged" from 20 epochs on
    samples: triples (anchor, positive, negative) per epoch
    batch: triples per step
    lr: of plain gradient descent
    tau: temperature of the loss
    loss: nce (Eqn. 2), batch_nce (as in the released program) or simple (r₊ − r₋)
    signed: give ρ a random sign
    fresh: draw new samples in every epoch instead of repeating those of the first
    bias: nodes have biases
    normalize: l2-normalize the output
    latents: whose correlation is measured, root or s and a path of 0 (left) and 1 (right); None: those of Table 6
    operators: latents whose covariance operator's norm is measured; None: those of Figures 13 and 14
    other_depths: depths compared with `depth` in the norm of the operators (middle δ, largest width)
    seeds: trials; each has its own tree, weights and samples
    first_seed: seed of the first trial
    quick: seconds instead of minutes, four trials of one δ
    progress: show a progress bar
    """
    require(depth >= 1, "depth", depth, "at least 1")
    require(len(widths) > 0 and min(widths) >= 1, "widths", widths, "whole numbers of at least 1")
    inside = len(delta_lower) > 0 and all(0 <= d <= 1 for d in delta_lower)
    require(inside, "delta_lower", delta_lower, "numbers between 0 and 1")
    require(epochs >= 1, "epochs", epochs, "at least 1")
    require(samples >= batch >= 1, "batch", batch, f"between 1 and samples={samples}")
    require(lr > 0, "lr", lr, "more than 0")
    require(tau > 0, "tau", tau, "more than 0")
    require(loss in LOSSES, "loss", loss, f"one of {', '.join(LOSSES)}")
    require(all(d >= 1 for d in other_depths), "other_depths", other_depths, "whole numbers of at least 1")
    require(seeds >= 1, "seeds", seeds, "at least 1")
    if quick:
        seeds, epochs, samples = min(seeds, 4), min(epochs, 2), min(samples, 32_000)
        delta_lower, other_depths = delta_lower[len(delta_lower) // 2 :][:1], ()
    latents = tuple(n for n in TABLE6_LATENTS if len(n) <= depth or n == "root") if latents is None else latents
    operators = tuple(n for n in FIGURE_OPERATORS if len(n) <= depth) if operators is None else operators
    for knob, names in (("latents", latents), ("operators", operators)):
        for name in names:
            latent(name, depth, knob)
    middle, widest, trials = delta_lower[len(delta_lower) // 2], max(widths), range(first_seed, first_seed + seeds)
    settings: dict[str, Any] = {
        name: value
        for name, value in locals().items()
        if name in (run.__kwdefaults__ or {}) and name not in ("quick", "progress")
    }
    knobs = {
        name: settings[name]
        for name in ("epochs", "samples", "batch", "lr", "tau", "loss", "signed", "fresh", "bias", "normalize")
    }
    corr, norm = study(
        depth, widths, delta_lower, trials, **knobs, latents=latents, operators=operators, progress=progress
    )
    arrays = {"correlation": corr, "operator_norm": norm}
    for other in other_depths:
        reachable = [name for name in operators if len(name) <= other]
        measured: dict[str, Any] = {"operators": reachable, "latents": (), "progress": progress}
        arrays[f"operator_norm_depth_{other}"] = study(other, (widest,), (middle,), trials, **knobs, **measured)[1]

    claims = _table6(corr, settings)
    cells = list(claims)
    wide, narrow = widths.index(widest), widths.index(min(widths))
    of_means, of_medians = (
        "means of the trials, all of them at or above",
        "medians of the trials, all of them at or above",
    )
    if wide != narrow:
        gain = (corr[:, wide] - corr[:, narrow]).mean(2)[[0, min(1, epochs), epochs]]
        name = f"mean correlation, |N|={widest} minus |N|={min(widths)}, every stage, δ and latent"
        claims.append(replace(Claim.at_least(name, gain, 0.0), rule=of_means))
    growth = (corr[-1, wide] - corr[0, wide]).mean(1)
    name = f"growth of the mean correlation, |N|={widest}, every δ and latent"
    claims.append(replace(Claim.at_least(name, growth, 0.0), rule=of_means))
    for k, name in enumerate(operators[:2]):  # those of Figure 13
        ratio = (norm[-1, :, :, :, k].median(-1).values / norm[0, :, :, :, k].median(-1).values)[wide]
        claim = Claim.at_least(f"growth factor of ‖OP_{name}‖, |N|={widest}, every δ", ratio, 1.0)
        claims.append(replace(claim, rule=of_medians))
    claims.append(Claim.at_most("Theorem 6: largest relative error of o_μ a_μ a_μᵀ", _theorem6_error(settings), 1e-5))
    lucky = theorem5(rho=0.8, c=6.0, eta=0.05, children=20, seeds=range(first_seed, first_seed + 100))
    layers, rule = lucky.any(1).double(), "at least 1 − η of 100 random layers"
    name = f"Theorem 5: share of layers of {lucky.shape[1]} nodes with a lucky one (ρ=0.8, c=6, η=0.05)"
    share = layers.mean().item()
    claims.append(Claim(name, share, layers.std().item(), 0.95, None, rule, share >= 0.95, "≥"))
    enough = math.ceil(math.log(0.05) / math.log1p(-lucky.double().mean().item()))
    notes = [*_notes(cells, settings), f"Theorem 5: of {lucky.shape[1]} nodes, {enough} would do"]
    return Result("hltm", settings, arrays, claims, notes, _draw)


def _table6(corr: Tensor, settings: dict[str, Any]) -> list[Claim]:
    """The cells of Table 6 that this run reproduces: same depth, width, δ, latent, and trained for as long."""
    if settings["depth"] != 5:
        return []
    table, claims = papers.load("dual_networks")["hltm"]["table6"], []
    stages = [0]
    if settings["samples"] == PAPER_SAMPLES:
        stages.append(1)
    if settings["epochs"] * settings["samples"] >= CONVERGED * PAPER_SAMPLES:
        stages.append(2)
    for n, name in enumerate(settings["latents"]):
        for d, delta in enumerate(settings["delta_lower"]):
            for w, width in enumerate(settings["widths"]):
                for stage in stages:
                    if width in PAPER_WIDTHS and delta in table.get(name, {}):
                        mean, std = table[name][delta][3 * PAPER_WIDTHS.index(width) + stage]
                        ours = corr[(0, 1, -1)[stage], w, d, :, n]
                        claim = f"{name:5} ρ~U[{delta:g}, 1] |N|={width:<2} {STAGES[stage]}"
                        claims.append(Claim.near(claim, ours, mean, std))
    return claims


def _notes(cells: list[Claim], settings: dict[str, Any]) -> list[str]:
    if not cells:
        return ["none of these settings is in Table 6"]
    size = len(cells)
    agreeing = sum(claim.agrees for claim in cells)
    mean = sum(abs(claim.difference) for claim in cells) / size
    # The paper's rule is generous where its trials scatter; two standard errors of the difference of two means are not.
    strict = sum(
        abs(claim.difference) <= 0.005 + 2 * ((claim.std**2 + (claim.paper_std or 0) ** 2) / settings["seeds"]) ** 0.5
        for claim in cells
    )
    return [
        f"Table 6: {agreeing} of {size} cells agree ({agreeing / size:.0%}); mean |difference| {mean:.3f}",
        f"Table 6, stricter: {strict} of {size} within two standard errors of the difference of the means",
    ]


def _theorem6_error(settings: dict[str, Any]) -> Tensor:
    """max |V_{z0}[E[f_ch|z_0]] − o a aᵀ| / max |o a aᵀ| at the start, for the layers that can be enumerated."""
    seeds = range(settings["first_seed"], settings["first_seed"] + settings["seeds"])
    rho = polarities(settings["depth"], settings["delta_lower"], seeds, settings["signed"])
    networks = Networks(settings["depth"], max(settings["widths"]), seeds, len(settings["delta_lower"]))
    errors = []
    for layer in range(1, min(settings["depth"], networks.table + 1) + 1):
        enumerated, closed = theorem6(rho, networks, layer)
        errors.append((enumerated - closed).abs().amax((1, 2, 3)) / closed.abs().amax((1, 2, 3)))
    return torch.stack(errors)


def _draw(result: Result) -> Figure:
    from matplotlib.lines import Line2D

    settings, epochs = result.settings, len(result.arrays["correlation"]) - 1
    latents, operators, widths, deltas = (settings[k] for k in ("latents", "operators", "widths", "delta_lower"))
    columns = max(len(latents), len(operators) + 1)
    figure, axes = panels(2, columns, (3.3 * columns, 6.8))
    upper, lower = axes[:columns], axes[columns:]
    order = sorted(range(len(widths)), key=lambda w: -widths[w])
    look: dict[tuple[int, int], dict[str, Any]] = {
        (w, d): {"color": PALETTE[d % 8], "linestyle": ("-", (0, (4, 2)), ":", "-.")[k % 4], "linewidth": 1.6}
        for k, w in enumerate(order)
        for d in range(len(deltas))
    }
    for n, (ax, name) in enumerate(zip(upper, latents, strict=False)):
        _draw_correlation(result, ax, n, name, look)
    for k, (ax, name) in enumerate(zip(lower, operators, strict=False)):
        _draw_operator(result, ax, k, name, look)
    _draw_agreement(result, lower[len(operators)])
    for ax in [*upper[len(latents) :], *lower[len(operators) + 1 :]]:
        ax.set_visible(False)
    upper[0].set_ylabel("best |corr(z, f̃)|, mean of the trials")
    lower[0].set_ylabel("‖OP‖, median of the trials")
    keys = [Line2D([], [], color=PALETTE[d % 8], label=f"ρ ~ U[{delta:g}, 1]") for d, delta in enumerate(deltas)]
    keys += [Line2D([], [], **{**look[w, 0], "color": "0.2"}, label=f"|N| = {widths[w]}") for w in order]
    for marker, width in zip("os", reversed(PAPER_WIDTHS), strict=True):
        label = f"paper, |N| = {width}"
        keys.append(Line2D([], [], color="0.2", marker=marker, linestyle="", fillstyle="none", label=label))
    figure.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False, fontsize=9)
    trials = f"depth {settings['depth']}, {epochs} epochs, {settings['seeds']} trials"
    figure.suptitle(f"A tree-shaped ReLU network finds the latents of its data ({trials})")
    return figure


def _draw_correlation(result: Result, ax: Axes, n: int, name: str, look: dict[tuple[int, int], dict[str, Any]]) -> None:
    settings, corr = result.settings, result.arrays["correlation"]
    table = papers.load("dual_networks")["hltm"]["table6"].get(name, {}) if settings["depth"] == 5 else {}
    last = len(corr) - 1
    for (w, d), style in look.items():
        # Epochs 0 and 1 are columns of the table: an axis logarithmic in 1 + epoch keeps them apart.
        ax.plot(torch.arange(last + 1) + 1, corr[:, w, d, :, n].mean(1), **style)
        delta, width = settings["delta_lower"][d], settings["widths"][w]
        if delta in table and width in PAPER_WIDTHS:
            start = 3 * PAPER_WIDTHS.index(width)
            mean = [cell[0] for cell in table[delta][start : start + 3]]
            marker = "os"[width == PAPER_WIDTHS[0]]
            ax.plot([1, 2, 51], mean, marker, color=style["color"], fillstyle="none", markersize=7)
    ticks = (0, 1, 5, 20, 50) if last <= 60 else (0, 1, 10, 100, last)
    ax.set(title=f"latent {name}", xlabel="epoch", ylim=(0.2, 1.02), xscale="log")
    ax.set_xticks([k + 1 for k in ticks], [str(k) for k in ticks])
    ax.minorticks_off()


def _draw_operator(result: Result, ax: Axes, k: int, name: str, look: dict[tuple[int, int], dict[str, Any]]) -> None:
    settings, norm = result.settings, result.arrays["operator_norm"][..., k].median(3).values  # (epochs+1, W, D)
    epochs = range(len(norm))
    for (w, d), style in look.items():
        ax.plot(epochs, norm[:, w, d].where(norm[:, w, d] > 0, torch.nan), **style)
    for other in settings["other_depths"]:
        reachable = [operator for operator in settings["operators"] if len(operator) <= other]
        if name in reachable:
            line = result.arrays[f"operator_norm_depth_{other}"][:, 0, 0, :, reachable.index(name)].median(1).values
            ax.plot(epochs, line, color="0.5", linewidth=1)
            ax.annotate(
                f"L = {other}", (len(norm) - 1, float(line[-1])), fontsize=8, color="0.3", ha="right", va="bottom"
            )
    ax.set(title=f"operator at {name}", xlabel="epoch", yscale="log")


def _draw_agreement(result: Result, ax: Axes) -> None:
    cells = [claim for claim in result.claims if claim.paper_std is not None]
    for agrees, colour in ((True, PALETTE[0]), (False, PALETTE[1])):
        some = [claim for claim in cells if claim.agrees == agrees]
        ours, paper = [claim.ours for claim in some], [claim.paper for claim in some]
        ax.plot(
            paper,
            ours,
            "o",
            color=colour,
            markersize=4,
            alpha=0.7,
            label=f"{'agree' if agrees else 'differ'}: {len(some)}",
        )
    ax.axline((1, 1), slope=1, color="0.6", linewidth=1)
    ax.set(title="cells of Table 6", xlabel="paper", ylabel="ours", xlim=(0.2, 1.02), ylim=(0.2, 1.02))
    ax.legend(frameon=False, fontsize=8)


def _generator(seed: int, stream: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed * 1_000_003 + stream)
