"""Callbacks that watch a training run without touching it, and one, `WeightNoise`, that does touch it.

    pl.Trainer(callbacks=[OnlineProbe(), OnlineKNN(), FeatureSpectrum(), ImportanceMonitor()])

They measure the encoder in evaluation mode, draw from no global generator, see the images of all ranks, and log
accuracies as shares between 0 and 1.
"""

from lightning_ssl.callbacks.importance import ImportanceMonitor
from lightning_ssl.callbacks.knn import OnlineKNN
from lightning_ssl.callbacks.noise import WeightNoise
from lightning_ssl.callbacks.probe import OnlineProbe
from lightning_ssl.callbacks.spectrum import FeatureSpectrum

__all__ = ["FeatureSpectrum", "ImportanceMonitor", "OnlineKNN", "OnlineProbe", "WeightNoise"]
