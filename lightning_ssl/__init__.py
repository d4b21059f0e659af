"""An experiment suite for contrastive losses: a loss is a choice of pair importance α.

    from lightning_ssl import AlphaCL, DataModule, Direct, OnlineProbe, PairLoss

`import lightning_ssl` imports neither torch nor Lightning: each public name is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning_ssl import _torchvision_guard
from lightning_ssl._lazy import exported, lazy_names

if TYPE_CHECKING:
    from lightning_ssl.callbacks import *  # noqa: F403
    from lightning_ssl.data import DataModule as DataModule
    from lightning_ssl.losses import *  # noqa: F403
    from lightning_ssl.methods import *  # noqa: F403

__version__ = "0.1.0"

# The public names by room. A file of a room exports those in its `__all__`.
PUBLIC_NAMES = {
    room: [name for names in exported(room).values() for name in names]
    for room in ("losses", "methods", "callbacks", "data")
}
__getattr__, __dir__ = lazy_names(__name__, PUBLIC_NAMES)
__all__ = ["__version__", *(name for names in PUBLIC_NAMES.values() for name in names)]

_torchvision_guard.install()
