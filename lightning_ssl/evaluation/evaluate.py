"""Evaluate a trained method: features once, then linear classifiers and nearest neighbours."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from lightning_ssl.data import DataModule
from lightning_ssl.evaluation import linear
from lightning_ssl.evaluation.features import LabelledFeatures, extract_features, select_device
from lightning_ssl.evaluation.knn import vote
from lightning_ssl.methods import Method

KNN: dict[str, Any] = {"k": 200, "tau": 0.1, "distance": "cosine"}  # the defaults of `OnlineKNN`

Progress = Callable[[str, int | None], Callable[[], None]]
"""`advance = progress("Adam", 50)` shows a task and its number of steps; `advance()` is called after each step."""


def no_progress(task: str, steps: int | None) -> Callable[[], None]:
    return lambda: None


def evaluate(
    method: Method,
    module: DataModule,
    protocols: Sequence[str] = ("adam", "lbfgs"),
    seeds: Sequence[int] = (0, 1, 2),
    device: str = "auto",
    best_test: bool = False,
    progress: Progress = no_progress,
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
    timer = Timer()
    method = method.to(target)
    loaders = {"training": module.sequential_dataloader("train"), "test": module.sequential_dataloader("test")}
    train, test = (
        extract_features(method, loader, target, progress(f"features of the {name} images", len(loader)))
        for name, loader in loaders.items()
    )
    timer.lap("features")
    classes = module.num_classes
    outcomes: dict[str, linear.Outcome] = {}
    if "adam" in protocols:
        advance = progress("Adam", linear.PAPER.epochs)
        outcomes["adam"] = linear.adam(train, test, classes, seeds, best_test=best_test, advance=advance)
        timer.lap("adam")
    if "lbfgs" in protocols:
        outcomes["lbfgs"] = linear.lbfgs(train, test, classes, seeds[0], advance=progress("L-BFGS", None))
        timer.lap("lbfgs")
    knn_top1 = knn_accuracy(train, test, classes)
    timer.lap("knn")
    suffix = "" if trained_on in (None, module.data_set) else f"@{module.data_set}"
    return {
        "metrics": {**linear_metrics(outcomes, suffix), f"knn/top1{suffix}": knn_top1},
        "data": {
            "name": module.data_set,
            "options": module.options,
            "train_images": len(train.labels),
            "test_images": len(test.labels),
            "classes": classes,
        },
        "features": train.features.shape[1],
        "protocols": {name: outcome.details for name, outcome in outcomes.items()},
        "knn": KNN,
        "seconds": timer.laps,
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def knn_accuracy(train: LabelledFeatures, test: LabelledFeatures, classes: int) -> float:
    """Accuracy of the weighted vote of the nearest training images."""
    votes = vote(test.features, train.features, train.labels, classes, **KNN)  # (N, C)
    return float(linear.accuracy(votes, test.labels))


def linear_metrics(outcomes: dict[str, linear.Outcome], suffix: str = "") -> dict[str, float]:
    """The metrics of the protocols by name. The suffix names a data set other than that of training."""
    metrics: dict[str, float] = {}
    for name, outcome in outcomes.items():
        metrics |= {f"linear/{name}_top1{suffix}": outcome.top1, f"linear/{name}_top5{suffix}": outcome.top5}
        if by_seed := outcome.details.get("best_test_top1_by_seed"):
            metrics[f"linear/{name}_best_test_top1{suffix}"] = fmean(by_seed)
    return metrics


class Timer:
    """Seconds of consecutive stages."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self.start = time.perf_counter()

    def lap(self, stage: str) -> None:
        """End a stage; the next one starts."""
        now = time.perf_counter()
        self.laps[stage], self.start = round(now - self.start, 2), now
