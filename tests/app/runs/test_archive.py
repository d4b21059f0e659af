"""The archive of a sweep: it is read as the folders of its runs, grows without losing one, and is never trusted."""

import gzip
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.run_folders import empty_figures, old_folder, write_run, write_sweep  # noqa: F401

from lightning_ssl.app import cli
from lightning_ssl.app.runs import archive
from lightning_ssl.app.runs.run_record import Reader, files_to_archive
from lightning_ssl.app.sweep.state import State, recorded
from lightning_ssl.base.checks import UserError


def archived(folder, file=None):
    """Archive a folder of runs, beside it unless a file is given."""
    file = file or folder.with_name(f"{folder.name}.jsonl.gz")
    archive.add(file, files_to_archive(folder, recorded))
    return file


def facts(run):
    metrics = {
        name: (series.epochs.tolist(), series.steps.tolist(), series.values.tolist())
        for name, series in run.metrics.items()
    }
    return run.name, run.status, run.error, run.problems, run.config, run.settings, run.summary, metrics


@pytest.mark.parametrize("make", [lambda folder: folder, old_folder], ids=["metrics.jsonl", "metrics.csv"])
def test_an_archive_is_read_as_the_folders_of_its_runs(tmp_path, make):
    for loss, status in (("direct", "finished"), ("infonce", "failed")):
        make(write_run(tmp_path / "sweep" / loss, loss, status=status, error=status))
    expected = [facts(run) for run in Reader().runs([tmp_path / "sweep"])]
    found = Reader().runs([archived(tmp_path / "sweep", tmp_path / "other" / "sweep.jsonl.gz")])
    assert [facts(run) for run in found] == expected
    assert [run.folder for run in found] == [tmp_path / "other" / "sweep" / loss for loss in ("direct", "infonce")]


def test_values_that_are_not_finite_and_unreadable_rows_survive_the_conversion_of_metrics_csv(tmp_path):
    folder = write_run(tmp_path / "sweep" / "a")
    (folder / "metrics.jsonl").unlink()
    (folder / "metrics.csv").write_text('epoch,step,"a,b",c\n0,1,nan,1e-320\n1,3,0.1\nx\n,4,-inf,\n')
    (before,), (after,) = Reader().runs([tmp_path / "sweep"]), Reader().runs([archived(tmp_path / "sweep")])
    assert str(facts(after)) == str(facts(before))
    assert "metrics.jsonl: incomplete or unreadable entries: 1" in after.problems


def test_archives_in_a_folder_are_read_and_a_run_with_a_folder_is_read_once(tmp_path):
    write_sweep(tmp_path / "one", ("direct",), seeds=2, epochs=2)
    archived(tmp_path / "one")
    archived(tmp_path / "one", tmp_path / "two.jsonl.gz")
    names = [run.name for run in Reader().runs([tmp_path])]
    assert names == ["one/direct-0", "one/direct-1", "two/direct-0", "two/direct-1"]


def test_the_same_runs_give_the_same_bytes(tmp_path):
    write_sweep(tmp_path / "sweep", ("direct", "infonce"), seeds=2, epochs=2)
    file = archived(tmp_path / "sweep")
    before, written = file.read_bytes(), file.stat().st_mtime_ns
    archived(tmp_path / "sweep")
    assert file.stat().st_mtime_ns == written
    reverse = list(files_to_archive(tmp_path / "sweep", recorded))[::-1]
    archive.add(tmp_path / "other.jsonl.gz", reverse[:2])
    archive.add(tmp_path / "other.jsonl.gz", reverse[2:])
    assert (tmp_path / "other.jsonl.gz").read_bytes() == before


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [("failed", "finished", "new"), ("finished", "failed", "old"), ("failed", "running", "old"),
     ("finished", "finished", "new")],
)  # fmt: skip
def test_a_run_is_replaced_only_by_a_finished_one(tmp_path, before, after, kept):
    for name, status in (("old", before), ("new", after)):
        write_run(tmp_path / name / "a", status=status, error=name)
        archived(tmp_path / name, tmp_path / "archive.jsonl.gz")
    assert [run.error for run in Reader().runs([tmp_path / "archive.jsonl.gz"])] == [kept]


def test_a_finished_run_without_its_evaluation_does_not_replace_an_evaluated_one(tmp_path):
    folder = write_run(tmp_path / "sweep" / "a")
    (folder / "evaluation.json").write_text("{}")
    file = archived(tmp_path / "sweep")
    (folder / "evaluation.json").unlink()
    archived(tmp_path / "sweep")
    assert archive.read(file)["a"]["evaluation.json"] == "{}"


def test_a_run_of_another_configuration_with_the_same_name_gets_another_name(tmp_path):
    for name, seed in (("one", 0), ("two", 1), ("three", 2), ("four", 1)):
        write_run(tmp_path / name / "a", seed=seed)
        archived(tmp_path / name, tmp_path / "archive.jsonl.gz")
    runs = Reader().runs([tmp_path / "archive.jsonl.gz"])
    assert {run.name: run.seed for run in runs} == {"a": 0, "a-2": 1, "a-3": 2}


