"""Which images an accuracy was measured on, and whether something was chosen on test images.

`linear/…` is measured on the test images. `online/…` and `knn/…` are measured on the test images too, as in the papers,
unless `data.holdout` holds images out of the training set. A setting that is chosen by an accuracy on test images makes
that accuracy too high.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from lightning_ssl.app.config.labels import format_value, loss_name
from lightning_ssl.app.report.differences import split
from lightning_ssl.app.report.formats import list_names
from lightning_ssl.app.report.groups import Group, Grouping
from lightning_ssl.app.runs.run_record import RunRecord

ADVICE = "Choose with data.holdout, then run `lightning-ssl evaluate` once."


def uses_test_images(run: RunRecord, metric: str) -> bool:
    """Whether a metric of a run is measured on test images."""
    return metric.startswith("linear/") or not run.settings.get("data.holdout")


def images_measured(run: RunRecord, metric: str) -> int | None:
    """Return the number of images that a metric is measured on; None if it is not in the settings."""
    key = "data.options.test_images" if uses_test_images(run, metric) else "data.holdout"
    found = run.settings.get(key)
    return found if isinstance(found, int) and found > 0 else None


def measured_on(grouping: Grouping) -> str | None:
    """Say which images the accuracies come from; None without runs."""
    places: dict[str, list[str]] = defaultdict(list)
    for data, groups in grouping.by_data.items():
        run = groups[0].runs[0]  # the runs on a data set hold out the same number of images
        held_out = format_value(run.settings.get("data.holdout"))
        held_out = f"on images held out of the training set (data.holdout {held_out})"
        places["on the test images" if uses_test_images(run, grouping.metric) else held_out].append(data)
    if not places:
        return None
    several = len(places) > 1
    parts = [where + f" for {list_names(names)}" * several for where, names in places.items()]
    return f"{grouping.metric} is measured {'; '.join(parts)}."


def choice_on_test_images(grouping: Grouping) -> str | None:
    """Warn where a setting was searched, or can be chosen from the table, by accuracies on test images."""
    reasons = []
    searches = searched_on_test_images([run for group in grouping.groups for run in group.runs])
    if searches:
        reasons.append(f"{list_names(searches)} searched by an accuracy on test images")
    varied: dict[tuple[str, str], list[Group]] = defaultdict(list)
    for group in grouping.groups:
        if group.results and uses_test_images(group.runs[0], grouping.metric):
            varied[group.data, loss_name(group.runs[0].settings)].append(group)
    several = [f"{len(groups)} settings of {name}" for (_, name), groups in varied.items() if len(groups) > 1]
    if several:
        reasons.append(f"the table ranks {list_names(several)} by test images")
    if not reasons:
        return None
    why = "; ".join(reasons)
    return f"The best of several settings is chosen on test images, so its accuracy is too high: {why}. {ADVICE}"


def searched_on_test_images(runs: Sequence[RunRecord]) -> list[str]:
    """The sweeps that chose parameters, or stopped trials, by an accuracy on test images."""
    found = []
    for trials in split(runs, lambda run: run.folder.parent):
        settings = trials[0].sweep
        metric = settings.get("metric")
        name = str(metric.get("name")) if isinstance(metric, dict) else ""
        searches = settings.get("method") == "bayes" or settings.get("early_terminate") is not None
        if searches and name and any(uses_test_images(run, name) for run in trials):
            found.append(trials[0].folder.parent.name)
    return found
