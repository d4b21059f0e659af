"""The vote of a weighted nearest-neighbour classifier (Wu et al. 2018, Sec. 3.4); callbacks/knn.py has the equation."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Distance = Literal["cosine", "euclidean"]
PAIRS = 2**22  # similarities computed at once


def vote(
    queries: Tensor, references: Tensor, labels: Tensor, classes: int, k: int, tau: float, distance: Distance = "cosine"
) -> Tensor:
    """Shares of the vote for each class, (Q, F), (R, F), (R,) → (Q, C).

    A reference with the label −1 has no vote. Where fewer than k have one, all of them vote. Queries are compared in
    blocks, so that Q×R similarities are never held at once. The references are not copied.
    """
    cosine = distance == "cosine"
    norms = torch.linalg.vector_norm(references, dim=1)  # (R,)
    # Up to a constant of the row, which cancels in the softmax, s is ⟨x, x_j⟩ − ½‖x_j‖², or ⟨x, x_j⟩ / ‖x_j‖.
    offset, factor = torch.zeros_like(norms) if cosine else -norms.square() / 2, 1 / norms.clamp(min=1e-12)
    silent = labels < 0
    k = min(k, len(references) - int(silent.sum()))
    shares = queries.new_zeros(len(queries), classes)
    height = max(1, PAIRS // max(1, len(references)))
    for block, out in zip(queries.split(height), shares.split(height), strict=True):
        s = torch.addmm(offset, F.normalize(block, dim=1) if cosine else block, references.T)  # (q, R)
        if cosine:
            s.mul_(factor)
        nearest = s.masked_fill_(silent, -torch.inf).topk(k, dim=1)
        out.scatter_add_(1, labels[nearest.indices], (nearest.values / tau).softmax(1))
    return shares
