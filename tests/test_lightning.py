"""The package works with `lightning` and with `pytorch_lightning`, in any order of imports."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

TRAIN = """
from lightning_ssl import AlphaCL, DataModule, Direct, OnlineProbe
from lightning_ssl.app.training import record_run
trainer = {trainer}(
    fast_dev_run=2, accelerator="cpu", callbacks=[OnlineProbe()], enable_progress_bar=False, logger=False,
    enable_model_summary=False,
)
data = DataModule("shapes", batch_size=8, options={{"train_images": 16, "test_images": 8}})
trainer.fit(AlphaCL(Direct(), backbone="resnet_tiny"), data)
assert "online/top1" in trainer.callback_metrics
"""


def python(code, folder):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=folder)


@pytest.mark.skipif(find_spec("lightning") is None, reason="the package `lightning` is not installed")
@pytest.mark.parametrize(
    "first",
    ["import lightning as L\n", pytest.param("import lightning_ssl\nimport lightning as L\n", marks=pytest.mark.slow)],
)
def test_modules_train_with_the_unified_package(first, tmp_path):
    result = python(first + TRAIN.format(trainer="L.Trainer"), tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "first", ["import torchvision\n", pytest.param("import torchmetrics\n", marks=pytest.mark.slow)]
)
def test_the_order_of_imports_does_not_matter(first, tmp_path):
    result = python(first + "import pytorch_lightning as pl\n" + TRAIN.format(trainer="pl.Trainer"), tmp_path)
    assert result.returncode == 0, result.stderr
