"""Every key of a configuration has one role."""

import pytest
import pytorch_lightning as pl

from lightning_ssl.app.config import keys
from lightning_ssl.app.config.configuration import CALLBACKS, root
from lightning_ssl.app.config.keys import role
from lightning_ssl.base.signatures import arguments_of
from lightning_ssl.data import DataModule


@pytest.mark.parametrize(("kind", "roles"), [(pl.Trainer, keys.TRAINER), (DataModule, keys.DATA)])
def test_every_argument_has_exactly_one_role(kind, roles):
    assert sorted(arguments_of(kind)) == sorted(name for names in roles.values() for name in names)


def test_every_flag_of_fit_has_exactly_one_role():
    flags = {*root().named(), "config"}
    parts = {"trainer", "model", "data"}
    assert flags - parts <= {*keys.FLAG_ROLES, *keys.INCIDENTAL}
    assert set(CALLBACKS) == set(keys.FLAG_ROLES)


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
        ("data.options.train_images", "data"),
        ("data.name", "data"),
        ("data.split", "data"),
        ("data.holdout", "data"),
        ("data", "data"),
        ("data.my_own_argument", "data"),
        ("data.root", "incidental"),
        ("probe.lr", "measuring"),
        ("knn", "measuring"),
        ("trainer.limit_val_batches", "measuring"),
        ("spectrum.images", "incidental"),
        ("checkpoint.keep", "incidental"),
        ("trainer.max_epochs", "setting"),
        ("trainer.max_steps", "setting"),
        ("trainer.accumulate_grad_batches", "setting"),
        ("trainer.precision", "other"),
        ("my_own_flag", "other"),
        ("trainer.devices", "incidental"),
        ("trainer.strategy.find_unused_parameters", "incidental"),
        ("trainer.callbacks.WeightNoise.std", "loss"),
        ("trainer.callbacks.WeightNoise.seed", "incidental"),
        ("trainer.callbacks.OnlineProbe.lr", "other"),
        ("trainer.callbacks.EarlyStopping.monitor", "other"),
        ("seed_everything", "incidental"),
    ],
)
def test_role_of_a_key(key, expected):
    assert role(key) == expected
