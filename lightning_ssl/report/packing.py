"""What the page's script draws, packed: 1,000 runs of 500 epochs must fit into one page."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from lightning_ssl.report.curves import PANELS, Band, band, single
from lightning_ssl.report.figures import coordinates, styles
from lightning_ssl.report.groups import Grouping
from lightning_ssl.report.statistics import Row

SINGLE = ("accuracy", "loss")  # panels that can show every run


def figure_data(grouping: Grouping, rows: Sequence[Row], refresh: int | None) -> dict[str, Any]:
    """Every group's look, results and lines, and the parallel coordinates of each data set, as plain values."""
    packer = Packer()
    spread = {id(row.group): row.spread for row in rows}
    groups = []
    for group, (colour, stroke) in zip(grouping.groups, styles(grouping.groups), strict=True):
        s = spread[id(group)]
        lines, each = {}, {}
        for panel in PANELS:
            for metric in panel.metrics:
                found = band(group, metric)
                if found is None:
                    continue
                lines[metric.key] = packer.band(found)
                if panel.key in SINGLE and len(group.runs) > 1:
                    several = [(run.name, curve) for run in group.runs if (curve := run.curve(metric.key)) is not None]
                    each[metric.key] = [[n, packer.band(single(curve, metric))] for n, curve in several]
        groups.append(
            {
                "title": f"{group.title} · {group.data}" if len(grouping.data_sets) > 1 else group.title,
                "data": group.data,
                "colour": colour,
                "stroke": {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}[stroke],
                "baseline": group.infonce,
                "mean": None if s is None else s.mean,
                "low": None if s is None else s.low,
                "high": None if s is None else s.high,
                "seeds": [[str(seed)[-60:], value] for seed, value in group.results.items()],
                "curves": lines,
                "single": each,
            }
        )
    parameters = {}
    for data in grouping.data_sets:
        axes, places, colour_of = coordinates(grouping, data)
        parameters[data] = {
            "axes": [{"title": title, "ticks": ticks, "texts": texts} for title, ticks, texts in axes],
            "values": [[round(float(v), 5) for v in column] for column in places.T],
            "accuracy": [round(float(v), 3) for v in colour_of],
        }
    return {
        "metric": grouping.metric,
        "groups": groups,
        "epochs": packer.epochs,
        "names": {metric.key: metric.name for panel in PANELS for metric in panel.metrics},
        "parameters": parameters,
        "refresh": refresh,
    }


class Packer:
    """Lines as 16-bit steps between their smallest and largest value, in base64; epochs that lines share, once."""

    def __init__(self) -> None:
        self.epochs: list[list[float]] = []
        self.known: dict[bytes, int] = {}

    def band(self, line: Band) -> list[Any]:
        """[index of its epochs, line, spread or 0]."""
        key = line.epochs.tobytes()
        if key not in self.known:
            self.known[key] = len(self.epochs)
            self.epochs.append([int(e) if float(e).is_integer() else float(e) for e in line.epochs])
        return [self.known[key], pack(line.mean), 0 if line.spread is None else pack(line.spread)]


def pack(values: np.ndarray) -> list[Any]:
    """[low, high, base64 of little-endian uint16]; 65535 stands for what is not a number."""
    finite = np.abs(values) < 1e150  # neither NaN nor what a difference would overflow with
    low = float(values[finite].min()) if finite.any() else 0.0
    high = float(values[finite].max()) if finite.any() else 0.0
    width = (high - low) or 1.0
    steps = np.where(finite, np.round((np.where(finite, values, low) - low) / width * 65534), 65535)
    return [float(f"{low:.7g}"), float(f"{high:.7g}"), base64.b64encode(steps.astype("<u2").tobytes()).decode()]
