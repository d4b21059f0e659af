"""Self-supervised methods as LightningModules: `SimCLR`, `AlphaCL` (contrastive), `SimSiam`, `BYOL` (siamese).

base.py         `Method`: views, backbone, projector, optimizer, schedule
contrastive.py  `SimCLR`, `AlphaCL`
siamese.py      `SimSiam`, `BYOL`
arguments.py    the role of every argument

Importing this package does not import torch. The classes are loaded when one of them is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning_ssl.methods.base import Head, Method, Optimization
    from lightning_ssl.methods.contrastive import AlphaCL, SimCLR
    from lightning_ssl.methods.siamese import BYOL, PredictorHead, SimSiam

__all__ = ["BYOL", "AlphaCL", "Head", "Method", "Optimization", "PredictorHead", "SimCLR", "SimSiam"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # All files at once: jsonargparse looks for `--model SimCLR` among the subclasses of Method that are imported.
    for file in ("base", "contrastive", "siamese"):
        module = importlib.import_module(f"{__name__}.{file}")
        globals().update({each: vars(module)[each] for each in __all__ if each in vars(module)})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
