"""Which differences between two configurations keep a run from being resumed."""

import functools
from types import SimpleNamespace

import pytest
import torch
from helpers.run_folders import content_of
from helpers.training import build_method

from lightning_ssl.app.config.configuration import Configuration
from lightning_ssl.app.runs.folder import RunFolder
from lightning_ssl.app.training.choose_folder import choose, first_change
from lightning_ssl.base.checks import UserError

FLAGS = ["--model=SimCLR", "--model.backbone=resnet_tiny", "--trainer.accelerator=cpu"]
NOISE = {"class_path": "WeightNoise", "init_args": {"std": 0.01}}


@pytest.fixture
def stored(tmp_path):
    """A run folder with the configuration of FLAGS and two WeightNoise callbacks."""
    config = Configuration.parse(FLAGS).stored()
    config["trainer"]["callbacks"] = [NOISE, NOISE]
    RunFolder(tmp_path).write_config(config)
    return RunFolder(tmp_path)


def changed(stored, edit):
    config = stored.config()
    edit(config)
    return first_change(SimpleNamespace(stored=lambda: config), stored)


@pytest.mark.parametrize(
    ("edit", "key"),
    [
        (lambda c: c["model"]["init_args"].update(tau=0.1), "model.tau=0.1"),
        (lambda c: c["trainer"].update(callbacks=[{**NOISE, "init_args": {"std": 0.02}}, NOISE]), "trainer.callbacks="),
        (lambda c: c["model"].update(dict_kwargs={"extra": 1}), "model.extra=1"),
        (lambda c: c["data"].update(options={}), "data.options={}"),
        (lambda c: c["trainer"].update(max_epochs=7), None),
        (lambda c: c["trainer"].update(devices=2, accelerator="gpu"), None),
    ],
)
def test_a_change_of_the_training_is_found_and_no_other(stored, edit, key):
    found = changed(stored, edit)
    assert found is None if key is None else found.startswith(key)


def test_a_key_that_an_older_version_did_not_write_has_the_value_of_that_version(stored):
    old = stored.config()
    del old["data"]["holdout"]
    stored.write_config(old)
    assert changed(stored, lambda config: config["data"].update(holdout=0)) is None
    assert changed(stored, lambda config: config["data"].update(holdout=500)) == "data.holdout=500: it was 0 before"


# ---------------------------------------------------------------------------------------------------------------------
# Which folder and checkpoint a command takes


@functools.cache
def parsed(*flags):
    return Configuration.parse([*FLAGS, *flags])


def command(folder, *flags, **values):
    """The configuration of a command with --runs and --name, and further values of --resume and --name."""
    config = parsed(*flags)
    return Configuration({**config.values, "runs": str(folder.parent), "name": folder.name, **values})


@functools.cache
def network():
    return build_method(parsed().stored())


@pytest.fixture
def finished(tmp_path):
    """A finished run folder with a checkpoint."""
    config, method, run = parsed(), network(), RunFolder(tmp_path / "run")
    run.write_config(config.stored())
    run.update_summary(status="finished", last={"x": 1.0})
    ours = {"config": config.stored(), "version": "0.1.0"}
    run.checkpoints.mkdir()
    torch.save(
        {"state_dict": method.state_dict(), "global_step": 4, "lightning_ssl": ours},
        run.checkpoints / "step-00000004.ckpt",
    )
    return run


def gone(run):
    for file in run.step_checkpoints():
        file.unlink()


def damaged(run):
    for file in run.step_checkpoints():
        file.write_bytes(file.read_bytes()[:1000])


@pytest.mark.parametrize("harm", [None, gone, damaged])
@pytest.mark.parametrize("summary", [None, "{", "null"])
def test_a_run_is_never_taken_over_by_another_configuration(finished, harm, summary):
    run = finished
    if harm:
        harm(run)
    if summary is not None:
        (run.path / "summary.json").write_text(summary)
    before = content_of(run.path)
    anyway = "" if harm else r", or --resume .*run to resume it anyway"
    with pytest.raises(
        ValueError, match=rf"^model.tau=0.1: it was 0.5 before, in .*run; choose another --name{anyway}$"
    ):
        choose(command(run.path, "--model.tau=0.1"))
    if harm:
        with pytest.raises(ValueError, match=r"^resume='.*run': .*run/checkpoints holds no undamaged checkpoint$"):
            choose(command(run.path, resume=str(run.path)))
    with pytest.raises(ValueError, match=r"^name='run': .* exists"):
        choose(command(run.path, resume="never"))
    (run.path / "config.yaml").unlink()
    if summary is not None or harm is None:
        with pytest.raises(ValueError, match=r"^config.yaml cannot be read"):
            choose(command(run.path))
    assert content_of(run.path) == {path: text for path, text in before.items() if path.name != "config.yaml"}


LOST = "has metrics, but neither a summary nor a whole checkpoint; choose another --name"
WHOLE = '{"status": "finished"}'


@pytest.mark.parametrize("harm", [gone, damaged])
@pytest.mark.parametrize(
    ("summary", "message"),
    [(WHOLE, "is finished and has no whole checkpoint; choose another --name"), (None, LOST), ("{", LOST),
     ('{"status": "running"}', LOST)],
)  # fmt: skip
@pytest.mark.parametrize(
    ("name", "text"), [("metrics.jsonl", '{"step": 3, "x": 1.0}\n'), ("metrics.csv", "epoch,step,x\n0,3,1.0\n")]
)
def test_a_run_that_has_lost_its_checkpoints_is_not_trained_again(finished, harm, summary, message, name, text):
    run = finished
    harm(run)
    (run.path / name).write_text(text)
    (run.path / "summary.json").unlink() if summary is None else (run.path / "summary.json").write_text(summary)
    before = content_of(run.path)
    with pytest.raises(UserError, match=rf"^name='run': .* {message}$"):
        choose(command(run.path, "--trainer.max_epochs=200"))
    assert content_of(run.path) == before


def test_a_trial_that_failed_before_its_run_and_a_run_killed_before_its_first_checkpoint_begin_again(finished):
    trial, run = RunFolder(finished.path.parent / "trial"), finished
    trial.update_summary(status="failed", error="model.tau=0")
    assert choose(command(trial.path)).checkpoint is None
    gone(run)
    (run.path / "metrics.jsonl").write_text('{"step": 3, "x": 1.0}\n')
    run.update_summary(status="running", started="2026-01-01T00:00:00Z")
    assert choose(command(run.path)).checkpoint is None


def test_a_stopped_run_whose_checkpoints_are_damaged_begins_again_with_a_warning(finished):
    damaged(finished)
    finished.update_summary(status="interrupted")
    with pytest.warns(UserWarning, match=r"run/checkpoints holds no undamaged checkpoint; training starts again$"):
        assert choose(command(finished.path)).checkpoint is None


def test_error_txt_and_temporary_files_go_when_a_run_goes_on(finished):
    run = finished
    run.update_summary(status="failed")
    left = [run.path / "error.txt", run.path / ".summary.json.999999999", run.checkpoints / ".step-1.ckpt.999999999"]
    for file in left:
        file.write_text("half")
    with run.lock():
        assert [file.exists() for file in left] == [True, False, False]
    run.update_summary(status="finished")
    assert not left[0].exists()
