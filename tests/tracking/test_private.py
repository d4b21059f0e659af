"""The private interfaces that `tracking` uses are where they were. A failure names the interface that changed."""

import ast
import importlib
import inspect
from importlib.metadata import version
from pathlib import Path

import pytest
from helpers import ROOT

from lightning_ssl.tracking import private
from lightning_ssl.tracking.dashboard import build

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic V1 style")  # those of wandb-workspaces
functions = [entry for entry in private.INTERFACES if entry.parameters is not None]


def changed(entry, what):
    return (
        f"{entry.module}.{entry.name}: {what}. Checked against {entry.package} {entry.version}, installed is"
        f" {version(entry.package)}. Adapt lightning_ssl/tracking/private.py and its INTERFACES."
    )


@pytest.mark.parametrize("entry", functions, ids=lambda entry: f"{entry.module}.{entry.name}")
def test_a_private_function_has_its_name_and_parameters(entry):
    try:
        found = importlib.import_module(entry.module)
    except ImportError as error:
        pytest.fail(changed(entry, f"the module is gone ({error})"))
    for name in entry.name.split("."):
        if not hasattr(found, name):
            pytest.fail(changed(entry, f"{name} is gone"))
        found = getattr(found, name)
    parameters = inspect.signature(found).parameters
    missing = [name for name in entry.parameters if name not in parameters]
    assert not missing, changed(entry, f"no parameter {', '.join(missing)}")
    required = {
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    assert required <= set(entry.parameters), changed(
        entry, f"new required parameters {required - {*entry.parameters}}"
    )


def test_lightnings_logger_keeps_its_run_in_the_private_attribute(tmp_path, monkeypatch):
    """`version` of Lightning's logger is the id of the run in `_experiment`."""
    from pytorch_lightning.loggers import WandbLogger

    (entry,) = [entry for entry in private.INTERFACES if entry.parameters is None]
    logger = WandbLogger(save_dir=tmp_path, id="before")
    assert entry.name == "WandbLogger._experiment"
    assert "_experiment" in vars(logger), changed(entry, "the attribute is gone")
    assert private.started_run(logger) is None, changed(entry, "it is not None before the run starts")

    class Started:
        id = "after"

    private.set_run(logger, Started)
    assert logger.version == "after", changed(entry, "Lightning does not read it any more")


def test_the_view_of_a_workspace_has_the_fields_that_are_used():
    (entry,) = [entry for entry in private.INTERFACES if entry.name.startswith("Workspace")]
    try:
        content = private.workspace_as_dict(build("me", "p"))
    except AttributeError as error:
        pytest.fail(changed(entry, str(error)))
    assert (content["entity"], content["project"], content["displayName"]) == ("me", "p", "Losses")
    assert content["spec"]["section"]["panelBankConfig"]["sections"]


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


@pytest.mark.parametrize("file", sorted((ROOT / "lightning_ssl" / "tracking").glob("*.py")), ids=lambda file: file.name)
def test_only_one_file_uses_private_names(file):
    if file.name == "private.py":
        assert len(private_names(file)) > 0
    else:
        assert private_names(file) == []
