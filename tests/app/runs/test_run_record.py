"""Reading of complete, incomplete and broken run folders. No run is dropped; problems are reported."""

import json
import os
import time

import pytest
from helpers.closeness import close
from helpers.run_folders import old_folder, write_run, write_sweep, write_trials

from lightning_ssl.app.runs import find
from lightning_ssl.app.runs.run_record import Reader, read_record
from lightning_ssl.app.sweep.state import State, recorded


def test_complete_run_is_read_completely(tmp_path):
    folder = write_run(tmp_path / "a", "direct", seed=3, accuracy=0.7123, epochs=5)
    with (folder / "config.yaml").open("ab") as stream:
        stream.write(b"note: \xff\xfe\n")  # not UTF-8
    run = read_record(folder)
    assert run.status == "finished"
    assert run.problems == []
    assert run.seed == 3
    assert run.last("online/top1") == 0.7123
    assert run.settings["model.importance.p"] == 4.0
    epochs, values = run.curve("online/top1")
    assert epochs.tolist() == [1, 2, 3, 4, 5]
    assert values[-1] == 0.7123


def test_values_of_an_epoch_are_averaged_except_accuracy(tmp_path):
    folder = write_run(tmp_path / "a")
    (folder / "metrics.jsonl").unlink()
    (folder / "metrics.csv").write_text(
        "epoch,step,alpha/entropy,online/top1\n0,1,0.2,0.1\n0,2,0.4,0.3\n1,3,1.0,\n,4,,0.5\n"
    )
    run = read_record(folder)
    close(list(run.curve("alpha/entropy")[1]), [0.3, 1.0], terms=2)
    assert list(run.curve("online/top1")[1]) == [0.3, 0.5]


@pytest.mark.parametrize("file", ["config.yaml", "metrics.jsonl", "summary.json"])
def test_run_without_a_file_is_listed_as_broken_unless_it_ended_with_an_error(tmp_path, file):
    write_run(tmp_path / "whole")
    (write_run(tmp_path / "half") / file).unlink()
    (write_run(tmp_path / "dead", status="failed", error="no disk") / file).unlink()
    runs = {run.name: run for run in Reader().runs([tmp_path])}
    assert runs["half"].status == "broken"
    assert f"{file} is missing" in runs["half"].problems
    assert runs["whole"].status == "finished"
    assert f"{file} is missing" in runs["dead"].problems
    if file != "summary.json":  # it has the error
        assert (runs["dead"].status, runs["dead"].error) == ("failed", "no disk")


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("config.yaml", "model: [unclosed", "config.yaml cannot be read"),
        ("config.yaml", "just words", None),
        ("config.yaml", "a: &x {b: *x}", "config.yaml cannot be read"),
        ("summary.json", '{"status": "fini', "summary.json cannot be read"),
        ("summary.json", "[1, 2]", None),
        ("metrics.jsonl", "nonsense\n1\n", "metrics.jsonl: incomplete or unreadable entries: 2"),
        ("metrics.jsonl", "", None),
    ],
)
def test_run_with_an_unreadable_file_is_broken(tmp_path, file, content, words):
    folder = write_run(tmp_path / "a")
    (folder / file).write_text(content)
    run = read_record(folder)
    assert run.status == "broken"
    assert words is None or any(words in problem for problem in run.problems)


def test_runs_are_found_at_any_depth_and_named_by_their_path(tmp_path):
    write_run(tmp_path / "one" / "a")
    write_run(tmp_path / "two" / "deep" / "a")
    (tmp_path / "three" / "notes").mkdir(parents=True)
    assert [run.name for run in Reader().runs([tmp_path])] == ["one/a", "two/deep/a"]
    assert len(Reader().runs([tmp_path, tmp_path / "one"])) == 2


def test_a_trial_with_only_a_log_is_shown_with_its_last_line_or_with_what_sweep_db_knows(tmp_path):
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial" / "log.txt").write_text("starting\nlightning-ssl: tau=0: must be above 0\n\n")
    with State(tmp_path / "sweep.db") as state:  # of an older version
        state.add(1, "trial", {"model.tau": 0})
        state.set("trial", status="failed", error="model.tau=0")
    for reader, shown in ((Reader(), ("broken", "lightning-ssl: tau=0: must be above 0")),
                          (Reader(recorded), ("failed", "model.tau=0"))):  # fmt: skip
        assert [(run.status, run.error) for run in reader.runs([tmp_path])] == [shown]


def test_a_folder_of_an_older_version_is_read_as_a_new_one(tmp_path):
    new, old = write_run(tmp_path / "new" / "a", "direct"), old_folder(write_run(tmp_path / "old" / "a", "direct"))
    one, two = read_record(new), read_record(old)
    assert (one.status, one.problems, one.settings) == (two.status, two.problems, two.settings)
    assert {name: series.values.tolist() for name, series in one.metrics.items()} == {
        name: series.values.tolist() for name, series in two.metrics.items()
    }
    assert [run.path.name for run in find(tmp_path / "old")] == ["a"]


def test_failed_trial_whose_summary_cannot_be_read_is_failed(tmp_path):
    folder = write_run(tmp_path / "001", "direct")
    with State(tmp_path / "sweep.db") as state:
        state.add(1, "001", {})
        state.set("001", status="failed", error="killed")
    (folder / "summary.json").write_text("{")
    assert read_record(folder, recorded).status == "failed"
    (tmp_path / "sweep.db").write_text("no database")
    assert read_record(folder, recorded).status == "broken"


def test_parameters_are_those_of_a_sweep_trial(tmp_path):
    write_trials(tmp_path / "sweep", "model.importance.p", [2.0], seeds=1)
    (run,) = Reader().runs([tmp_path])
    assert run.parameters == {"config": "configs/method/direct.yaml", "seed_everything": 0, "model.importance.p": 2.0}
    (tmp_path / "sweep" / "001" / "parameters.json").write_text("{")
    assert read_record(tmp_path / "sweep" / "001").parameters == {}
    assert read_record(write_run(tmp_path / "alone")).parameters == {}


def test_reader_rereads_only_changed_runs(tmp_path):
    write_sweep(tmp_path, ("direct",), seeds=2, epochs=2)
    reader = Reader()
    first = reader.runs([tmp_path])
    summary = tmp_path / "direct-0" / "summary.json"
    summary.write_text(json.dumps(json.loads(summary.read_text()) | {"status": "failed", "error": "gone"}))
    second = reader.runs([tmp_path])
    assert second[0].error == "gone"
    assert second[1] is first[1]


def test_running_run_without_output_for_hours_is_reported(tmp_path):
    folder = write_run(tmp_path / "a", status="running")
    assert Reader().runs([tmp_path])[0].problems == []
    long_ago = time.time() - 3 * 3600
    for file in folder.iterdir():
        os.utime(file, (long_ago, long_ago))
    assert any("no write for 3.0 h" in problem for problem in Reader().runs([tmp_path])[0].problems)
