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
from lightning_ssl.app.config.labels import Scalar, plain_number
from lightning_ssl.app.report.groups import Group

EPOCHS = (100, 300, 500)  # columns of the tables

# The labels of each row of the tables. A label has every parameter of a loss that is not the class's default.
LABELS = {
    "quadratic": ["AlphaCL Quadratic"],
    "infonce": ["SimCLR InfoNCE τ=0.5", "AlphaCL InfoNCE τ=0.5"],
    "backprop_alpha": ["AlphaCL Entropy backprop_alpha τ=0.5"],
    "entropy": ["AlphaCL Entropy τ=0.5"],
    "inverse": ["AlphaCL Inverse γ=2 τ=0.5"],
    "square": ["AlphaCL Square τ=5"],
    "direct": ["AlphaCL Direct p=4 τ=0.5"],
    "direct_unnormalized": ["AlphaCL Direct normalize=no p=4 τ=0.5"],
    "exact": ["AlphaCL Exact τ=0.5"],
    "exact_noise": ["AlphaCL Exact noise=0.01 τ=0.5"],
}


@dataclass(frozen=True)
class Published:
    """A published accuracy in percent over five seeds, and the table that contains it."""

    mean: float
    std: float
    source: str


@dataclass(frozen=True)
class Setting:
    """A loss and the training settings of a published accuracy."""

    label: str
    data: str
    epochs: int
    backbone: str = "resnet18"
    batch_size: int = 128
    lr: float = 0.01

    def matches(self, group: Group) -> bool:
        """Whether a group has this loss and these settings, with Adam and without weight decay."""
        allowed: dict[str, tuple[Scalar, ...]] = {  # None: the configuration omits the key
            "data.name": (self.data,),
            "data.batch_size": (self.batch_size,),
            "data.split": (None, "pretrain"),
            "trainer.max_epochs": (self.epochs,),
            "trainer.max_steps": (None, -1),
            "trainer.limit_train_batches": (None,),
            "trainer.accumulate_grad_batches": (None, 1),
            "model.backbone": (self.backbone,),
            "model.optimization.lr": (self.lr,),
            "model.optimization.name": ("adam",),
            "model.optimization.weight_decay": (0,),
            "model.augment": (None, "paper_stl10" if self.data == "stl10" else "paper_cifar"),
        }
        settings = group.runs[0].settings
        return group.label == self.label and all(plain_number(settings.get(key)) in allowed[key] for key in allowed)


def published(group: Group) -> Published | None:
    """Return the published accuracy for this group, or None; `source` names every table that contains it."""
    sources: dict[tuple[float, float], list[str]] = {}
    for setting, (mean, std), source in entries():
        if setting.matches(group):
            sources.setdefault((mean, std), []).append(source)
    if not sources:
        return None
    first, *others = sources
    texts = [f"{mean:.2f} ± {std:.2f} in {source}" for mean, std in others for source in sources[mean, std]]
    return Published(*first, "; ".join([" = ".join(sources[first]), *texts]))


Entry = tuple[Setting, tuple[float, float], str]
"""Setting, (mean, standard deviation), table."""


@cache
def entries() -> list[Entry]:
    """Return every entry of the papers' image tables."""
    return [*alpha_cl(papers.load("alpha_cl")), *dual_networks(papers.load("dual_networks"))]


def alpha_cl(tables: dict[str, Any]) -> Iterator[Entry]:
    """Yield the entries of Tables 1 to 4 of the α-CL paper."""
    paper = "α-CL paper"
    lr = tables["recipe"]["learning_rate"]
    for data, losses in tables["table1"].items():
        yield from by_epoch(f"{paper}, Table 1", losses, data=data, lr=lr["resnet18"])
    for data, backbones in tables["table2"].items():
        for backbone, losses in backbones.items():
            yield from by_epoch(f"{paper}, Table 2", losses, data=data, backbone=backbone, lr=lr[backbone])
    large = {"backbone": "resnet50", "batch_size": 256, "lr": lr["resnet50"]}
    for data, losses in tables["table3"].items():
        yield from by_epoch(f"{paper}, Table 3", losses, data=data, **large)
    for data, exponents in tables["table4"].items():
        for p, cell in exponents.items():
            yield Setting(f"AlphaCL Direct p={p} τ=0.5", data, 500), cell, f"{paper}, Table 4"


def dual_networks(tables: dict[str, Any]) -> Iterator[Entry]:
    """Yield the entries of Tables 2 and 3 of the dual-networks paper."""
    paper, lr = "dual-networks paper", {"cifar10": 0.01, "stl10": 0.001}
    for data, losses in tables["table2"].items():
        yield from by_epoch(f"{paper}, Table 2", losses, data=data, lr=lr[data])
    for data, betas in tables["table3"].items():
        losses = {f"AlphaCL InfoNCE β={float(beta):g} τ=0.5": cells for beta, cells in betas.items()}
        yield from by_epoch(f"{paper}, Table 3", losses, data=data, lr=lr[data])


def by_epoch(source: str, losses: dict[str, Any], **setting: Any) -> Iterator[Entry]:
    """Yield an entry for each loss and each number of epochs; `losses` maps a row or a label to its columns."""
    for row, cells in losses.items():
        for label in LABELS.get(row, [row]):
            for epochs, cell in zip(EPOCHS, cells, strict=True):
                yield Setting(label, epochs=epochs, **setting), cell, source
