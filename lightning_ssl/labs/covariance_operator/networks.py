"""Bias-free ReLU networks, their connections K, and the finite population of samples and views."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl.labs.lab import normal


def forward(W: list[Tensor], x: Tensor) -> list[Tensor]:
    """Activations f_0 … f_L of bias-free ReLU networks, linear at the top; x (R, V, n_0), W_l (R, n_l, n_{l−1})."""
    f = [x]
    for layer, weight in enumerate(W):
        pre = f[-1] @ weight.mT
        f.append(pre if layer == len(W) - 1 else pre.relu())
    return f


def connections(W: list[Tensor], x: Tensor) -> list[Tensor]:
    """K_l = f_{l−1} ⊗ J_lᵀ of every layer, each (R, V, n_l n_{l−1}, n_L), vec stacking columns (Definition 1)."""
    f = forward(W, x)
    R, V, n_L = f[-1].shape
    J = torch.eye(n_L, dtype=x.dtype).expand(R, V, n_L, n_L)  # ∂f_L/∂f̃_l
    found: list[Tensor] = []
    for layer in range(len(W), 0, -1):
        below = f[layer - 1]
        found.append((below[..., :, None, None] * J.mT[..., None, :, :]).flatten(2, 3))
        J = (J @ W[layer - 1][:, None]) * (below > 0)[..., None, :]
    return found[::-1]


def vec(W: Tensor) -> Tensor:
    """Stack the columns of each matrix: (R, n, m) → (R, m·n)."""
    return W.mT.flatten(1)


def half_distances(f: Tensor, g: Tensor) -> Tensor:
    """r = ½‖f − g‖² of all pairs: (R, V, c), (R, U, c) → (R, V, U)."""
    return (f[:, :, None] - g[:, None]).square().sum(-1) / 2


class Population:
    """X samples with A views each of R seeds, and R random networks.

    The outputs are f_L as in the paper's theory, or `normalize` to y = f_L/‖f_L‖ as in its experiments (r ≤ 2).
    """

    def __init__(
        self,
        sizes: tuple[int, ...],
        X: int,
        A: int,
        sigma: float,
        seeds: int,
        first_seed: int,
        normalize: bool = False,
    ) -> None:
        self.X, self.A, self.normalize = X, A, normalize

        def draw(*shape: int, stream: int) -> Tensor:
            return normal(shape, seeds, first_seed, stream, torch.float64)

        self.clean = draw(X, sizes[0], stream=0)  # (R, X, n_0)
        noise = draw(X, A // 2, sizes[0], stream=1)
        # Views come in opposite pairs: their mean is the sample itself, like the mean over the whole augmentation.
        self.views = (self.clean[:, :, None] + sigma * torch.cat([noise, -noise], 2)).flatten(1, 2)  # (R, V, n_0)
        shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
        # He's scale keeps the outputs and the distances r of order one.
        self.W = [draw(*shape, stream=2 + k) * (2 / shape[1]) ** 0.5 for k, shape in enumerate(shapes)]
        self.other = [draw(*shape, stream=100 + k) * (2 / shape[1]) ** 0.5 for k, shape in enumerate(shapes)]

    def embed(self, W: list[Tensor], x: Tensor) -> Tensor:
        """The outputs of networks W, normalized if the population's are: (R, V, n_0) → (R, V, n_L)."""
        f = forward(W, x)[-1]
        return F.normalize(f, dim=-1) if self.normalize else f

    def outputs(self) -> Tensor:
        """The output of every view, (R, V, n_L)."""
        return self.embed(self.W, self.views)

    def clean_distances(self) -> Tensor:
        """r(x, x') of un-augmented samples, (R, X, X)."""
        f = self.embed(self.W, self.clean)
        return half_distances(f, f)

    def connections(self) -> list[tuple[Tensor, Tensor]]:
        """The left and right connection of every layer, each (R, V, p, n_L): (K, K), or (K^n P⊥, K^n) (Eqn. 41).

        K^n = K/‖f_L‖ and P⊥ = I − y yᵀ. In both cases the right one gives the output, K_vᵀ vec(W_l) = y_v.
        """
        found = connections(self.W, self.views)
        if not self.normalize:
            return [(K, K) for K in found]
        norm = forward(self.W, self.views)[-1].norm(dim=-1).clamp_min(1e-12)  # an output of zero has K = 0
        y = self.outputs()
        P = torch.eye(y.shape[-1], dtype=y.dtype) - y[..., :, None] * y[..., None, :]
        return [(K_n @ P, K_n) for K_n in (K / norm[..., None, None] for K in found)]
