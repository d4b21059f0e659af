"""What every lab does: a quick run whose claims agree and whose figure is drawn, and a refusal of a wrong argument."""

import importlib
from collections.abc import Callable
from typing import Any

import pytest

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
    # Section 4.1 expects the residue to shrink in training. The lab measures it; it is not a theorem.
    assert all(claim.agrees for claim in result.claims if not claim.name.startswith("Section")), result.table()
    assert len(result.figure().axes) == axes
