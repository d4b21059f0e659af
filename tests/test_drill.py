"""A new loss is a class, its oracle and its configuration; a new callback is a class. Nothing else is edited.

Both are added to a copy of the project. A new process that imports the copy then looks at everything that follows from
them.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT

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
            ignored = shutil.ignore_patterns("__pycache__", "configs", "sweeps") if name == "lightning_ssl" else None
            shutil.copytree(source, target, ignore=ignored or shutil.ignore_patterns("__pycache__"))
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


@pytest.fixture(scope="module")
def found(project):
    """What a new process that imports the copy finds of the loss and of the callback."""
    result = project / "result.json"
    both = "[test_drill.look_at_the_loss(), test_drill.look_at_the_callback()]"
    code = f"import json, test_drill; json.dump({both}, open({str(result)!r}, 'w'))"
    paths = os.pathsep.join(str(project / name) for name in ("", "tests", "docs"))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, env={**os.environ, "PYTHONPATH": paths},
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(result.read_text(encoding="utf-8"))


class Passed:
    """A plugin of pytest: the files of the tests that passed."""

    def __init__(self):
        self.files = []

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.files.append(report.nodeid.partition("::")[0].removeprefix("tests/"))


def run_tests(word, *files):
    """The files whose tests with a word in their names pass. A test that fails is an error."""
    plugin = Passed()
    code = pytest.main(["-q", "-k", word, "-p", "no:cacheprovider", *(f"tests/{file}" for file in files)], [plugin])
    assert code == 0, f"pytest: {code}"
    return sorted(set(plugin.files))


def look_at_the_loss():
    from generators import api, losses
    from helpers.run_folders import LOSSES, alpha_cl, write_run

    import lightning_ssl
    from lightning_ssl.app import report
    from lightning_ssl.app.config import catalog, flags
    from lightning_ssl.app.config.keys import role
    from lightning_ssl.app.config.labels import label_of_config

    sections = flags.sections()
    for width in (0.5, 2.0):
        LOSSES["cauchy"] = alpha_cl("Cauchy", width=width)
        for seed in (0, 1):
            write_run(Path("runs") / f"{width}-{seed}", "cauchy", seed)
    built = report.build(["runs"], figures=False)
    (row,) = [each for each in catalog.entries("importances") if each.name == "Cauchy"]
    return {
        "package": str(Path(lightning_ssl.__file__).parents[1]),
        "flag": [[flag.key, flag.description] for flag in sections["model.importance.Cauchy"].flags],
        "names": [flag.choices for flag in sections["model.importance"].flags],
        "role": role("model.importance.width"),
        "label": label_of_config({"model": alpha_cl("Cauchy", width=0.5)}),
        "list": list(row),
        "page": losses.section(lightning_ssl.Cauchy),
        "figure": "weights_Cauchy" in losses.all_figures(),
        "api": "lightning_ssl.Cauchy\n" in api.pages()["losses"],
        "groups": sorted(group.label for group in built.grouping.groups),
        "columns": (Path("runs/report") / "runs.csv").read_text(encoding="utf-8").splitlines()[0].split(","),
        "axis": "ω" in built.page.read_text(encoding="utf-8"),
        "tests": run_tests(
            "cauchy", *CONTRACT, "repository/test_configs.py", "test_examples.py", "test_public_names.py"
        ),
    }


def test_a_new_loss_needs_no_edit_but_its_class_its_oracle_and_its_configuration(project, found):
    found, _ = found
    assert found["package"] == str(project)
    assert found["flag"] == [["model.importance.width", "distance ω at which a weight is halved"]]
    assert "Cauchy" in found["names"][0]
    assert found["role"] == "loss"
    assert found["label"] == "AlphaCL Cauchy ω=0.5"
    assert found["list"] == ["Cauchy", "α_ij ∝ 1/(1 + d2_neg_ij/ω).", "method/cauchy"]
    assert "- Source: the drill, Eqn. 1\n- Configuration: `configs/method/cauchy.yaml`" in found["page"]
    assert "- `width`: distance ω at which a weight is halved" in found["page"]
    assert found["figure"]
    assert found["api"]
    assert found["groups"] == ["AlphaCL Cauchy ω=0.5", "AlphaCL Cauchy ω=2"]
    assert "model.importance.width" in found["columns"]
    assert found["axis"]
    assert set(found["tests"]) == set(CONTRACT)


def look_at_the_callback():
    from generators import configuration

    from lightning_ssl.app import cli, report
    from lightning_ssl.app.config import flags
    from lightning_ssl.app.config.keys import role
    from lightning_ssl.app.runs import RunFolder
    from lightning_ssl.app.runs.metrics import LOWER_IS_BETTER
    from lightning_ssl.app.tracking import dashboard

    words = ["--model.backbone=resnet_tiny", '--data.options={"train_images": 32, "test_images": 16}']
    words += ["--model=SimCLR", "--data.batch_size=16", "--trainer.max_epochs=1", "--trainer.accelerator=cpu"]
    words += ["--norms.scale=2", "--knn=null", "--runs=runs", "--name=run"]
    code = cli.main(["fit", *words])
    run = RunFolder("runs/run")
    built = report.build(["runs"], figures=False)
    (section,) = [each for each in dashboard.build("entity", "project").sections if each.name == "Norms"]
    return {
        "code": code,
        "flags": [flag.key for flag in flags.sections()["norms"].flags],
        "reference": "--norms.scale" in configuration.page(),
        "roles": [role("norms"), role("norms.scale")],
        "config": run.config()["norms"],
        "last": run.summary()["last"].get("norms/mean"),
        "lower": bool(LOWER_IS_BETTER.search("norms/mean")),
        "page": [text in built.page.read_text(encoding="utf-8") for text in ("Norms", "mean norm", "norms/mean")],
        "dashboard": [panel.title for panel in section.panels],
        "tests": run_tests("norm", "base/test_facts.py", "test_examples.py", "app/config/test_keys.py"),
    }


def test_a_new_callback_needs_no_edit_but_its_class(found):
    _, found = found
    assert found["code"] == 0
    assert found["flags"] == ["norms.scale"]
    assert found["reference"]
    assert found["roles"] == ["incidental", "incidental"]
    assert found["config"] == {"class_path": "lightning_ssl.FeatureNorm", "init_args": {"scale": 2.0}}
    assert found["last"] > 0
    assert found["lower"]
    assert found["page"] == [True, True, True]
    assert found["dashboard"] == ["Mean norm"]
    assert {"base/test_facts.py", "test_examples.py"} <= set(found["tests"])
