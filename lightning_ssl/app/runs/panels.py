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
    own = sorted(
        (each.declared["panel"] for each in callbacks() if "panel" in each.declared), key=lambda each: each.key
    )
    shown: dict[str, list[tuple[int, Metric]]] = {each.key: [] for each in (*SHARED, *own)}
    for callback in callbacks():
        for place, metric in enumerate(callback.declared.get("metrics", ())):
            shown[metric.panel or callback.declared["panel"].key].append((place, metric))
    return tuple(
        replace(
            each, metrics=(*each.metrics, *(metric for _, metric in sorted(shown[each.key], key=lambda pair: pair[0])))
        )
        for each in (*SHARED, *own)
    )


PANELS = panels()
METRICS = [metric for panel in PANELS for metric in panel.metrics]
