"""The encoders: linear layers, batch normalization and symmetric ReLU."""

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


def layer(x: Tensor, P: Params, index: int, model: Model, symmetric: bool) -> Tensor:
    """A linear layer, batch normalization and the symmetric ReLU, for V views × B runs: (V, B, c, N) → (V, B, m, N).

    Batch normalization of Wx, W (B, m, c), only rescales the rows of W by the batch covariance C of x:
    var = diag(W C Wᵀ). It therefore costs nothing per sample, and its gradient has shape (m, c).
    """
    W, b = P[f"W{index}"], P[f"b{index}"][..., None]  # (B, m, c), (B, m, 1)
    gamma = P.get(f"gamma{index}")
    if model.batch_norm:
        x = x - x.mean(3, keepdim=True)
        C = x @ x.mT / x.shape[3]  # (V, B, c, c)
        scale = ((W @ C * W).sum(3, keepdim=True) + 1e-5).rsqrt()  # (V, B, m, 1)
        W = (scale if gamma is None else scale * gamma[..., None]) * W  # (V, B, m, c)
    h = W @ x
    if gamma is not None:
        h = h + P[f"beta{index}"][..., None]
    if not model.activation:
        return h + b
    # The released linear layer adds b before the activation. Without batch normalization this is symmetric.
    low, high = (h + b, b - h) if symmetric or not model.batch_norm else (h, 2 * b - h)
    return low.relu() - high.relu()


def encode(x: Tensor, P: Params, model: Model, symmetric: bool) -> Tensor:
    """Compute the encoder's output (V, B, m, N) for views x (V, B, p, N)."""
    for index in range(1, model.depth + 1):
        x = layer(x, P, index, model, symmetric)
    return x
