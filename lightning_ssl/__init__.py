"""An experiment suite for contrastive losses: a loss is a choice of pair importance α.

    from lightning_ssl import AlphaCL, DataModule, Direct, OnlineProbe, PairLoss

`import lightning_ssl` imports neither torch nor Lightning: each public name is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning_ssl import _torchvision_guard
from lightning_ssl._lazy import lazy_names

if TYPE_CHECKING:
    from lightning_ssl.callbacks import *  # noqa: F403
    from lightning_ssl.data import DataModule as DataModule
    from lightning_ssl.losses import *  # noqa: F403
    from lightning_ssl.methods import *  # noqa: F403

__version__ = "0.1.0"

# The public names by package. `tests/test_public_names.py` compares them with the packages' own lists.
PUBLIC_NAMES = {
    "losses": (
        "Importance", "Streaming", "Solved", "Regularized",
        "Entropy", "Inverse", "Square", "Tsallis", "Direct", "Uniform", "Gaussian", "Exact", "FromFamily",
        "ReleasedInverse", "ReleasedSquare",
        "Family", "ExponentialFamily", "InfoNCE", "MINE", "Triplet", "SoftTriplet", "NPlusOneTuplet",
        "LiftedStructured", "ModifiedTriplet", "Quadratic",
        "PairLoss", "FamilyLoss", "contrastive_covariance", "energy",
    ),
    "methods": ("Method", "SimCLR", "AlphaCL", "SimSiam", "BYOL", "Head", "PredictorHead", "Optimization"),
    "callbacks": ("OnlineProbe", "OnlineKNN", "FeatureSpectrum", "ImportanceMonitor", "WeightNoise"),
    "data": ("DataModule",),
}  # fmt: skip
__getattr__, __dir__ = lazy_names(__name__, PUBLIC_NAMES)
__all__ = ["__version__", *(name for names in PUBLIC_NAMES.values() for name in names)]

_torchvision_guard.install()
