"""Metrics by epoch: the mean and standard deviation of a group's runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lightning_ssl.app.report.groups import Group
from lightning_ssl.app.runs.metrics import Curve
from lightning_ssl.base.facts import Metric
from lightning_ssl.comparison.spread import spread_by_epoch

POINTS = 250  # maximum number of points of a curve; a figure cannot show more


@dataclass(frozen=True)
class Band:
    """A mean curve and the standard deviation around it; `spread` is None for a single run."""

    epochs: np.ndarray  # (E,)
    mean: np.ndarray  # (E,)
    spread: np.ndarray | None  # (E,)


def band(group: Group, metric: Metric) -> Band | None:
    """Return mean and standard deviation over the group's finished runs, or over all runs if none has finished."""
    finished = [run for run in group.runs if run.finished]
    return mean_curve([run.curve(metric.key) for run in finished or group.runs], metric)


def mean_curve(runs: Sequence[Curve | None], metric: Metric) -> Band | None:
    """Return mean and standard deviation of the curves of runs; None without a finite value.

    At most `POINTS` evenly spaced points are kept, the first and the last among them.
    """
    curves = [curve for curve in runs if curve is not None]
    if not any(np.isfinite(curve[1]).any() for curve in curves):
        return None
    values = np.concatenate([curve[1] for curve in curves]) * (100 if metric.percent else 1)
    epochs, mean, std = spread_by_epoch(np.concatenate([curve[0] for curve in curves]), values)
    keep = np.linspace(0, len(epochs) - 1, min(len(epochs), POINTS)).round().astype(int)
    return Band(epochs[keep], mean[keep], std[keep] if len(curves) > 1 else None)
