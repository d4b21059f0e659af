"""Find the published accuracy for a group. The published tables are data of `lightning_ssl.papers`.

A group matches an entry of a table only if data set, backbone, batch size, optimizer, learning rate, number of epochs
and every parameter of the loss are equal. The papers report linear evaluation over five seeds; the page names the
metric of the group's own result, which can be the online probe.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import Any

from lightning_ssl import papers
from lightning_ssl.app.config.labels import Scalar, plain_number
from lightning_ssl.app.report.groups import Group

EPOCHS = (100, 300, 500)  # columns of the tables

# The settings of every published accuracy. None: the configuration omits the key.
SHARED: dict[str, tuple[Scalar, ...]] = {
    "data.split": (None, "pretrain"),
    "trainer.max_steps": (None, -1),
    "trainer.limit_train_batches": (None,),
    "trainer.accumulate_grad_batches": (None, 1),
    "model.optimization.name": ("adam",),
    "model.optimization.weight_decay": (0,),
}
# The settings that tell the published accuracies of a loss apart.
DISTINCT = ("data.name", "model.backbone", "data.batch_size", "model.optimization.lr", "trainer.max_epochs")

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


def published(group: Group) -> Published | None:
    """Return the published accuracy for this group, or None; `source` names every table that contains it."""
    settings = {key: plain_number(value) for key, value in group.runs[0].settings.items()}
    augment = "paper_stl10" if settings.get("data.name") == "stl10" else "paper_cifar"
    allowed = {**SHARED, "model.augment": (None, augment)}
    sources = entries().get((group.label, *(settings.get(key) for key in DISTINCT)))
    if sources is None or any(settings.get(key) not in allowed[key] for key in allowed):
        return None
    first, *others = sources
    texts = [f"{mean:.2f} ± {std:.2f} in {source}" for mean, std in others for source in sources[mean, std]]
    return Published(*first, "; ".join([" = ".join(sources[first]), *texts]))


@cache
def entries() -> dict[tuple[Scalar, ...], dict[tuple[float, float], list[str]]]:
    """Return every entry of the papers' image tables: (label, *DISTINCT) → (mean, std) → the tables with it."""
    found: dict[tuple[Scalar, ...], dict[tuple[float, float], list[str]]] = defaultdict(lambda: defaultdict(list))

    def add(
        source: str, losses: dict[str, Any], data: str, lr: float, network: str = "resnet18", batch: int = 128
    ) -> None:
        """Add the rows of a table; each has a cell for each number of epochs, or None."""
        for row, cells in losses.items():
            for label in LABELS.get(row, [row]):
                for epochs, cell in zip(EPOCHS, cells, strict=True):
                    if cell is not None:
                        found[label, data, network, batch, lr, epochs][tuple(cell)].append(source)

    paper, tables = "α-CL paper, Table", papers.load("alpha_cl")
    lr = tables["recipe"]["learning_rate"]
    for data, losses in tables["table1"].items():
        add(f"{paper} 1", losses, data, lr["resnet18"])
    for data, networks in tables["table2"].items():
        for network, losses in networks.items():
            add(f"{paper} 2", losses, data, lr[network], network)
    for data, losses in tables["table3"].items():
        add(f"{paper} 3", losses, data, lr["resnet50"], "resnet50", 256)
    for data, exponents in tables["table4"].items():
        losses = {f"AlphaCL Direct p={p} τ=0.5": [None, None, cell] for p, cell in exponents.items()}
        add(f"{paper} 4", losses, data, lr["resnet18"])
    paper, tables, lr = "dual-networks paper, Table", papers.load("dual_networks"), {"cifar10": 0.01, "stl10": 0.001}
    for data, losses in tables["table2"].items():
        add(f"{paper} 2", losses, data, lr[data])
    for data, betas in tables["table3"].items():
        losses = {f"AlphaCL InfoNCE β={float(beta):g} τ=0.5": cells for beta, cells in betas.items()}
        add(f"{paper} 3", losses, data, lr[data])
    return found
