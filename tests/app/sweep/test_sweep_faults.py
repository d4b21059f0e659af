"""Faults around a sweep: killed trials and parents, a folder that disappears, a full disk."""

import os
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest
from helpers.sweeps import count_lines, read_trials

from lightning_ssl.app.sweep import trial
from lightning_ssl.app.sweep.state import State

LONG = {"quality": {"values": [0.1, 0.2]}, "steps": {"value": 40}, "pause": {"value": 0.05}}


def running(folder):
    """The processes of the trials, by id."""
    return {row.id: row.pid for row in read_trials(folder).values() if row.pid is not None}


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_trial_that_was_killed_alone_is_resumed_by_the_same_command(run_sweep, start_sweep, write_sweep, tmp_path):
    file, folder = write_sweep(parameters=LONG), tmp_path / "runs" / "one"
    engine = start_sweep(file)
    killed, pid = next(iter(running(folder).items()))
    trial.kill_group(pid)
    code, stdout, stderr = engine.end()
    assert code == 1, stderr
    assert f"interrupted: {killed}: ended by signal 9" in stdout
    assert stdout.rstrip().endswith("1 killed; run the same command to resume")
    assert sorted(row.status for row in read_trials(folder).values()) == ["finished", "interrupted"]
    assert run_sweep(file).returncode == 0
    assert count_lines(folder / "completed") == dict.fromkeys(read_trials(folder), 1)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the parent process in /proc")
def test_trials_that_lost_their_parent_are_stopped_and_resumed(run_sweep, start_sweep, write_sweep, tmp_path):
    file, folder = write_sweep(parameters=LONG), tmp_path / "runs" / "one"
    engine = start_sweep(file)
    processes = running(folder)
    os.kill(parent_of(next(iter(processes.values()))), signal.SIGKILL)
    assert engine.end()[0] == 1
    assert {row.status for row in read_trials(folder).values()} == {"interrupted"}
    assert not any(trial.is_running(folder / id) for id in processes)
    assert run_sweep(file, "--workers", "2").returncode == 0
    assert count_lines(folder / "completed") == dict.fromkeys(read_trials(folder), 1)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_or_two_quick_interrupts_leave_interrupted_trials(start_sweep, write_sweep, tmp_path, number):
    file, folder = write_sweep(parameters=LONG), tmp_path / "runs" / "one"
    engine = start_sweep(file)
    os.kill(engine.pid, number)
    if number == signal.SIGINT:
        os.kill(engine.pid, number)
    code, stdout, stderr = engine.end()
    assert (code, stderr) == (130, "")
    assert stdout.endswith("stopped; run the same command to resume\n")
    assert {row.status for row in read_trials(folder).values()} == {"interrupted"}


def test_a_folder_that_disappears_ends_the_sweep_in_one_line(start_sweep, write_sweep, tmp_path):
    file, folder = write_sweep(parameters={**LONG, "steps": {"value": 400}}), tmp_path / "runs" / "one"
    engine = start_sweep(file)
    processes = running(folder)
    shutil.rmtree(folder, ignore_errors=True)
    for pid in processes.values():
        trial.kill_group(pid)
    code, _, stderr = engine.end()
    assert code == 2
    assert "Traceback" not in stderr
    assert [line for line in stderr.splitlines() if line.startswith("lightning-ssl: ")] == stderr.splitlines()[-1:]


def test_a_full_disk_ends_the_sweep_in_one_line(run_sweep, write_sweep, tmp_path, monkeypatch):
    def full(*_, **__):
        raise sqlite3.OperationalError("database or disk is full")

    original = State.execute

    def execute(self, statement, values=()):
        if statement.startswith("UPDATE"):
            with self.one_line_errors():
                full()
        return original(self, statement, values)

    monkeypatch.setattr(State, "execute", execute)
    result = run_sweep(write_sweep(parameters=LONG))
    database = tmp_path / "runs" / "one" / "sweep.db"
    line = f"lightning-ssl: {database}: database or disk is full; the same command resumes the sweep\n"
    assert (result.returncode, result.stderr) == (2, line)


def test_the_error_of_a_trial_is_that_of_its_last_attempt(run_sweep, write_sweep, tmp_path):
    file, folder = write_sweep(parameters={"fail": {"values": [1]}}), tmp_path / "runs" / "one"
    assert run_sweep(file).returncode == 1
    ((id, row),) = read_trials(folder).items()
    assert row.error == "RuntimeError: asked to fail"
    (folder / id / "summary.json").write_text('{"status": "failed", "error": "of an earlier attempt"}')
    result = run_sweep(file, "--retry")
    assert result.returncode == 1
    assert read_trials(folder)[id].error == "RuntimeError: asked to fail"
    assert count_lines(folder / "started") == {id: 2}
