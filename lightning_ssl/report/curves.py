"""Metrics by epoch: which there are, and a group's runs as one line with a band of one standard deviation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lightning_ssl.report.groups import Group
from lightning_ssl.report.read import Curve

POINTS = 250  # of a line at most: more than a screen's width shows


@dataclass(frozen=True)
class Metric:
    """A column of metrics.csv, as the figures name it; `percent` where it is a share of test images."""

    key: str
    name: str
    percent: bool = False


@dataclass(frozen=True)
class Panel:
    """A figure: metrics to choose from, the first shown, and a line for the reader."""

    key: str
    title: str
    words: str
    metrics: tuple[Metric, ...]


PANELS = (
    Panel(
        "accuracy",
        "Accuracy",
        "Of test images, by epochs trained.",
        (
            Metric("online/top1", "online probe, top-1 (%)", True),
            Metric("knn/top1", "nearest neighbours, top-1 (%)", True),
            Metric("online/top5", "online probe, top-5 (%)", True),
        ),
    ),
    Panel(
        "loss",
        "Loss",
        "Each loss has its own scale: read the shape, not the order.",
        (
            Metric("train/loss_epoch", "training loss"),
            Metric("online/loss", "loss of the online probe"),
        ),
    ),
    Panel(
        "alpha",
        "Pair importance α",
        "How many negatives a row really uses, and how evenly it spreads its weight.",
        (
            Metric("alpha/effective_negatives", "effective negatives"),
            Metric("alpha/entropy", "entropy of α"),
            Metric("alpha/top1", "weight of the heaviest pair"),
            Metric("alpha/zeros", "share of zero weights"),
        ),
    ),
    Panel(
        "spectrum",
        "Rank and collapse",
        "A rank that falls, or a deviation near 0, is a representation that collapses.",
        (
            Metric("spectrum/rankme", "RankMe"),
            Metric("spectrum/effective", "effective rank"),
            Metric("spectrum/std", "deviation of unit features"),
            Metric("spectrum/alignment", "alignment"),
            Metric("spectrum/uniformity", "uniformity"),
        ),
    ),
)


@dataclass(frozen=True)
class Band:
    """A line and how far runs lie from it; `spread` is None for a single run."""

    epochs: np.ndarray  # (E,)
    mean: np.ndarray  # (E,)
    spread: np.ndarray | None  # (E,)


def band(group: Group, metric: Metric) -> Band | None:
    """Mean and deviation over the group's finished runs; where none has finished, over what there is of the others."""
    done = [run for run in group.runs if run.finished]
    curves = [found for run in done or group.runs if (found := run.curve(metric.key)) is not None]
    if not curves:
        return None
    epochs = np.concatenate([curve[0] for curve in curves])
    values = np.concatenate([curve[1] for curve in curves]) * (100 if metric.percent else 1)
    finite = np.isfinite(values)
    if not finite.any():
        return None
    at, where = np.unique(epochs[finite], return_inverse=True)
    values = values[finite]
    count = np.bincount(where)
    mean = np.bincount(where, values) / count
    if len(curves) == 1:
        return thin(Band(at, mean, None))
    square = np.bincount(where, (values - mean[where]) ** 2)
    return thin(Band(at, mean, np.sqrt(square / np.maximum(count - 1, 1))))


def thin(line: Band) -> Band:
    """The line at `POINTS` of its epochs at most, its ends among them."""
    keep = chosen(len(line.epochs))
    return Band(line.epochs[keep], line.mean[keep], None if line.spread is None else line.spread[keep])


def single(curve: Curve, metric: Metric) -> Band:
    """One run's line."""
    keep = chosen(len(curve[0]))
    return Band(curve[0][keep], curve[1][keep] * (100 if metric.percent else 1), None)


def chosen(length: int) -> np.ndarray:
    if length <= POINTS:
        return np.arange(length)
    return np.unique(np.linspace(0, length - 1, POINTS).round().astype(int))
