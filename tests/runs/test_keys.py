"""Every key of a configuration has one role: loss, setting or incidental."""

import inspect

import pytest
import pytorch_lightning as pl

from lightning_ssl.data import DataModule
from lightning_ssl.runs import keys
from lightning_ssl.runs.configuration import CALLBACKS, make_parser
from lightning_ssl.runs.keys import role


def arguments_of(kind):
    return set(inspect.signature(kind.__init__).parameters) - {"self"}


@pytest.mark.parametrize(
    ("kind", "settings", "incidental"),
    [
        (pl.Trainer, keys.TRAINER_SETTINGS, keys.TRAINER_INCIDENTAL),
        (DataModule, keys.DATA_SETTINGS, keys.DATA_INCIDENTAL),
    ],
)
def test_every_argument_has_exactly_one_role(kind, settings, incidental):
    assert not set(settings) & set(incidental)
    assert arguments_of(kind) == {*settings, *incidental}


def test_every_flag_of_fit_has_exactly_one_role():
    flags = {action.dest.partition(".")[0] for action in make_parser()._actions} - {"help", "print_config"}
    parts = {"trainer", "model", "data"}
    assert flags - parts <= {*keys.MEASURING, *keys.INCIDENTAL}
    assert not set(keys.MEASURING) & set(keys.INCIDENTAL)
    assert set(CALLBACKS) <= {*keys.MEASURING, *keys.INCIDENTAL}


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("model", "loss"),
        ("model.importance", "loss"),
        ("model.importance.p", "loss"),
        ("model.my_own_argument", "loss"),
        ("model.backbone", "setting"),
        ("model.optimization.lr", "setting"),
        ("model.seed", "incidental"),
        ("model.tile", "incidental"),
        ("data.batch_size", "setting"),
        ("data.options.train_images", "setting"),
        ("data.root", "incidental"),
        ("probe.lr", "setting"),
        ("spectrum.images", "incidental"),
        ("checkpoint.keep", "incidental"),
        ("trainer.max_epochs", "setting"),
        ("trainer.devices", "incidental"),
        ("trainer.strategy.find_unused_parameters", "incidental"),
        ("trainer.callbacks.WeightNoise.std", "loss"),
        ("trainer.callbacks.WeightNoise.seed", "incidental"),
        ("trainer.callbacks.EarlyStopping.monitor", "setting"),
        ("seed_everything", "incidental"),
    ],
)
def test_role_of_a_key(key, expected):
    assert role(key) == expected
