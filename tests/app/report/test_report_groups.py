"""Which runs are one experiment, and what their result is."""

import json

import pytest
from helpers.closeness import close
from helpers.run_folders import grouping_of, with_images, write_mixed, write_run, write_trials

from lightning_ssl.app.report.groups import accuracy, count_statuses
from lightning_ssl.app.runs import RunFolder
from lightning_ssl.app.runs.run_record import read_record


def without_projector(config):
    config["model"]["init_args"].update(projector=None)


def with_data(**keys):
    return lambda config: config["data"].update(keys)


def test_runs_that_differ_only_in_seed_and_place_are_one_group(tmp_path):
    write_run(tmp_path / "a", seed=0)
    write_run(tmp_path / "b", seed=1, change=lambda c: c["trainer"].update(devices=2) or c["data"].update(root="other"))
    grouping = grouping_of(tmp_path)
    (group,) = grouping.groups
    assert sorted(group.results) == [0, 1]
    assert grouping.differences.note() is None


def test_other_swept_settings_make_groups(tmp_path):
    for k, batch in enumerate((128, 256)):
        write_run(tmp_path / f"d{k}", "direct", batch_size=batch)
        write_run(tmp_path / f"i{k}", "infonce", batch_size=batch)
    grouping = grouping_of(tmp_path)
    assert grouping.swept == ["data.batch_size"]
    assert len(grouping.groups) == 4
    assert {group.settings["data.batch_size"] for group in grouping.groups} == {128, 256}


# -- what is part of the comparison -----------------------------------------------------------------------------------


def test_callbacks_probe_and_trainer_extras_make_no_groups(tmp_path):
    grouping = grouping_of(write_mixed(tmp_path))
    assert grouping.swept == []
    assert [len(group.runs) for group in grouping.groups] == [3, 3, 3]
    assert grouping.groups[0].title == "SimCLR InfoNCE τ=0.5"


def test_one_note_names_the_other_differences_and_those_that_change_the_measurement(tmp_path):
    note = grouping_of(write_mixed(tmp_path)).differences.note()
    assert note.startswith("Differs between runs but is not part of the comparison: knn (none, OnlineKNN), ")
    for words in ("probe.lr (0.01, 0.1)", "trainer.callbacks (none, EarlyStopping)", "precision (none, 16-mixed)"):
        assert words in note
    assert "patience" not in note  # an argument of a callback that other runs lack
    assert note.endswith("This can change the measured accuracy: knn (knn/top1); probe.lr, probe.share (online/top1).")


def test_only_a_difference_in_the_metric_that_is_compared_disturbs_it(tmp_path):
    write_run(tmp_path / "a", "direct", change=lambda c: c["knn"].update(k=5))
    write_run(tmp_path / "b", "infonce")
    differences = grouping_of(tmp_path).differences
    assert differences.unplanned == {"knn.k": [5, 20]}
    assert differences.disturbs("knn/top1")
    assert not differences.disturbs("online/top1")
    assert not differences.disturbs("linear/adam_top1")


def test_parameter_of_a_sweep_makes_groups_whatever_its_role(tmp_path):
    grouping = grouping_of(write_trials(tmp_path / "sweep", "probe.lr", [0.1, 1.0]))
    assert grouping.swept == ["probe.lr"]
    assert [(group.settings["probe.lr"], len(group.runs)) for group in grouping.groups] == [(0.1, 2), (1, 2)]
    assert grouping.differences.note() is None


def test_parameters_of_two_sweeps_that_each_have_one_value_make_no_groups(tmp_path):
    write_trials(tmp_path / "one", "probe.lr", [0.1])
    write_trials(tmp_path / "two", "probe.lr", [1.0])
    grouping = grouping_of(tmp_path)
    assert grouping.swept == []
    assert list(grouping.differences.unplanned) == ["probe.lr"]


