"""Find the published accuracy for a group. The published tables are data of `lightning_ssl.papers`.

A group matches an entry of a table only if data set, backbone, batch size, optimizer, learning rate, number of epochs
and every parameter of the loss are equal. The papers report linear evaluation over five seeds; the page names the
metric of the group's own result, which can be the online probe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from lightning_ssl import papers
from lightning_ssl.report.groups import Group
from lightning_ssl.runs.keys import CALLBACKS
from lightning_ssl.runs.labels import Scalar, plain_number

EPOCHS = (100, 300, 500)  # columns of the tables

# The loss of each row of the tables, as flags of `lightning-ssl fit`.
SIMCLR: dict[str, Scalar] = {"model": "SimCLR", "model.tau": 0.5, "model.eps": 1}
ALPHA_CL: dict[str, Scalar] = {"model": "AlphaCL", "model.beta": 0, "model.backprop_alpha": False}
INFONCE: dict[str, Scalar] = {
    "model.importance": "FromFamily", "model.importance.family": "InfoNCE",
    "model.importance.family.tau": 0.5, "model.importance.family.eps": 1,
}  # fmt: skip
ENTROPY: dict[str, Scalar] = {"model.importance": "Entropy", "model.importance.tau": 0.5}
DIRECT: dict[str, Scalar] = {
    "model.importance": "Direct", "model.importance.tau": 0.5, "model.importance.p": 4,
    "model.importance.normalize": True,
}  # fmt: skip
EXACT: dict[str, Scalar] = {
    "model.importance": "Exact", "model.importance.tau": 0.5, "model.importance.kind": "infonce",
    "model.importance.r0": 0,
}  # fmt: skip
LOSSES: dict[str, list[dict[str, Scalar]]] = {
    "quadratic": [{**ALPHA_CL, "model.importance": "FromFamily", "model.importance.family": "Quadratic"}],
    "infonce": [SIMCLR, {**ALPHA_CL, **INFONCE}],
    "backprop_alpha": [{**ALPHA_CL, **ENTROPY, "model.backprop_alpha": True}],
    "entropy": [{**ALPHA_CL, **ENTROPY}],
    "inverse": [{**ALPHA_CL, "model.importance": "Inverse", "model.importance.tau": 0.5, "model.importance.gamma": 2}],
    "square": [{**ALPHA_CL, "model.importance": "Square", "model.importance.tau": 5}],
    "direct": [{**ALPHA_CL, **DIRECT}],
    "direct_unnormalized": [{**ALPHA_CL, **DIRECT, "model.importance.normalize": False}],
    "exact": [{**ALPHA_CL, **EXACT}],
    "exact_noise": [{**ALPHA_CL, **EXACT, f"{CALLBACKS}.WeightNoise.std": 0.01}],
}
# Default arguments of the methods. A configuration may omit them.
DEFAULTS: dict[str, dict[str, Scalar]] = {
    "SimCLR": {"model.anchors": "both", "model.tau": 0.5, "model.eps": 1},
    "AlphaCL": {"model.anchors": "both", "model.beta": 0, "model.backprop_alpha": False},
}


@dataclass(frozen=True)
class Published:
    """A published accuracy in percent over five seeds, and the table that contains it."""

    mean: float
    std: float
    source: str


@dataclass(frozen=True)
class Setting:
    """The training settings of a published accuracy, apart from the loss."""

    data: str
    epochs: int
    backbone: str = "resnet18"
    batch_size: int = 128
    lr: float = 0.01

    def matches(self, settings: dict[str, Scalar]) -> bool:
        """Whether a run has these settings, with Adam and without weight decay."""
        required: dict[str, Scalar] = {
            "data.name": self.data,
            "data.batch_size": self.batch_size,
            "trainer.max_epochs": self.epochs,
            "model.backbone": self.backbone,
            "model.optimization.lr": self.lr,
            "model.optimization.name": "adam",
            "model.optimization.weight_decay": 0,
        }
        optional: dict[str, tuple[Scalar, ...]] = {  # None: the configuration omits the key
            "trainer.max_steps": (None, -1),
            "trainer.limit_train_batches": (None,),
            "trainer.accumulate_grad_batches": (None, 1),
            "model.augment": (None, "paper_stl10" if self.data == "stl10" else "paper_cifar"),
            "data.split": (None, "pretrain"),
        }
        equal = all(settings.get(key) == value for key, value in required.items())
        return equal and all(settings.get(key) in allowed for key, allowed in optional.items())


def published(group: Group) -> Published | None:
    """Return the published accuracy for this group, or None; `source` names every table that contains it."""
    if not group.runs:
        return None
    settings = {key: plain_number(value) for key, value in group.runs[0].settings.items()}
    loss = with_defaults(dict(group.loss))
    found = [entry for setting, wanted, entry in entries() if wanted == loss and setting.matches(settings)]
    if not found:
        return None
    first = found[0]
    same = [entry.source for entry in found[1:] if (entry.mean, entry.std) == (first.mean, first.std)]
    other = [entry for entry in found[1:] if (entry.mean, entry.std) != (first.mean, first.std)]
    sources = [" = ".join([first.source, *same])]
    sources += [f"{entry.mean:.2f} ± {entry.std:.2f} in {entry.source}" for entry in other]
    return Published(first.mean, first.std, "; ".join(sources))


def with_defaults(loss: dict[str, Scalar]) -> dict[str, Scalar]:
    """Add the default arguments, so that equal losses compare equal."""
    complete = {**DEFAULTS.get(str(loss.get("model")), {}), **loss}
    return {key: plain_number(value) for key, value in complete.items() if value is not None}


@cache
def entries() -> list[tuple[Setting, dict[str, Scalar], Published]]:
    """Return (setting, loss, published accuracy) for every entry of the papers' image tables."""
    found = [*alpha_cl(papers.load("alpha_cl")), *dual_networks(papers.load("dual_networks"))]
    return [(setting, with_defaults(loss), entry) for setting, loss, entry in found]


