"""Contrastive losses: pair importances α, the (φ, ψ) family, and the energy that training maximizes.

pairs.py       distances of a batch, masks, shares of the ranks
families.py    the (φ, ψ) losses
importance.py  α in closed form, and α of a (φ, ψ) loss
solved.py      α as the solution of a regularizer, and the row solver
released.py    two rows of the α-CL paper as its released code computes them
energy.py      E_α, `PairLoss`, `FamilyLoss` and their kernels
device.py      the size of a block and what the host may read, by device
"""

from lightning_ssl.losses.energy import FamilyLoss, PairLoss, contrastive_covariance, energy
from lightning_ssl.losses.families import (
    MINE,
    ExponentialFamily,
    Family,
    InfoNCE,
    LiftedStructured,
    ModifiedTriplet,
    NPlusOneTuplet,
    Quadratic,
    SoftTriplet,
    Triplet,
)
from lightning_ssl.losses.importance import (
    Direct,
    Entropy,
    Exact,
    FromFamily,
    Gaussian,
    Importance,
    Streaming,
    Uniform,
)
from lightning_ssl.losses.released import ReleasedInverse, ReleasedSquare
from lightning_ssl.losses.solved import Inverse, Regularized, Solved, Square, Tsallis

__all__ = [
    "MINE",
    "Direct",
    "Entropy",
    "Exact",
    "ExponentialFamily",
    "Family",
    "FamilyLoss",
    "FromFamily",
    "Gaussian",
    "Importance",
    "InfoNCE",
    "Inverse",
    "LiftedStructured",
    "ModifiedTriplet",
    "NPlusOneTuplet",
    "PairLoss",
    "Quadratic",
    "Regularized",
    "ReleasedInverse",
    "ReleasedSquare",
    "SoftTriplet",
    "Solved",
    "Square",
    "Streaming",
    "Triplet",
    "Tsallis",
    "Uniform",
    "contrastive_covariance",
    "energy",
]
