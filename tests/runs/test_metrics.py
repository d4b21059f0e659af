"""metrics.csv: rows are appended, columns are added, and any content is read."""

import csv
import os
from pathlib import Path

import pytest

from lightning_ssl.runs import RunFolder, metrics_writer
from lightning_ssl.runs.metrics import GrowingMetric, read_metrics, read_rows
from lightning_ssl.runs.metrics_writer import MetricsWriter


def written(file, *rows):
    writer = MetricsWriter(file)
    writer.open(0)
    for step, row in enumerate(rows):
        writer.append({"epoch": 0, "step": step, **row})
    return writer


def test_last_and_best_values_are_kept_apart(tmp_path):
    rows = [{"online/top1": top1, "train/loss": loss} for top1, loss in [(0.1, 3.0), (0.5, 1.0), (0.4, 2.0)]]
    writer = written(tmp_path / "metrics.csv", *rows)
    assert writer.last == {"online/top1": 0.4, "train/loss": 2.0}
    assert writer.best == {"online/top1": 0.5, "train/loss": 1.0}


@pytest.mark.parametrize("line", ["0,2", "0,2,0.2", "0\n", "0,2,0.2,0.3\n"])
def test_an_incomplete_line_is_skipped_and_reported(tmp_path, line):
    writer = written(tmp_path / "metrics.csv", {"x": 0.25})
    with writer.file.open("a") as stream:
        stream.write(line)
    series, problems = read_metrics(writer.file)
    assert series["x"].values.tolist() == [0.25]
    assert problems == ["metrics.csv: 1 incomplete or unreadable entry"]


def test_a_new_metric_adds_a_column_to_earlier_rows(tmp_path):
    writer = written(tmp_path / "metrics.csv", {"x": 1.0}, {"y": 2.0})
    assert read_rows(writer.file)[:2] == (["epoch", "step", "x", "y"], [["0", "0", "1.0", ""], ["0", "1", "", "2.0"]])


def test_rows_after_the_checkpoint_are_dropped_with_their_columns(tmp_path):
    rows = [{"x": 1.0}, {"x": 3.0}, {"y": 2.0}]
    writer = written(tmp_path / "metrics.csv", *rows)
    resumed = MetricsWriter(writer.file)
    resumed.open(2)
    assert read_rows(writer.file)[0] == ["epoch", "step", "x"]
    assert (resumed.rows, resumed.last, resumed.best) == (2, {"x": 3.0}, {"x": 3.0})
    resumed.append({"epoch": 0, "step": 2, "y": 2.0})
    assert read_rows(writer.file) == read_rows(written(tmp_path / "other.csv", *rows).file)


def test_an_infinite_loss_is_last_but_never_best(tmp_path):
    writer = written(tmp_path / "metrics.csv", {"train/loss": 1.0}, {"train/loss": float("-inf")})
    assert writer.last == {"train/loss": float("-inf")}
    assert writer.best == {"train/loss": 1.0}


def test_a_series_has_epochs_and_steps(tmp_path):
    writer = written(tmp_path / "metrics.csv", {"x": 1.0}, {"y": 5.0}, {"x": 2.0})
    x = read_metrics(writer.file)[0]["x"]
    assert (x.epochs.tolist(), x.steps.tolist(), x.values.tolist()) == ([0, 0], [0, 2], [1, 2])


def test_columns_may_come_in_any_order(tmp_path):
    file = tmp_path / "metrics.csv"
    file.write_text("step,accuracy\n1,0.5\n2,0.75\n")
    series, problems = read_metrics(file)
    steps, values = series["accuracy"].steps.tolist(), series["accuracy"].values.tolist()
    assert (steps, values, problems) == ([1, 2], [0.5, 0.75], [])


def test_an_incomplete_row_keeps_its_place_when_a_run_resumes(tmp_path):
    file = tmp_path / "metrics.csv"
    file.write_text("epoch,step,x\n0,0,1.0\n0\n0,2,3.0\n0,3,4.0\n")
    writer = MetricsWriter(file)
    writer.open(3)
    assert writer.last == {"x": 3.0}


# ---------------------------------------------------------------------------------------------------------------------
# Long files

ROW = b"0,7,0.6931471805599453,0.01,4242.0\n"


@pytest.fixture
def long(tmp_path, monkeypatch):
    """A file with three times the rows of a small one, and its writer."""
    monkeypatch.setattr(metrics_writer, "SMALL", 2**17)
    file, rows = tmp_path / "metrics.csv", 3 * metrics_writer.SMALL // len(ROW)
    file.write_bytes(b"epoch,step,train/loss,lr,speed\n" + rows * ROW)
    writer = MetricsWriter(file)
    writer.open(rows)
    return writer


