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

    It takes V views × B data sets × K variants that read the same data: x (V, B, c, N), W (B, K, m, c), output
    y (V, B, K, m, N). Batch normalization of Wx only rescales the rows of W by the batch covariance C of x:
    var = diag(W C Wᵀ). It therefore costs nothing per sample, and its gradient has shape (m, c).
    """

    def __init__(self, x: Tensor, P: Params, index: int, model: Model, symmetric: bool) -> None:
        V, B, c, N = x.shape
        W, b = P[f"W{index}"], P[f"b{index}"][..., None]  # (B, K, m, c), (B, K, m, 1)
        K, m = W.shape[1:3]
        self.shape, self.index, self.model, self.W = (V, B, K, m, c, N), index, model, W
        # The released linear layer adds b before the activation. Without batch normalization this is symmetric.
        self.symmetric = symmetric or not model.batch_norm
        self.gamma = P.get(f"gamma{index}")
        if model.batch_norm:
            x = x - x.mean(3, keepdim=True)
            self.rows = x.reshape(V * B, c, N)
            C = torch.bmm(self.rows, self.rows.transpose(1, 2)).div_(N)  # (V·B, c, c)
            self.WC = torch.bmm(self.stack(W), C).view(V, B, K, m, c)
            self.inv = ((self.WC * W).sum(4, keepdim=True) + 1e-5).rsqrt_()  # (V, B, K, m, 1)
            self.scale = self.inv if self.gamma is None else self.inv * self.gamma[..., None]
            self.scaled_W = (self.scale * W).view(V * B, K * m, c)
        else:
            self.rows = x.reshape(V * B, c, N)
            self.scaled_W = self.stack(W)
        h = torch.bmm(self.scaled_W, self.rows).view(V, B, K, m, N)
        if self.gamma is not None:
            h += P[f"beta{index}"][..., None]
        if not model.activation:
            self.y = h.add_(b)
            return
        self.low, self.high = (h + b, b - h) if self.symmetric else (h, 2 * b - h)
        self.y = self.low.relu().sub_(self.high.relu())

    def stack(self, W: Tensor) -> Tensor:
        """Repeat W (B, K, m, c) for every view: (V·B, K·m, c)."""
        V, B, K, m, c, _ = self.shape
        return W.expand(V, B, K, m, c).reshape(V * B, K * m, c)

    def vjp(self, g: Tensor, to_input: bool) -> tuple[Params, Tensor | None]:
        """∂L/∂(parameters) and, if `to_input`, ∂L/∂x, of g = ∂L/∂y (V, B, K, m, N)."""
        V, B, K, m, c, N = self.shape
        grads: Params = {}
        if not self.model.activation:
            grads["b"] = g.sum((0, 4))
        else:
            up = torch.ops.aten.threshold_backward(g, self.low, 0)
            down = torch.ops.aten.threshold_backward(g, self.high, 0)
            down_sum = down.sum((0, 4))
            grads["b"] = up.sum((0, 4)) - down_sum if self.symmetric else -2 * down_sum
            g = up.add_(down)
        g_rows = g.view(V * B, K * m, N)
        G = torch.bmm(g_rows, self.rows.transpose(1, 2)).view(V, B, K, m, c)
        dx = torch.bmm(self.scaled_W.transpose(1, 2), g_rows) if to_input else None
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
    """Compute the encoder's output (V, B·K, m, N) for views x (V, B, p, N), and its vjp to the parameters."""
    layers: list[Layer] = []
    for index in range(1, model.depth + 1):
        layers.append(Layer(x, P, index, model, symmetric))
        V, B, K, m, _, N = layers[-1].shape
        x = layers[-1].y.view(V, B * K, m, N)
        P = {name: value.view(B * K, 1, *value.shape[2:]) for name, value in P.items()}

    def vjp(g: Tensor) -> Params:
        grads: Params = {}
        for layer in reversed(layers):
            V, B, K, m, _, N = layer.shape
            layer_grads, g_input = layer.vjp(g.reshape(V, B, K, m, N), to_input=layer.index > 1)
            grads |= layer_grads
            g = g if g_input is None else g_input
        return grads

    return x, vjp


def affine(y: Tensor, H: Tensor, c: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Params, Tensor]]]:
    """Compute Hy + c for y (V, R, m, N) and R maps H (..., m, m), c (..., m), and its vjp to (H, c) and to y."""
    V, R, m, N = y.shape
    rows = y.reshape(V * R, m, N)
    repeated_H = H.reshape(R, m, m).repeat(V, 1, 1)
    out = torch.baddbmm(c.reshape(R, m, 1).repeat(V, 1, 1), repeated_H, rows).view(V, R, m, N)

    def vjp(g: Tensor) -> tuple[Params, Tensor]:
        g_rows = g.reshape(V * R, m, N)
        dH = torch.bmm(g_rows, rows.transpose(1, 2)).view(V, R, m, m).sum(0)
        return {"H": dH, "c": g.sum((0, 3))}, torch.bmm(repeated_H.transpose(1, 2), g_rows).view(V, R, m, N)

    return out, vjp
