"""Operators and host synchronisations of a loss: forward and backward, D = 128, as an accelerator runs it.

    lightning-ssl bench launches [--json FILE]

On an accelerator every operator is a launch, and every synchronisation waits for all launches before it. Here both are
counted without one (device.py): the loss runs on tensors without data, with the blocks of a card of 80 GB. Views of a
tensor count as operators too, although they launch nothing.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping

import torch
from bars import Bar, conclude, require_new
from device import Constructors, Waits, steps_of_fit
from torch import Tensor

from lightning_ssl import losses as library
from lightning_ssl.app.commands.parser import Command

WIDTH = 128
SIZES = (128, 1024, 4096)
Loss = Callable[..., Tensor]


def count(loss: Loss, samples: int) -> Waits:
    """Count one step of a loss with as many samples."""
    views = [torch.randn(samples, WIDTH, device="meta", requires_grad=i < 2) for i in range(3)]
    if isinstance(loss, torch.nn.Module):  # with its learned parameters
        loss = copy.deepcopy(loss).to("meta")
    needs_clean = getattr(getattr(loss, "importance", None), "uses_clean_view", False)
    with Waits() as found, Constructors(found):
        loss(*views[: 3 if needs_clean else 2]).backward()
    return found


FAMILIES = (
    "InfoNCE", "MINE", "SoftTriplet", "NPlusOneTuplet", "LiftedStructured", "Triplet", "ModifiedTriplet", "Quadratic",
)  # fmt: skip


def closed_form() -> dict[str, Loss]:
    """The losses with α in closed form."""
    through_alpha: dict[str, library.Importance] = {
        "Entropy": library.Entropy(),
        "Direct p=1.5": library.Direct(p=1.5),
        "Direct p=4": library.Direct(),
        "Direct p=20": library.Direct(p=20.0),
        "Direct, not normalized": library.Direct(normalize=False),
        "ReleasedInverse": library.ReleasedInverse(),
    }
    importances = through_alpha | {
        "Uniform": library.Uniform(),
        "Gaussian": library.Gaussian(),
        "Exact, InfoNCE": library.Exact(),
        "Exact, soft triplet": library.Exact(kind="soft_triplet", r0=0.1),
        "ReleasedSquare": library.ReleasedSquare(),
        "InfoNCE as an importance": library.FromFamily(library.InfoNCE()),
    }
    of_families: dict[str, Loss] = {name: library.FamilyLoss(getattr(library, name)()) for name in FAMILIES}
    return of_families | pair_losses(importances) | pair_losses(through_alpha, backprop_alpha=True)


def pair_losses(importances: Mapping[str, library.Importance], backprop_alpha: bool = False) -> dict[str, Loss]:
    """The `PairLoss` of each importance."""
    note = ", backprop_alpha" if backprop_alpha else ""
    return {
        f"{name}{note}": library.PairLoss(rule, backprop_alpha=backprop_alpha) for name, rule in importances.items()
    }


def one_component() -> dict[str, Loss]:
    """The losses of other papers with one softmax."""
    rules = [
        library.DCL(), library.DCLW(), library.MACL(), library.RINCE(), library.MarginInfoNCE(),
        library.MarginInfoNCE(angular=True), library.Debiased(), library.HardContrastive(), library.AlignUniform(),
        library.MultiSimilarity(), library.MultiSimilarity(mining=0.1), library.FMICL("kl"), library.FMICL("chi2"),
        library.DCL(learn_tau=True),
    ]  # fmt: skip
    return pair_losses({str(rule): rule for rule in rules})


def two_components() -> dict[str, Loss]:
    """The losses of other papers with further sums over the row."""
    rules = [
        library.HardNegative(), library.HardNegative(detached=True), library.AdaptiveNegative(), library.Sigmoid(),
        library.Spectral(), library.Circle(), library.FMICL("js"),
    ]  # fmt: skip
    return pair_losses({str(rule): rule for rule in rules})


def with_solver() -> dict[str, Loss]:
    """The losses with a row solver, over the whole range of their parameters."""
    importances: dict[str, library.Importance] = {"Square": library.Square()}
    importances |= {f"Inverse γ={gamma:g}": library.Inverse(gamma=gamma) for gamma in (1.5, 2, 4, 6)}
    importances |= {f"Tsallis q={q:g}": library.Tsallis(q=q) for q in TSALLIS_Q}
    return pair_losses(importances) | pair_losses(importances, backprop_alpha=True)


TSALLIS_Q = (-5, -4, -3, -2, -1.5, -1, 0, 0.5, 0.75, 0.99, 1, 1.01, 1.25, 1.5, 1.75, 2, 2.25, 2.5, 3)


def own_regularizers() -> dict[str, Loss]:
    """The losses with a regularizer of the user. Each of the solver's steps calls its functions."""
    importances: dict[str, library.Importance] = {
        "Regularized, ½ log α": library.Regularized(lambda a: 0.5 / a, lambda x: 0.5 / x),
        "Regularized, −α²": library.Regularized(lambda a: -2 * a, lambda x: x / -2),
    }
    return pair_losses(importances)


def measure(losses: dict[str, Loss], bar: int | None) -> list[Bar]:
    """A line for each loss, and one for the reads of all. Without a bar the operators are only reported."""
    bars: list[Bar] = []
    reads: list[str] = []
    for name, loss in losses.items():
        found = {samples: count(loss, samples) for samples in SIZES}
        detail = ", ".join(f"N={samples}: {x.operators}" for samples, x in found.items())
        bars.append(Bar(f"{name}: operators", max(x.operators for x in found.values()), bar, detail, at_least=False))
        reads += [f"{name}: {read}" for x in found.values() for read in +x.count]
    return [*bars, Bar("synchronisations of all these", len(reads), 0, ", ".join(reads), at_least=False)]


def lightly() -> list[Bar]:
    """lightly's NT-Xent, to compare with."""
    try:
        from lightly.loss import NTXentLoss
    except ImportError:
        print("lightly is not installed: its NT-Xent is not counted")
        return []
    found = count(NTXentLoss(temperature=0.5), 128)
    return [Bar("lightly's NT-Xent: operators", found.operators, None, f"{found.count.total()} synchronisations")]


def training_step() -> list[Bar]:
    """A step of `fit` with all callbacks of the package, between two log steps."""
    bars = []
    for name in ("SimCLR", "AlphaCL"):
        steps = steps_of_fit(f"--model={name}").steps
        # A copy that does not wait for the device.
        waits = [{key: times for key, times in step.items() if key != "copy to the device"} for step in steps]
        detail = ", ".join(key for step in waits for key in step)
        bars.append(Bar(f"a step of {name}: synchronisations", sum(len(x) for x in waits), 0, detail, at_least=False))
    return bars


GROUPS: tuple[Callable[[], list[Bar]], ...] = (
    lambda: measure(closed_form(), 100),
    lambda: measure(one_component(), 100),
    lambda: measure(two_components(), 150),
    lambda: measure(with_solver(), 250),
    lambda: measure(own_regularizers(), None),
    lightly,
    training_step,
)


def run(*, json: str | None = None) -> int:
    """Operators and host synchronisations of a loss. The exit code is 1 if a bar is missed.

    Args:
        json: also write the figures to this new file
    """
    require_new(json)
    bars: list[Bar] = []
    for group in GROUPS:
        for bar in group():
            print(bar, flush=True)
            bars.append(bar)
    return conclude(bars, json)


main = Command("bench launches", run, __doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
