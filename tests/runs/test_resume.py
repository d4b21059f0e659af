"""Which differences between two configurations keep a run from being resumed."""

import pytest

from lightning_ssl.runs.configuration import Configuration
from lightning_ssl.runs.folder import RunFolder
from lightning_ssl.runs.resume import first_change

FLAGS = ["--model=SimCLR", "--model.backbone=resnet_tiny", "--trainer.accelerator=cpu"]
NOISE = {"class_path": "WeightNoise", "init_args": {"std": 0.01}}


@pytest.fixture
def stored(tmp_path):
    """A run folder with the configuration of FLAGS and two WeightNoise callbacks."""
    config = Configuration.parse(FLAGS).stored()
    config["trainer"]["callbacks"] = [NOISE, NOISE]
    RunFolder(tmp_path).write_config(config)
    return RunFolder(tmp_path)


class Fixed:
    """A configuration with given stored values."""

    def __init__(self, values):
        self.values = values

    def stored(self):
        return self.values


def changed(stored, edit):
    config = stored.config()
    edit(config)
    return first_change(Fixed(config), stored)


def test_the_same_configuration_has_no_change(stored):
    assert changed(stored, lambda config: None) is None


@pytest.mark.parametrize(
    ("edit", "key"),
    [
        (lambda c: c["model"]["init_args"].update(tau=0.1), "model.tau=0.1"),
        (lambda c: c["model"].update(class_path="mine.SimCLR"), "model='mine.SimCLR'"),
        (lambda c: c["trainer"]["callbacks"].append({"class_path": "mine.Stop"}), "trainer.callbacks="),
        (lambda c: c["trainer"].update(callbacks=[{**NOISE, "init_args": {"std": 0.02}}, NOISE]), "trainer.callbacks="),
        (lambda c: c["model"].update(dict_kwargs={"extra": 1}), "model.extra=1"),
        (lambda c: c["data"].update(options={}), "data.options={}"),
        (lambda c: c["data"].update(new=None), "data.new=None"),
    ],
)
def test_a_change_is_found(stored, edit, key):
    assert changed(stored, edit).startswith(key)


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: c.update(group="other", tags=["a"], logger="wandb"),
        lambda c: c["trainer"].update(max_epochs=7),
        lambda c: c["model"].update(class_path="lightning_ssl.methods.SimCLR"),
    ],
    ids=["bookkeeping", "length", "another public path of the same class"],
)
def test_these_do_not_keep_a_run_from_being_resumed(stored, edit):
    assert changed(stored, edit) is None


def test_a_configuration_that_cannot_be_read_is_a_change(tmp_path):
    (tmp_path / "config.yaml").write_text("[1")
    assert first_change(Fixed({}), RunFolder(tmp_path)) == "config.yaml cannot be read"
