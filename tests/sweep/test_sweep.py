"""`lightning-ssl sweep`: every trial runs once even if the engine dies; sweep files, commands and errors."""

import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from helpers import ROOT, TESTS
from helpers.closeness import close
from rich.console import Console

from lightning_ssl import cli
from lightning_ssl.commands import sweep
from lightning_ssl.sweep import outcome, plan, screen, trial
from lightning_ssl.sweep.engine import command_of, trial_id, verdict
from lightning_ssl.sweep.state import State, Trial

TRIAL = TESTS / "helpers" / "fake_trial.py"
COMMAND = ["${env}", "${interpreter}", str(TRIAL), "${args}"]


@pytest.fixture
def write(tmp_path):
    """Writes a sweep file: a grid of `fake_trial.py` by default."""

    def write(**keys):
        keys = {"method": "grid", "metric": {"name": "score", "goal": "maximize"}, "command": COMMAND, **keys}
        file = tmp_path / "one.yaml"
        file.write_text(yaml.safe_dump({k: v for k, v in keys.items() if v is not None}, sort_keys=False))
        return file

    return write


def words(file, *flags):
    return [sys.executable, "-m", "lightning_ssl.cli", "sweep", str(file), "--runs", str(file.parent / "runs"), *flags]


class Result(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(capfd):
    """Runs `lightning-ssl sweep` in this process."""

    def run(file, *flags):
        capfd.readouterr()
        code = cli.main(["sweep", str(file), "--runs", str(file.parent / "runs"), *flags])
        return Result(code, *capfd.readouterr())

    return run


def rows(folder):
    with State(folder / "sweep.db") as state:
        return {row.id: row for row in state.trials()}


def counted(file):
    return Counter(file.read_text().split()) if file.exists() else Counter()


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


# -- one engine -------------------------------------------------------------------------------------------------------


def test_a_grid_runs_every_cell_once_and_continues_after_a_failure(run, write, tmp_path):
    file = write(parameters={"quality": {"values": [0.2, 0.8]}, "fail": {"values": [0, 1]}})
    result = run(file, "--workers", "2")
    assert result.returncode == 1
    found = rows(tmp_path / "runs" / "one")
    assert sorted((row.parameters["quality"], row.status) for row in found.values()) == [
        (0.2, "failed"),
        (0.2, "finished"),
        (0.8, "failed"),
        (0.8, "finished"),
    ]
    assert {row.error for row in found.values()} == {None, "RuntimeError: asked to fail"}
    assert "best: 002-quality=0.8-fail=0  score=0.7" in result.stdout
    for id in found:
        assert "working" in (tmp_path / "runs" / "one" / id / "log.txt").read_text()
    status = run(file, "--status").stdout
    assert status.startswith("one: 2 of 4 finished · 0 running · 2 failed · best 002-quality=0.8-fail=0 0.7000\n")
    again = run(file, "--workers", "2")
    assert again.returncode == 1
    assert set(counted(tmp_path / "runs" / "one" / "began").values()) == {1}


def test_failed_trials_run_again_only_with_retry(run, write, tmp_path):
    file = write(parameters={"fail": {"values": [1]}})
    run(file)
    run(file, "--retry")
    assert counted(tmp_path / "runs" / "one" / "began").total() == 2


def test_a_missing_program_is_a_failed_trial(run, write, tmp_path):
    run(write(parameters={"a": {"values": [1]}}, command=["no-such-program", "${args}"]))
    (row,) = rows(tmp_path / "runs" / "one").values()
    assert (row.status, row.error) == ("failed", "no-such-program: No such file or directory")


@pytest.mark.parametrize("stubborn", [0, 1])
def test_hyperband_stops_the_worst_trial(run, write, tmp_path, monkeypatch, stubborn):
    monkeypatch.setattr(trial, "GRACE", 0.1)
    file = write(
        parameters={
            "stubborn": {"value": stubborn},
            "quality": {"values": [0.9, 0.8, 0.1]},
            "steps": {"value": 200},
            "pause": {"value": 0.02},
        },
        early_terminate={"type": "hyperband", "min_iter": 4, "eta": 3},
    )
    result = run(file, "--workers", "3")
    found = {row.parameters["quality"]: row for row in rows(tmp_path / "runs" / "one").values()}
    assert found[0.1].status == "stopped", result.stdout
    assert found[0.9].status == "finished"
    assert found[0.1].value == pytest.approx(0.1, abs=0.01)  # the score approaches the quality
    assert len(outcome.history(tmp_path / "runs" / "one" / found[0.1].id, "score")) < 200
    assert result.returncode == 0


def test_a_sweep_ends_when_its_target_is_reached(run, write, tmp_path):
    file = write(
        parameters={"quality": {"values": [0.2, 0.9, 0.5]}}, metric={"name": "score", "goal": "maximize", "target": 0.7}
    )
    assert run(file).returncode == 0
    close([row.value for row in rows(tmp_path / "runs" / "one").values()], [0.175, 0.7875])


def test_each_worker_gets_its_own_gpu(run, write, tmp_path):
    show = [
        sys.executable,
        "-c",
        "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES']); time.sleep(1)",
        "${args}",
    ]
    run(write(parameters={"a": {"values": [1, 2]}}, command=show), "--workers", "2", "--gpus", "4,7")
    logs = [(tmp_path / "runs" / "one" / id / "log.txt").read_text().strip() for id in rows(tmp_path / "runs" / "one")]
    assert sorted(logs) == ["4", "7"]


def test_a_metric_that_no_trial_logged_is_reported(run, write):
    result = run(write(parameters={"a": {"values": [1]}}, metric={"name": "accuracy"}))
    assert "no trial logged the metric 'accuracy'; logged were: score" in result.stdout


# -- killed, stopped and second engines -------------------------------------------------------------------------------

LONG = {"quality": {"values": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}, "steps": {"value": 20}, "pause": {"value": 0.05}}


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_a_killed_engine_resumes_every_trial_once(run, write, tmp_path, kills):
    """SIGKILL at different moments, then let the sweep finish."""
    steps = 10 * kills  # more than the kills leave time for
    file, folder = write(parameters={**LONG, "steps": {"value": steps}}), tmp_path / "runs" / "one"
    for kill in range(kills):
        engine = subprocess.Popen(words(file, "--workers", "2"), stdout=subprocess.DEVNULL)
        begun = counted(folder / "began").total()
        until(lambda begun=begun, engine=engine: counted(folder / "began").total() > begun or engine.poll() is not None)
        time.sleep(0.1 + 0.37 * kill % 1)
        engine.kill()
        assert engine.wait() == -signal.SIGKILL
    born = [(row.pid, row.birth) for row in rows(folder).values() if row.pid is not None]
    assert born
    until(lambda: not any(trial.birth(pid) == birth for pid, birth in born), seconds=40)  # trials end with their engine
    last = run(file, "--workers", "2")
    assert last.returncode == 0, last.stderr
    found = rows(folder)
    assert [row.parameters["quality"] for row in found.values()] == LONG["quality"]["values"]
    assert {row.status for row in found.values()} == {"finished"}
    assert counted(folder / "completed") == dict.fromkeys(found, 1)
    for id in found:  # resumed: every step once
        logged = [line.split(",")[1] for line in (folder / id / "metrics.csv").read_text().splitlines()[1:]]
        assert logged == [str(step) for step in range(steps)]


def test_an_orphaned_process_is_ended_only_if_its_birth_matches(tmp_path):
    alone = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        born = trial.birth(alone.pid)
        trial.end(alone.pid, "another time", grace=5)
        assert alone.poll() is None  # same pid, another process
        trial.end(alone.pid, born, grace=5)
        assert alone.wait(timeout=5) == -signal.SIGTERM
    finally:
        alone.kill()


def test_a_late_process_cannot_claim_a_trial_taken_over(tmp_path):
    with State(tmp_path / "sweep.db") as state:
        attempt = state.hand_out(state.add(1, "001", {}))
        assert state.take_over(state.trial("001"))
        assert not state.claim("001", attempt, 123, "then")
        attempt = state.hand_out(state.trial("001"))
        seen = state.trial("001")
        assert state.claim("001", attempt, 123, "then")
        assert not state.take_over(seen)  # it began after it was read


def test_a_second_engine_is_refused_and_the_same_command_continues_after_ctrl_c(run, write, tmp_path):
    file, folder = write(parameters={**LONG, "steps": {"value": 30}}), tmp_path / "runs" / "one"
    engine = subprocess.Popen(words(file, "--workers", "2"), stdout=subprocess.PIPE, text=True)
    until(lambda: counted(folder / "began").total() == 2)
    second = run(file)
    assert second.returncode == 2
    assert second.stderr == f"lightning-ssl: {folder}: another `lightning-ssl sweep` is at work here\n"
    assert engine.poll() is None
    engine.send_signal(signal.SIGINT)
    said, _ = engine.communicate(timeout=60)
    assert engine.returncode == 130
    assert said.endswith("stopped; the same command continues\n")
    assert {row.status for row in rows(folder).values()} == {"interrupted"}
    assert run(file, "--workers", "3").returncode == 0
    assert set(counted(folder / "completed").values()) == {1}


def test_an_engine_whose_stdout_is_closed_ends_its_trials_on_ctrl_c(write, tmp_path):
    file, folder = write(parameters={**LONG, "steps": {"value": 600}}), tmp_path / "runs" / "one"
    engine = subprocess.Popen(words(file, "--workers", "2"), stdout=subprocess.PIPE, start_new_session=True)
    until(lambda: counted(folder / "began").total() == 2)
    engine.stdout.close()  # as in `… | tee log` after Ctrl-C
    os.killpg(engine.pid, signal.SIGINT)
    assert engine.wait(timeout=45) == 130
    assert {row.status for row in rows(folder).values()} == {"interrupted"}


def test_status_needs_no_count(run, write):
    result = run(write(method="random", parameters={"quality": {"min": 0.0, "max": 1.0}}), "--status")
    assert (result.returncode, result.stdout) == (0, "one: 0 of 0 finished · 0 running\n")


def test_a_grid_that_is_too_large_is_refused(run, write):
    many = {f"p{k}": {"values": list(range(20))} for k in range(6)}
    result = run(write(parameters=many))
    assert result.returncode == 2
    assert "the grid has 64,000,000 cells" in result.stderr


def test_a_changed_file_is_refused_but_a_larger_count_is_not(run, write, tmp_path):
    before = {"quality": {"min": 0.0, "max": 1.0}}
    assert run(write(method="random", parameters=before), "--count", "1").returncode == 0
    assert run(write(method="random", parameters=before, description="words", run_cap=2)).returncode == 0
    changed = write(method="random", parameters={"quality": {"min": 0.0, "max": 0.5}})
    result = run(changed, "--count", "3")
    assert result.returncode == 2
    assert "the sweep file has changed since this sweep began (parameters)" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert run(changed, "--count", "1", "--name", "two").returncode == 0
    assert len(rows(tmp_path / "runs" / "one")) == 2


@pytest.mark.parametrize(
    ("case", "status"),
    [
        ({"exit": 0, "said": "finished"}, "finished"),
        ({"exit": 0, "said": None}, "finished"),  # a program without a summary
        ({"exit": None, "said": "finished", "seen": False}, "finished"),  # killed after its work was done
        ({"exit": None, "said": "running", "seen": False}, "interrupted"),
        ({"exit": 143, "said": "interrupted"}, "interrupted"),
        ({"exit": 143, "said": "interrupted", "given_up": True}, "stopped"),
        ({"exit": 0, "said": "finished", "given_up": True}, "finished"),  # the signal came too late
        ({"exit": 1, "said": "failed"}, "failed"),
        ({"exit": 1, "said": "interrupted"}, "failed"),  # from an earlier attempt
        ({"exit": 0, "said": "failed"}, "failed"),
        ({"exit": 1, "said": "running", "seen": False}, "failed"),
        ({"exit": -9, "said": "running"}, "failed"),  # killed while the engine watched
        ({"exit": -9, "said": "running", "interrupted": True}, "interrupted"),
    ],
)
def test_the_status_of_a_trial_follows_from_its_exit_and_summary(case, status):
    assert verdict(**{"given_up": False, "interrupted": False, "seen": True, **case}) == status


def test_the_state_is_written_at_once(tmp_path):
    with State(tmp_path / "sweep.db") as state:
        state.add(1, "001", {"a": [1, "ü"]})
        other = sqlite3.connect(tmp_path / "sweep.db")
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert json.loads(other.execute("SELECT parameters FROM trials").fetchone()[0]) == {"a": [1, "ü"]}


# -- the search -------------------------------------------------------------------------------------------------------


def ids(run, file, *flags):
    return run(file, "--dry-run", *flags).stdout.splitlines()[::2]


def test_a_dry_run_shows_trials_and_commands_and_writes_nothing(run, write, tmp_path):
    file = write(parameters={"b": {"values": [1, 2]}, "a": {"values": [True, None, "x y"]}, "c": {"value": 0.5}})
    result = run(file, "--dry-run", "--count", "5")
    assert len(result.stdout.splitlines()) == 10
    assert f"/usr/bin/env python {TRIAL} --a=True --b=1 --c=0.5" in result.stdout
    assert not (tmp_path / "runs").exists()


def test_random_trials_depend_only_on_the_seed_and_their_number(run, write):
    file = write(method="random", parameters={"x": {"min": 0.0, "max": 1.0}, "y": {"values": [1, 2, 3]}})
    assert ids(run, file, "--count", "6")[:3] == ids(run, file, "--count", "3")
    assert ids(run, file, "--count", "3", "--seed", "1") != ids(run, file, "--count", "3")


DISTRIBUTIONS = {
    "a": {"distribution": "uniform", "min": 0, "max": 1},
    "b": {"distribution": "log_uniform_values", "min": 1.0e-5, "max": 0.1},
    "c": {"distribution": "q_uniform", "min": 0, "max": 10, "q": 2},
    "d": {"distribution": "int_uniform", "min": 1, "max": 9},
    "e": {"distribution": "normal", "mu": 1.0, "sigma": 2.0},
    "f": {"values": ["x", "y"], "probabilities": [0.1, 0.9]},
}


def test_drawn_values_are_plain_python_numbers(write):
    read = plan.read(write(method="random", parameters=DISTRIBUTIONS), count=3)
    drawn = read.draw([], {})
    assert {key: type(value) for key, value in drawn.items()} == {
        "a": float,
        "b": float,
        "c": int,
        "d": int,
        "e": float,
        "f": str,
    }
    assert json.loads(json.dumps(drawn)) == drawn


def test_bayes_uses_the_results_and_approaches_the_optimum(write):
    read = plan.read(write(method="bayes", parameters={"x": {"min": 0.0, "max": 1.0}}), count=20)
    past, histories = [], {}
    for number in range(1, 16):
        x = read.draw(past, histories)["x"]
        value = -((x - 0.3) ** 2)
        past.append(Trial(number, f"{number:03d}", {"x": x}, status="finished", value=value))
        histories[past[-1].id] = [value]
    late = [abs(row.parameters["x"] - 0.3) for row in past[-5:]]
    assert sorted(late)[2] < 0.1  # the median of five; 0.25 for uniform draws


def test_the_search_sees_the_history_of_a_trial(write):
    """`SweepRun(history=…)` silently drops its argument; its aliases do not."""
    read = plan.read(write(parameters={"x": {"values": [1]}}))
    seen = read.as_run(Trial(1, "001", {"x": 1}, status="stopped", value=0.5), [0.1, 0.5])
    assert seen.metric_history("score") == [0.1, 0.5]
    assert seen.summary_metric("score") == 0.5
    assert seen.stopped
    assert plan.sweeps.SweepRun(history=[{"score": 1}]).history == []  # still so


def test_trial_names_contain_the_parameters_that_vary(write):
    parameters = {
        "config": {"values": ["configs/method/direct.yaml"]},
        "model.p": {"min": 1.0, "max": 2.0},
        "z": {"value": 1},
    }
    read = plan.read(write(method="random", parameters=parameters), count=1)
    values = {"config": "configs/method/direct.yaml", "model.p": 1.23456789, "z": 1}
    assert trial_id(read, 7, values) == "007-direct-p=1.235"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"parameters": {"model": {"parameters": {"lr": {"values": [1]}}}}}, "write the flat name `model.lr`"),
        ({"parameters": {"lr": {"min": "1e-5", "max": 0.1}}}, "1e-5 is text to YAML, not a number; write 1.0e-5"),
        ({"parameters": {"lr": {"values": [0.1, "2.5e4"]}}}, "2.5e4 is text to YAML, not a number; write 2.5e+4"),
        ({"parameters": {"lr": {"min": 0.1}}}, "parameters.lr={'min': 0.1}: no distribution"),
        (
            {"parameters": {"lr": {"min": 1.0, "max": 0.1}}},
            "parameters.lr={'min': 1.0, 'max': 0.1}: lr: min 1.0 is not",
        ),
        ({"parameters": {"lr": 0.1}}, "parameters.lr=0.1: expected `{values:"),
        ({"parameters": {}}, "parameters={}: expected at least one"),
        ({"parameters": {"lr": {"values": [{1: 2}]}}}, "expected text, finite numbers"),
        ({"method": "custom"}, "method='custom': expected grid, random or bayes"),
        ({"method": None}, "method=None: expected grid, random or bayes"),
        ({"methods": "grid"}, "'methods' was unexpected"),
        ({"method": "random"}, "a random search has no end: give --count N, or run_cap in the file"),
        (
            {"method": "grid", "parameters": {"lr": {"min": 0.1, "max": 0.2}}},
            "lr is a disallowed type with grid search",
        ),
        ({"method": "bayes", "metric": None, "run_cap": 3}, "bayes needs `metric:"),
        ({"metric": None, "early_terminate": {"type": "hyperband", "min_iter": 3}}, "early_terminate needs `metric:"),
        ({"early_terminate": {"type": "hyperband"}}, "early_terminate={'type': 'hyperband'}: expected"),
        ({"run_cap": 0}, "run_cap=0: expected a whole number of trials"),
        ({"command": ["${interpreter}", "${program}", "${args}"]}, "the file has no `program`"),
        ({"command": "python train.py"}, "'python train.py' is not of type 'array'"),
        ({"command": ["lightning-ssl", "fit", "--name=x", "${args}"]}, "the sweep sets --name of each trial itself"),
        ({"command": ["lightning-ssl", "fit", "${args}"], "parameters": {"runs": {"value": 1}}}, "sets --runs of each"),
        ({"name": "a/b"}, "name='a/b': name must be a folder's name"),
    ],
)
def test_bad_sweep_files_are_refused_by_key_and_value(write, keys, message):
    file = write(**{"parameters": {"a": {"values": [1]}}, **keys})
    with pytest.raises(ValueError, match=r".") as refused:
        plan.read(file)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_unreadable_sweep_files_are_refused_in_one_line(tmp_path):
    for name, text in (("list", "- a"), ("torn", "a: [1,"), ("bytes", b"\xff\xfe\x00")):
        file = tmp_path / f"{name}.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(ValueError, match=f"{name}.yaml: ") as refused:
            plan.read(file)
        assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match="No such file"):
        plan.read(tmp_path / "nowhere.yaml")


