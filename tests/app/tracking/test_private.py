"""The private interfaces that `tracking` uses are where they were. A failure names the interface that changed."""

import ast
import importlib
import inspect
from functools import reduce
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
from pytorch_lightning.loggers import WandbLogger

from lightning_ssl.app.tracking import private

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic V1 style")  # those of wandb-workspaces


def changed(path, what):
    package = path.partition(".")[0]
    return (
        f"{path}: {what}. Checked against {package} {private.CHECKED[package]}, installed is {version(package)}. Adapt"
        " lightning_ssl/app/tracking/private.py."
    )


@pytest.mark.parametrize(("path", "used"), private.INTERFACES.items(), ids=private.INTERFACES)
def test_a_private_function_has_its_name_and_parameters(path, used):
    module, _, names = path.partition(":")
    try:
        found = reduce(getattr, names.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        pytest.fail(changed(path, f"it is gone ({error})"))
    try:
        inspect.signature(found).bind(**dict.fromkeys(used))
    except TypeError as error:
        pytest.fail(changed(path, str(error)))


def test_lightnings_logger_keeps_its_run_in_the_private_attribute(tmp_path):
    """`version` of Lightning's logger is the id of the run in `_experiment`."""
    path, logger = "pytorch_lightning.loggers:WandbLogger._experiment", WandbLogger(save_dir=tmp_path, id="before")
    assert "_experiment" in vars(logger), changed(path, "the attribute is gone")
    assert private.started_run(logger) is None, changed(path, "it is not None before the run starts")
    private.set_run(logger, SimpleNamespace(id="after"))
    assert logger.version == "after", changed(path, "Lightning does not read it any more")


def private_names(file: Path) -> list[str]:
    """Imports from wandb.sdk, and attributes with a leading underscore of anything but `self` and dunder names."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("wandb.sdk", "wandb_workspaces.")):
            found += [f"{node.module}.{name.name}" for name in node.names]
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name.startswith("wandb.sdk")]
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            found.append(node.attr)
    return [name for name in found if name != "wandb_workspaces.workspaces.Workspace"]  # public, for annotations


@pytest.mark.parametrize("file", sorted(Path(private.__file__).parent.glob("*.py")), ids=lambda file: file.name)
def test_only_one_file_uses_private_names(file):
    if file.name == "private.py":
        assert len(private_names(file)) > 0
    else:
        assert private_names(file) == []