def test_processes_that_add_runs_at_the_same_time_lose_none(tmp_path):
    write_run(tmp_path / "sweep" / "a")
    ((_, files),) = files_to_archive(tmp_path / "sweep", recorded)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda k: archive.add(tmp_path / "all.jsonl.gz", [(f"run-{k}", files)]), range(12)))
    assert len(archive.read(tmp_path / "all.jsonl.gz")) == 12


def test_a_trial_without_a_summary_is_archived_with_its_status_and_error(tmp_path):
    (tmp_path / "sweep" / "trial").mkdir(parents=True)
    (tmp_path / "sweep" / "trial" / "log.txt").write_text("tau=0\n")
    with State(tmp_path / "sweep" / "sweep.db") as state:
        state.add(1, "trial", {"model.tau": 0})
        state.set("trial", status="failed", error="model.tau=0")
    (run,) = Reader().runs([archived(tmp_path / "sweep")])
    assert (run.status, run.error) == ("failed", "model.tau=0")


# ---------------------------------------------------------------------------------------------------------------------
# Content that no version wrote


def line(folder="a", files=None, **more):
    return json.dumps({"folder": folder, "files": {} if files is None else files, **more}).encode() + b"\n"


UNKNOWN = "line {} is not a run: expected a mapping with folder and files, all of them known to this version"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nonsense\n", "line 1 is not a run: Expecting value"),
        (line() + b"\xff\n", "line 2 is not a run: 'utf-8' codec"),
        (line() + b"{}\n", UNKNOWN.format(2)),
        (b"[1]\n", "line 1 is not a run"),
        (b"[" * 100_000 + b"\n", "line 1 is not a run"),
        (line()[:-20], "line 1 is not a run"),
        (line() + line(), "line 2: the run 'a' is there twice"),
        (line("../a"), "line 1 is not a run: folder='../a'"),
        (line("/etc"), "line 1 is not a run: folder='/etc'"),
        (line(".."), "line 1 is not a run: folder='..'"),
        (line(3), UNKNOWN.format(1)),
        (line(files=[]), UNKNOWN.format(1)),
        (line(files={"../config.yaml": ""}), UNKNOWN.format(1)),
        (line(files={"checkpoints/a.ckpt": ""}), UNKNOWN.format(1)),
        (line(files={"config.yaml": 3}), UNKNOWN.format(1)),
        (line(version=2), UNKNOWN.format(1)),
    ],
)
def test_an_unknown_line_is_refused_with_its_number_and_nothing_is_written(tmp_path, capsys, content, message):
    file = tmp_path / "all.jsonl.gz"
    file.write_bytes(gzip.compress(content))
    write_run(tmp_path / "sweep" / "a")
    before = file.read_bytes()
    assert cli.main(["report", str(file), "--out", str(tmp_path / "page.html")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert cli.main(["archive", str(tmp_path / "sweep"), "--out", str(file)]) == 2
    assert message in capsys.readouterr().err
    assert file.read_bytes() == before
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[:-9],
        lambda whole: b"PK" + whole,
        lambda whole: whole + b"more",
        lambda whole: b"my own file",
    ],
)
def test_a_damaged_file_is_refused(tmp_path, damage):
    file = tmp_path / "all.jsonl.gz"
    file.write_bytes(damage(gzip.compress(line())))
    with pytest.raises(UserError, match="not an archive of runs, or damaged"):
        archive.read(file)


@pytest.mark.parametrize(("limit", "number"), [("MAX_RUN", 1), ("MAX_BYTES", 2)])
def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch, limit, number):
    monkeypatch.setattr(archive, limit, 100)
    content = line() + line("b", {"config.yaml": " " * 100}) if number == 2 else b" " * 101
    (tmp_path / "all.jsonl.gz").write_bytes(gzip.compress(content))
    with pytest.raises(UserError, match=f"line {number}: larger than"):
        archive.read(tmp_path / "all.jsonl.gz")


def test_a_run_whose_files_are_broken_is_shown_with_its_problems(tmp_path):
    files = {"config.yaml": "a: &x [*x]", "summary.json": "{", "metrics.jsonl": "x\n", "parameters.json": "["}
    (tmp_path / "all.jsonl.gz").write_bytes(gzip.compress(line(files=files)))
    (run,) = Reader().runs([tmp_path / "all.jsonl.gz"])
    assert run.status == "broken"
    assert len(run.problems) == 3


# ---------------------------------------------------------------------------------------------------------------------
# The commands


@pytest.mark.usefixtures("empty_figures")
def test_a_sweep_is_archived_reported_and_extended_by_another_archive(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_sweep(tmp_path / "one", ("direct", "infonce"), seeds=2, epochs=2)
    write_run(tmp_path / "two" / "direct-2", "direct", 2, epochs=2)
    assert cli.main(["archive", "one", "--out", "one.jsonl.gz"]) == 0
    assert capsys.readouterr().out == "one.jsonl.gz: 4 runs\n"
    assert cli.main(["archive", "two", "--out", "new/two.jsonl.gz"]) == 0
    assert cli.main(["archive", "new/two.jsonl.gz", "--out", "one.jsonl.gz"]) == 0
    assert capsys.readouterr().out.endswith("one.jsonl.gz: 5 runs\n")
    assert cli.main(["report", "one.jsonl.gz"]) == 0
    assert "direct-2" in (tmp_path / "report" / "runs.csv").read_text()
    assert (tmp_path / "report.html").is_file()