def test_sweep_over_a_parameter_of_the_loss_has_no_other_setting(tmp_path):
    grouping = grouping_of(write_trials(tmp_path / "sweep", "model.importance.p", [2.0, 4.0, 8.0]))
    assert grouping.swept == []
    assert [group.label for group in grouping.groups] == [f"AlphaCL Direct p={p} τ=0.5" for p in (2, 4, 8)]


TITLE = "AlphaCL Direct p=4 τ=0.5"
GROUPS = {
    (f"{TITLE} · epochs 2", f"{TITLE} · epochs 3"): [{"epochs": 2}, {"epochs": 3}],
    (f"{TITLE} · projector given", f"{TITLE} · projector none"): [{}, {"change": without_projector}],
    (TITLE, "SimSiam"): [{"lr": 0.01}, {"loss": "simsiam", "lr": 0.03}],  # the recipe of each loss
}


@pytest.mark.parametrize(("titles", "runs"), GROUPS.items())
def test_settings_that_differ_for_one_loss_make_groups(tmp_path, titles, runs):
    for k, settings in enumerate(runs):
        write_run(tmp_path / f"{k}", **settings)
    assert [group.title for group in grouping_of(tmp_path).groups] == list(titles)


# -- data sets --------------------------------------------------------------------------------------------------------

SMALL, LARGE = {"change": with_images(600)}, {"change": with_images(2000)}
DATA_SETS = {
    ("shapes",): [SMALL, {"loss": "infonce", **SMALL}],
    ("shapes, train_images=600", "shapes, train_images=2000"): [LARGE, SMALL, {"loss": "infonce", **SMALL}],
    ("shapes, default options", "shapes, train_images=600"): [{}, SMALL],
    ("shapes, holdout=0", "shapes, holdout=500"): [{}, {"change": with_data(holdout=500)}],
    ("stl10, split=pretrain", "stl10, split=train"): [{}, {"change": with_data(split="train")}],
    ("folder, root=cats", "folder, root=dogs"): [{"change": with_data(root=root)} for root in ("cats", "dogs")],
}


@pytest.mark.parametrize(("names", "runs"), DATA_SETS.items())
def test_runs_on_different_images_are_different_data_sets(tmp_path, names, runs):
    (base,) = {name.partition(",")[0] for name in names}
    for k, settings in enumerate(runs):
        write_run(tmp_path / f"{k}", data=base, **settings)
    grouping = grouping_of(tmp_path)
    assert (grouping.data_sets, grouping.swept, grouping.data_names) == (list(names), [], [base])
    assert (grouping.separation is None) == (len(names) == 1)


def test_loss_has_one_colour_on_all_data_sets_and_a_repeated_colour_another_line(tmp_path):
    losses = ["direct", "direct_p6", "direct_unnormalized", "quadratic", "entropy", "inverse", "square", "infonce"]
    for k, loss in enumerate(losses):
        write_run(tmp_path / f"s{k}", loss, accuracy=0.1 * k, epochs=1)
        write_run(tmp_path / f"c{k}", loss, accuracy=0.1 * (8 - k), epochs=1, data="cifar10")
    styles = grouping_of(tmp_path).styles
    assert len(styles) == len(set(styles.values())) == len(losses)


# -- results ----------------------------------------------------------------------------------------------------------


def test_only_finished_runs_are_results_and_the_others_stay_in_their_group(tmp_path):
    write_run(tmp_path / "a", seed=0, accuracy=0.6)
    write_run(tmp_path / "b", seed=1, accuracy=0.9, status="failed", error="nan")
    write_run(tmp_path / "c", seed=2, accuracy=0.9, status="running")
    (group,) = grouping_of(tmp_path).groups
    assert group.results == {0: 60.0}
    assert count_statuses(group.runs) == {"finished": 1, "failed": 1, "running": 1}


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
    file = folder / "metrics.jsonl"
    events = [json.loads(line) for line in file.read_text().splitlines()]
    events[1]["online/top1"] = 0.9
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    RunFolder(folder).update_summary(best={"online/top1": 0.9})
    run = read_record(folder)
    assert accuracy(run, "online/top1") == 50.0
    assert run.best("online/top1") == 0.9
