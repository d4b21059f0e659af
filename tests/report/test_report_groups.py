"""Which runs are one experiment, and what their result is."""

from helpers.closeness import close
from helpers.run_folders import write_run

from lightning_ssl.report.groups import Grouping, accuracy
from lightning_ssl.runs.record import Reader, read_record


def grouping_of(folder, **kwargs):
    return Grouping.of(Reader().runs([folder]), **kwargs)


def test_runs_that_differ_only_in_seed_and_place_are_one_group(tmp_path):
    write_run(tmp_path / "a", seed=0)
    write_run(tmp_path / "b", seed=1, change=lambda c: c["trainer"].update(devices=2) or c["data"].update(root="other"))
    (group,) = grouping_of(tmp_path).groups
    assert sorted(group.results) == [0, 1]


def test_other_swept_settings_make_groups(tmp_path):
    for k, batch in enumerate((128, 256)):
        write_run(tmp_path / f"d{k}", "direct", batch_size=batch)
        write_run(tmp_path / f"i{k}", "infonce", batch_size=batch)
    grouping = grouping_of(tmp_path)
    assert grouping.swept == ["data.batch_size"]
    assert len(grouping.groups) == 4
    assert {group.settings["data.batch_size"] for group in grouping.groups} == {128, 256}


def test_settings_that_differ_only_between_losses_are_the_recipe(tmp_path):
    write_run(tmp_path / "d", "direct", lr=0.01)
    write_run(tmp_path / "s", "simsiam", lr=0.03)
    grouping = grouping_of(tmp_path)
    assert grouping.swept == []
    assert grouping.recipe == {"model.optimization.lr": [0.01, 0.03]}


def test_only_finished_runs_are_results_and_the_others_stay_in_their_group(tmp_path):
    write_run(tmp_path / "a", seed=0, accuracy=0.6)
    write_run(tmp_path / "b", seed=1, accuracy=0.9, status="failed", error="nan")
    write_run(tmp_path / "c", seed=2, accuracy=0.9, status="running")
    (group,) = grouping_of(tmp_path).groups
    assert group.results == {0: 60.0}
    assert group.statuses() == {"finished": 1, "failed": 1, "running": 1}


def test_a_seed_that_ran_twice_is_one_observation(tmp_path):
    write_run(tmp_path / "a", seed=0, accuracy=0.6)
    write_run(tmp_path / "b", seed=0, accuracy=0.7)
    grouping = grouping_of(tmp_path)
    close(grouping.groups[0].results, {0: 65.0}, terms=2)
    assert "ran more than once" in grouping.notes[0]


def test_accuracy_above_one_is_excluded_and_reported(tmp_path):
    write_run(tmp_path / "a", accuracy=71.0)
    (group,) = grouping_of(tmp_path).groups
    assert group.results == {}
    assert "between 0 and 1" in group.runs[0].problems[0]


def test_the_linear_evaluation_is_the_result_once_every_finished_run_has_one(tmp_path):
    write_run(tmp_path / "a", "direct", linear={"linear/adam_top1": 0.8, "linear/lbfgs_top1": 0.9})
    write_run(tmp_path / "b", "infonce")
    assert grouping_of(tmp_path).metric == "online/top1"
    write_run(tmp_path / "c", "infonce", seed=1, linear={"linear/adam_top1": 0.75, "linear/lbfgs_top1": 0.7})
    (tmp_path / "b" / "summary.json").unlink()
    grouping = grouping_of(tmp_path)
    assert grouping.metric == "linear/adam_top1"
    assert [group.mean for group in grouping.groups] == [80.0, 75.0]


def test_the_final_value_is_the_last_and_not_the_best(tmp_path):
    folder = write_run(tmp_path / "a", accuracy=0.5, epochs=3)
    lines = (folder / "metrics.csv").read_text().splitlines()
    header, row = lines[0].split(","), lines[2].split(",")
    row[header.index("online/top1")] = "0.9"
    lines[2] = ",".join(row)
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
    run = read_record(folder)
    assert accuracy(run, "online/top1") == 50.0
    assert run.best("online/top1") == 0.9