def test_run_cap_limits_the_trials(write):
    assert plan.read(write(parameters={"a": {"values": [1, 2, 3]}}, run_cap=2)).limit == 2
    assert plan.read(write(parameters={"a": {"values": [1, 2, 3]}}, run_cap=2), count=1).limit == 1
    assert plan.read(write(parameters={"a": {"values": [1, 2, 3]}}), count=9).limit == 3


# -- the command ------------------------------------------------------------------------------------------------------

MACROS = [
    ["${env}", "${interpreter}", "${program}", "${args}"],
    ["a", "${args_no_hyphens}", "x${args}", "${args} "],
    ["a", "${args_no_boolean_flags}"],
    ["a", "${args_json}", "${args_json_file}", "--file=${args_json_file}"],
    ["a", "${args_no_equals}", "${args_append_hydra}", "${args_override_hydra}"],
    ["a", "${envvar:SWEEP_TEST}", "x-${envvar:SWEEP_TEST}-${envvar:NOT_SET_ANYWHERE}", "${nonsense}", 3],
]


@pytest.mark.parametrize("command", MACROS)
def test_macros_expand_as_in_wandb_agent(command, monkeypatch, tmp_path):
    """Compared with W&B's agent; only its start of a process is replaced."""
    from wandb import wandb_agent

    monkeypatch.chdir(tmp_path)
    for name, value in {
        "SWEEP_TEST": "s t",
        "WANDB_SWEEP_ID": "s",
        "WANDB_RUN_ID": "",
        "WANDB_SWEEP_PARAM_PATH": "",
    }.items():
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
    assert plan.expand(given, "train.py", parameters, json_file) == started[0]
    assert given == command  # wandb's function changes its argument


