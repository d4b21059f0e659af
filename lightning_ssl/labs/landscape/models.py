"""The encoders: linear layers, batch normalization, symmetric ReLU and a linear head, each with its vjp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Params = dict[str, Tensor]


@dataclass(frozen=True)
class Model:
    """An encoder and the loss that trains it.

    objective: "pairs" (NT-Xent on one encoder), "dual" (two encoders that are updated alternately) or "siamese" (one
    encoder, a predictor, negative cosine). `head` is a linear map after the encoder: projector or predictor. `unit`
    normalizes the rows or columns of the encoder after each step. `normalized` compares outputs on the unit sphere.
    """

    objective: Literal["pairs", "dual", "siamese"]
    batch_norm: bool = True
    activation: bool = True
    depth: int = 1
    head: bool = False
    unit: Literal["none", "row", "column"] = "none"
    normalized: bool = True


class Layer:
    """A linear layer, batch normalization and the symmetric ReLU, with their vjp.

    It takes V views of R runs: x (V, R, c, N), W (R, m, c), output y (V, R, m, N). Batch normalization of Wx only
    rescales the rows of W by the batch covariance C of x: var = diag(W C Wᵀ). It therefore costs nothing per sample,
    and its gradient has shape (m, c).
    """

    def __init__(self, x: Tensor, P: Params, index: int, model: Model, symmetric: bool) -> None:
        V, N = x.shape[0], x.shape[3]
        self.W, b = P[f"W{index}"], P[f"b{index}"][..., None]  # (R, m, c), (R, m, 1)
        self.index, self.model = index, model
        # The released linear layer adds b before the activation. Without batch normalization this is symmetric.
        self.symmetric = symmetric or not model.batch_norm
        self.gamma = P.get(f"gamma{index}")
        self.x = x - x.mean(3, keepdim=True) if model.batch_norm else x
        self.scaled_W = self.W.expand(V, *self.W.shape)
        if model.batch_norm:
            C = (self.x @ self.x.mT).div_(N)  # (V, R, c, c)
            self.WC = self.W @ C
            self.inv = ((self.WC * self.W).sum(3, keepdim=True) + 1e-5).rsqrt_()  # (V, R, m, 1)
            self.scale = self.inv if self.gamma is None else self.inv * self.gamma[..., None]
            self.scaled_W = self.scale * self.W
        h = self.scaled_W @ self.x
        if self.gamma is not None:
            h += P[f"beta{index}"][..., None]
        if not model.activation:
            self.y = h.add_(b)
            return
        self.low, self.high = (h + b, b - h) if self.symmetric else (h, 2 * b - h)
        self.y = self.low.relu().sub_(self.high.relu())

    def vjp(self, g: Tensor, to_input: bool) -> tuple[Params, Tensor | None]:
        """∂L/∂(parameters) and, if `to_input`, ∂L/∂x, of g = ∂L/∂y (V, R, m, N)."""
        grads: Params = {}
        if not self.model.activation:
            grads["b"] = g.sum((0, 3))
        else:
            up = torch.ops.aten.threshold_backward(g, self.low, 0)
            down = torch.ops.aten.threshold_backward(g, self.high, 0)
            down_sum = down.sum((0, 3))
            grads["b"] = up.sum((0, 3)) - down_sum if self.symmetric else -2 * down_sum
            g = up.add_(down)
        G = g @ self.x.mT  # (V, R, m, c)
        dx = self.scaled_W.mT @ g if to_input else None
        if self.model.batch_norm:
            WG = (self.W * G).sum(3, keepdim=True)
            if self.gamma is not None:
                grads["gamma"], grads["beta"] = (self.inv * WG).sum((0, 3)), g.sum((0, 3))
            curve = self.scale * self.inv.square() * WG  # −2 ∂L/∂var
            if dx is not None:
                Q = self.W.mT @ (curve * self.W)
                dx = dx.sub_(dx.mean(3, keepdim=True))
                dx.flatten(0, 1).baddbmm_(Q.flatten(0, 1), self.x.flatten(0, 1), alpha=-1 / dx.shape[3])
            G = self.scale * G - curve * self.WC
        grads["W"] = G.sum(0)
        return {f"{name}{self.index}": grad for name, grad in grads.items()}, dx


def encode(x: Tensor, P: Params, model: Model, symmetric: bool) -> tuple[Tensor, Callable[[Tensor], Params]]:
    """Compute the encoder's output (V, R, m, N) for views x (V, R, p, N), and its vjp to the parameters."""
    layers: list[Layer] = []
    for index in range(1, model.depth + 1):
        layers.append(Layer(x, P, index, model, symmetric))
        x = layers[-1].y

    def vjp(g: Tensor) -> Params:
        grads: Params = {}
        for layer in reversed(layers):
            layer_grads, g_input = layer.vjp(g, to_input=layer.index > 1)
            grads |= layer_grads
            g = g if g_input is None else g_input
        return grads

    return x, vjp


def affine(y: Tensor, H: Tensor, c: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Params, Tensor]]]:
    """Compute Hy + c for y (V, R, m, N) and R maps H (R, m, m), c (R, m), and its vjp to (H, c) and to y."""

    def vjp(g: Tensor) -> tuple[Params, Tensor]:
        return {"H": (g @ y.mT).sum(0), "c": g.sum((0, 3))}, H.mT @ g

    V = len(y)
    out = torch.baddbmm(c[..., None].repeat(V, 1, 1), H.repeat(V, 1, 1), y.flatten(0, 1))
    return out.view_as(y), vjp
