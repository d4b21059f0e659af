"""Lets a torchvision wheel built for CUDA import beside a CPU build of torch.

Such a wheel cannot load its own library, so its operators are never declared, and `import torchvision` ends with
"operator torchvision::nms does not exist" while it registers a shape rule for them. torchmetrics, and with it
Lightning, imports torchvision. No detection operator is used in this package, so declaring the two names is enough.

The declaration waits for the moment torchvision is imported: `import lightning_ssl` must not pay for torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

# The schemas under which torchvision's own library declares them.
MISSING_OPERATORS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}

_declared: list[Any] = []  # a torch.library.Library lives as long as its object


def declare_missing_operators(torchvision_folder: Path) -> bool:
    """Declare torchvision's operators if, and only if, its own library cannot load; says whether it did."""
    import torch

    libraries = sorted(torchvision_folder.glob("_C*.so")) + sorted(torchvision_folder.glob("_C*.pyd"))
    for library in libraries:
        try:
            torch.ops.load_library(str(library))
        except (OSError, ImportError):
            continue
        return False
    namespace = torch.library.Library("torchvision", "FRAGMENT")
    for name, schema in MISSING_OPERATORS.items():
        if not hasattr(torch.ops.torchvision, name):
            namespace.define(schema)
    _declared.append(namespace)
    return True


class TorchvisionFinder(MetaPathFinder):
    """Sees `import torchvision` first, declares what is missing, and leaves the import itself to Python."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torchvision":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            declare_missing_operators(Path(spec.origin).parent)
        sys.meta_path.remove(self)
        return spec


def install() -> None:
    """Guard the next import of torchvision; nothing to do once it is loaded or guarded."""
    if "torchvision" not in sys.modules and not any(isinstance(f, TorchvisionFinder) for f in sys.meta_path):
        sys.meta_path.insert(0, TorchvisionFinder())
