"""metrics.jsonl: events are appended, a resumed run truncates them, and any content is read."""

import json
import math
from pathlib import Path

import pytest

from lightning_ssl.app.runs import RunFolder
from lightning_ssl.app.runs.metrics import MetricsWriter, converted
from lightning_ssl.app.runs.run_record import read_record


def written(folder, *events):
    folder.mkdir(exist_ok=True)
    writer = MetricsWriter(folder)
    writer.open(0)
    for step, event in enumerate(events):
        writer.append({"epoch": 0, "step": step, **event})
    return writer


def reopened(folder, rows):
    writer = MetricsWriter(folder)
    writer.open(rows)
    return writer


def test_a_line_is_one_event_in_json_and_a_value_that_is_not_finite_is_null_with_its_kind(tmp_path):
    values = {"a": math.nan, "b": math.inf, "c": -math.inf, 'say "x", y': 1.0}
    writer = written(tmp_path, {"train/loss": 0.5}, values)
    assert [json.loads(line) for line in writer.file.read_text().splitlines()] == [
        {"epoch": 0, "step": 0, "train/loss": 0.5},
        {"epoch": 0, "step": 1, **dict.fromkeys("abc"), 'say "x", y': 1.0,
         "nonfinite": {"a": "nan", "b": "inf", "c": "-inf"}},
    ]  # fmt: skip
    found = RunFolder(tmp_path).metrics()
    assert {name: repr(found[name].last) for name in values} == {name: repr(value) for name, value in values.items()}
    assert (found["a"].epochs.tolist(), found["a"].steps.tolist()) == ([0], [1])