def alpha_cl(tables: dict[str, Any]) -> Iterator[tuple[Setting, dict[str, Scalar], Published]]:
    """Yield the entries of Tables 1 to 4 of the α-CL paper."""
    paper = "α-CL paper"
    lr = tables["recipe"]["learning_rate"]
    for data, losses in tables["table1"].items():
        yield from by_epoch(f"{paper}, Table 1", losses, data, "resnet18", 128, lr["resnet18"])
    for data, backbones in tables["table2"].items():
        for backbone, losses in backbones.items():
            yield from by_epoch(f"{paper}, Table 2", losses, data, backbone, 128, lr[backbone])
    for data, losses in tables["table3"].items():
        yield from by_epoch(f"{paper}, Table 3", losses, data, "resnet50", 256, lr["resnet50"])
    for data, exponents in tables["table4"].items():
        for p, (mean, std) in exponents.items():
            loss = {**ALPHA_CL, **DIRECT, "model.importance.p": p}
            yield Setting(data, 500), loss, Published(mean, std, f"{paper}, Table 4")


def dual_networks(tables: dict[str, Any]) -> Iterator[tuple[Setting, dict[str, Scalar], Published]]:
    """Yield the entries of Tables 2 and 3 of the dual-networks paper."""
    paper, lr = "dual-networks paper", {"cifar10": 0.01, "stl10": 0.001}
    for data, losses in tables["table2"].items():
        yield from by_epoch(f"{paper}, Table 2", losses, data, "resnet18", 128, lr[data])
    for data, betas in tables["table3"].items():
        for beta, cells in betas.items():
            for epochs, (mean, std) in zip(EPOCHS, cells, strict=True):
                loss = {**ALPHA_CL, **INFONCE, "model.beta": float(beta)}
                yield Setting(data, epochs, lr=lr[data]), loss, Published(mean, std, f"{paper}, Table 3")


def by_epoch(
    source: str, losses: dict[str, Any], data: str, backbone: str, batch_size: int, lr: float
) -> Iterator[tuple[Setting, dict[str, Scalar], Published]]:
    """Yield an entry for each loss and each number of epochs of a table; `losses` maps a row to its columns."""
    for row, cells in losses.items():
        for loss in LOSSES.get(row, []):
            for epochs, (mean, std) in zip(EPOCHS, cells, strict=True):
                yield Setting(data, epochs, backbone, batch_size, lr), loss, Published(mean, std, source)
