"""Metrics by epoch: the mean and standard deviation of a group's runs."""

from __future__ import annotations

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
    curves = [curve for run in finished or group.runs if (curve := run.curve(metric.key)) is not None]
    if not curves:
        return None
    epochs = np.concatenate([curve[0] for curve in curves])
    values = np.concatenate([curve[1] for curve in curves]) * (100 if metric.percent else 1)
    if not np.isfinite(values).any():
        return None
    distinct, mean, std = spread_by_epoch(epochs, values)
    return subsample(Band(distinct, mean, std if len(curves) > 1 else None))


def run_curve(curve: Curve, metric: Metric) -> Band:
    """Return the curve of one run."""
    return subsample(Band(curve[0], curve[1] * (100 if metric.percent else 1), None))


def subsample(line: Band) -> Band:
    """Keep at most `POINTS` evenly spaced points, the first and the last among them."""
    length = len(line.epochs)
    if length <= POINTS:
        return line
    keep = np.unique(np.linspace(0, length - 1, POINTS).round().astype(int))
    return Band(line.epochs[keep], line.mean[keep], None if line.spread is None else line.spread[keep])
