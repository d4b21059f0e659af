"""Callbacks: four that measure a training without changing it, and `WeightNoise`, which changes the weights.

    pl.Trainer(callbacks=[OnlineProbe(), OnlineKNN(), FeatureSpectrum(), ImportanceMonitor()])

probe.py       `OnlineProbe`: a linear classifier on the features
knn.py         `OnlineKNN`: nearest neighbours
spectrum.py    `FeatureSpectrum`: rank and collapse of the features
importance.py  `ImportanceMonitor`: statistics of α
noise.py       `WeightNoise`
encoder.py     the base of those that measure features, and what they need of a LightningModule
schedule.py    when callbacks measure
log.py         when to log, and logging that a killed run does not lose

The callbacks that measure use the encoder in evaluation mode, do not draw from the global random generator, and measure
the images of all ranks. Accuracies are shares between 0 and 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning_ssl._lazy import import_files
from lightning_ssl.base import facts

if TYPE_CHECKING:  # a type checker cannot see the names of a file without a line here
    from lightning_ssl._lightning import pl
    from lightning_ssl.callbacks.importance import *  # noqa: F403
    from lightning_ssl.callbacks.knn import *  # noqa: F403
    from lightning_ssl.callbacks.noise import *  # noqa: F403
    from lightning_ssl.callbacks.probe import *  # noqa: F403
    from lightning_ssl.callbacks.spectrum import *  # noqa: F403

globals().update(public := import_files(__name__))
__all__ = sorted(public)
BY_FLAG: dict[str, type[pl.Callback]] = {
    each.declared["flag"]: public[each.name] for each in facts.callbacks() if "flag" in each.declared
}
"""The callbacks that `lightning-ssl fit` has by default, by the flag that configures each; null switches one off."""
