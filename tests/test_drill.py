"""A new loss is a class, its oracle and its configuration; a new callback is a class. Nothing else is edited.

Both are added to a copy of the project. A new process that imports the copy then looks at everything that follows from
them.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT, small_fit

COPIED = ("lightning_ssl", "configs", "sweeps", "tests", "docs/generators", "pyproject.toml")

CAUCHY = '''\
"""A loss of the drill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from lightning_ssl.base.checks import require_positive
from lightning_ssl.losses.importance import Streaming

__all__ = ["Cauchy"]


@dataclass(frozen=True)
class Cauchy(Streaming):
    """α_ij ∝ 1/(1 + d2_neg_ij/ω).

    width  distance ω at which a weight is halved

    >>> Cauchy(width=0.5).streams
    True
    """

    source = "the drill, Eqn. 1"
    symbols: ClassVar = {"width": "ω"}
    width: float = 0.5

    def __post_init__(self) -> None:
        require_positive("width", self.width)

    def log_kernel(self, d2_neg: Tensor) -> Tensor:
        return d2_neg.div_(self.width).log1p_().neg_()
'''
ORACLE = """

def cauchy(c, width):
    weights = [1 / (1 + x / width) for x in c]
    return [w / sum(weights) for w in weights]
"""
CONFIG = """\
# lightning-ssl fit --config configs/data/cifar10.yaml --config configs/method/cauchy.yaml
model:
  class_path: AlphaCL
  init_args:
    importance:
      class_path: Cauchy
      init_args:
        width: 0.5
"""
CONTRACT = (
    "losses/test_contract.py", "losses/test_importance.py", "losses/test_energy.py", "losses/test_range.py",
    "repository/test_configs.py", "test_examples.py", "test_public_names.py",
)  # fmt: skip

NORMS = '''\
"""`FeatureNorm`: the mean norm of the features."""

from __future__ import annotations

from typing import Any

from lightning_ssl._lightning import pl
from lightning_ssl.callbacks.encoder import validation_features
from lightning_ssl.base.facts import Metric, Panel

__all__ = ["FeatureNorm"]


class FeatureNorm(pl.Callback):
    """Logs the mean norm of the features of the validation images.

    scale   factor of the norms

    >>> FeatureNorm(scale=2.0).scale
    2.0
    """

    flag = "norms"
    role = "incidental"
    panel = Panel("norms", "Norms", "How long the features are.")
    metrics = (Metric("norms/mean", "mean norm", "lower"),)

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def on_validation_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int, *_: Any
    ) -> None:
        features = validation_features(trainer, pl_module, outputs, batch)[0]
        norm = self.scale * features.norm(dim=1).mean()
        pl_module.log("norms/mean", norm, on_step=False, on_epoch=True, sync_dist=True, batch_size=len(features))
