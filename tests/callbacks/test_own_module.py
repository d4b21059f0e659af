"""The callbacks with a LightningModule that is no `Method`: it needs `features`, and nothing else."""

import pytest
import pytorch_lightning as pl
import torch
from helpers.training import fit
from torch import nn

from lightning_ssl.callbacks import FeatureSpectrum, ImportanceMonitor, OnlineKNN, OnlineProbe


class Supervised(pl.LightningModule):
    """A classifier on the pixels' means; it knows nothing of this package."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(8, 10)

    def features(self, images):
        return self.net(images / 255)

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self.head(self.net(batch[0] / 255)), batch[1])

    def validation_step(self, batch, batch_idx):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_the_callbacks_measure_a_module_of_the_user():
    callbacks = [OnlineProbe(share=1), OnlineKNN(k=5), FeatureSpectrum(), ImportanceMonitor(1)]
    metrics = fit(Supervised(), callbacks).callback_metrics
    assert {"online/top1", "knn/top1", "spectrum/rankme"} <= metrics.keys()
    assert not {"spectrum/alignment", "alpha/entropy"} & metrics.keys()


@pytest.mark.parametrize("callback", [OnlineProbe, OnlineKNN, FeatureSpectrum])
def test_a_module_without_features_is_refused(callback):
    class Without(Supervised):
        features = None

    with pytest.raises(ValueError, match=rf"{callback.__name__}: Without needs a method features\(images"):
        fit(Without(), [callback()])


def test_features_of_a_wrong_shape_are_refused():
    class Maps(Supervised):
        def features(self, images):
            return images / 255

    with pytest.raises(ValueError, match=r"Maps.features: expected shape \(2, F\), got \(2, 3, 32, 32\)"):
        fit(Maps(), [OnlineProbe()])
