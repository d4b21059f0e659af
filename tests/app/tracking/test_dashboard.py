"""The dashboard: a workspace of W&B, written to a file or saved on a server."""

import json
import subprocess
import sys

import pytest
from helpers.processes.killing import in_a_fork, one_thread  # noqa: F401
from helpers.processes.wandb_server import ENTITY, Server
from helpers.run_folders import config_of, write_sweep

from lightning_ssl.app.commands import dashboard
from lightning_ssl.app.tracking import dashboard as workspace
from lightning_ssl.app.tracking.logger import wandb_config
from lightning_ssl.app.tracking.private import workspace_as_dict

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic V1 style")  # those of wandb-workspaces

WORDS = ["--entity", ENTITY, "--project", "p"]


def panels(spec):
    return {
        panel["config"].get("chartTitle", panel["viewType"]): panel
        for section in spec["section"]["panelBankConfig"]["sections"]
        for panel in section["panels"]
    }


def test_the_dashboard_is_written_without_a_server_or_an_account(tmp_path, environment):
    file = tmp_path / "workspace.json"
    for _ in range(2):  # an earlier dump is replaced
        assert dashboard.main([*WORDS, "--group", "s1", "--parameters", "tau,p", "--dump", str(file)]) == 0
    written = json.loads(file.read_text())
    assert (written["entity"], written["project"]) == (ENTITY, "p")
    found = panels(written["spec"])
    by_metric = {}
    for panel in found.values():
        for metric in panel["config"].get("metrics", []):
            by_metric.setdefault(metric, []).append(panel)
    accuracy = {panel["viewType"]: panel["config"] for panel in by_metric["online/top1"]}
    assert accuracy["Run History Line Plot"]["groupBy"] == "label.value"
    assert accuracy["Bar Chart"]["groupBy"] == "label.value"
    assert accuracy["Bar Chart"]["groupArea"] == "stddev"
    assert {"alpha/entropy", "alpha/effective_negatives", "alpha/zeros", "alpha/top1"} <= by_metric.keys()
    columns = [column["accessor"] for column in found["From parameters to accuracy"]["config"]["columns"]]
    assert columns == ["config:label.value", "config:tau.value", "config:p.value", "summary:online/top1"]
    (runs,) = written["spec"]["section"]["runSets"]
    assert [(key["key"]["name"], key["value"]) for key in runs["filters"]["filters"]] == [("group", "s1")]


def test_the_dashboard_begins_with_the_table_and_the_verdict_of_the_report(tmp_path, capsys):
    runs = write_sweep(tmp_path, ("direct", "infonce"), epochs=2)
    assert dashboard.main([*WORDS, "--runs", str(runs), "--dump", "-"]) == 0
    first = json.loads(capsys.readouterr().out)["spec"]["section"]["panelBankConfig"]["sections"][0]
    (panel,) = first["panels"]
    assert first["name"] == "Which loss is the best"
    assert panel["config"]["value"].startswith("| loss | seeds | accuracy")
    assert "can be the best" in panel["config"]["value"]


def test_the_dashboard_uses_keys_that_every_run_has():
    words = wandb_config(config_of("direct_p6"))
    assert {workspace.LOSS, "seed", *workspace.PARAMETERS} <= words.keys()


def test_the_dashboard_is_saved_in_the_project_of_the_runs(environment):
    written = workspace_as_dict(workspace.build(ENTITY, "p", "Losses", None, workspace.PARAMETERS))
    with Server() as server:
        environment(server.environment())
        assert in_a_fork(dashboard.main, WORDS) == 0
        (view,) = server.views
    assert (view["entityName"], view["projectName"], view["displayName"]) == (ENTITY, "p", "Losses")
    assert panels(json.loads(view["spec"])).keys() == panels(written["spec"]).keys()


def test_a_missing_key_is_named(environment):
    with pytest.raises(ValueError, match=r"there is no key .*--dump"):
        workspace.save(workspace.build(ENTITY, "p", "Losses", None, workspace.PARAMETERS))


def test_dump_imports_no_torch(tmp_path):
    code = "import sys; from lightning_ssl import cli; cli.main(['dashboard', *sys.argv[1:]]); "
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, *WORDS, "--dump", str(tmp_path / "file")]).returncode == 0
