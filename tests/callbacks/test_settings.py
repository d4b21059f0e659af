"""Settings that a callback refuses."""

import math
import re

import pytest

from lightning_ssl.callbacks import FeatureSpectrum, ImportanceMonitor, OnlineKNN, OnlineProbe, WeightNoise

REFUSED = {
    OnlineProbe: {
        "name": "", "lr": 0.0, "weight_decay": -1.0, "every_n_steps": 0, "share": 0.0, "memory": 0, "num_classes": 1,
    },
    OnlineKNN: {"k": 0, "tau": 0.0, "distance": "manhattan", "every_n_epochs": 0, "max_reference": 0},
    FeatureSpectrum: {"every_n_epochs": 0, "images": 1},
    ImportanceMonitor: {"every_n_steps": 0, "rows": 0},
    WeightNoise: {"std": math.inf, "seed": -1},
}  # fmt: skip
CASES = [(kind, key, value) for kind, refused in REFUSED.items() for key, value in refused.items()]


@pytest.mark.parametrize(("kind", "key", "value"), [*CASES, (WeightNoise, "std", -1.0)])
def test_bad_settings_are_refused_by_name_and_value(kind, key, value):
    with pytest.raises(ValueError, match=re.escape(f"{key}={value!r}")):
        kind(**{key: value})
