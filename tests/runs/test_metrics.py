"""metrics.csv: rows are appended, columns are added, and any content is read."""

import pytest

from lightning_ssl.runs.metrics import MetricsWriter, read_metrics, read_rows


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


@pytest.mark.parametrize("line", ["0,2", "0,2,0.2", "0,2\n"])
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
