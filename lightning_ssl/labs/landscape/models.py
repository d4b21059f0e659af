"""The encoders: linear layers, batch normalization, symmetric ReLU and a linear head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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


def encode(x: Tensor, P: Params, model: Model, symmetric: bool) -> Tensor:
    """Compute the encoder's output (V, R, m, N) for V views of R runs, x (V, R, p, N)."""
    for index in range(1, model.depth + 1):
        x = layer(x, P, index, model, symmetric)
    return x


def layer(x: Tensor, P: Params, index: int, model: Model, symmetric: bool) -> Tensor:
    """A linear layer, batch normalization and the symmetric ReLU: x (V, R, c, N) → (V, R, m, N).

    Batch normalization of Wx only rescales the rows of W by the batch covariance C of x: var = diag(W C Wᵀ). It
    therefore costs nothing per sample.
    """
    W, b = P[f"W{index}"], P[f"b{index}"][..., None]  # (R, m, c), (R, m, 1)
    if model.batch_norm:
        x = x - x.mean(3, keepdim=True)
        C = x @ x.mT / x.shape[3]  # (V, R, c, c)
        W = W * ((W @ C * W).sum(3, keepdim=True) + 1e-5).rsqrt()  # (V, R, m, c)
    affine = f"gamma{index}" in P  # parameters of the normalization that the optimizer holds
    h = (P[f"gamma{index}"][..., None] * W) @ x + P[f"beta{index}"][..., None] if affine else W @ x
    if not model.activation:
        return h + b
    if symmetric or not model.batch_norm:
        return (h + b).relu_() - (b - h).relu_()
    # The released linear layer adds b before the activation. Without batch normalization this is symmetric.
    return h.relu() - (2 * b - h).relu_()


def head(y: Tensor, P: Params, model: Model) -> Tensor:
    """The linear map after the encoder, if the model has one: (V, R, m, N) → (V, R, m, N)."""
    return P["H"] @ y + P["c"][..., None] if model.head else y
