"""The wheel works without a checkout: it brings configs/ and sweeps/ along."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest
from helpers import ROOT

BUILT_FROM = ("lightning_ssl", "configs", "sweeps", "pyproject.toml", "setup.py", "README.md", "LICENSE")
SMALL = [
    "--model.backbone=resnet_tiny",
    '--data.options={"train_images": 64, "test_images": 32}',
    "--data.batch_size=32",
    "--trainer.max_epochs=1",
    "--knn=null",
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from a copy of the checkout, so that no build folder is left in it."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, source)
    pip("wheel", "--no-build-isolation", "--wheel-dir", built, source)
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Run a command of the installed wheel in an empty folder. The dependencies are those of this environment."""
    site, folder = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("elsewhere")
    pip("install", "--target", site, wheel)
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}

    def run(*words):
        command = [sys.executable, "-P", "-m", "lightning_ssl", *words]
        if sys.version_info < (3, 11):
            command.remove("-P")
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600
        )

    where = [sys.executable, "-c", "import lightning_ssl; print(lightning_ssl.__file__)"]
    found = subprocess.run(where, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(site))
    return run


def pip(action, *words):
    quiet = ["--quiet", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", action, *quiet, *map(str, words)], check=True, timeout=300)


def test_the_wheel_has_every_configuration_and_every_sweep(wheel):
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    for folder in ("configs", "sweeps"):
        for file in (ROOT / folder).rglob("*.yaml"):
            assert f"lightning_ssl/{file.relative_to(ROOT)}" in inside


def test_an_installed_sweep_lists_its_trials(installed):
    shown = installed("sweep", "quickstart", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "configs/method/direct.yaml" in shown.stdout


def test_installed_laboratories_and_reproductions_are_listed(installed):
    assert "hltm" in installed("lab", "list").stdout
    shown = installed("reproduce", "list")
    assert "dual-table3" in shown.stdout
    assert "--scale paper" in shown.stdout


@pytest.mark.slow
def test_an_installed_package_trains_sweeps_and_reports(installed):
    fit = installed("fit", "--config", "data/shapes", "--config=method/direct", "--name=one", *SMALL)
    assert fit.returncode == 0, fit.stderr
    sweep = installed("sweep", "quickstart", "--name=two", "--count=1", "--", *SMALL)
    assert sweep.returncode == 0, sweep.stdout + sweep.stderr
    report = installed("report", "runs")
    assert report.returncode == 0, report.stderr
