"""Sweep files: the search, the limits, the commands, and the errors."""

import json
import re
import sys
from itertools import islice
from pathlib import Path

import pytest
from helpers.processes.trials import page_command
from helpers.sweeps import FAKE_COMMAND

from lightning_ssl.app.sweep import plan
from lightning_ssl.app.sweep.engine import preview, trial_command, trial_id
from lightning_ssl.app.sweep.plan import fit_flags
from lightning_ssl.app.sweep.state import Trial

# -- the search -------------------------------------------------------------------------------------------------------


def dry_run_ids(run_sweep, file, *flags):
    return run_sweep(file, "--dry-run", *flags).stdout.splitlines()[::2]


def test_random_trials_depend_only_on_the_seed_and_their_number(run_sweep, write_sweep):
    file = write_sweep(method="random", parameters={"x": {"min": 0.0, "max": 1.0}, "y": {"values": [1, 2, 3]}})
    three = dry_run_ids(run_sweep, file, "--count", "3")
    assert dry_run_ids(run_sweep, file, "--count", "6")[:3] == three
    assert dry_run_ids(run_sweep, file, "--count", "3", "--seed", "1") != three


DISTRIBUTIONS = {
    "a": {"distribution": "uniform", "min": 0, "max": 1},
    "b": {"distribution": "log_uniform_values", "min": 1.0e-5, "max": 0.1},
    "c": {"distribution": "q_uniform", "min": 0, "max": 10, "q": 2},
    "d": {"distribution": "int_uniform", "min": 1, "max": 9},
    "e": {"distribution": "normal", "mu": 1.0, "sigma": 2.0},
    "f": {"values": ["x", "y"], "probabilities": [0.1, 0.9]},
}


def test_drawn_values_are_plain_python_numbers(write_sweep):
    sweep = plan.read(write_sweep(method="random", parameters=DISTRIBUTIONS), count=3)
    drawn = sweep.next_parameters([], {})
    assert [type(drawn[key]) for key in DISTRIBUTIONS] == [float, float, int, int, float, str]
    assert json.loads(json.dumps(drawn)) == drawn


@pytest.mark.numeric
def test_bayes_uses_the_results_and_approaches_the_optimum(write_sweep):
    sweep = plan.read(write_sweep(method="bayes", parameters={"x": {"min": 0.0, "max": 1.0}}), count=20)
    trials, histories = [], {}
    for number in range(1, 16):
        x = sweep.next_parameters(trials, histories)["x"]
        value = -((x - 0.3) ** 2)
        trials.append(Trial(number, f"{number:03d}", {"x": x}, status="finished", value=value))
        histories[trials[-1].id] = [value]
    last = [abs(row.parameters["x"] - 0.3) for row in trials[-5:]]
    assert sorted(last)[2] < 0.1  # the median of five; 0.25 for uniform draws


def test_trial_ids_contain_the_parameters_that_vary(write_sweep):
    parameters = {
        "config": {"values": ["configs/method/direct.yaml"]},
        "model.p": {"min": 1.0, "max": 2.0},
        "z": {"value": 1},
    }
    sweep = plan.read(write_sweep(method="random", parameters=parameters), count=1)
    values = {"config": "configs/method/direct.yaml", "model.p": 1.23456789, "z": 1}
    assert trial_id(sweep, 7, values) == "007-direct-p=1.235"


def test_run_cap_limits_the_trials(write_sweep):
    assert plan.read(write_sweep(parameters={"a": {"values": [1, 2, 3]}}, run_cap=2)).limit == 2
    assert plan.read(write_sweep(parameters={"a": {"values": [1, 2, 3]}}, run_cap=2), count=1).limit == 1
    assert plan.read(write_sweep(parameters={"a": {"values": [1, 2, 3]}}), count=9).limit == 3


# -- errors -----------------------------------------------------------------------------------------------------------


def values(x):
    return {"parameters": {"x": {"values": [x]}}}


def fit(*words):
    return {"command": ["lightning-ssl", "fit", *words, "${args}"]}


HYPERBAND = {"type": "hyperband", "min_iter": 1}
REFUSED = [
    ({"parameters": {"model": {"parameters": {"lr": {"values": [1]}}}}}, "write flat names, `model.…`"),
    ({"parameters": {"lr": {"min": "1e-5", "max": 0.1}}}, "YAML reads 1e-5 as text, not as a number; write 1.0e-05"),
    (values("2.5e4"), "YAML reads 2.5e4 as text, not as a number; write 25000.0"),
    ({"parameters": {"lr": {"min": 0.1}}}, "parameters.lr={'min': 0.1}: no W&B distribution has these keys"),
    ({"parameters": {"lr": {"min": 1.0, "max": 0.1}}}, "={'min': 1.0, 'max': 0.1}: lr: min 1.0 is not less than max"),
    ({"parameters": {"lr": 0.1}}, "parameters.lr=0.1: expected `{values:"),
    ({"parameters": {}}, "parameters: {} should be non-empty"),
    (values({1: 2}), "expected text, finite numbers"),
    ({"methods": "grid"}, "('methods' was unexpected); valid keys: "),
    ({"parameters": {"lr": {"min": 0.1, "max": 0.2}}}, "lr is a disallowed type with grid search"),
    ({"method": "bayes", "metric": None, "run_cap": 3}, "bayes needs `metric:"),
    ({"metric": None, "early_terminate": HYPERBAND}, "early_terminate needs `metric:"),
    ({"early_terminate": {"type": "hyperband"}}, "early_terminate: 'max_iter' is a required property"),
    ({"early_terminate": {**HYPERBAND, "eta": 1.0e300}}, "'eta': 1e+300}: cannot convert float infinity"),
    ({"command": ["${interpreter}", "${program}", "${args}"]}, "the file has no `program`"),
    ({"command": "python train.py"}, "command: 'python train.py' is not of type 'array'"),
    ({"command": [{"a": 1}]}, "command=[{'a': 1}]: expected a list of words"),
    (fit("--name=x"), "name: the sweep sets --name for each trial"),
    ({**fit(), "parameters": {"runs": {"value": 1}}}, "sets --runs for each"),
    ({"parameters": {1: {"values": [1]}}}, "parameters={1: {'values': [1]}}: expected text, finite"),
    ({"parameters": {"a b": {"values": [1]}}}, "parameters: 'a b' does not match"),
    ({"metric": {"name": ""}}, "metric.name='': metric.name must be text"),
    ({"metric": {"name": "x", "target": float("inf")}}, "'target': inf}: expected text, finite"),
]


