"""Lightning under the name that the user imported: `pytorch_lightning`, or `lightning.pytorch`.

Both packages hold the same code, but their classes differ: the Trainer of one refuses modules of the other. So the
modules of this package use the one that is imported already. If both are, or none is, it is `pytorch_lightning`.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytorch_lightning as pl
else:
    unified = "lightning.pytorch" in sys.modules and "pytorch_lightning" not in sys.modules
    pl = importlib.import_module("lightning.pytorch" if unified else "pytorch_lightning")

__all__ = ["pl"]
