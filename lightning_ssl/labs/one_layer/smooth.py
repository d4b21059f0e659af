"""Data with a smooth A(w), and what Theorems 1 and 3 measure there: roughness, Lipschitz constant, eigenvectors.

On finitely many points A(w) jumps. A mixture of Gaussians has a closed form of A(w), which is smooth in w.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lightning_ssl.labs.one_layer.dynamics import unit

CovarianceOf = Callable[[Tensor], Tensor]
"""A(w), (S, I, d, d), of unit filters w (S, I, d)."""


@dataclass(frozen=True)
class Mixture:
    """x = c_n + σε with probability p_n, seen by h(a) = max(a, 0) + slope·min(a, 0) under uniform α."""

    centres: Tensor  # (S, n, d)
    prob: Tensor  # (n,)
    sigma: float
    slope: float = 0.0

    def covariance(self, w: Tensor) -> Tensor:
        """A(w) = V[x̃] in closed form, from the moments of a Gaussian on the half space wᵀx > 0; w (S, I, d).

        With a_n = wᵀc_n/σ, Φ and φ of the standard normal, and [·]₊ for "times 1[wᵀx > 0]":
        E[x]₊ = Σ p_n (c_n Φ(a_n) + σ w φ(a_n)),
        E[xxᵀ]₊ = Σ p_n ((c_n c_nᵀ + σ²I) Φ(a_n) + σ φ(a_n)(c_n wᵀ + w c_nᵀ) − σ² a_n φ(a_n) wwᵀ).
        """
        c, prob, sigma = self.centres, self.prob, self.sigma
        a = (w @ c.mT) / sigma  # (S, I, n)
        mass = prob * torch.special.ndtr(a)
        edge = prob * torch.exp(-a.square() / 2) / math.sqrt(2 * math.pi)
        eye = torch.eye(c.shape[2], dtype=c.dtype)
        cross = _outer(edge @ c, w) * sigma
        second = torch.einsum("sin,snd,sne->side", mass, c, c) + cross + cross.mT
        second = second + sigma**2 * (mass.sum(2)[..., None, None] * eye)
        second = second - sigma**2 * (a * edge).sum(2)[..., None, None] * _outer(w, w)
        first = mass @ c + sigma * w * edge.sum(2, keepdim=True)
        whole = torch.einsum("n,snd,sne->sde", prob, c, c)[:, None] + sigma**2 * eye
        mean = (1 - self.slope) * first + self.slope * (prob @ c)[:, None]
        return (1 - self.slope**2) * second + self.slope**2 * whole - _outer(mean, mean)

    def direction(self, w: Tensor) -> Tensor:
        """A(w)w, (S, I, d)."""
        return (self.covariance(w) @ w[..., None])[..., 0]


def _outer(a: Tensor, b: Tensor) -> Tensor:
    return a[..., :, None] * b[..., None, :]


def derivatives(covariance: CovarianceOf, w: Tensor) -> Tensor:
    """The derivatives of A along the unit sphere, in the d directions of the axes: (S, I, d, d, d), directions last."""
    with torch.enable_grad():
        v = w.detach().clone().requires_grad_()
        A = covariance(unit(v))
        # The gradient in v of Σ u_ij A_ij is linear in u, and its derivative in u is the derivative of A.
        # torch.func.jvp gives the same, with a warning that torch.jit.script is deprecated.
        u = torch.zeros_like(A, requires_grad=True)
        (slope,) = torch.autograd.grad(A, v, u, create_graph=True)
        found = [torch.autograd.grad(slope[..., k].sum(), u, retain_graph=True)[0] for k in range(w.shape[2])]
    return torch.stack(found, -1)


def roughness(covariance: CovarianceOf, w: Tensor) -> Tensor:
    """ρ(w), the local roughness: the largest ‖(dA[u]) w‖ over unit directions u on the sphere, (S, I)."""
    change = torch.einsum("sijku,sik->siju", derivatives(covariance, w), w)
    return torch.linalg.matrix_norm(change, 2)


def lipschitz(covariance: CovarianceOf, w: Tensor) -> Tensor:
    """An upper bound on ‖dA[u]‖₂ over unit directions u, (Σ_k ‖∂_k A‖₂²)^½: (S, I)."""
    slopes = derivatives(covariance, w).movedim(-1, 2)
    return torch.linalg.eigvalsh(slopes).abs().amax(-1).square().sum(2).sqrt()


@dataclass(frozen=True)
class Top:
    """The leading eigenvector of A(w), its sign chosen so that c(w) = wᵀφ₁ ≥ 0, and the two largest eigenvalues."""

    phi: Tensor  # (..., d)
    first: Tensor
    second: Tensor
    least: Tensor

    @classmethod
    def of(cls, A: Tensor, w: Tensor) -> Top:
        values, vectors = torch.linalg.eigh(A)
        phi = vectors[..., -1]
        sign = torch.where((phi * w).sum(-1, keepdim=True) < 0, -1.0, 1.0)
        return cls(sign * phi, values[..., -1], values[..., -2], values[..., 0])

    @property
    def gap(self) -> Tensor:
        """λ₁ − λ₂."""
        return self.first - self.second
