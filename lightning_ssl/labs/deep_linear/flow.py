"""The gradient flow of the normalized network, and its conserved quantities: Lemmas 1, 2, 7 and 10."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from lightning_ssl.labs.deep_linear.data import mean_covariance

NORMALIZATIONS = {
    "none": "no normalization",
    "l2": "l2-norm (Lemma 2)",
    "layer": "LayerNorm (Lemma 2)",
    "batch": "BatchNorm, per filter (Lemma 10)",
}


Activation = Callable[[Tensor], Tensor]
REVERSIBLE: dict[str, Activation] = {"ReLU": torch.relu, "LeakyReLU": partial(leaky_relu, negative_slope=0.1)}
"""Activations with h(x) = h'(x)x other than the linear one (Definition 2)."""


def forward(x: Tensor, weights: Sequence[Tensor], normalization: str, activation: Activation | None = None) -> Tensor:
    """The network with a normalization at its end (l2, layer) or after every layer (batch).

    (R, N, n_0) → (R, N, n_L). The activation is applied below every layer but the first; None is linear.
    """
    f = x
    for number, w in enumerate(weights):
        f = (activation(f) if activation and number else f) @ w.mT
        if normalization == "batch":
            f = standardize(f, 1)
    if normalization == "l2":
        f = f / f.norm(dim=2, keepdim=True)
    return standardize(f, 2) if normalization == "layer" else f


def standardize(f: Tensor, dim: int) -> Tensor:
    """Shift and scale to mean 0 and variance 1 over a dimension."""
    f = f - f.mean(dim, keepdim=True)
    return f / f.square().mean(dim, keepdim=True).sqrt()


def flow_direction(
    weights: Sequence[Tensor],
    x1: Tensor,
    x2: Tensor,
    alpha: Tensor,
    normalization: str,
    activation: Activation | None = None,
) -> list[Tensor]:
    """The gradient of E_α = ½ tr C_α[z, z] of the normalized outputs z, for every layer of every run."""

    def energy(weights: Sequence[Tensor]) -> Tensor:
        # Both views pass together, so that BatchNorm uses one set of statistics, as for a single batch.
        z1, z2 = forward(torch.cat([x1, x2], 1), weights, normalization, activation).chunk(2, 1)
        return mean_covariance(z1, z2, alpha).diagonal(dim1=1, dim2=2).sum() / 2

    slopes: list[Tensor] = torch.func.grad(energy)(list(weights))
    return slopes


def gradient_flow(
    weights: Sequence[Tensor], x1: Tensor, x2: Tensor, alpha: Tensor, normalization: str, steps: int, ds: float
) -> list[list[Tensor]]:
    """The gradient flow by fourth-order Runge–Kutta steps of `ds`; the weights at every step.

    dW_l/ds = G_l / v. Gradients below different normalizations differ by orders of magnitude, so v is the run's first
    speed (Σ_k ‖G_k‖²)^½. Without normalization the flow diverges in finite time, so v is the current speed there, and
    s is the arc length.
    """

    def slope(at: Sequence[Tensor]) -> list[Tensor]:
        g = flow_direction(at, x1, x2, alpha, normalization)
        v = speed(g) if normalization == "none" else first_speed
        return [g_l / v for g_l in g]

    def speed(g: Sequence[Tensor]) -> Tensor:
        return torch.stack([g_l.square().sum((1, 2)) for g_l in g]).sum(0).sqrt()[:, None, None]

    def moved(by: Sequence[Tensor], h: float) -> list[Tensor]:
        return [w + h * k for w, k in zip(path[-1], by, strict=True)]

    first_speed = speed(flow_direction(weights, x1, x2, alpha, normalization))
    path = [list(weights)]
    for _ in range(steps):
        k1 = slope(path[-1])
        k2 = slope(moved(k1, ds / 2))
        k3 = slope(moved(k2, ds / 2))
        k4 = slope(moved(k3, ds))
        path.append(moved([(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True)], ds))
    return path


def norm_growth(
    weights: Sequence[Tensor],
    x1: Tensor,
    x2: Tensor,
    alpha: Tensor,
    normalization: str,
    activation: Activation | None = None,
) -> Tensor:
    """d/dt ‖W_l‖² = 2⟨W_l, G_l⟩ over 2‖W_l‖‖G_l‖, the largest of any layer, or filter below BatchNorm: (R,).

    Unlike `norm_drift` it needs no steps, whose error is large where an activation has a kink.
    """
    dims = (2,) if normalization == "batch" else (1, 2)
    slopes = flow_direction(weights, x1, x2, alpha, normalization, activation)
    sizes = []
    for w, g in zip(weights, slopes, strict=True):
        whole = g.norm(dim=(1, 2)).view(-1, *[1] * (2 - len(dims)))
        sizes.append((w * g).sum(dims).abs() / (w.norm(dim=dims) * whole))
    return torch.cat([size.view(len(size), -1) for size in sizes], 1).amax(1)


def norm_drift(path: Sequence[Sequence[Tensor]], normalization: str) -> Tensor:
    """Largest change since the start of a ‖W_l‖²_F, or of a ‖w_lk‖² below BatchNorm: (T, R)."""

    dims = (2,) if normalization == "batch" else (1, 2)
    norms = [torch.cat([w.square().sum(dims).view(len(w), -1) for w in weights], 1) for weights in path]
    return torch.stack([(each - norms[0]).abs().amax(1) for each in norms])


def balance(weights: Sequence[Tensor]) -> Tensor:
    """W_l W_lᵀ − W_{l+1}ᵀ W_{l+1} for every pair of layers, flattened: (R, ·)."""
    return torch.cat([(low @ low.mT - high.mT @ high).flatten(1) for low, high in pairwise(weights)], 1)
