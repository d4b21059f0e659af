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
        ("model.my_own_argument", "loss"),
        ("model.backbone", "setting"),
        ("model.optimization.lr", "setting"),
        ("model.tile", "incidental"),
        ("data.name", "data"),
        ("data", "data"),
        ("data.my_own_argument", "data"),
        ("knn", "measuring"),
        ("trainer.limit_val_batches", "measuring"),
        ("spectrum.images", "incidental"),
        ("checkpoint.keep", "incidental"),
        ("my_own_flag", "other"),
        ("trainer.strategy.find_unused_parameters", "incidental"),
        ("trainer.callbacks.WeightNoise.seed", "incidental"),
        ("trainer.callbacks.OnlineProbe.lr", "other"),
        ("seed_everything", "incidental"),
    ],
)
def test_role_of_a_key(key, expected):
    assert role(key) == expected
