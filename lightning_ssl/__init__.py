"""A laboratory for contrastive losses: a loss is a choice of pair importance α.

`import lightning_ssl` is light: torch, Lightning and torchvision load when one of their names is first used.
"""

from __future__ import annotations

from lightning_ssl import _torchvision_guard

__version__ = "0.1.0"

_torchvision_guard.install()
