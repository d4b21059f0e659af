"""Makes `import torchvision` work if torchvision was built for CUDA and torch for the CPU.

Such a torchvision cannot load its own library, so its operators are not declared. `import torchvision` then fails with
"operator torchvision::nms does not exist" when it registers a shape rule for them. torchmetrics imports torchvision,
and Lightning imports torchmetrics. This package uses no detection operator, so it is enough to declare the two names.

The declaration happens when torchvision is imported, because `import lightning_ssl` must not import torch.

A .pth file in site-packages runs `install` when Python starts, so that the order of the user's imports does not matter.
It loads this file by its path and not the package: a checkout in the working directory must win over an installed one.
A wheel contains the file (setup.py). `make` calls `write_pth` after an editable installation.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

MISSING_OPERATORS = ("nms", "qnms")
SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"  # as in torchvision's own library


def declare_missing_operators(torchvision_folder: Path) -> bool:
    """Declare torchvision's operators if its own library cannot load. Return whether they were declared."""
    import torch

    libraries = sorted(torchvision_folder.glob("_C*.so")) + sorted(torchvision_folder.glob("_C*.pyd"))
    for library in libraries:
        try:
            torch.ops.load_library(str(library))
        except (OSError, ImportError):
            continue
        return False
    for name in MISSING_OPERATORS:
        if not hasattr(torch.ops.torchvision, name):
            # torch keeps this declaration. One of a Library ends with its object, and this module is garbage after the
            # import: the .pth file leaves no reference to it.
            torch.library.define(f"torchvision::{name}", SCHEMA)
    return True


class TorchvisionFinder(MetaPathFinder):
    """An import hook that declares the missing operators just before Python imports torchvision."""

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
    """Install the import hook, unless torchvision is loaded or the hook is installed already."""
    # By name: the .pth file loads this file a second time.
    installed = any(type(finder).__name__ == TorchvisionFinder.__name__ for finder in sys.meta_path)
    if "torchvision" not in sys.modules and not installed:
        sys.meta_path.insert(0, TorchvisionFinder())


def write_pth() -> Path:
    """Write the .pth file into the site-packages of this Python, with the path of this file."""
    source = Path(__file__).with_name("torchvision_guard.pth")
    place = 'os.path.join(sys._getframe(1).f_locals["sitedir"], "lightning_ssl", "_torchvision_guard.py")'
    target = Path(sysconfig.get_path("purelib")) / f"lightning_ssl_{source.name}"
    target.write_text(source.read_text(encoding="utf-8").replace(place, repr(__file__)), encoding="utf-8")
    return target
