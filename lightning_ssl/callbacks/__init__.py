"""Callbacks: four that measure a training without changing it, and `WeightNoise`, which changes the weights.

    pl.Trainer(callbacks=[OnlineProbe(), OnlineKNN(), FeatureSpectrum(), ImportanceMonitor()])

probe.py       `OnlineProbe`: a linear classifier on the features
knn.py         `OnlineKNN`: nearest neighbours
spectrum.py    `FeatureSpectrum`: rank and collapse of the features
importance.py  `ImportanceMonitor`: statistics of α
noise.py       `WeightNoise`
encoder.py     what a LightningModule must have for them
schedule.py    when callbacks measure
log.py         when to log, and logging that a killed run does not lose

The callbacks that measure use the encoder in evaluation mode, do not draw from the global random generator, and measure
the images of all ranks. Accuracies are shares between 0 and 1.
"""

from lightning_ssl._lightning import pl
from lightning_ssl.callbacks.importance import ImportanceMonitor
from lightning_ssl.callbacks.knn import OnlineKNN
from lightning_ssl.callbacks.noise import WeightNoise
from lightning_ssl.callbacks.probe import OnlineProbe
from lightning_ssl.callbacks.spectrum import FeatureSpectrum

__all__ = ["FeatureSpectrum", "ImportanceMonitor", "OnlineKNN", "OnlineProbe", "WeightNoise"]

# Those whose settings change a measured accuracy come first: the order of the columns in metrics.csv.
BY_FLAG: dict[str, type[pl.Callback]] = {
    kind.flag: kind
    for kind in sorted(
        (kind for kind in map(globals().__getitem__, __all__) if hasattr(kind, "flag")),
        key=lambda kind: (kind.role, kind.flag),
        reverse=True,
    )
}
"""The callbacks that `lightning-ssl fit` has by default, by the flag that configures each; null switches one off."""
