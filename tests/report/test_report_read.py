"""Reading and grouping of complete, incomplete and broken runs. No run is dropped; problems are reported."""

import json
import os
import time

import pytest
from helpers.closeness import close
from helpers.run_folders import write_run, write_sweep

from lightning_ssl.report.groups import Grouping, accuracy
from lightning_ssl.report.read import Reader, Run, read_run
from lightning_ssl.runs.labels import flatten, label_of


def test_complete_run_is_read_completely(tmp_path):
    run = read_run(write_run(tmp_path / "a", "direct", seed=3, accuracy=0.7123, epochs=5))
    assert run.status == "finished"
    assert run.problems == []
    assert run.seed == 3
    assert run.last("online/top1") == 0.7123
    assert run.settings["model.importance.p"] == 4.0
    epochs, values = run.curve("online/top1")
    assert epochs.tolist() == [1, 2, 3, 4, 5]
    assert values[-1] == 0.7123


def test_the_final_value_is_the_last_and_not_the_best(tmp_path):
    folder = write_run(tmp_path / "a", accuracy=0.5, epochs=3)
    lines = (folder / "metrics.csv").read_text().splitlines()
    header, row = lines[0].split(","), lines[2].split(",")
    row[header.index("online/top1")] = "0.9"
    lines[2] = ",".join(row)
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
    run = read_run(folder)
    assert accuracy(run, "online/top1") == 50.0
    assert run.best("online/top1") == 0.9


def test_values_of_an_epoch_are_averaged_except_accuracy(tmp_path):
    folder = write_run(tmp_path / "a")
    (folder / "metrics.csv").write_text(
        "epoch,step,alpha/entropy,online/top1\n0,1,0.2,0.1\n0,2,0.4,0.3\n1,3,1.0,\n,4,,0.5\n"
    )
    run = read_run(folder)
    close(list(run.curve("alpha/entropy")[1]), [0.3, 1.0], terms=2)
    assert list(run.curve("online/top1")[1]) == [0.3, 0.5]


@pytest.mark.parametrize("file", ["config.yaml", "metrics.csv", "summary.json"])
def test_run_without_a_file_is_listed_as_broken(tmp_path, file):
    write_run(tmp_path / "whole")
    (write_run(tmp_path / "half") / file).unlink()
    runs = {run.name: run for run in Reader().runs([tmp_path])}
    assert runs["half"].status == "broken"
    assert f"{file} is missing" in runs["half"].problems
    assert runs["whole"].status == "finished"


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("config.yaml", "model: [unclosed", "config.yaml cannot be read"),
        ("config.yaml", "just words", None),
        ("summary.json", '{"status": "fini', "summary.json cannot be read"),
        ("summary.json", "[1, 2]", None),
        ("summary.json", "[" * 100_000, "summary.json cannot be read"),
        ("metrics.csv", "nonsense\n1\n", "does not begin with"),
        ("metrics.csv", "", "does not begin with"),
    ],
)
def test_run_with_an_unreadable_file_is_broken(tmp_path, file, content, words):
    folder = write_run(tmp_path / "a")
    (folder / file).write_text(content)
    run = read_run(folder)
    assert run.status == "broken"
    assert words is None or any(words in problem for problem in run.problems)


def test_bytes_that_are_not_utf8_are_read(tmp_path):
    folder = write_run(tmp_path / "a")
    (folder / "config.yaml").write_bytes((folder / "config.yaml").read_bytes() + b"note: \xff\xfe\n")
    assert read_run(folder).status == "finished"


def test_incomplete_last_line_is_dropped_and_reported(tmp_path):
    folder = write_run(tmp_path / "a", accuracy=0.7, epochs=4, status="running")
    text = (folder / "metrics.csv").read_text()
    (folder / "metrics.csv").write_text(text[:-40])
    run = read_run(folder)
    assert len(run.curve("online/top1")[0]) == 3
    assert any("incomplete" in problem for problem in run.problems)


def test_runs_are_found_at_any_depth_and_named_by_their_path(tmp_path):
    write_run(tmp_path / "one" / "a")
    write_run(tmp_path / "two" / "deep" / "a")
    (tmp_path / "three" / "notes").mkdir(parents=True)
    assert [run.name for run in Reader().runs([tmp_path])] == ["one/a", "two/deep/a"]
    assert len(Reader().runs([tmp_path, tmp_path / "one"])) == 2


def test_trial_with_only_a_log_is_shown_with_its_last_line(tmp_path):
    (tmp_path / "sweep" / "trial").mkdir(parents=True)
    (tmp_path / "sweep" / "sweep.db").touch()
    (tmp_path / "sweep" / "trial" / "log.txt").write_text("starting\nlightning-ssl: tau=0: must be above 0\n\n")
    (run,) = Reader().runs([tmp_path])
    assert run.status == "broken"
    assert run.error == "lightning-ssl: tau=0: must be above 0"


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
    assert any("no word for 3.0 h" in problem for problem in Reader().runs([tmp_path])[0].problems)


def test_configuration_is_flattened_to_its_flags():
    tree = {
        "model": {"class_path": "a.b.AlphaCL", "init_args": {"importance": {"class_path": "Direct"}, "beta": 0.0}},
        "trainer": {"callbacks": [{"class_path": "x.WeightNoise", "init_args": {"std": 0.01}}]},
        "data": {"options": {"train_images": 10}, "mean": [1, 2]},
    }
    assert flatten(tree) == {
        "model": "AlphaCL",
        "model.importance": "Direct",
        "model.beta": 0.0,
        "trainer.callbacks.WeightNoise.std": 0.01,
        "data.options.train_images": 10,
        "data.mean": "[1, 2]",
    }


# -- which runs are one experiment ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "label"),
    [
        ("infonce", "SimCLR InfoNCE τ=0.5"),
        ("direct_p6", "AlphaCL Direct p=6 τ=0.5"),
        ("direct_unnormalized", "AlphaCL Direct normalize=no p=4 τ=0.5"),
        ("backprop_alpha", "AlphaCL Entropy backprop_alpha τ=0.5"),
        ("inverse", "AlphaCL Inverse γ=2 τ=0.5"),
        ("quadratic", "AlphaCL Quadratic"),
        ("byol", "BYOL momentum=0.996"),
    ],
)
def test_a_loss_is_named_by_its_method_and_its_parameters(tmp_path, loss, label):
    assert label_of(read_run(write_run(tmp_path / "a", loss)).settings) == label


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
    write_run(tmp_path / "a", "direct", linear={"linear/paper/top1": 0.8, "linear/common/top1": 0.9})
    write_run(tmp_path / "b", "infonce")
    assert grouping_of(tmp_path).metric == "online/top1"
    write_run(tmp_path / "c", "infonce", seed=1, linear={"linear/paper/top1": 0.75, "linear/common/top1": 0.7})
    (tmp_path / "b" / "summary.json").unlink()
    grouping = grouping_of(tmp_path)
    assert grouping.metric == "linear/paper/top1"
    assert [group.mean for group in grouping.groups] == [80.0, 75.0]


def test_noise_in_the_weights_is_part_of_the_loss():
    plain = Run(None, "", settings={"model": "AlphaCL", "model.importance": "Exact"})
    noisy = Run(None, "", settings={**plain.settings, "trainer.callbacks.WeightNoise.std": 0.01})
    assert label_of(plain.settings) == "AlphaCL Exact"
    assert label_of(noisy.settings) == "AlphaCL Exact noise=0.01"