def test_args_json_file_holds_the_parameters(run, write, tmp_path):
    show = [sys.executable, "-c", "import sys; print(open(sys.argv[1]).read())", "${args_json_file}"]
    run(write(parameters={"a": {"values": [1]}}, command=show))
    assert (tmp_path / "runs" / "one" / "001-a=1" / "log.txt").read_text() == '{"a": 1}\n'


def test_an_unknown_macro_is_reported(run, write):
    result = run(write(parameters={"a": {"values": [1]}}, command=["echo", "${arg}"]), "--dry-run")
    assert "command: ${arg} is no macro, and expands to nothing" in result.stderr


@pytest.mark.parametrize(
    "start",
    [
        ["${env}", "lightning-ssl"],
        ["lightning-ssl"],
        ["/opt/bin/lightning-ssl"],
        ["${interpreter}", "-m", "lightning_ssl.cli"],
    ],
)
def test_fit_is_recognized_and_gets_its_folder_as_flags(write, start):
    file = write(parameters={"a": {"values": [1]}}, command=[*start, "fit", "--config=x.yaml", "${args}"])
    read = plan.read(file, extra=["--trainer.max_epochs=1"])
    _, flags = command_of(read, Path("runs/one"), Trial(1, "001", {"a": 1}))
    told = ["--runs", "runs/one", "--name", "001", "--resume", "auto", "--group", "one"]
    assert flags == ["--config=x.yaml", "--a=1", "--trainer.max_epochs=1", *told]


