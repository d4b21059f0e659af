"""Self-supervised methods as LightningModules: `SimCLR`, `AlphaCL` (contrastive), `SimSiam`, `BYOL` (siamese).

base.py         `Method`: views, backbone, projector, optimizer, schedule
contrastive.py  `SimCLR`, `AlphaCL`
siamese.py      `SimSiam`, `BYOL`
checkpoints.py  a method from a checkpoint
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning_ssl._lazy import import_files

if TYPE_CHECKING:  # a type checker cannot see the names of a file without a line here
    from lightning_ssl.methods.base import *  # noqa: F403
    from lightning_ssl.methods.contrastive import *  # noqa: F403
    from lightning_ssl.methods.siamese import *  # noqa: F403

globals().update(public := import_files(__name__))
__all__ = sorted(public)
