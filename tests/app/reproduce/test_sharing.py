"""A run that another sweep has with the same configuration and seed is copied, and `fit` trains nothing."""

import shlex

import pytest
import torch

from lightning_ssl.app import cli
from lightning_ssl.app.config.configuration import Configuration
from lightning_ssl.app.reproduce import planning, recipe
from lightning_ssl.app.reproduce.sharing import share
from lightning_ssl.app.runs import RunFolder, archive
from lightning_ssl.app.runs.run_record import files_to_archive
from lightning_ssl.app.sweep import scales
from lightning_ssl.app.sweep.engine import preview
from lightning_ssl.app.sweep.plan import fit_flags
from lightning_ssl.app.sweep.state import recorded
from lightning_ssl.app.training import run as training

CPU = scales.scale_named("cpu")


@pytest.fixture
def table4(tmp_path):
    """The sweep of Table 4 with two seeds, in RUNS/table4_cifar10-cpu."""
    work = recipe.load("table4").works["cpu"]
    (planned,) = planning.plan_sweeps(work, CPU, 2, tmp_path)
    return planned


def add_all(file, folder):
    return archive.add(file, files_to_archive(folder, recorded))


def other_run(table4, folder, seed=1, **summary):
    """A run of Direct with p = 4, as Table 1 has it."""
    command = next(command for trial, command in preview(table4.plan, table4.folder) if "p=4" in trial.id)
    flags = fit_flags(shlex.split(command))
    stored = Configuration.parse([*flags, f"--seed_everything={seed}", "--group=table1-cpu"]).stored()
    run = RunFolder(folder)
    run.path.mkdir(parents=True)
    run.write_config(stored)
    run.update_summary(**{"name": folder.name, "status": "finished", **summary})
    (run.path / "metrics.jsonl").write_text('{"epoch": 9, "step": 780, "online/top1": 0.5}\n')
    (run.path / "evaluation.json").write_text("{}")
    run.checkpoints.mkdir()
    torch.save({"state_dict": {}}, run.checkpoints / "step-00000780.ckpt")
    return run


def test_a_finished_run_of_another_sweep_is_copied_and_fit_trains_nothing(table4, tmp_path, monkeypatch, capsys):
    source = other_run(table4, tmp_path / "table1-cpu" / "034-direct-seed_everything=1")
    ((sweep, _),) = copied = share([table4], [tmp_path / "table1-cpu", tmp_path / "nowhere-cpu"])
    assert sweep == "table4_cifar10-cpu"
    target = RunFolder(table4.folder / "007-p=4-seed_everything=1")
    assert [folder.name for folder in table4.folder.iterdir()] == [target.path.name]
    assert target.summary()["name"] == target.path.name
    assert target.summary()["copied_from"] == "table1-cpu/034-direct-seed_everything=1"
    assert (target.path / "evaluation.json").exists()
    assert target.step_checkpoints()[0].samefile(source.step_checkpoints()[0])
    assert planning.estimate([table4], CPU, copied=copied).left == 9
    assert share([table4], [tmp_path / "table1-cpu"]) == copied  # nothing is copied twice

    target.step_checkpoints()[0].unlink()  # a run of an archive has none
    monkeypatch.setattr(training, "train_in_folder", lambda *_: pytest.fail("trained"))
    command = next(command for trial, command in preview(table4.plan, table4.folder) if trial.id == target.path.name)
    assert cli.main(["fit", *fit_flags(shlex.split(command))]) == 0
    assert "is finished already" in capsys.readouterr().out


def test_a_run_of_the_archive_is_copied_under_the_name_of_its_trial_and_not_archived_again(table4, tmp_path):
    other_run(table4, tmp_path / "elsewhere" / "table4_cifar10-cpu" / "031-old")
    other_run(table4, tmp_path / "table1-cpu" / "031-other")
    file = tmp_path / "archive" / "table4_cifar10-cpu.jsonl.gz"
    add_all(file, tmp_path / "elsewhere" / "table4_cifar10-cpu")
    before = file.read_bytes()
    assert len(share([table4], [tmp_path / "table1-cpu", file])) == 1
    target = RunFolder(table4.folder / "007-p=4-seed_everything=1")
    assert target.summary()["copied_from"] == "table4_cifar10-cpu/031-old"
    assert target.is_finished()
    assert (target.path / "evaluation.json").exists()
    assert add_all(file, table4.folder) == 1
    assert file.read_bytes() == before
    assert add_all(tmp_path / "new" / file.name, table4.folder) == 1


def test_a_dry_run_counts_the_runs_of_the_archive_as_done_and_copies_nothing(table4, tmp_path, capsys):
    other_run(table4, tmp_path / "elsewhere" / "table1-cpu" / "x")
    add_all(tmp_path / "archive" / "table1-cpu.jsonl.gz", tmp_path / "elsewhere" / "table1-cpu")
    flags = ["--seeds", "2", "--runs", str(tmp_path), "--archive", str(tmp_path / "archive")]
    assert cli.main(["reproduce", "table4", *flags, "--dry-run"]) == 0
    copied, estimate = capsys.readouterr().out.splitlines()[-2:]
    assert copied == "finished in another sweep or in the archive, so copied: 1"
    assert estimate.startswith("10 runs, 9 left: ")
    assert not table4.folder.exists()


def test_a_run_of_an_older_version_on_another_machine_is_copied(table4, tmp_path):
    run = other_run(table4, tmp_path / "table1-cpu" / "x")
    stored = run.config()
    stored["trainer"]["devices"] = 1
    del stored["data"]["holdout"]
    del stored["data"]["on_device"]
    run.write_config(stored)
    assert len(share([table4], [tmp_path / "table1-cpu"])) == 1


@pytest.mark.parametrize("change", [{"seed": 5}, {"status": "interrupted"}])
def test_another_seed_and_a_run_that_is_not_finished_are_not_copied(table4, tmp_path, change):
    other_run(table4, tmp_path / "table1-cpu" / "x", **change)
    assert share([table4], [tmp_path / "table1-cpu"]) == []
    assert not table4.folder.exists()