'''


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of what the project needs to run and to test itself, with the new loss and the new callback."""
    project = tmp_path_factory.mktemp("drill") / "project"
    for name in COPIED:
        source, target = ROOT / name, project / name
        if source.is_dir():
            # With the compiled modules, but not those that are being written.
            links = ("configs", "sweeps") if name == "lightning_ssl" else ()
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.pyc.*", *links))
        else:
            shutil.copy(source, target)
    for name in ("configs", "sweeps"):
        (project / "lightning_ssl" / name).symlink_to(f"../{name}")
    (project / "lightning_ssl/losses/cauchy.py").write_text(CAUCHY, encoding="utf-8")
    (project / "configs/method/cauchy.yaml").write_text(CONFIG, encoding="utf-8")
    with (project / "tests/oracles.py").open("a", encoding="utf-8") as oracles:
        oracles.write(ORACLE)
    (project / "lightning_ssl/callbacks/norms.py").write_text(NORMS, encoding="utf-8")
    return project


def test_a_new_loss_and_a_new_callback_need_no_edit_but_their_classes_and_the_oracle_and_configuration_of_the_loss(
    project,
):
    code = "import test_drill; test_drill.check_the_loss(); test_drill.check_the_callback()"
    paths = os.pathsep.join(str(project / name) for name in ("", "tests", "docs"))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def run_tests(word, *files):
    """Assert that each file has tests with a word in their names, and that they pass."""
    paths, passed = [f"tests/{file}" for file in files], Passed()
    assert pytest.main(["-q", "-k", word, "-p", "no:cacheprovider", *paths], plugins=[passed]) == 0
    assert passed.files == set(paths)


class Passed:
    """The files that have a test that passed."""

    def __init__(self):
        self.files = set()

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.files.add(report.nodeid.partition("::")[0])


def check_the_loss():
    from generators import api, losses
    from helpers.run_folders import LOSSES, alpha_cl, write_run

    import lightning_ssl
    from lightning_ssl.app import report
    from lightning_ssl.app.config import catalog, flags
    from lightning_ssl.app.config.keys import role
    from lightning_ssl.app.config.labels import label_of_config

    assert Path(lightning_ssl.__file__).parents[1] == Path.cwd()  # the copy
    sections = flags.sections()
    (flag,) = sections["model.importance.Cauchy"].flags
    assert (flag.key, flag.description) == ("model.importance.width", "distance ω at which a weight is halved")
    assert "Cauchy" in sections["model.importance"].flags[0].choices
    assert role("model.importance.width") == "loss"
    assert label_of_config({"model": alpha_cl("Cauchy", width=0.5)}) == "AlphaCL Cauchy ω=0.5"
    assert ("Cauchy", "α_ij ∝ 1/(1 + d2_neg_ij/ω).", "method/cauchy") in catalog.entries("importances")
    section = losses.section(lightning_ssl.Cauchy)
    assert "- Source: the drill, Eqn. 1\n- Configuration: `configs/method/cauchy.yaml`" in section
    assert "- `width`: distance ω at which a weight is halved" in section
    assert "weights_Cauchy" in losses.all_figures()
    assert "lightning_ssl.Cauchy\n" in api.pages()["losses"]
    for width in (0.5, 2.0):
        LOSSES["cauchy"] = alpha_cl("Cauchy", width=width)
        for seed in (0, 1):
            write_run(Path("losses") / f"{width}-{seed}", "cauchy", seed)
    built = report.build(["losses"], figures=False)
    assert sorted(group.label for group in built.grouping.groups) == ["AlphaCL Cauchy ω=0.5", "AlphaCL Cauchy ω=2"]
    columns = (Path("losses/report") / "runs.csv").read_text(encoding="utf-8").splitlines()[0].split(",")
    assert "model.importance.width" in columns
    assert "ω" in built.page.read_text(encoding="utf-8")
    run_tests("cauchy", *CONTRACT)


def check_the_callback():
    from generators import configuration

    from lightning_ssl.app import cli, report
    from lightning_ssl.app.config import flags
    from lightning_ssl.app.config.keys import role
    from lightning_ssl.app.runs import RunFolder
    from lightning_ssl.app.runs.metrics import LOWER_IS_BETTER
    from lightning_ssl.app.tracking import dashboard

    assert [flag.key for flag in flags.sections()["norms"].flags] == ["norms.scale"]
    assert "--norms.scale" in configuration.page()
    assert role("norms") == role("norms.scale") == "incidental"
    words = [*small_fit("SimCLR", train_images=32, test_images=16), "--trainer.max_epochs=1", "--knn=null"]
    assert cli.main(["fit", *words, "--norms.scale=2", "--runs=runs", "--name=run"]) == 0
    run = RunFolder("runs/run")
    assert run.config()["norms"] == {"class_path": "lightning_ssl.FeatureNorm", "init_args": {"scale": 2.0}}
    assert run.summary()["last"]["norms/mean"] > 0
    assert LOWER_IS_BETTER.search("norms/mean")
    page = report.build(["runs"], figures=False).page.read_text(encoding="utf-8")
    assert all(text in page for text in ("Norms", "mean norm", "norms/mean"))
    (section,) = [
        each
        for each in dashboard.build("entity", "project", "name", None, ["model.importance"]).sections
        if each.name == "Norms"
    ]
    assert [panel.title for panel in section.panels] == ["Mean norm"]
    run_tests("norm", "base/test_facts.py", "test_examples.py")
