"""What every lab does: a quick run whose claims agree and whose figure is drawn, and a refusal of a wrong argument."""

import importlib
from collections.abc import Callable
from typing import Any

import pytest
from helpers.closeness import close

from lightning_ssl.labs.lab import Result

INVALID: dict[str, list[tuple[str, Any]]] = {
    "covariance_operator": [("sizes", (3,)), ("views", 3), ("tau", 0.0), ("sigmas", ()), ("samples", 1)],
    "deep_linear": [("widths", (4, 2)), ("alpha", "best"), ("seeds", 0), ("tau", -1.0), ("lr", 0.0)],
    "hltm": [("latents", ("s2",)), ("latents", ("s01010",)), ("tau", 0.0), ("delta_lower", (1.5,)), ("widths", ())],
    "importances": [("classes", 1), ("samples", 1), ("tau", -1.0), ("loudness", -0.1), ("steps", 0)],
    "landscape": [("tables", ("3",)), ("mask", 1.0), ("batch", 2000), ("latents", "dense"), ("importances", ("none",))],
    "min_player": [("q", ()), ("tau", 0.0), ("samples", 2), ("lr", -1.0), ("outputs", 1)],
    "one_layer": [("q", 0.7), ("patterns_count", 40), ("taus", (0.0,)), ("dimension", 2), ("noise", -1.0)],
    "relu_two_layer": [("modes", 1), ("hidden", ()), ("augmentation", (-1.0,)), ("init", "zero")],
    "translation": [("d", 3), ("widths", (1,)), ("widths", (17,)), ("alpha", 0.0), ("steps", 0)],
}
INVALID["hltm"] += [("seeds", 0)]
INVALID["landscape"] += [("tau", 0.0), ("workers", 0)]
# Arguments of the quick run, and the number of axes of its figure.
QUICK: dict[str, tuple[dict[str, Any], int]] = {
    "covariance_operator": ({}, 3),
    "deep_linear": ({"widths": (6, 8, 8, 4), "seeds": 3}, 4),
    "importances": ({"steps": 15, "samples": 24, "seeds": 2}, 3),
    "min_player": ({"steps": 15, "seeds": 2}, 6),
    "one_layer": ({}, 6),
    "relu_two_layer": ({"hidden": (1, 5), "augmentation": (0.5, 1.75), "steps": 1000}, 8),
    "translation": ({}, 3),
}


def run_of(lab: str) -> Callable[..., Result]:
    run: Callable[..., Result] = importlib.import_module(f"lightning_ssl.labs.{lab}").run
    return run


@pytest.mark.parametrize(
    ("lab", "argument", "value"), [(lab, *case) for lab, cases in INVALID.items() for case in cases]
)
def test_an_invalid_argument_is_named(lab: str, argument: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{argument}="):
        run_of(lab)(quick=True, **{argument: value})


@pytest.mark.parametrize("lab", QUICK)
def test_a_quick_run_agrees_with_every_claim_and_draws(lab: str) -> None:
    arguments, axes = QUICK[lab]
    result = run_of(lab)(quick=True, **arguments)
    # Section 4.1 expects the residue to shrink in training. The lab measures it; it is not a theorem. Table 1 takes a
    # longer training.
    measured = ("Section", "Table 1")
    assert all(claim.agrees for claim in result.claims if not claim.name.startswith(measured)), result.table()
    assert len(result.figure().axes) == axes


# Arguments, names of arrays, the axis of their seeds, and the bound of rounding. Scale 1: shares, drifts and losses. In
# the labs of deep networks a difference grows by 1 + lr in a step.
ALONE: dict[str, tuple[dict[str, Any], list[str], int, dict[str, float]]] = {
    "deep_linear": (
        {"widths": (5, 6, 4, 3), "samples": 12, "steps": 20, "lr": 0.1, "flow_steps": 2},
        ["reached", "norm_drift"], -1, {"terms": 20 * 2 * 18 + 12**2, "scale": 1, "gain": 1.1**20},
    ),
    "importances": (
        {"samples": 8, "steps": 3, "hidden": 12, "outputs": 5},
        ["effective_path", "effective", "before"], 1, {"terms": 3 * (12 + 5 + 2 * 8), "gain": 2},
    ),
    "min_player": (
        {"samples": 8, "steps": 5, "q": (0.5, 2.0)},
        ["energy", "entropy", "loss"], 1, {"terms": 5 * (8 + 2 * (8 + 10 + 6)), "scale": 1, "gain": 2},
    ),
    "relu_two_layer": (
        {"modes": 4, "samples": 20, "steps": 20, "lr": 0.1, "hidden": (1, 3), "augmentation": (0.5, 1.5),
         "alpha": "random"},
        ["energy"], 2, {"terms": 20 * 2 * (4 + 3 + 5) + 20**2, "gain": 1.1**20},
    ),
}  # fmt: skip


@pytest.mark.parametrize("lab", ALONE)
def test_a_seed_in_a_batch_equals_that_seed_alone(lab: str) -> None:
    arguments, names, axis, rounding = ALONE[lab]
    together = run_of(lab)(seeds=3, **arguments).arrays
    alone = run_of(lab)(seeds=1, first_seed=2, **arguments).arrays
    for name in names:
        close(together[name].select(axis, 2), alone[name].select(axis, 0), where=name, **rounding)
