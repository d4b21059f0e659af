"""What a run does where the text is open, or differs from the released programs: the recipes, as data.

Table 2 alone decides between the recipes: `distance` to its published cells. Tables 1 and 4 have no part in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from lightning_ssl.labs.landscape.data import permuted_counts

NOISES = {
    "√(log d)/d": lambda d: math.sqrt(math.log(d)) / d,  # the released generator
    "log(d)/d": lambda d: math.log(d) / d,  # Section 4.1: σ_0 = Θ(log(d)/d)
    "√(log(d)/d)": lambda d: math.sqrt(math.log(d) / d),  # Section 4.2: variance log(d)/d
}
"""Readings of the standard deviation of ε, as functions of d."""


@dataclass(frozen=True)
class Setting:
    """Settings of a training; `run` describes those that are flags.

    The defaults are the released programs with the text's number of samples and learning rate.

    drop_last    pair losses leave out the last, smaller batch of an epoch, as their released loaders do
    zero_biases  the text. Released: uniform in ±1/√(inputs)
    symmetric    the text's ReLU(h + b) − ReLU(b − h). Released, after batch normalization: ReLU(h) − ReLU(2b − h)
    projector    the released SimSiam has a second layer, `Wproj`, before its predictor. Table 2 has no such model
    all_layers   the optimizers of dual networks hold every parameter. Released: those of the first layers
    """

    epochs: int = 8000
    lr: float = 0.025
    samples: int = 1000
    batch: int = 512
    p: int = 50
    d: int = 10
    m: int = 50
    tau: float = 0.2
    noise: float | str = "√(log d)/d"
    latents: str = "permuted"
    drop_last: bool = True
    zero_biases: bool = False
    symmetric: bool = False
    projector: bool = True
    all_layers: bool = False

    @property
    def sigma0(self) -> float:
        """Standard deviation of the noise ε."""
        return NOISES[self.noise](self.d) if isinstance(self.noise, str) else self.noise

    def same_data(self, sparsities: tuple[float, ...]) -> list[tuple[float, ...]]:
        """Group the sparsities whose codes are the same (see `sparse_codes`): their runs are one measurement."""
        groups: dict[object, list[float]] = {}
        for sparsity in sparsities:
            kind = {"permuted": permuted_counts(self.d, sparsity), "one_hot": None}.get(self.latents, sparsity)
            groups.setdefault(kind, []).append(sparsity)
        return [tuple(group) for group in groups.values()]


_TEXT = {
    "noise": "√(log(d)/d)", "latents": "bernoulli", "drop_last": False, "zero_biases": True, "symmetric": True,
    "projector": False, "all_layers": True,
}  # fmt: skip
RECIPES: dict[str, dict[str, Any]] = {
    "released": {},
    "released-all-batches": {"drop_last": False},
    "released-3000": {"samples": 3000},
    "released-3000-short": {"samples": 3000, "epochs": 3200},  # 16,000 steps of a pair loss
    "released-3000-all-layers": {"samples": 3000, "all_layers": True},
    "released-all-layers": {"all_layers": True},
    "released-zero-biases": {"zero_biases": True},
    "released-sigma": {"noise": "log(d)/d"},
    "released-variance": {"noise": "√(log(d)/d)"},
    "text": _TEXT,
    "text-sigma": _TEXT | {"noise": "log(d)/d"},
}
"""Every recipe that was tried: its changes of `Setting`."""

DISTANCES: dict[str, float] = {}
"""The `distance` of each recipe, as `lightning-ssl lab landscape --tables recipes --seeds 2` prints it."""

CHOSEN = min(DISTANCES, key=DISTANCES.__getitem__) if DISTANCES.keys() == RECIPES.keys() else "released"
"""The recipe nearest to Table 2; "released" until all of them are measured."""


def setting_of(recipe: str, **given: Any) -> Setting:
    """The setting of a recipe. A flag that is given (not None) goes before it."""
    names = {each.name for each in fields(Setting)}
    return Setting(
        **RECIPES[recipe] | {key: value for key, value in given.items() if key in names and value is not None}
    )
