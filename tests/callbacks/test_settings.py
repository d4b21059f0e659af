"""Settings that a callback refuses."""

import math
import re
from functools import partial

from helpers.refusals import refused

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
CASES = [(kind, key, value) for kind, settings in REFUSED.items() for key, value in settings.items()]
test_bad_settings_are_refused_by_name_and_value = refused(
    *(
        (partial(kind, **{key: value}), re.escape(f"{key}={value!r}"))
        for kind, key, value in [*CASES, (WeightNoise, "std", -1.0)]
    )
)
