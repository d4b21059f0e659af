"""The package works with `lightning` and with `pytorch_lightning`, in any order of imports."""

import subprocess
import sys

import pytest

TRAIN = """
from lightning_ssl.methods import Method
methods = {{kind.__name__ for kind in [*Method.__subclasses__(), *Method.__subclasses__()[0].__subclasses__()]}}
assert {{"SimCLR", "AlphaCL", "SimSiam", "BYOL"}} <= methods, methods
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


@pytest.mark.parametrize(
    ("first", "trainer"),
    [
        ("import torchvision\nimport lightning as L\n", "L.Trainer"),
        pytest.param("import lightning_ssl\nimport lightning as L\n", "L.Trainer", marks=pytest.mark.slow),
        pytest.param("import torchvision\nimport pytorch_lightning as pl\n", "pl.Trainer", marks=pytest.mark.slow),
        pytest.param("import torchmetrics\nimport pytorch_lightning as pl\n", "pl.Trainer", marks=pytest.mark.slow),
    ],
)
def test_modules_train_with_both_packages_in_any_order_of_imports(first, trainer, tmp_path):
    """The import of `Method` alone imports its subclasses: a config file may name any of them."""
    if "L.Trainer" in trainer:
        pytest.importorskip("lightning")
    code = first + TRAIN.format(trainer=trainer)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
