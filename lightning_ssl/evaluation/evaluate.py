"""Evaluate a trained method: features once, then linear classifiers and nearest neighbours."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from lightning_ssl.data import DataModule
from lightning_ssl.evaluation import linear
from lightning_ssl.evaluation.features import extract_features, select_device
from lightning_ssl.evaluation.knn import vote
from lightning_ssl.methods import Method

KNN: dict[str, Any] = {"k": 200, "tau": 0.1, "distance": "cosine"}  # the defaults of `OnlineKNN`

Progress = Callable[[str, int | None], Callable[[], None]]
"""`advance = progress("Adam", 50)` shows a task and its number of steps; `advance()` is called after each step."""


def evaluate(
    method: Method,
    module: DataModule,
    protocols: Sequence[str] = ("adam", "lbfgs"),
    seeds: Sequence[int] = (0, 1, 2),
    device: str = "auto",
    best_test: bool = False,
    progress: Progress = lambda task, steps: lambda: None,
    trained_on: str | None = None,
) -> dict[str, Any]:
    """Evaluate a method on a data set. Returns the metrics and all settings as plain values.

    protocols   of `linear`: "adam", "lbfgs" or both
    seeds       of the classifiers that Adam trains; the first one also decides the held-out images of L-BFGS
    best_test   also record the best test accuracy over the epochs of Adam, which is chosen on the test images
    trained_on  the data set of training; the names of the metrics have the data set if it is another one
    """
    target = select_device(device)
    module.prepare_data()
    module.setup("test")
    ends = {"start": time.perf_counter()}  # of consecutive stages
    method = method.to(target)
    loaders = {"training": module.sequential_dataloader("train"), "test": module.sequential_dataloader("test")}
    train, test = (
        extract_features(method, loader, target, progress(f"features of the {name} images", len(loader)))
        for name, loader in loaders.items()
    )
    ends["features"] = time.perf_counter()
    classes = module.num_classes
    outcomes: dict[str, linear.Outcome] = {}
    if "adam" in protocols:
        advance = progress("Adam", linear.PAPER.epochs)
        outcomes["adam"] = linear.adam(train, test, classes, seeds, best_test=best_test, advance=advance)
        ends["adam"] = time.perf_counter()
    if "lbfgs" in protocols:
        outcomes["lbfgs"] = linear.lbfgs(train, test, classes, seeds[0], advance=progress("L-BFGS", None))
        ends["lbfgs"] = time.perf_counter()
    votes = vote(test.features, train.features, train.labels, classes, **KNN)  # (N, C)
    metrics: dict[str, float] = {}
    for name, outcome in outcomes.items():
        metrics |= {f"linear/{name}_top1": outcome.top1, f"linear/{name}_top5": outcome.top5}
        if by_seed := outcome.details.get("best_test_top1_by_seed"):
            metrics[f"linear/{name}_best_test_top1"] = fmean(by_seed)
    metrics["knn/top1"] = float(linear.accuracy(votes, test.labels))
    ends["knn"] = time.perf_counter()
    suffix = "" if trained_on in (None, module.data_set) else f"@{module.data_set}"
    counts = {"train_images": len(train.labels), "test_images": len(test.labels), "classes": classes}
    return {
        "metrics": {f"{name}{suffix}": value for name, value in metrics.items()},
        "data": {"name": module.data_set, "options": module.options, **counts},
        "features": train.features.shape[1],
        "protocols": {name: outcome.details for name, outcome in outcomes.items()},
        "knn": KNN,
        "seconds": {stage: round(end - start, 2) for (_, start), (stage, end) in pairwise(ends.items())},
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
