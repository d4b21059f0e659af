"""The guard makes `import torchvision` work with a torch it was not built for, and does nothing otherwise."""

import subprocess
import sys
from pathlib import Path

import torch

from lightning_ssl import _torchvision_guard as guard


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def fake_torchvision(folder: Path, library: bytes | None) -> Path:
    """A package that registers a shape rule for an operator of its library, like torchvision."""
    package = folder / "torchvision"
    package.mkdir()
    if library is not None:
        (package / "_C.so").write_bytes(library)
    rule = "torch.library.register_fake('torchvision::nms')(lambda *a: a[0])"
    (package / "__init__.py").write_text(f"import torch\n{rule}\n")
    return folder


IMPORT_BOTH = "import sys; sys.path.insert(0, {folder!r}); {first}import torchvision; print('imported')"


def test_without_the_guard_a_broken_library_fails_the_import(tmp_path):
    folder = fake_torchvision(tmp_path, library=b"not a library")
    result = python(IMPORT_BOTH.format(folder=str(folder), first=""))
    assert result.returncode != 0
    assert "torchvision::nms" in result.stderr


def test_with_the_guard_the_import_works_with_a_broken_library(tmp_path):
    folder = fake_torchvision(tmp_path, library=b"not a library")
    result = python(IMPORT_BOTH.format(folder=str(folder), first="import lightning_ssl; "))
    assert result.stdout.strip() == "imported", result.stderr


def test_a_library_that_loads_gets_no_declarations(tmp_path, monkeypatch):
    (tmp_path / "_C.so").touch()
    loaded, declared = [], []
    monkeypatch.setattr(torch.ops, "load_library", loaded.append)
    monkeypatch.setattr(torch.library, "Library", lambda *a: declared.append(a))
    assert guard.declare_missing_operators(tmp_path) is False
    assert loaded == [str(tmp_path / "_C.so")]
    assert not declared


def test_the_finder_removes_itself_after_the_import():
    result = python(
        "import sys, lightning_ssl; from lightning_ssl._torchvision_guard import TorchvisionFinder as F\n"
        "assert any(isinstance(f, F) for f in sys.meta_path)\n"
        "import torchvision\n"
        "assert not any(isinstance(f, F) for f in sys.meta_path)\n"
        "from torchvision.models import resnet18; resnet18()"
    )
    assert result.returncode == 0, result.stderr


def test_importing_the_package_does_not_import_torch():
    assert python("import sys, lightning_ssl; sys.exit('torch' in sys.modules)").returncode == 0
