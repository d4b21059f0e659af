"""The interfaces of W&B's packages that the sweep engine uses. A failing test names the interface that has moved."""

import re
from pathlib import Path

import pytest
from helpers import ROOT

from lightning_ssl.app.sweep import wandb_sweeps
from lightning_ssl.app.sweep.state import STATUSES, Trial
from lightning_ssl.app.sweep.wandb_sweeps import interface, runs_of

CHECKED = {"sweeps": "0.2.0", "wandb": "0.31.0"}  # the versions with which these tests passed

GRID = {"method": "grid", "parameters": {"a": {"values": [1, 2]}, "b": {"values": ["x"]}}}
METRIC = {"metric": {"name": "score", "goal": "maximize"}}


@pytest.mark.parametrize("package", CHECKED)
def test_the_pinned_version_is_the_one_that_was_checked(package):
    """After an upgrade: run these tests, then change CHECKED."""
    pinned = re.search(rf"^{package}==(\S+)", (ROOT / "requirements.txt").read_text(), flags=re.MULTILINE)
    assert pinned[1] == CHECKED[package]


def test_no_other_module_imports_from_sweeps_or_from_wandbs_sweep_code():
    for file in (ROOT / "lightning_ssl").rglob("*.py"):
        if file.name != "wandb_sweeps.py":
            found = re.findall(
                r"^\s*(?:from|import) (?:sweeps|wandb\.sdk\.launch)\b.*$", file.read_text(), re.MULTILINE
            )
            assert found == [], file


# -- the behaviour of each --------------------------------------------------------------------------------------------


def test_sweep_run_takes_its_fields_by_alias_only():
    """`SweepRun(history=…)` silently drops its argument. If this fails, the aliases are no longer needed."""
    trial = Trial(1, "001", {"x": 1}, status="stopped", value=0.5)
    (run,) = runs_of([trial], "score", {"001": [0.1, 0.5]})
    assert run.metric_history("score") == [0.1, 0.5]
    assert run.summary_metric("score") == 0.5
    assert run.stopped
    assert interface("sweeps.SweepRun")(history=[{"score": 1}]).history == []


@pytest.mark.parametrize("status", STATUSES)
def test_run_state_has_a_member_for_every_status_of_a_trial(status):
    expected = {"interrupted": "pending", "stopped": "finished"}.get(status, status)
    (run,) = runs_of([Trial(1, "001", {}, status=status)], None, {})
    assert run.state == expected


def test_checks_that_are_not_in_the_schema_are_made():
    assert wandb_sweeps.schema_violations(GRID) == []
    probabilities = {"a": {"values": [1, 2], "probabilities": [0.5, 0.7]}}
    (violation,) = wandb_sweeps.schema_violations({"method": "random", "parameters": probabilities})
    assert violation == "Parameter a: Probabilities [0.5, 0.7] do not sum to 1"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"metric": {"name": 3}}, "metric.name: 3 is not of type 'string'"),
        ({"metric": {"goal": "maximize"}}, "metric: 'name' is a required property"),
        ({"metric": {"name": "x", "goal": "best"}}, "metric.goal: 'best' is not one of ['minimize', 'maximize']"),
        ({"early_terminate": {"type": "hyperband", "min_iter": 0}}, "early_terminate.min_iter: 0 is less than the min"),
        ({1: 2}, "Additional properties are not allowed (1 was unexpected); valid keys: "),
    ],
)
def test_a_violation_names_its_key_its_value_and_what_is_expected(keys, expected):
    (violation,) = wandb_sweeps.schema_violations({**GRID, **keys})
    assert violation.startswith(expected)


@pytest.mark.parametrize(
    "entry",
    [
        {"min": 0.1},
        {"min": 0, "max": 10**25},
        {"min": -1.7e308, "max": 1.7e308},
        {"distribution": "beta", "a": 0, "b": 0},
        {"distribution": "normal", "sigma": 0},
        {"distribution": "q_uniform", "min": 0, "max": 1, "q": 1e-320},
        {"distribution": "q_uniform", "min": 0, "max": 10**25, "q": 10**20},
    ],
)
def test_a_distribution_without_finite_draws_is_refused(entry):
    with pytest.raises(ValueError, match=r"its draws are not finite numbers|no W&B distribution has these keys"):
        wandb_sweeps.check_distribution("x", entry)


COMMANDS = [
    ["${env}", "${interpreter}", "${program}", "${args}"],
    ["a", "${args_no_hyphens}", "x${args}", "${args} "],
    ["a", "${args_no_boolean_flags}"],
    ["a", "${args_json}", "${args_json_file}", "--file=${args_json_file}"],
    ["a", "${args_no_equals}", "${args_append_hydra}", "${args_override_hydra}"],
    ["a", "${envvar:SWEEP_TEST}", "x-${envvar:SWEEP_TEST}-${envvar:NOT_SET_ANYWHERE}", "${nonsense}", 3],
]


@pytest.mark.parametrize("command", COMMANDS)
def test_macros_expand_as_in_wandb_agent(command, monkeypatch, tmp_path):
    """Compared with W&B's agent. Only its start of a process is replaced, through private members of wandb 0.31.0."""
    from wandb import wandb_agent

    monkeypatch.chdir(tmp_path)
    variables = {"SWEEP_TEST": "s t", "WANDB_SWEEP_ID": "s", "WANDB_RUN_ID": "", "WANDB_SWEEP_PARAM_PATH": ""}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    started = []

    class Process:
        def __init__(self, command, **_):
            started.append(command)

    monkeypatch.setattr(wandb_agent, "AgentProcess", Process)
    agent = wandb_agent.Agent.__new__(wandb_agent.Agent)
    agent._sweep_command, agent._function, agent._in_jupyter = list(command), None, False
    agent._forward_signals, agent._run_processes = False, {}
    parameters = {"lr": 0.1, "flag": True, "off": False, "none": None, "text": "a b", "list": [1, 2]}
    agent._command_run(
        {"run_id": "r", "program": "train.py", "args": {key: {"value": value} for key, value in parameters.items()}}
    )
    json_file = Path("wandb") / "sweep-s" / "config-r.json"
    given = list(command)
    assert wandb_sweeps.expand_macros(given, "train.py", parameters, json_file) == started[0]
    assert given == command
