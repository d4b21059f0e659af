"""The guard makes `import torchvision` work with a torch it was not built for, and does nothing otherwise."""

import subprocess
import sys
from pathlib import Path

import torch

from lightning_ssl import _torchvision_guard as guard


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)


def fake_torchvision(folder: Path, library: bytes | None) -> Path:
    """A package that registers a shape rule for an operator of its library, like torchvision."""
    package = folder / "torchvision"
    package.mkdir(parents=True)
    if library is not None:
        (package / "_C.so").write_bytes(library)
    rule = "torch.library.register_fake('torchvision::nms')(lambda *a: a[0])"
    (package / "__init__.py").write_text(f"import torch\n{rule}\n")
    return folder


WITHOUT_HOOK = "import sys; sys.meta_path = [f for f in sys.meta_path if type(f).__name__ != 'TorchvisionFinder']; "
FINDERS = "sum(type(f).__name__ == 'TorchvisionFinder' for f in sys.meta_path)"
# After the import nothing refers to the module that the .pth file has loaded.
COLLECT = "; import gc, torch; gc.collect(); print(torch.ops.torchvision.nms)"
IMPORT_BOTH = "import sys; sys.path.insert(0, {folder!r}); {first}import torchvision; print('imported')"


def test_without_the_guard_a_broken_library_fails_the_import(tmp_path):
    folder = fake_torchvision(tmp_path, library=b"not a library")
    result = python(WITHOUT_HOOK + IMPORT_BOTH.format(folder=str(folder), first=""))
    assert result.returncode != 0
    assert "torchvision::nms" in result.stderr


def test_with_the_guard_the_import_works_with_a_broken_library_and_the_finder_removes_itself(tmp_path):
    folder = fake_torchvision(tmp_path, library=b"not a library")
    code = IMPORT_BOTH.format(folder=str(folder), first=f"import lightning_ssl; assert {FINDERS} == 1; ")
    result = python(f"{code}; assert {FINDERS} == 0")
    assert (result.stdout.strip(), result.returncode) == ("imported", 0), result.stderr


def test_a_library_that_loads_gets_no_declarations(tmp_path, monkeypatch):
    (tmp_path / "_C.so").touch()
    loaded, declared = [], []
    monkeypatch.setattr(torch.ops, "load_library", loaded.append)
    monkeypatch.setattr(torch.library, "define", lambda *a: declared.append(a))
    assert guard.declare_missing_operators(tmp_path) is False
    assert loaded == [str(tmp_path / "_C.so")]
    assert not declared


def test_importing_the_package_does_not_import_torch():
    assert python("import sys, lightning_ssl; sys.exit('torch' in sys.modules)").returncode == 0


def test_the_pth_file_works_without_importing_the_package(tmp_path, monkeypatch):
    folder = fake_torchvision(tmp_path / "fake", library=b"not a library")
    monkeypatch.setattr(guard.sysconfig, "get_path", lambda name: str(tmp_path))
    assert guard.write_pth().parent == tmp_path
    site = f"import site; site.addsitedir({str(tmp_path)!r}); assert 'lightning_ssl' not in sys.modules; "
    result = python(WITHOUT_HOOK + IMPORT_BOTH.format(folder=str(folder), first=site) + COLLECT)
    assert result.stdout.split() == ["imported", "torchvision.nms"], result.stderr


def test_the_pth_file_of_a_wheel_finds_the_guard_beside_itself(tmp_path):
    folder = fake_torchvision(tmp_path / "fake", library=b"not a library")
    package = tmp_path / "site" / "lightning_ssl"
    package.mkdir(parents=True)
    source = Path(guard.__file__)
    (package / source.name).write_text(source.read_text())
    (tmp_path / "site" / "lightning_ssl_guard.pth").write_text(source.with_name("torchvision_guard.pth").read_text())
    site = f"import site; site.addsitedir({str(tmp_path / 'site')!r}); "
    result = python(WITHOUT_HOOK + IMPORT_BOTH.format(folder=str(folder), first=site))
    assert result.stdout.strip() == "imported", result.stderr