def test_pandas_reads_the_file(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    writer = written(tmp_path, {"train/loss": 0.5}, {"train/loss": math.nan}, {"online/top1": 0.25})
    table = pandas.read_json(writer.file, lines=True)
    assert table["step"].tolist() == [0, 1, 2]
    assert table["train/loss"].dropna().tolist() == [0.5]
    assert table["online/top1"].dropna().tolist() == [0.25]


def test_last_and_best_values_are_kept_apart_and_an_infinite_loss_is_never_best(tmp_path):
    events = [{"online/top1": top1, "train/loss": loss} for top1, loss in [(0.1, 3.0), (0.5, 1.0), (0.4, -math.inf)]]
    writer = written(tmp_path, *events)
    for each in (writer, reopened(tmp_path, 3)):
        assert each.last == {"online/top1": 0.4, "train/loss": -math.inf}
        assert each.best == {"online/top1": 0.5, "train/loss": 1.0}


UNREADABLE = {
    "metrics.jsonl": (
        '{"epoch": 0, "step": 2, "x": 0.2', '{"epoch": 0, "step"', "\n", "[1]\n", '{"x": 0.2}\n', "words\n",
        '{"step": 2, "x": "words"}\n', '{"step": 2, "x": [1]}\n', '{"step": 2, "x": ' + "9" * 200_000 + "}\n",
    ),
    "metrics.csv": ("0,2", "0,2,0.2", "0\n", "0,2,0.2,0.3\n", f"0,2,{'9' * 200_000}\n"),
}  # fmt: skip
FIRST = {"metrics.jsonl": '{"epoch": 0, "step": 0, "x": 0.25}\n', "metrics.csv": "epoch,step,x\n0,0,0.25\n"}


@pytest.mark.parametrize(("name", "line"), [(name, line) for name, lines in UNREADABLE.items() for line in lines])
def test_an_incomplete_or_unreadable_line_is_skipped_and_reported(tmp_path, name, line):
    (tmp_path / name).write_text(FIRST[name] + line)
    assert RunFolder(tmp_path).metrics()["x"].values.tolist() == [0.25]
    assert "metrics.jsonl: incomplete or unreadable entries: 1" in read_record(tmp_path).problems
    assert RunFolder(tmp_path).history("x") == [0.25]


@pytest.mark.parametrize("kept", [0, 10, 60, 90])
def test_a_resumed_writer_ends_with_the_file_of_an_undisturbed_one(kept, tmp_path):
    events = [{f"metric {k // 10}": k / 7} for k in range(100)]
    whole = written(tmp_path / "whole", *events)
    for k in range(kept, kept + 4):
        killed = written(tmp_path / "killed", *events[:k])
        with killed.file.open("ab") as stream:
            stream.write(b'{"epoch": 0, "st')  # a line that was being written
        resumed = reopened(tmp_path / "killed", kept)
        part = written(tmp_path / "part", *events[:kept])
        assert (resumed.rows, resumed.last, resumed.best) == (kept, part.last, part.best)
        for step, event in list(enumerate(events))[kept:]:
            resumed.append({"epoch": 0, "step": step, **event})
        assert killed.file.read_bytes() == whole.file.read_bytes()
    assert None not in RunFolder(tmp_path / "whole").events()


def test_a_file_with_fewer_events_than_the_checkpoint_counts_keeps_its_whole_lines(tmp_path):
    writer = written(tmp_path, {"x": 1.0})
    with writer.file.open("a") as stream:
        stream.write('{"epoch": 0, "st')
    assert reopened(tmp_path, 5).rows == 1
    assert writer.file.read_text().count("\n") == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metrics.jsonl", '{"step": 0, "x": 1}\nwords\n{"step": 2, "x": 3}\n{"step": 3, "x": 4}\n'),
        ("metrics.csv", "epoch,step,x\n0,0,1.0\n0\n0,2,3.0\n0,3,4.0\n"),
    ],
)
def test_an_unreadable_line_keeps_its_place_when_a_run_resumes(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert reopened(tmp_path, 3).last == {"x": 3.0}
    assert [event and event["step"] for event in RunFolder(tmp_path).events()] == [0, None, 2]


def test_a_file_that_is_written_again_is_read_again(tmp_path):
    run = RunFolder(tmp_path)
    for values in ([0.5, 0.25], [0.5, 0.75], [0.125]):
        lines = [json.dumps({"epoch": 0, "step": 0, "x": value}) + "\n" for value in values]
        (tmp_path / "metrics.jsonl").write_text("".join(lines))
        assert run.history("x") == values
    (tmp_path / "metrics.jsonl").unlink()
    assert run.history("x") == []


# ---------------------------------------------------------------------------------------------------------------------
# Long files


def io_bytes():
    """Bytes that this process has read and written so far."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["rchar"]) + int(lines["wchar"])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the bytes of a process are counted by Linux only")
def test_an_event_and_a_look_at_a_long_file_touch_few_bytes(tmp_path):
    line = json.dumps({"epoch": 0, "step": 7, "train/loss": 0.6931471805599453, "lr": 0.01}) + "\n"
    (tmp_path / "metrics.jsonl").write_text(5000 * line)
    writer, run = reopened(tmp_path, 5000), RunFolder(tmp_path)
    assert len(run.history("train/loss")) == 5000
    assert run.history("online/top1") == []
    before = io_bytes()
    for top1 in (0.25, 0.5):
        writer.append({"epoch": 0, "step": 8, "train/loss": 0.125, "online/top1": top1})
        assert run.last_value("train/loss") == 0.125
        assert run.last_value("online/top1") == top1
    assert io_bytes() - before < 16_384
    assert run.history("online/top1") == [0.25, 0.5]


# ---------------------------------------------------------------------------------------------------------------------
# metrics.csv, of older versions and of other programs

OLD = 'epoch,step,x,"a,b"\n     \n0,0,1.0\n0,1,,0.5\n0,2,nan,\n1,3,2.5\n'


def test_metrics_csv_is_read_with_quoted_names_and_short_rows(tmp_path):
    (tmp_path / "metrics.csv").write_text(OLD)
    found = RunFolder(tmp_path).metrics()
    assert [repr(value) for value in found["x"].values.tolist()] == ["1.0", "nan", "2.5"]
    assert (found["x"].steps.tolist(), found["x"].epochs.tolist()) == ([0, 2, 3], [0, 0, 1])
    assert found["a,b"].values.tolist() == [0.5]
    assert RunFolder(tmp_path).history("x") == [1.0, 2.5]
    assert RunFolder(tmp_path).last_value("a,b") == 0.5


def test_columns_of_metrics_csv_may_come_in_any_order(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,accuracy\n1,0.5\n2,0.75\n")
    (series,) = RunFolder(tmp_path).metrics().values()
    assert (series.steps.tolist(), series.values.tolist()) == ([1, 2], [0.5, 0.75])


@pytest.mark.parametrize("killed", [False, True])  # between the two steps of an earlier conversion
def test_a_resumed_old_folder_is_converted_once_up_to_its_checkpoint(tmp_path, killed):
    (tmp_path / "metrics.csv").write_text(OLD)
    if killed:
        (tmp_path / "metrics.jsonl").write_text(converted(OLD))
    writer = reopened(tmp_path, 3)
    assert not (tmp_path / "metrics.csv").exists()
    assert writer.file.read_text().splitlines() == [
        '{"epoch": 0, "step": 0, "x": 1.0}',
        '{"epoch": 0, "step": 1, "a,b": 0.5}',
        '{"epoch": 0, "step": 2, "x": null, "nonfinite": {"x": "nan"}}',
    ]
    assert (writer.rows, writer.last["a,b"], writer.best) == (3, 0.5, {"x": 1.0, "a,b": 0.5})
