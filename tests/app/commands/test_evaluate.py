"""`lightning-ssl evaluate`: accuracies, files, errors."""

import json
import os
import shutil

import pytest
import torch
from helpers import small_fit
from PIL import Image

from lightning_ssl.app import cli
from lightning_ssl.app.commands import evaluate, fit
from lightning_ssl.app.runs import RunFolder
from lightning_ssl.app.runs.restore import evaluation_data, restore_method
from lightning_ssl.evaluation import linear
from lightning_ssl.evaluation.features import LabelledFeatures

LINEAR = [f"linear/{name}_{top}" for name in ("adam", "lbfgs") for top in ("top1", "top5")]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of two epochs, with a checkpoint after each."""
    folder = tmp_path_factory.mktemp("runs")
    argv = [*small_fit("SimCLR", 256, 128, 32), "--model.augment=paper_cifar", "--trainer.max_epochs=2"]
    argv += ["--probe", "null", "--knn", "null", "--spectrum", "null", "--importance_monitor", "null"]
    assert fit.main([*argv, "--runs", str(folder), "--name", "run"]) == 0
    return folder / "run"


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the run, for tests that change it."""
    shutil.copytree(trained, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def evaluations(file):
    return json.loads(file.read_text(encoding="utf-8"))["evaluations"]


def test_a_run_gets_a_table_a_summary_and_a_record_with_its_settings(run, capsys):
    before = run.summary()
    assert evaluate.main([str(run.path), "--device", "cpu"]) == 0
    printed, after = capsys.readouterr().out, run.summary()
    assert list(after["linear"]) == LINEAR
    assert all(0.05 < after["linear"][name] <= 1 for name in LINEAR)  # chance is 0.1
    assert all(name in printed for name in [*LINEAR, "knn/top1"])
    assert after == before | {key: after[key] for key in ("linear", "linear_step")}

    (record,) = evaluations(run.path / "evaluation.json")
    assert record["metrics"].items() >= after["linear"].items()
    assert (record["checkpoint"], record["step"]) == ("step-00000016.ckpt", 16)
    assert record["data"].items() >= {"name": "shapes", "train_images": 256, "test_images": 128}.items()
    assert record["protocols"]["adam"]["seeds"] == [0, 1, 2]
    assert record["protocols"]["adam"]["epochs"] == 50
    assert record["protocols"]["lbfgs"]["held_out_images"] == 26


def test_the_accuracies_are_those_of_the_protocols_on_the_same_features(run):
    assert evaluate.main([str(run.path), "--device", "cpu", "--seed", "5", "--seeds", "2"]) == 0
    restored = restore_method(run.path)
    module = evaluation_data(restored.config)
    splits = []
    for name in ("train", "test"):
        split = module.open_split(name)
        batch = split.batch(torch.arange(len(split)))
        with torch.no_grad():
            splits.append(LabelledFeatures(*restored.method.validation_step(batch, 0).values()))
    results = run.summary()["linear"]
    one_image = 1.01 / len(splits[1].labels)  # the batch size changes the rounding of the features
    assert results["linear/adam_top1"] == pytest.approx(linear.adam(*splits, 10, [5, 6]).top1, abs=one_image)
    assert results["linear/lbfgs_top1"] == pytest.approx(linear.lbfgs(*splits, 10, 5).top1, abs=one_image)


# ---------------------------------------------------------------------------------------------------------------------
# Where the result is written


def test_a_checkpoint_outside_a_run_gets_its_result_beside_it(trained, tmp_path):
    alone = tmp_path / "alone.ckpt"
    shutil.copy(RunFolder(trained).newest_checkpoint(), alone)
    evaluate.main([str(alone), "--protocol", "lbfgs", "--device", "cpu"])
    (record,) = evaluations(tmp_path / "alone.ckpt.evaluation.json")
    assert list(record["metrics"]) == ["linear/lbfgs_top1", "linear/lbfgs_top5", "knn/top1"]


def test_an_older_checkpoint_does_not_change_the_summary(run, capsys):
    older = run.step_checkpoints()[-1]
    evaluate.main([str(older), "--protocol", "adam", "--device", "cpu"])
    assert run.summary()["linear"] == {}
    assert evaluations(run.path / "evaluation.json")[0]["step"] == 8
    assert "summary.json is about step-00000016.ckpt" in capsys.readouterr().out


def test_protocols_accumulate_a_repeated_one_is_replaced_and_results_of_an_earlier_step_are_dropped(run):
    run.update_summary(linear={"linear/adam_top1": 0.123}, linear_step=8)
    for protocol, expected in (("lbfgs", LINEAR[2:]), ("adam", LINEAR), ("adam", LINEAR)):
        evaluate.main([str(run.path), "--protocol", protocol, "--device", "cpu"])
        assert sorted(run.summary()["linear"]) == sorted(expected)
    assert [list(record["protocols"]) for record in evaluations(run.path / "evaluation.json")] == [["lbfgs"], ["adam"]]


def test_the_best_test_accuracy_is_not_in_the_summary(run, capsys):
    evaluate.main([str(run.path), "--protocol", "adam", "--best-test", "--device", "cpu"])
    assert list(run.summary()["linear"]) == ["linear/adam_top1", "linear/adam_top5"]
    (record,) = evaluations(run.path / "evaluation.json")
    assert record["metrics"]["linear/adam_best_test_top1"] >= record["metrics"]["linear/adam_top1"]
    assert "chosen on the test images" in capsys.readouterr().out


def test_another_data_set_is_named_in_the_metric(run, tmp_path):
    for split, count in (("train", 20), ("val", 6)):
        for name, colour in (("dark", 40), ("light", 200)):
            place = tmp_path / "photos" / split / name
            place.mkdir(parents=True)
            for i in range(count):
                Image.new("RGB", (50, 40), (colour + i, colour, colour)).save(place / f"{i}.png")
    words = ["--data", "folder", "--root", str(tmp_path / "photos"), "--options", '{"store_size": 48}']
    evaluate.main([str(run.path), *words, "--device", "cpu"])
    assert list(run.summary()["linear"]) == [f"{name}@folder" for name in LINEAR]
    assert run.summary()["linear"]["linear/lbfgs_top1@folder"] == 1
    (record,) = evaluations(run.path / "evaluation.json")
    assert record["data"] == {
        "name": "folder", "options": {"store_size": 48}, "train_images": 40, "test_images": 12, "classes": 2
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# The command line


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_work(run, trained, tmp_path, monkeypatch, capsys):
    alone = tmp_path / "alone.ckpt"
    shutil.copy(RunFolder(trained).newest_checkpoint(), alone)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    for given, file in ((run.path, run.path / "evaluation.json"), (alone, f"{alone}.evaluation.json")):
        assert cli.main(["evaluate", str(given), "--device", "cpu"]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""  # no table
        assert printed.err.startswith(f"lightning-ssl: cannot write {file}: this user cannot write to the folder")
        assert printed.err.count("\n") == 1