@pytest.mark.parametrize("command", [["lightning-ssl", "evaluate", "${args}"], ["python", "fit", "${args}"], COMMAND])
def test_other_commands_do_not_change(write, command):
    read = plan.read(write(parameters={"a": {"values": [1]}}, command=command))
    expanded, flags = command_of(read, Path("runs/one"), Trial(1, "001", {"a": 1}))
    assert flags is None
    assert expanded[-1] == "--a=1"


def test_help_gives_examples_and_imports_neither_torch_nor_wandb():
    code = "import sys; from lightning_ssl.commands import sweep; sweep.main(['--help']); "
    code += "sys.exit(any(name in sys.modules for name in ('torch', 'wandb', 'scipy', 'numpy')))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "lightning-ssl sweep sweeps/quickstart.yaml --workers 2" in result.stdout


def test_trials_share_the_cores(run, write, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    run(write(parameters={"a": {"values": [1]}}), "--workers", "2", "--dry-run")
    assert os.environ["OMP_NUM_THREADS"] == str(max(1, sweep.cores() // 2))


def test_the_live_table_shows_running_trials_the_best_and_the_time_left(write, tmp_path, monkeypatch):
    monkeypatch.setattr(screen.time, "time", lambda: 1000.0)
    read = plan.read(write(parameters={"quality": {"values": [0.1, 0.2, 0.3, 0.4]}}))
    (tmp_path / "003").mkdir()
    half_written = "epoch,step,score\n0,0,0.25\n0,1,0.2"
    (tmp_path / "003" / "metrics.csv").write_text(half_written)
    console = Console(force_terminal=True, color_system=None, width=100, file=io.StringIO())
    with screen.Screen(read, tmp_path, 1, console) as table:
        table.show(
            [
                Trial(1, "001", {}, status="finished", value=0.5, seconds=60),
                Trial(2, "002", {}, status="failed", error="no"),
                Trial(3, "003", {}, status="running", started=970.0),
            ]
        )
        shown = console.file.getvalue()
    assert re.search(r"one: 1 of 4 finished · 1 running · 1 failed · best 001 0.5000 · 1 min 30 s left", shown)
    assert re.search(r"003 +running +0\.2500 +30 s", shown)


# -- lightning-ssl fit ------------------------------------------------------------------------------------------------

FIT = ["${env}", "lightning-ssl", "fit", "--config=configs/data/shapes.yaml", "${args}"]
TINY = {
    "data.options": {"value": "{train_images: 256, test_images: 64}"},
    "data.batch_size": {"value": 64},
    "trainer.max_epochs": {"value": 4},
    "trainer.accelerator": {"value": "cpu"},
}


SPY = """
import os
from pathlib import Path
from lightning_ssl.methods import SimCLR

print("torch is loaded in the parent:", "libtorch" in Path(f"/proc/{os.getppid()}/maps").read_text())

class Spy(SimCLR):
    pass
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")
def test_fit_is_forked_from_a_process_with_torch_and_its_error_is_that_of_the_trial(write, tmp_path, monkeypatch):
    (tmp_path / "spy.py").write_text(SPY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(ROOT)
    parameters = {"model": {"value": "spy.Spy"}, "model.tau": {"values": [0.0]}}
    file = write(parameters=parameters, command=FIT, metric={"name": "online/top1"})
    subprocess.run(words(file), capture_output=True, timeout=300)
    (row,) = rows(tmp_path / "runs" / "one").values()
    assert row.status == "failed"
    assert "tau=0.0" in row.error
    assert "torch is loaded in the parent: True" in (tmp_path / "runs" / "one" / row.id / "log.txt").read_text()


@pytest.mark.slow
def test_a_fit_whose_engine_is_killed_resumes_to_the_same_losses(write, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    parameters = {"config": {"values": ["configs/method/direct.yaml"]}, **TINY}
    file = write(parameters=parameters, command=FIT, metric={"name": "online/top1", "goal": "maximize"})
    assert subprocess.run(words(file, "--name", "alone"), timeout=600).returncode == 0
    folder = tmp_path / "runs" / "one" / "001-direct"
    engine = subprocess.Popen(words(file))
    until(lambda: list(folder.glob("checkpoints/step-*.ckpt")), seconds=300)
    engine.kill()
    engine.wait()
    assert subprocess.run(words(file), timeout=600).returncode == 0
    assert "going on at step-" in (folder / "log.txt").read_text()
    one, alone = (
        outcome.history(tmp_path / "runs" / name / "001-direct", "train/loss_epoch") for name in ("one", "alone")
    )
    assert len(one) == 4
    assert one == alone
