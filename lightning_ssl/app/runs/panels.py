"""The metrics of a run by panel, for the report and the W&B workspace. The callbacks declare them (facts.py)."""

from __future__ import annotations

from dataclasses import replace

from lightning_ssl.base.facts import Metric, Panel, callbacks

TRAINING_LOSS = Metric("train/loss_epoch", "training loss", "lower")
# Panels that several callbacks share.
SHARED = (
    Panel("accuracy", "Accuracy", "Accuracy on the test images, or on the held-out images if data.holdout is set."),
    Panel("loss", "Loss", "Scales differ between losses: compare shapes, not values.", (TRAINING_LOSS,)),
)

RESULTS: dict[str, Metric] = {
    each.declared["flag"]: each.declared["metrics"][0] for each in callbacks() if each.declared["role"] == "measuring"
}
"""The accuracy that a callback measures, by the flag of the callback."""


def panels() -> tuple[Panel, ...]:
    """The shared panels, then those of one callback. The most important metric of each callback comes first."""
    declared = [each.declared for each in callbacks()]
    own = sorted((each["panel"] for each in declared if "panel" in each), key=lambda panel: panel.key)
    ranked = [(place, metric, each) for each in declared for place, metric in enumerate(each.get("metrics", ()))]
    ranked.sort(key=lambda entry: entry[0])
    shown: dict[str, list[Metric]] = {panel.key: [*panel.metrics] for panel in (*SHARED, *own)}
    for _, metric, each in ranked:
        shown[metric.panel or each["panel"].key].append(metric)
    return tuple(replace(panel, metrics=tuple(shown[panel.key])) for panel in (*SHARED, *own))


PANELS = panels()
METRICS = [metric for panel in PANELS for metric in panel.metrics]
