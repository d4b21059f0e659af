"""A checkpoint from which Lightning cannot resume is refused in one line, and its run folder stays as it is."""

import os
import shutil

import pytest
import torch
from helpers.run_folders import content_of

from lightning_ssl.app import cli
from lightning_ssl.app.config.configuration import Configuration
from lightning_ssl.app.runs.folder import RunFolder
from lightning_ssl.app.training.checks import require_resumable

FLAGS = [
    "--model=SimCLR", "--model.backbone=resnet_tiny", "--model.projector.hidden=8", "--model.projector.out=8",
    "--data.batch_size=16", '--data.options={"train_images": 64, "test_images": 16}', "--trainer.max_epochs=2",
    "--trainer.accelerator=cpu", "--trainer.max_time=00:01:00:00", "--checkpoint.every_n_steps=3", "--knn=null",
    "--spectrum=null", "--importance_monitor=null",
]  # fmt: skip
BATCHES = 4  # of an epoch
PROBE = "OnlineProbe{'name': 'online'}"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run folder of two epochs, as if it had been killed after step 7, within the second epoch."""
    top = tmp_path_factory.mktemp("runs")
    assert cli.main(["fit", *FLAGS, "--checkpoint.keep=9", "--runs", str(top), "--name", "run"]) == 0
    run = RunFolder(top / "run")
    for file in run.step_checkpoints():
        if file.name != "step-00000006.ckpt":
            file.unlink()
    run.update_summary(status="running")
    return run


@pytest.fixture
def stopped(trained, tmp_path):
    """A copy of that folder."""
    shutil.copytree(trained.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


@pytest.fixture(scope="module")
def parts():
    return Configuration.parse(FLAGS).build()


def resume(run, *flags):
    keep = ["--checkpoint.keep=9", "--runs", str(run.path.parent), "--name", run.path.name]
    return cli.main(["fit", *FLAGS, *keep, *flags])


def edit(run, change):
    """Change the content of the checkpoint of a run."""
    (file,) = run.step_checkpoints()
    content = torch.load(file, weights_only=True)
    change(content)
    torch.save(content, file)
    return file


def fit_loop(content):
    return content["loops"]["fit_loop"]


def adam(content):
    return content["optimizer_states"][0]


GROUPS = r"its optimizer has other parameter groups than model\.optimization$"
OURS = "expected one written by `lightning-ssl fit` or `lightning-ssl import-bolts`$"
WRONG = [  # refused before Lightning reads the checkpoint
    (lambda c: c.pop("loops"), "it has no loops"),
    (lambda c: c.update(callbacks=[]), "it has no callbacks"),
    (lambda c: c.update(optimizer_states=[]), GROUPS),
    (lambda c: c.update(optimizer_states=[7]), GROUPS),
    (lambda c: c.update(optimizer_states=[{"param_groups": [1]}]), GROUPS),
    (lambda c: adam(c)["param_groups"][0].pop("params"), GROUPS),
    (lambda c: c.update(DataModule={"epoch": 0, "batch": 99}), "saved at batch 99 of an epoch, and an epoch has 4"),
    (lambda c: c.update(global_step="many"), OURS),
    (lambda c: c.update(state_dict=[1]), OURS),
    (
        lambda c: c["state_dict"].pop("backbone.conv1.weight"),
        r"\(1 of \d+ differ\): backbone.conv1.weight is absent instead of \(.*\)$",
    ),
    (lambda c: c["state_dict"].clear(), r"\(\d+ of \d+ differ\): .* is absent .*; .* is absent .*$"),
    (lambda c: c["state_dict"].update(x=torch.zeros(1)), r"x is \(1,\) instead of absent$"),
    (lambda c: c["lightning_ssl"].update(config=[1]), OURS),
    (lambda c: c.clear(), OURS),
]
UNRESTORABLE = [  # Lightning and torch cannot restore it
    lambda c: c.update(DataModule=[1]),
    lambda c: c.update(loops={}),
    lambda c: fit_loop(c).update(epoch_progress=7),
    lambda c: adam(c).update(state=[]),
    lambda c: c.update(lr_schedulers=[7]),
    lambda c: c["callbacks"].update({PROBE: {"probe": 7}}),
]


@pytest.mark.parametrize(("change", "line"), WRONG)
def test_a_checkpoint_of_another_training_is_refused(stopped, parts, change, line):
    file = edit(stopped, change)
    with pytest.raises(ValueError, match=rf"^checkpoint='.*step-00000006.ckpt': .*{line}") as refused:
        require_resumable(file, parts, BATCHES)
    assert len(str(refused.value)) < 500
    assert "\n" not in str(refused.value)


def refused(run, capsys, *flags):
    """Resume a run in vain: the exit code and the one line of the error. The folder stays as it is."""
    before = content_of(run.path)
    code = resume(run, *flags)
    (line,) = capsys.readouterr().err.splitlines()
    assert content_of(run.path) == before
    return code, line


@pytest.mark.parametrize("by_path", [False, True])
def test_a_refused_checkpoint_leaves_the_folder_as_it_is(stopped, by_path, capsys):
    edit(stopped, WRONG[3][0])
    code, line = refused(stopped, capsys, *(["--resume", str(stopped.path)] if by_path else []))
    assert (code, line[:28]) == (2, "lightning-ssl: checkpoint='/")


@pytest.mark.parametrize("change", UNRESTORABLE)
def test_a_checkpoint_that_cannot_be_restored_leaves_the_folder_as_it_is(stopped, change, capsys):
    edit(stopped, change)
    code, line = refused(stopped, capsys)
    assert code == 1
    assert "step-00000006.ckpt was not resumed, its run folder is unchanged" in line


def test_the_checkpoint_of_a_run_is_resumed(stopped, parts):
    require_resumable(*stopped.step_checkpoints(), parts, BATCHES)
    assert resume(stopped) == 0
    assert stopped.is_finished()
    assert stopped.summary()["step"] == 2 * BATCHES


@pytest.mark.parametrize("optimizer", ["lars", "sgd"])
def test_the_state_of_another_optimizer_is_refused(stopped, optimizer):
    """`--resume PATH` takes another configuration, but the state of an optimizer fits only that optimizer."""
    other = Configuration.parse([*FLAGS, f"--model.optimization.name={optimizer}"]).build()
    with pytest.raises(ValueError, match=GROUPS):
        require_resumable(*stopped.step_checkpoints(), other, BATCHES)


def test_fewer_epochs_than_the_checkpoint_has_are_refused(stopped, capsys):
    edit(stopped, lambda content: content.update(epoch=3))
    code, line = refused(stopped, capsys)
    assert code == 2
    assert "trainer.max_epochs=2: max_epochs must be at least 3, the epochs of" in line


@pytest.mark.parametrize("name", ["metrics.jsonl", "metrics.csv", "summary.json", "config.yaml", "error.txt"])
@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a device"])
def test_a_file_of_a_run_that_cannot_be_written_is_refused(stopped, name, kind, capsys):
    file = stopped.path / name
    file.unlink(missing_ok=True)
    make = {"a pipe": os.mkfifo, "a folder": os.mkdir, "a device": lambda path: path.symlink_to("/dev/null")}
    make[kind](file)
    code, line = refused(stopped, capsys, "--resume", str(stopped.path))
    assert code == 2
    assert f"{file}: it is {kind}, not a regular file" in line or name == "config.yaml"


def test_a_file_in_place_of_the_checkpoints_is_refused(stopped, capsys):
    shutil.rmtree(stopped.checkpoints)
    stopped.checkpoints.write_text("")
    code, line = refused(stopped, capsys)
    assert code == 2
    assert "checkpoints: it is not a folder" in line
