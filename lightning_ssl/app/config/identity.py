"""When two configurations are the same: before a run is resumed, and before a finished run is shared between sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_ssl.app.config import keys
from lightning_ssl.app.config.labels import is_unlabelled, plain_number, unwrapped
from lightning_ssl.base.walk import ClassPath, walk

# Of these, 1 is one batch and 1.0 is all batches.
SHARES = (
    "trainer.limit_train_batches", "trainer.limit_val_batches", "trainer.overfit_batches", "trainer.val_check_interval",
)  # fmt: skip


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """The values that tell a configuration from others, by dotted keys. Where and how a run is computed is left out.

    >>> identity({"model": {"class_path": "lightning_ssl.SimCLR", "init_args": {"tau": 1.0}}, "name": "one"})
    {'data.holdout': 0, 'model': 'SimCLR', 'model.tau': 1}
    """
    found = keys.ADDED | leaves(config)
    return {key: value for key, value in found.items() if keys.is_compared(key)}


def key_of(experiment: Mapping[str, Any]) -> str:
    """An identity as text."""
    return repr(sorted(experiment.items()))


def leaves(config: Any) -> dict[str, Any]:
    """The values of a configuration by dotted keys, in a form in which equal values are equal.

    A value that a label leaves out, such as `beta_times: row_sum`, is left out: the configurations of older versions
    lack the arguments that a class got later.
    """
    found = unwrapped({key: comparable(key, value) for key, value in walk(config)})
    return {key: value for key, value in found.items() if not is_default(found, key, value)}


def is_default(found: Mapping[str, Any], key: str, value: Any) -> bool:
    owner, _, name = key.rpartition(".")
    kind = found.get(owner)
    return isinstance(kind, str) and not isinstance(value, list | dict) and is_unlabelled(kind, name, value)


def comparable(key: str, value: Any) -> Any:
    """A value in which 127 and 127.0 are one. Classes of this package have several paths, so only their names count."""
    if isinstance(value, ClassPath) and value.startswith("lightning_ssl."):
        return value.rpartition(".")[2]
    if isinstance(value, list):
        return [leaves(item) for item in value]
    is_share = key in SHARES and isinstance(value, float) and value == 1
    return "all" if is_share else plain_number(value)
