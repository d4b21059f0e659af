"""Build the data that the page's figures draw: one dictionary of plain values, written to the page as JSON.

A page of 1,000 runs with 500 epochs each must stay small. Each curve has at most `POINTS` points, each point
takes 16 bits, and curves that share their epochs refer to one list of epochs.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from lightning_ssl.app.report.compared import Compared
from lightning_ssl.app.report.figures import GROUPS_DRAWN, Band, band, mean_curve, parallel_coordinates
from lightning_ssl.app.report.groups import Group, Grouping
from lightning_ssl.app.report.verdict import Results, Row
from lightning_ssl.app.runs.panels import METRICS, PANELS

SINGLE_RUN_PANELS = ("accuracy", "loss")  # panels that can show the curve of each run
PLOTLY_DASH = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}


def figure_data(results: Results, refresh: int | None) -> dict[str, Any]:
    """Return style, results and curves of each group, and the parallel coordinates of each data set.

    refresh   seconds after which the page reloads itself; None for a page that does not
    """
    encoder, grouping = CurveEncoder(), results.grouping
    return {
        "metric": grouping.metric,
        "groups": [
            group_data(grouping, compared, row, encoder)
            for compared in results.compared
            for row in results.rows
            if row.group.data == compared.data
        ],
        "drawn": GROUPS_DRAWN,
        "epochs": encoder.epochs,
        "names": {metric.key: metric.name for metric in METRICS},
        "parameters": {data: parameter_data(grouping, data) for data in grouping.data_sets},
        "refresh": refresh,
    }


def group_data(grouping: Grouping, compared: Compared, row: Row, encoder: CurveEncoder) -> dict[str, Any]:
    """Return style, results and curves of a group. A long seed (a run's path) keeps its last 60 characters.

    best   mean minus the best of the other means, and its interval
    """
    group, at = row.group, compared.index(row.group)
    colour, line = grouping.styles[group.title]
    return {
        "title": group.title,
        "data": group.data,
        "set": grouping.data_sets.index(group.data),
        "colour": colour,
        "dash": PLOTLY_DASH[line],
        "baseline": group.infonce,
        "mean": row.spread.mean if row.spread else None,
        "outside": row.can_be_best is False,
        "best": None if at is None else compared.to_the_best[at],
        "seeds": [[str(seed)[-60:], value] for seed, value in group.results.items()],
        **curve_data(group, encoder),
    }


def curve_data(group: Group, encoder: CurveEncoder) -> dict[str, Any]:
    """Return the mean curve of each metric and, where a panel can show them, the curves of the single runs."""
    means, runs = {}, {}
    for panel in PANELS:
        for metric in panel.metrics:
            mean = band(group, metric)
            if mean is None:
                continue
            means[metric.key] = encoder.add(mean)
            if panel.key in SINGLE_RUN_PANELS and len(group.runs) > 1:
                curves = [(run.name, mean_curve([run.curve(metric.key)], metric)) for run in group.runs]
                runs[metric.key] = [[name, encoder.add(curve)] for name, curve in curves if curve is not None]
    return {"curves": means, "runs": runs}


def parameter_data(grouping: Grouping, data: str) -> dict[str, Any]:
    """Return the axes of the parallel coordinates and the position of each run on them."""
    axes, accuracy = parallel_coordinates(grouping, data)
    return {
        "axes": [{"title": axis.title, "ticks": axis.ticks, "texts": axis.texts} for axis in axes],
        "values": [[round(place, 5) for place in axis.places] for axis in axes],
        "accuracy": [round(float(value), 3) for value in accuracy],
    }


class CurveEncoder:
    """Encodes curves, and collects the lists of epochs that they refer to."""

    def __init__(self) -> None:
        self.epochs: list[list[float]] = []
        self.index: dict[bytes, int] = {}

    def add(self, curve: Band) -> list[Any]:
        """Return [index of the epochs, encoded mean, encoded spread or 0]."""
        key = curve.epochs.tobytes()
        if key not in self.index:
            self.index[key] = len(self.epochs)
            self.epochs.append([int(e) if float(e).is_integer() else float(e) for e in curve.epochs])
        return [self.index[key], encode(curve.mean), 0 if curve.spread is None else encode(curve.spread)]


def encode(values: np.ndarray) -> list[Any]:
    """Return [low, high, base64 of little-endian uint16].

    0 … 65534 are steps from low to high; 65535 is a missing value (NaN, infinite, or too large to subtract).
    """
    finite = np.abs(values) < 1e150  # high − low of larger values can overflow
    low = float(values[finite].min()) if finite.any() else 0.0
    high = float(values[finite].max()) if finite.any() else 0.0
    width = (high - low) or 1.0
    steps = np.where(finite, np.round((np.where(finite, values, low) - low) / width * 65534), 65535)
    return [float(f"{low:.7g}"), float(f"{high:.7g}"), base64.b64encode(steps.astype("<u2").tobytes()).decode()]
