"""The sweep engine: every trial runs once, even if the engine is killed."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from helpers.closeness import close
from helpers.sweeps import ForkedSweep, count_lines, read_trials, sweep_command, wait_until

from lightning_ssl.app.runs import RunFolder
from lightning_ssl.app.sweep import trial

# -- one engine -------------------------------------------------------------------------------------------------------


def test_a_grid_runs_every_cell_once_and_continues_after_a_failure(run_sweep, write_sweep, tmp_path):
    file = write_sweep(parameters={"quality": {"values": [0.2, 0.8]}, "fail": {"values": [0, 1]}})
    result = run_sweep(file, "--workers", "2")
    assert result.returncode == 1
    folder = tmp_path / "runs" / "one"
    found = read_trials(folder)
    ends = [(row.parameters["quality"], row.status, row.error) for row in found.values()]
    good, bad = ("finished", None), ("failed", "RuntimeError: asked to fail")
    assert sorted(ends) == [(0.2, *bad), (0.2, *good), (0.8, *bad), (0.8, *good)]
    for id, row in found.items():
        end = RunFolder(folder / id).summary()
        assert (end["status"], end.get("error")) == (row.status, row.error)
        assert "working" in (folder / id / "log.txt").read_text()
    assert "best: 002-quality=0.8-fail=0  score=0.7" in result.stdout
    status = run_sweep(file, "--status").stdout
    assert status.startswith("one: 2 of 4 finished · 0 running · 2 failed · best 002-quality=0.8-fail=0 0.7000\n")
    again = run_sweep(file, "--workers", "2")
    assert again.returncode == 1
    assert set(count_lines(folder / "started").values()) == {1}


def test_a_missing_program_is_a_failed_trial(run_sweep, write_sweep, tmp_path):
    run_sweep(write_sweep(parameters={"a": {"values": [1]}}, command=["no-such-program", "${args}"]))
    (row,) = read_trials(tmp_path / "runs" / "one").values()
    assert (row.status, row.error) == ("failed", "no-such-program: No such file or directory")
    summary = RunFolder(tmp_path / "runs" / "one" / row.id).summary()
    assert (summary["status"], summary["error"]) == (row.status, row.error)


@pytest.mark.parametrize("ignore_sigterm", [0, 1])
def test_hyperband_stops_the_worst_trial(run_sweep, write_sweep, tmp_path, monkeypatch, ignore_sigterm):
    monkeypatch.setattr(trial, "GRACE_PERIOD", 0.1)
    file = write_sweep(
        parameters={
            "ignore_sigterm": {"value": ignore_sigterm},
            "quality": {"values": [0.9, 0.8, 0.1]},
            "steps": {"value": 200},
            "pause": {"value": 0.02},
        },
        early_terminate={"type": "hyperband", "min_iter": 4, "eta": 3},
    )
    result = run_sweep(file, "--workers", "3")
    found = {row.parameters["quality"]: row for row in read_trials(tmp_path / "runs" / "one").values()}
    assert found[0.1].status == "stopped", result.stdout
    assert RunFolder(tmp_path / "runs" / "one" / found[0.1].id).status() == "stopped"
    assert found[0.9].status == "finished"
    assert found[0.1].value == pytest.approx(0.1, abs=0.01)  # the score approaches the quality
    assert len(RunFolder(tmp_path / "runs" / "one" / found[0.1].id).history("score")) < 200
    assert result.returncode == 0


def test_a_sweep_ends_when_its_target_is_reached(run_sweep, write_sweep, tmp_path):
    file = write_sweep(
        parameters={"quality": {"values": [0.2, 0.9, 0.5]}}, metric={"name": "score", "goal": "maximize", "target": 0.7}
    )
    assert run_sweep(file).returncode == 0
    close([row.value for row in read_trials(tmp_path / "runs" / "one").values()], [0.175, 0.7875])


def test_each_worker_gets_its_own_gpu(run_sweep, write_sweep, tmp_path):
    code = "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES']); time.sleep(1)"
    show = [sys.executable, "-c", code, "${args}"]
    file, folder = write_sweep(parameters={"a": {"values": [1, 2]}}, command=show), tmp_path / "runs" / "one"
    run_sweep(file, "--workers", "2", "--gpus", "4,7")
    assert sorted((folder / id / "log.txt").read_text().strip() for id in read_trials(folder)) == ["4", "7"]


def test_a_metric_that_no_trial_logged_is_reported(run_sweep, write_sweep):
    result = run_sweep(write_sweep(parameters={"a": {"values": [1]}}, metric={"name": "accuracy"}))
    assert "no trial logged the metric 'accuracy'; logged metrics: score" in result.stdout


# -- killed, interrupted and second engines ---------------------------------------------------------------------------

LONG = {"quality": {"values": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}, "steps": {"value": 20}, "pause": {"value": 0.05}}


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_a_killed_engine_resumes_every_trial_once(run_sweep, write_sweep, tmp_path, kills):
    """SIGKILL at different moments, then let the sweep finish."""
    steps = 10 * kills  # longer than the time between two kills
    file, folder = write_sweep(parameters={**LONG, "steps": {"value": steps}}), tmp_path / "runs" / "one"
    for kill in range(kills):
        engine = ForkedSweep(file, "--workers", "2")
        before = count_lines(folder / "started").total()
        wait_until(lambda n=before, e=engine: count_lines(folder / "started").total() > n or not e.is_alive())
        time.sleep(0.1 + 0.37 * kill % 1)
        engine.kill()
        assert engine.end()[0] == -signal.SIGKILL
    started = [folder / row.id for row in read_trials(folder).values() if row.status == "running"]
    assert started
    wait_until(lambda: not any(map(trial.is_running, started)), seconds=40)  # trials end with their engine
    last = run_sweep(file, "--workers", "2")
    assert last.returncode == 0, last.stderr
    found = read_trials(folder)
    assert [row.parameters["quality"] for row in found.values()] == LONG["quality"]["values"]
    assert {row.status for row in found.values()} == {"finished"}
    assert count_lines(folder / "completed") == dict.fromkeys(found, 1)
    for id in found:  # a resumed trial logs every step once
        logged = [json.loads(line)["step"] for line in (folder / id / "metrics.jsonl").read_text().splitlines()]
        assert logged == list(range(steps))


def test_a_second_engine_is_refused_and_the_same_command_resumes_after_ctrl_c(
    run_sweep, start_sweep, write_sweep, tmp_path
):
    file, folder = write_sweep(parameters={**LONG, "steps": {"value": 30}}), tmp_path / "runs" / "one"
    engine = start_sweep(file)
    second = run_sweep(file)
    assert second.returncode == 2
    assert second.stderr == f"lightning-ssl: {folder}: another `lightning-ssl sweep` is running in this folder\n"
    assert engine.is_alive()
    os.kill(engine.pid, signal.SIGINT)
    code, stdout, _ = engine.end()
    assert code == 130
    assert stdout.endswith("stopped; run the same command to resume\n")
    assert {row.status for row in read_trials(folder).values()} == {"interrupted"}
    assert run_sweep(file, "--workers", "3").returncode == 0
    assert set(count_lines(folder / "completed").values()) == {1}


def test_an_engine_whose_stdout_is_closed_ends_its_trials_on_ctrl_c(start_sweep, write_sweep, tmp_path):
    file, folder = write_sweep(parameters={**LONG, "steps": {"value": 600}}), tmp_path / "runs" / "one"

    def program(*arguments):
        return subprocess.Popen(sweep_command(*arguments), stdout=subprocess.PIPE, start_new_session=True)

    engine = start_sweep(file, program)
    engine.stdout.close()  # as in `… | tee log` after Ctrl-C
    os.killpg(engine.pid, signal.SIGINT)
    assert engine.wait(timeout=45) == 130
    assert {row.status for row in read_trials(folder).values()} == {"interrupted"}


def test_a_changed_file_is_refused_but_a_larger_count_is_not(run_sweep, write_sweep, tmp_path):
    before = {"quality": {"min": 0.0, "max": 1.0}}
    assert run_sweep(write_sweep(method="random", parameters=before), "--count", "1").returncode == 0
    described = write_sweep(method="random", parameters=before, description="words", run_cap=2)
    assert run_sweep(described).returncode == 0
    changed = write_sweep(method="random", parameters={"quality": {"min": 0.0, "max": 0.5}})
    result = run_sweep(changed, "--count", "3")
    assert result.returncode == 2
    assert "the sweep file has changed since this sweep started (parameters)" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert run_sweep(changed, "--count", "1", "--name", "two").returncode == 0
    assert len(read_trials(tmp_path / "runs" / "one")) == 2