def io_bytes():
    """Bytes that this process has read and written so far."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["rchar"]) + int(lines["wchar"])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the bytes of a process are counted by Linux only")
def test_a_row_and_a_new_column_of_a_long_file_touch_few_bytes(long):
    before = io_bytes()
    long.append({"epoch": 0, "step": 8, "train/loss": 0.5})
    long.append({"epoch": 0, "step": 8, "online/top1": 0.25, "online/top5": 0.5})
    assert io_bytes() - before < 16_384
    header, rows, problems = read_rows(long.file)
    assert header == ["epoch", "step", "train/loss", "lr", "speed", "online/top1", "online/top5"]
    assert rows[-2:] == [["0", "8", "0.5", "", "", "", ""], ["0", "8", "", "", "", "0.25", "0.5"]]
    assert (len(rows), problems) == (long.rows, [])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the bytes of a process are counted by Linux only")
def test_a_look_at_a_growing_file_reads_what_is_new(long):
    run = RunFolder(long.file.parent)
    assert len(run.history("train/loss")) == long.rows
    assert run.history("online/top1") == []
    before = io_bytes()
    for top1 in (0.25, 0.5):
        long.append({"epoch": 0, "step": 8, "train/loss": 0.125, "online/top1": top1})
        assert run.last_value("train/loss") == 0.125
        assert run.last_value("online/top1") == top1
    assert io_bytes() - before < 65_536
    assert run.history("online/top1") == [0.25, 0.5]


def test_a_long_file_is_read_by_pandas(long):
    pandas = pytest.importorskip("pandas")
    long.append({"epoch": 0, "step": 8, "online/top1": 0.25})
    table = pandas.read_csv(long.file)
    assert list(table.columns) == ["epoch", "step", "train/loss", "lr", "speed", "online/top1"]
    assert len(table) == long.rows
    assert table["online/top1"].dropna().tolist() == [0.25]


@pytest.mark.parametrize("kept", [10, 60, 90])
def test_a_resumed_writer_ends_with_the_file_of_an_undisturbed_one(kept, tmp_path, monkeypatch):
    monkeypatch.setattr(metrics_writer, "SMALL", 700)
    monkeypatch.setattr(metrics_writer, "ROOM", 64)
    rows = [{f"metric {k // 10}": k / 7} for k in range(100)]  # the header outgrows its room too
    whole = written(tmp_path / "whole.csv", *rows)
    for k in range(kept + 1, kept + 4):
        killed = written(tmp_path / "killed.csv", *rows[:k])
        with killed.file.open("ab") as stream:
            stream.write(b"0,9,0.1")  # a line that was being written
        resumed = MetricsWriter(killed.file)
        resumed.open(kept)
        assert (resumed.rows, resumed.last) == (kept, written(tmp_path / "part.csv", *rows[:kept]).last)
        for step, row in list(enumerate(rows))[kept:]:
            resumed.append({"epoch": 0, "step": step, **row})
        assert killed.file.read_bytes() == whole.file.read_bytes()
    assert read_metrics(whole.file)[1] == []
    with whole.file.open(newline="") as stream:
        assert next(csv.reader(stream))[-1] == "metric 9"


def test_a_file_that_is_written_again_is_read_again(tmp_path):
    run = RunFolder(tmp_path)
    for values in ([0.5, 0.25], [0.5, 0.75], [0.125]):
        (tmp_path / "metrics.csv").write_text("epoch,step,x\n" + "".join(f"0,0,{value}\n" for value in values))
        assert run.history("x") == values
    (tmp_path / "metrics.csv").unlink()
    assert run.history("x") == []


def test_a_field_beyond_the_limit_of_csv_costs_its_row_only(tmp_path):
    file = tmp_path / "metrics.csv"
    file.write_text(f"epoch,step,x\n0,1,{'9' * 200_000}\n0,2,0.5\n")
    found, problems = read_metrics(file)
    assert found["x"].values.tolist() == [0.5]
    assert problems == ["metrics.csv: 1 incomplete or unreadable entry"]
    assert GrowingMetric(file, "x").look() == [0.5]


def test_a_pipe_is_no_metrics_csv(tmp_path):
    os.mkfifo(tmp_path / "metrics.csv")
    assert GrowingMetric(tmp_path / "metrics.csv", "x").look() == []
    assert read_metrics(tmp_path / "metrics.csv") == ({}, [])