@pytest.mark.parametrize(("keys", "message"), REFUSED)
def test_bad_sweep_files_are_refused_by_key_and_value(write_sweep, keys, message):
    file = write_sweep(**{"parameters": {"a": {"values": [1]}}, **keys})
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        plan.read(file)
    assert "\n" not in str(refused.value)


def test_a_dry_run_prints_a_trial_before_it_draws_the_next(write_sweep, tmp_path, monkeypatch):
    """A dry run of 100,000 trials drew all of them, each with all earlier ones, before it printed the first."""
    drawn = []
    monkeypatch.setattr(plan.wandb_sweeps, "next_parameters", lambda config, runs: drawn.append(runs) or {"x": 0.5})
    sweep = plan.read(write_sweep(method="random", parameters={"x": {"min": 0.0, "max": 1.0}}), count=100_000)
    assert [row.number for row, _ in islice(preview(sweep, tmp_path / "sweep"), 3)] == [1, 2, 3]
    assert drawn == [[], [], []]


def test_an_unknown_macro_is_reported(run_sweep, write_sweep):
    result = run_sweep(write_sweep(parameters={"a": {"values": [1]}}, command=["echo", "${arg}"]), "--dry-run")
    assert "command: ${arg} is not a macro; it expands to nothing" in result.stderr


# -- the command of a trial -------------------------------------------------------------------------------------------


def command_of(write_sweep, command, *extra_flags):
    """The command of the trial with a=1."""
    sweep = plan.read(write_sweep(parameters={"a": {"values": [1]}}, command=command), extra_flags=extra_flags)
    return trial_command(sweep, Path("runs/one"), Trial(1, "001", {"a": 1}))


RUN_FLAGS = ["--runs", "runs/one", "--name", "001", "--resume", "auto", "--group", "one"]


@pytest.mark.parametrize(
    "start",
    [
        ["${env}", "lightning-ssl"],
        ["lightning-ssl"],
        ["/opt/bin/lightning-ssl"],
        ["${interpreter}", "-m", "lightning_ssl"],
        ["python", "-m", "lightning_ssl.cli"],
    ],
)
def test_fit_is_recognized_and_gets_its_folder_as_flags(write_sweep, start):
    command = command_of(write_sweep, [*start, "fit", "--config=x.yaml", "${args}"], "--trainer.max_epochs=1")
    assert fit_flags(command) == ["--config=x.yaml", "--a=1", "--trainer.max_epochs=1", *RUN_FLAGS]


@pytest.mark.parametrize(
    "start",
    [
        page_command("torchrun")[:-1],
        page_command("srun")[:-2],
        ["torchrun", "--nproc-per-node=2", "-m", "lightning_ssl"],
        ["torchrun", "--nproc-per-node=2", "-m", "lightning_ssl.cli"],
        ["env", "A=1", "lightning-ssl"],
    ],
)
def test_fit_after_a_launcher_gets_its_folder_as_flags(write_sweep, start):
    """It runs as a separate program, because the launcher starts it."""
    command = command_of(write_sweep, [*start, "fit", "${args}"])
    assert fit_flags(command) is None
    assert command[-9:] == ["--a=1", *RUN_FLAGS]
    with pytest.raises(ValueError, match="name: the sweep sets --name for each trial"):
        command_of(write_sweep, [*start, "fit", "--name=x", "${args}"])


@pytest.mark.parametrize(
    "command", [["lightning-ssl", "evaluate", "${args}"], ["python", "fit", "${args}"], FAKE_COMMAND]
)
def test_other_commands_get_no_flags(write_sweep, command):
    expanded = command_of(write_sweep, command)
    assert fit_flags(expanded) is None
    assert expanded[-1] == "--a=1"


def test_args_json_file_holds_the_parameters(run_sweep, write_sweep, tmp_path):
    show = [sys.executable, "-c", "import sys; print(open(sys.argv[1]).read())", "${args_json_file}"]
    run_sweep(write_sweep(parameters={"a": {"values": [1]}}, command=show))
    assert (tmp_path / "runs" / "one" / "001-a=1" / "log.txt").read_text() == '{"a": 1}\n'
