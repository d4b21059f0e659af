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
INVALID["hltm"] += [("seeds", 0), ("trials", 0)]
INVALID["landscape"] += [("tau", 0.0), ("workers", 0), ("recipe", "paper"), ("recipes", ("paper",)), ("tables", ())]
# Arguments of the quick run, and the number of axes of its figure.
QUICK: list[tuple[str, dict[str, Any], int]] = [
    ("covariance_operator", {}, 3),
    ("deep_linear", {"widths": (6, 8, 8, 4), "seeds": 3}, 4),
    ("importances", {"steps": 15, "samples": 24, "seeds": 2}, 3),
    ("landscape", {"seeds": 2}, 6),
    ("min_player", {"steps": 15, "seeds": 2}, 6),
    ("one_layer", {}, 8),
    ("relu_two_layer", {"hidden": (1, 5), "augmentation": (0.5, 1.75), "steps": 1000}, 8),
    ("translation", {}, 4),
    ("translation", {"d": 6, "widths": (2, 3, 6), "bias": False}, 4),
]
# Arguments of a short run, the axis of seeds of its arrays, and the terms and gain of their rounding (see `close`).
SEEDED: dict[str, tuple[dict[str, Any], dict[str, int], int, float]] = {
    "covariance_operator": (
        {"sizes": (4, 5, 3), "samples": 5, "views": 4, "sigmas": (0.1,), "betas": (0.2,), "steps": 3},
        {"smallest_eigenvalue": 1, "size InfoNCE, unbounded": 1, "size soft triplet, normalized": 1},
        3 * (2 * 12 + 20 + 20**2),
        2,
    ),
    # A difference grows by 1 + lr in a step.
    "deep_linear": (
        {"widths": (5, 6, 4, 3), "samples": 12, "steps": 20, "flow_steps": 2},
        {"reached": 1, "norm_drift": 2},
        20 * 2 * 18 + 12**2,
        1.1**20,
    ),
    "hltm": (
        {
            "depth": 3,
            "widths": (2, 4),
            "delta_lower": (0.7, 0.9),
            "epochs": 2,
            "samples": 256,
            "batch": 64,
            "trials": 1,
        },
        {"correlation": 3, "operator_norm": 3},
        2 * 4 * (4 * 3 * 4 + 3 * 64),
        1,
    ),
    "importances": (
        {"samples": 8, "steps": 3, "hidden": 12, "outputs": 5},
        {"effective_path": 1, "effective": 1, "before": 1},
        3 * (12 + 5 + 2 * 8),
        2,
    ),
    "min_player": (
        {"samples": 8, "inputs": 8, "hidden": 10, "outputs": 6, "steps": 5, "q": (0.5, 2.0)},
        {"energy": 1, "entropy": 1, "loss": 1},
        5 * (8 + 2 * 24),
        2,
    ),
    "relu_two_layer": (
        {"modes": 4, "samples": 20, "hidden": (1, 3), "outputs": 5, "augmentation": (0.5, 1.5), "steps": 20},
        {"energy": 2},
        20 * 2 * 12 + 20**2,
        1.1**20,
    ),
    "translation": ({"d": 7, "widths": (2, 7), "steps": 5}, {"relu_norm": 1, "object_gap": 1}, 5 * 7, 1),
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


@pytest.mark.parametrize(("lab", "arguments", "axes"), QUICK)
def test_a_quick_run_agrees_with_every_claim_and_draws(lab: str, arguments: dict[str, Any], axes: int) -> None:
    result = run_of(lab)(quick=True, **arguments)
    # Not theorems, but measured: Section 4.1 expects the residue to shrink in training, Table 1 ranks the losses. The
    # norms of Eqn. 11 have a part that Corollary 1 leaves out.
    measured = ("Section", "Table 1", "Corollary 1 by Eqn. 11")
    claims = [claim for claim in result.claims if not claim.name.startswith(measured)]
    assert len(claims) > 3
    assert all(claim.agrees for claim in claims), result.table()
    assert len(result.figure().axes) == axes


@pytest.mark.parametrize("lab", SEEDED)
def test_a_seed_in_a_batch_equals_that_seed_alone(lab: str) -> None:
    arguments, axes, terms, gain = SEEDED[lab]
    together = run_of(lab)(seeds=3, first_seed=2, **arguments).arrays
    for k in range(3):
        alone = run_of(lab)(seeds=1, first_seed=2 + k, **arguments).arrays
        for name, axis in axes.items():
            scale = float(together[name].abs().max())  # the value of one neuron may be 0
            close(alone[name].select(axis, 0), together[name].select(axis, k), terms=terms, gain=gain, scale=scale)
