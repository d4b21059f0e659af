"""A method saves its own configuration: hparams are complete, and a checkpoint from Python rebuilds the method."""

import copy

import pytest
import pytorch_lightning as pl
import torch
from helpers.training import METHODS, SMALL, data, every_method, fit, same

from lightning_ssl import AlphaCL, Direct, Head, Optimization, SimCLR, Tsallis
from lightning_ssl.base.signatures import arguments_of


@pytest.fixture
def saved(tmp_path):
    """Train a method and save its checkpoint."""

    def save(model):
        fit(model, []).save_checkpoint(tmp_path / "model.ckpt")
        return tmp_path / "model.ckpt"

    return save


def test_hparams_hold_every_argument_with_its_default_also_in_a_copy_and_a_logger(tmp_path):
    model = AlphaCL(Direct(p=6), **SMALL)
    direct = {"class_path": "lightning_ssl.Direct", "init_args": {"tau": 0.5, "p": 6, "normalize": True}}
    assert (model.hparams["importance"], model.hparams["beta"]) == (direct, 0.0)
    assert (model.hparams["projector"]["hidden"], model.hparams["optimization"]["name"]) == (512, "adam")
    assert set(model.hparams) == set(arguments_of(AlphaCL))
    assert copy.deepcopy(model).hparams == model.hparams
    fit(model, [], logger=pl.loggers.CSVLogger(tmp_path), log_every_n_steps=1)
    assert "lightning_ssl.Direct" in (tmp_path / "lightning_logs/version_0/hparams.yaml").read_text()


@every_method
def test_a_checkpoint_of_a_python_training_loads(make, saved):
    model = make(optimization=Optimization(lr=0.02))
    file = saved(model)
    torch.load(file, weights_only=True)
    loaded = type(model).load_from_checkpoint(file)
    assert type(loaded) is type(model)
    assert same(loaded.state_dict(), model.state_dict())
    assert loaded.configuration() == model.configuration()


def test_a_checkpoint_of_another_class_is_refused(saved):
    file = saved(METHODS["AlphaCL"]())
    with pytest.raises(ValueError, match="subclass of SimCLR"):
        SimCLR.load_from_checkpoint(file)


def test_an_argument_can_be_replaced_when_a_checkpoint_is_loaded(saved):
    loaded = AlphaCL.load_from_checkpoint(saved(AlphaCL(Tsallis(q=1.5), **SMALL)), beta=0.5)
    assert loaded.loss.beta == 0.5
    assert loaded.loss.importance == Tsallis(q=1.5)


def test_a_checkpoint_holds_the_configuration_of_the_data(saved):
    config = torch.load(saved(METHODS["SimCLR"]()), weights_only=True)["lightning_ssl"]["config"]
    assert config["data"]["name"] == "shapes"
    assert config["data"]["options"] == {"train_images": 64, "test_images": 16}
    assert config["data"]["batch_size"] == data().batch_size


def test_a_wrong_argument_is_a_type_error_of_the_constructor():
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrong'"):
        SimCLR(wrong=1)


def test_methods_of_users_save_their_own_arguments(saved):
    model = Scaled(scale=3.0, **SMALL)
    assert model.hparams["scale"] == 3.0
    assert Scaled.load_from_checkpoint(saved(model)).scale == 3.0


class Scaled(SimCLR):
    def __init__(self, scale: float = 1.0, projector: Head = Head(64, 32), **network):  # noqa: B008
        super().__init__(projector=projector, **network)
        self.scale = scale

    def compute_loss(self, views):
        return self.scale * super().compute_loss(views)
