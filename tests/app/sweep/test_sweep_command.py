"""`lightning-ssl sweep` on the command line, and what it prints."""

import io
import os
import re
from types import SimpleNamespace

from helpers.run_folders import write_run
from helpers.sweeps import FAKE_TRIAL
from rich.console import Console

from lightning_ssl.app.runs.run_record import Reader
from lightning_ssl.app.sweep import plan, screen
from lightning_ssl.app.sweep.state import State, Trial, recorded
from lightning_ssl.base.machine import available_cores


def test_a_dry_run_prints_trials_and_commands_and_writes_nothing(run_sweep, write_sweep, tmp_path):
    file = write_sweep(parameters={"b": {"values": [1, 2]}, "a": {"values": [True, None, "x y"]}, "c": {"value": 0.5}})
    result = run_sweep(file, "--dry-run", "--count", "5")
    assert len(result.stdout.splitlines()) == 10
    assert f"/usr/bin/env python {FAKE_TRIAL} --a=True --b=1 --c=0.5" in result.stdout
    assert not (tmp_path / "runs").exists()


def test_status_needs_no_count(run_sweep, write_sweep):
    result = run_sweep(write_sweep(method="random", parameters={"quality": {"min": 0.0, "max": 1.0}}), "--status")
    assert (result.returncode, result.stdout) == (0, "one: 0 of 0 finished · 0 running\n")


def test_failed_and_broken_mean_the_same_in_status_and_report(run_sweep, write_sweep, tmp_path):
    file = write_sweep(command=["lightning-ssl", "fit", "${args}"], parameters={"model.tau": {"values": [1, 2, 3, 4]}})
    folder = tmp_path / "runs" / "one"
    for name in ("whole", "unreadable", "dead"):
        write_run(folder / name, "infonce", status="failed" if name == "dead" else "finished", epochs=2)
    (folder / "unreadable" / "metrics.jsonl").unlink()
    (folder / "early").mkdir()
    (folder / "early" / "log.txt").write_text("model.tau=0: must be above 0\n")
    with State(folder / "sweep.db") as state:
        for number, name in enumerate(("whole", "unreadable", "dead", "early"), 1):
            state.add(number, name, {"model.tau": number})
            state.set(name, status="finished" if number < 3 else "failed", error="nan" if number > 2 else None)
    status = run_sweep(file, "--status").stdout
    assert status.startswith("one: 1 of 4 finished · 0 running · 2 failed · 1 broken")
    shown = dict(re.findall(r"^  (\w+)  (\w+) after", status, re.MULTILINE))
    assert shown == {run.name: run.status for run in Reader(recorded).runs([folder])}
    assert "broken after 0 s: metrics.jsonl is missing" in status


def test_trials_share_the_cores(run_sweep, write_sweep, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    run_sweep(write_sweep(parameters={"a": {"values": [1]}}), "--workers", "2", "--dry-run")
    assert os.environ["OMP_NUM_THREADS"] == str(max(1, available_cores() // 2))


def test_the_live_table_shows_running_trials_the_best_and_the_time_left(write_sweep, tmp_path, monkeypatch):
    monkeypatch.setattr(screen.time, "time", lambda: 1000.0)
    sweep = plan.read(write_sweep(parameters={"quality": {"values": [0.1, 0.2, 0.3, 0.4]}}))
    (tmp_path / "003").mkdir()
    half_written = '{"epoch": 0, "step": 0, "score": 0.25}\n{"epoch": 0, "step": 1, "score": 0.2'
    (tmp_path / "003" / "metrics.jsonl").write_text(half_written)
    console = Console(force_terminal=True, color_system=None, width=100, file=io.StringIO())
    with screen.Screen(sweep, tmp_path, 1, console) as table:
        table.update(
            [
                Trial(1, "001", {}, status="finished", value=0.5, seconds=60),
                Trial(2, "002", {}, status="failed", error="no"),
                Trial(3, "003", {}, status="running", started_at=970.0),
            ]
        )
        shown = console.file.getvalue()
    assert re.search(r"one: 1 of 4 finished · 1 running · 1 failed · best 001 0.5000 · 1 min 30 s left", shown)
    assert re.search(r"003 +running +0\.2500 +30 s", shown)


def test_the_live_table_shows_epoch_and_time_left_of_a_running_trial(write_sweep, tmp_path, monkeypatch):
    sweep = plan.read(write_sweep(parameters={"quality": {"values": [0.1]}}))
    shown = screen.Screen(sweep, tmp_path, 1, Console(file=io.StringIO()))
    row = Trial(1, "001", {}, status="running", started_at=0.0)
    assert shown.progress(row) == ("", "")  # it has no files yet
    (tmp_path / "001").mkdir()
    (tmp_path / "001" / "config.yaml").write_text("trainer: {max_epochs: 10}")
    assert shown.progress(row) == ("1/10", "")
    summary = tmp_path / "001" / "summary.json"
    summary.write_text('{"epoch": 1, "step": 40, "duration": 120.0}')  # two of ten epochs in two minutes
    monkeypatch.setattr(screen.time, "time", lambda: summary.stat().st_mtime + 30)
    assert shown.progress(row) == ("3/10", "7 min 30 s")


def test_the_best_is_the_best_mean_over_seeds_not_the_luckiest_run(write_sweep, tmp_path):
    parameters = {"model": {"values": ["a", "b"]}, "seed_everything": {"values": [0, 1]}}
    sweep = plan.read(write_sweep(parameters=parameters, metric={"name": "online/top1", "goal": "maximize"}))
    cells = [{"model": model, "seed_everything": seed} for model in "ab" for seed in (0, 1)]
    values = [0.9, 0.5, 0.8, 0.7]  # the luckiest run is one of a
    rows = [
        Trial(k, f"{k:03d}", cell, status="finished", value=value)
        for k, (cell, value) in enumerate(zip(cells, values, strict=True), 1)
    ]
    assert screen.best_line(sweep, tmp_path, rows) == "best: model=b  online/top1=0.75  (mean of 2 seeds)"
    assert "best model=b 0.7500" in screen.progress_line(sweep, rows, 1)
    for row in rows:
        write_run(tmp_path / row.id, epochs=1)
    assert screen.best_line(sweep, tmp_path, rows).endswith(", chosen on test images (no data.holdout)")
    assert "chosen" not in screen.best_line(sweep, tmp_path, rows[:2])  # one loss is no choice
    for row in rows:
        (tmp_path / row.id / "config.yaml").write_text("data: {holdout: 0.1}")
    assert "chosen" not in screen.best_line(sweep, tmp_path, rows)


def test_a_narrow_terminal_shows_whole_values_and_names():
    name = "002-importance=myloss.Margin-temperature=0.05-seed_everything=1"
    table = screen.new_table(SimpleNamespace(metric="online/top1"))
    row = Trial(1, name, {}, status="finished", value=0.294118, seconds=3.0)
    table.add_row(*screen.table_cells(row, "10/10", "3 s"))
    console = Console(file=io.StringIO(), width=80)
    console.print(table)
    header, *lines = console.file.getvalue().splitlines()
    assert "online/top1" in header
    assert lines[0].split()[1:4] == ["finished", "0.2941", "3"]
    assert "".join(line.split()[0] for line in lines) == name
