"""The guard makes `import torchvision` work with a torch it was not built for, and does nothing otherwise."""

import subprocess
import sys
from pathlib import Path

import torch

from lightning_ssl import _torchvision_guard as guard

# A process that has imported torch, and neither torchvision nor the guard; it runs each of its arguments in a fork.
FORKS = """
import os, sys, torch
sys.meta_path = [finder for finder in sys.meta_path if type(finder).__name__ != "TorchvisionFinder"]
for code in sys.argv[1:]:
    if os.fork() == 0:
        exec(code)
        os._exit(0)
    print(os.wait()[1] >> 8)
"""
FINDERS = "sum(type(f).__name__ == 'TorchvisionFinder' for f in sys.meta_path)"
# After the import nothing refers to the module that the .pth file has loaded.
COLLECT = "import gc; gc.collect(); assert str(torch.ops.torchvision.nms) == 'torchvision.nms'"


def test_torchvision_with_a_broken_library_is_imported_with_the_guard_alone_and_by_either_pth_file(
    tmp_path, monkeypatch
):
    """The broken torchvision registers a shape rule for one of its operators."""
    fake, editable, wheel = (tmp_path / name for name in ("fake/torchvision", "editable", "site/lightning_ssl"))
    for folder in (fake, editable, wheel):
        folder.mkdir(parents=True)
    (fake / "_C.so").write_bytes(b"not a library")
    (fake / "__init__.py").write_text("import torch\ntorch.library.register_fake('torchvision::nms')(lambda *a: a[0])")
    monkeypatch.setattr(guard.sysconfig, "get_path", lambda name: str(editable))
    assert guard.write_pth().parent == editable
    source = Path(guard.__file__)
    (wheel / source.name).write_text(source.read_text())
    (wheel.parent / "lightning_ssl_guard.pth").write_text(source.with_name("torchvision_guard.pth").read_text())
    load = f"import torchvision; assert {FINDERS} == 0"
    forks = {
        "pass": 1,
        f"import lightning_ssl; assert {FINDERS} == 1": 0,
        f"import site; site.addsitedir({str(editable)!r}); assert 'lightning_ssl' not in sys.modules": 0,
        f"import site; site.addsitedir({str(wheel.parent)!r})": 0,
    }
    codes = [f"sys.path.insert(0, {str(fake.parent)!r}); {first}; {load}; {COLLECT}" for first in forks]
    done = subprocess.run([sys.executable, "-c", FORKS, *codes], capture_output=True, text=True, timeout=600)
    assert [*map(int, done.stdout.split())] == [*forks.values()], done.stderr
    assert "torchvision::nms" in done.stderr  # without the guard


def test_a_library_that_loads_gets_no_declarations(tmp_path, monkeypatch):
    (tmp_path / "_C.so").touch()
    loaded, declared = [], []
    monkeypatch.setattr(torch.ops, "load_library", loaded.append)
    monkeypatch.setattr(torch.library, "define", lambda *a: declared.append(a))
    assert guard.declare_missing_operators(tmp_path) is False
    assert loaded == [str(tmp_path / "_C.so")]
    assert not declared
