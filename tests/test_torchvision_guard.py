"""The guard makes `import torchvision` work with a torch it was not built for, and does nothing otherwise."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lightning_ssl import _torchvision_guard as guard


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)


WITHOUT_HOOK = "import sys; sys.meta_path = [f for f in sys.meta_path if type(f).__name__ != 'TorchvisionFinder']; "
FINDERS = "sum(type(f).__name__ == 'TorchvisionFinder' for f in sys.meta_path)"
# After the import nothing refers to the module that the .pth file has loaded.
COLLECT = "; import gc, torch; gc.collect(); print(torch.ops.torchvision.nms)"


@pytest.fixture
def import_after(tmp_path):
    """Import a torchvision with a broken library, which registers a shape rule for one of its operators."""
    package = tmp_path / "fake" / "torchvision"
    package.mkdir(parents=True)
    (package / "_C.so").write_bytes(b"not a library")
    rule = "torch.library.register_fake('torchvision::nms')(lambda *a: a[0])"
    (package / "__init__.py").write_text(f"import torch\n{rule}\n")
    path = f"import sys; sys.path.insert(0, {str(package.parent)!r})"
    return lambda first, last="": python(f"{path}; {first}import torchvision; print('imported'){last}")


def test_without_the_guard_a_broken_library_fails_the_import(import_after):
    result = import_after(WITHOUT_HOOK)
    assert result.returncode != 0
    assert "torchvision::nms" in result.stderr


def test_with_the_guard_the_import_works_with_a_broken_library_and_the_finder_removes_itself(import_after):
    result = import_after(f"import lightning_ssl; assert {FINDERS} == 1; ", f"; assert {FINDERS} == 0")
    assert (result.stdout.strip(), result.returncode) == ("imported", 0), result.stderr


def test_a_library_that_loads_gets_no_declarations(tmp_path, monkeypatch):
    (tmp_path / "_C.so").touch()
    loaded, declared = [], []
    monkeypatch.setattr(torch.ops, "load_library", loaded.append)
    monkeypatch.setattr(torch.library, "define", lambda *a: declared.append(a))
    assert guard.declare_missing_operators(tmp_path) is False
    assert loaded == [str(tmp_path / "_C.so")]
    assert not declared


def test_the_pth_file_works_without_importing_the_package(tmp_path, monkeypatch, import_after):
    monkeypatch.setattr(guard.sysconfig, "get_path", lambda name: str(tmp_path))
    assert guard.write_pth().parent == tmp_path
    site = f"import site; site.addsitedir({str(tmp_path)!r}); assert 'lightning_ssl' not in sys.modules; "
    result = import_after(WITHOUT_HOOK + site, COLLECT)
    assert result.stdout.split() == ["imported", "torchvision.nms"], result.stderr


def test_the_pth_file_of_a_wheel_finds_the_guard_beside_itself(tmp_path, import_after):
    package = tmp_path / "site" / "lightning_ssl"
    package.mkdir(parents=True)
    source = Path(guard.__file__)
    (package / source.name).write_text(source.read_text())
    (tmp_path / "site" / "lightning_ssl_guard.pth").write_text(source.with_name("torchvision_guard.pth").read_text())
    result = import_after(f"{WITHOUT_HOOK}import site; site.addsitedir({str(tmp_path / 'site')!r}); ")
    assert result.stdout.strip() == "imported", result.stderr
