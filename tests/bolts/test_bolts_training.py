"""The four methods under pytorch-lightning 1.9.5, with the evaluator of bolts and with our callbacks."""

import re

import pytest
import pytorch_lightning as pl
import torch
from helpers import ROOT
from pl_bolts.models.self_supervised import BYOL as BoltsBYOL
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_ssl.callbacks import FeatureSpectrum, ImportanceMonitor, OnlineKNN, OnlineProbe, WeightNoise
from lightning_ssl.data import DataModule
from lightning_ssl.data.module import ShuffledSampler
from lightning_ssl.losses.importance import Direct
from lightning_ssl.methods import BYOL, AlphaCL, Head, SimCLR, SimSiam
from lightning_ssl.optim import momentum_schedule

MIGRATION = ROOT / "docs" / "migration.md"
QUIET = {"accelerator": "cpu", "enable_checkpointing": False, "logger": False}
QUIET |= {"enable_progress_bar": False, "enable_model_summary": False}
SMALL = {"backbone": "resnet_tiny", "image_size": 32}
METHODS = {
    "SimCLR": lambda: SimCLR(**SMALL),
    "AlphaCL": lambda: AlphaCL(Direct(), **SMALL),
    "SimSiam": lambda: SimSiam(projector=Head(64, 32, norm="bn"), **SMALL),
    "BYOL": lambda: BYOL(projector=Head(64, 32, norm="bn"), **SMALL),
}
every_method = pytest.mark.parametrize("make", METHODS.values(), ids=METHODS.keys())


def documented_evaluator():
    """The evaluator of bolts with the adapter printed in docs/migration.md."""
    names = {}
    (adapter,) = re.findall(r"```python\n(.*?class OnlineEvaluator.*?)```", MIGRATION.read_text(encoding="utf-8"), re.S)
    exec(adapter, names)
    return names["OnlineEvaluator"]


def fit(make, *callbacks, epochs=2):
    torch.manual_seed(0)
    model = make()
    trainer = pl.Trainer(max_epochs=epochs, callbacks=list(callbacks), **QUIET)
    trainer.fit(model, DataModule("shapes", batch_size=16, options={"train_images": 64, "test_images": 32}))
    return model, trainer


def weights(model):
    return torch.cat([value.flatten().double() for value in model.state_dict().values()])


def test_the_lightning_version_is_1_9_5():
    assert pl.__version__ == "1.9.5"


@every_method
def test_methods_train_and_evaluator_and_callbacks_do_not_change_the_weights(make):
    evaluator = documented_evaluator()(z_dim=112, dataset="shapes")
    ours = [OnlineProbe(), OnlineKNN(every_n_epochs=1), FeatureSpectrum(every_n_epochs=1)]
    alone, _ = fit(make)
    model, trainer = fit(make, evaluator, *ours, ImportanceMonitor(every_n_steps=2))
    assert torch.equal(weights(alone), weights(model))
    assert trainer.global_step == 8
    assert len(evaluator.optimizer.state) == 2  # the weight and the bias of its classifier were updated
    expected = {"train/loss", "online_train_loss", "online_val_loss", "online_val_acc"}
    expected |= {"online/top1", "knn/top1", "spectrum/rankme"}
    if isinstance(model, SimCLR | AlphaCL):
        expected.add("alpha/entropy")
    assert expected <= trainer.callback_metrics.keys()
    assert all(torch.isfinite(trainer.callback_metrics[name]) for name in expected)
    torch.manual_seed(0)
    untrained = make()
    assert not torch.equal(model.backbone.conv1.weight, untrained.backbone.conv1.weight)


def test_weight_noise_changes_the_weights():
    quiet, _ = fit(METHODS["AlphaCL"])
    noisy, _ = fit(METHODS["AlphaCL"], WeightNoise())
    assert not torch.equal(weights(quiet), weights(noisy))


def test_batches_are_those_of_the_current_lightning():
    class IdRecorder(pl.Callback):
        def __init__(self):
            self.ids = []

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            self.ids.append(batch[2])

    recorder, sampler = IdRecorder(), ShuffledSampler(64, 16)
    fit(METHODS["SimCLR"], recorder, epochs=3)
    expected = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        expected += sampler.epoch_batches()
    assert torch.equal(torch.stack(recorder.ids), torch.stack(expected))
    assert not torch.equal(expected[0], expected[4])


def test_the_momentum_schedule_of_bolts_byol_is_ours_one_step_later():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(12, 4)

        def forward(self, x):
            return [self.linear(x.flatten(1))]

    class Momenta(pl.Callback):
        def __init__(self):
            self.used = []

        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            self.used.append(pl_module.weight_callback.current_tau)

    class Pairs(TensorDataset):
        def __getitem__(self, index):
            return tuple(self.tensors[0][index]), 0

    momenta = Momenta()
    trainer = pl.Trainer(max_epochs=2, callbacks=[momenta], **QUIET)
    model = BoltsBYOL(base_encoder=Encoder(), encoder_out_dim=4, projector_hidden_dim=8, projector_out_dim=4)
    trainer.fit(model, DataLoader(Pairs(torch.rand(12, 2, 3, 2, 2)), batch_size=4))
    assert trainer.global_step == 6
    assert momenta.used == pytest.approx([momentum_schedule(step, 6) for step in range(6)], abs=1e-12)
