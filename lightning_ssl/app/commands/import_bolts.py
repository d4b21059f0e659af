"""`lightning-ssl import-bolts`: convert a checkpoint of lightning-bolts 0.7 to one of this package.

examples:
  lightning-ssl import-bolts simclr.ckpt                          writes simclr.imported.ckpt beside it
  lightning-ssl import-bolts byol.ckpt --data stl10 --out byol-stl10.ckpt
  lightning-ssl import-bolts byol.ckpt --normalize                for a script that normalized the images
  lightning-ssl evaluate simclr.imported.ckpt                     the next step

A checkpoint with other objects than tensors and plain values is refused: save it again with only its state_dict and
plain hyper_parameters. docs/migration.md compares the names and arguments of bolts with ours.

Backbone, projector, predictor and BYOL's target are converted. The features do not change. Two parts are dropped: the
classifier `fc`, which bolts never trains, and SimSiam's target network, which bolts never updates. A bolts checkpoint
lacks some settings (the data set, the scaling of the pixels). They are assumed as in the scripts of bolts, and the
command prints every assumption. lightning-bolts need not be installed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lightning_ssl.app.commands.parser import Command
from lightning_ssl.app.runs.checkpoints import is_whole, is_whole_tensor, load_archive, require_weights
from lightning_ssl.app.runs.version import version
from lightning_ssl.base.checks import UserError, require, shown
from lightning_ssl.base.files import marked_archive, require_replaceable, write_atomic
from lightning_ssl.data import DATASETS, info

if TYPE_CHECKING:
    from torch import Tensor

    from lightning_ssl.methods import Method

    State = dict[str, Tensor]

MARKER = b"lightning-ssl import-bolts"  # in every file that this command writes

# Data sets by their names in bolts. The default of its scripts is CIFAR-10.
THEIR_DATASETS = {"cifar10": "cifar10", "stl10": "stl10", "imagenet": "folder", "imagenet2012": "folder"}

# The prefixes of the weights of bolts, and ours. SimSiam has a target network too; it is dropped.
ONLINE = {
    "online_network.encoder.": "backbone.",
    "online_network.projector.model.": "projector.",
    "predictor.model.": "predictor.",
}
TARGET = {"target_network.encoder.": "target.backbone.", "target_network.projector.model.": "target.projector."}
LAYOUTS = {
    "SimCLR": {"encoder.": "backbone.", "projection.model.": "projector."},
    "BYOL": ONLINE | TARGET,
    "SimSiam": ONLINE,
}
MLP = {"layers": 2, "norm": "bn", "last_norm": None}  # the heads of bolts: linear, norm, ReLU, linear

# Channel statistics of bolts (`pl_bolts.transforms.dataset_normalizations`). They differ slightly from ours.
MOMENTS = {
    "cifar10": ((125.3 / 255, 123.0 / 255, 113.9 / 255), (63.0 / 255, 62.1 / 255, 66.7 / 255)),
    "stl10": ((0.43, 0.42, 0.39), (0.27, 0.26, 0.27)),
    "folder": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}

# The preset with the same scaling of pixels that is closest to that of bolts, by (small images, normalized). The
# augmentation matters only for further training; the scaling affects every feature.
AUGMENT = {
    (True, True): "paper_cifar",
    (True, False): "simclr_cifar",
    (False, True): "byol_cifar",
    (False, False): "simclr_stl10",
}


def run(
    checkpoint: str,
    *,
    out: str | None = None,
    force: bool = False,
    method: Literal["SimCLR", "BYOL", "SimSiam"] | None = None,
    data: Literal[tuple(DATASETS)] | None = None,  # type: ignore[valid-type]
    normalize: bool | None = None,
) -> int:
    """Convert a checkpoint of SimCLR, BYOL or SimSiam of lightning-bolts.

    Args:
        checkpoint: a checkpoint that the Trainer of bolts saved
        out: output (default: the name of CKPT with .imported.ckpt)
        force: replace any regular file at --out
        method: needed if the checkpoint fits both BYOL and SimSiam, whose weights have the same layout
        data: the data set (default: that of the checkpoint, or cifar10)
        normalize: whether the images were normalized (default: as in the scripts of bolts: SimCLR yes, others no)
    """
    source = Path(checkpoint)
    require(source.is_file(), "checkpoint", checkpoint, "a file")
    target = Path(out or source.with_suffix(".imported.ckpt"))
    is_source = os.path.realpath(target) == os.path.realpath(source)
    require(not is_source, "out", str(target), "another file than the checkpoint of bolts")
    require_replaceable(target, MARKER, force)
    imported = convert(read(source), method, data, normalize)
    import torch  # late: --help needs none

    write_atomic(target, marked_archive(lambda file: torch.save(imported.checkpoint, file), MARKER))
    print(f"{source}: {imported.summary}")
    for line in imported.remarks:
        print(f"  {line}")
    print(f"written to {target}; next: lightning-ssl evaluate {target}")
    return 0


COMMAND = main = Command("import-bolts", run, __doc__)


# ---------------------------------------------------------------------------------------------------------------------
# Files


class Bolts(NamedTuple):
    """The parts of a bolts checkpoint that are converted."""

    state: State
    hparams: dict[str, Any]
    """The arguments of its LightningModule."""
    epoch: int
    step: int
    file: Path = Path("CKPT")  # for errors


def read(path: Path) -> Bolts:
    """Read a Lightning checkpoint, and check the shape of what is converted. No code in it is executed."""
    found = load_archive(path)
    valid = isinstance(found, dict) and isinstance(found.get("state_dict"), dict)
    require(valid, "checkpoint", str(path), "a checkpoint of Lightning, with a state_dict")
    for name, value in found["state_dict"].items():
        is_weight = is_whole_tensor(value) and (value.ndim > 0 or str(name).endswith("num_batches_tracked"))
        require(isinstance(name, str) and is_weight, "state_dict", name, "names of weights, each a tensor")
    hparams = found.get("hyper_parameters") or {}
    require(isinstance(hparams, dict), "hyper_parameters", hparams, "a mapping")
    for key in ("epoch", "global_step"):
        require(is_whole(found.get(key, 0)), key, found.get(key), "a whole number from 0")
    return Bolts(found["state_dict"], hparams, found.get("epoch", 0), found.get("global_step", 0), path)


class Imported(NamedTuple):
    """The converted method, its checkpoint, and the lines to print."""

    method: Method
    checkpoint: dict[str, Any]
    summary: str
    remarks: list[str]


# ---------------------------------------------------------------------------------------------------------------------
# Conversion


def convert(
    bolts: Bolts, method: str | None = None, data_name: str | None = None, normalize: bool | None = None
) -> Imported:
    """Convert a network to a method and a checkpoint of this package.

    An argument that is None is taken from the checkpoint, or else from the scripts of bolts.
    """
    kind, hparams = recognize(bolts, method), bolts.hparams
    import pytorch_lightning as pl

    from lightning_ssl.base.tree import Group, checked, construct
    from lightning_ssl.data import DataModule
    from lightning_ssl.methods import Method

    state = convert_weights(kind, bolts.state)
    known_data = data_name or THEIR_DATASETS.get(str(hparams.get("dataset")))
    name, normalized = known_data or "cifar10", kind == "SimCLR" if normalize is None else normalize
    arguments = method_arguments(kind, hparams, state, name, normalized)
    node = {"class_path": f"lightning_ssl.methods.{kind}", "init_args": arguments}
    config = {
        "seed_everything": 0,
        "model": checked(node, Method, "model", allow=()),
        "data": checked(
            {"name": name, "batch_size": hparams.get("batch_size", 256), "seed": 0}, Group(DataModule), "data", allow=()
        ),
    }
    built: Method = construct(config["model"], Method, "model")
    require_weights(built, state, bolts.file)
    built.load_state_dict(state)
    hidden, out = widths(state, "projector")
    shape = f"{arguments['backbone']}, {arguments['stem']} stem, projector {hidden}-{out}"
    summary = f"{kind} of lightning-bolts after {bolts.step} steps: {shape}"
    pixels = "normalized with the mean and std of bolts" if normalized else "in [0, 1], not normalized"
    pool = "a max-pool" if arguments["stem"] == "standard" else "no max-pool"
    remarks = {
        f"the checkpoint has no data set: {name} is assumed; --data changes it": known_data is None,
        f"pixels are assumed {pixels}, as in the script of bolts; --[no-]normalize changes it": normalize is None,
        f"the checkpoint does not say if there is a max-pool: {pool} is assumed": "maxpool1" not in hparams,
        "dropped: target_network, a copy of the initial weights that bolts never updates": kind == "SimSiam",
        "dropped: the state of the optimizer": True,
    }
    checkpoint = {  # in the layout of `lightning-ssl fit`
        "epoch": bolts.epoch,
        "global_step": bolts.step,
        "pytorch-lightning_version": pl.__version__,
        "state_dict": dict(built.state_dict()),
        "lightning_ssl": {"config": config, "version": version()},
    }
    return Imported(built, checkpoint, summary, [line for line, applies in remarks.items() if applies])


def recognize(bolts: Bolts, requested: str | None = None) -> str:
    """The method of a checkpoint. BYOL and SimSiam have the same keys; their hyper-parameters or shapes differ."""
    state, hparams = bolts.state, bolts.hparams
    fitting = [kind for kind, layout in LAYOUTS.items() if all(strip_prefix(state, prefix) for prefix in layout)]
    parts = ", ".join(sorted({key.partition(".")[0] for key in state})) or "nothing"
    allowed = "of bolts' SimCLR (encoder, projection), BYOL or SimSiam (online_network, …)"
    require(bool(fitting), "state_dict", parts, allowed)
    if requested or len(fitting) == 1:
        require(requested in (None, *fitting), "method", requested, f"{' or '.join(fitting)}, by its weights")
        return requested or fitting[0]
    if "initial_tau" in hparams:
        return "BYOL"
    # BYOL of bolts has one hidden width for projector and predictor.
    hidden = {len(state.get(f"{name}.model.0.weight", ())) for name in ("online_network.projector", "predictor")}
    if "predictor_hidden_dim" in hparams or len(hidden) > 1:
        return "SimSiam"
    raise UserError("method=None: --method BYOL or SimSiam must be given: the checkpoint fits both")


def convert_weights(kind: str, state: State) -> State:
    """The weights of bolts under our names, without the classifier `fc`, which bolts never trains."""
    found: State = {}
    for old, new in LAYOUTS[kind].items():
        part = strip_prefix(state, old)
        if old.endswith(".model."):
            part = head(old, part)
        found |= {new + key: value for key, value in part.items() if not key.startswith("fc.")}
    return found


def strip_prefix(state: State, prefix: str) -> State:
    """The entries whose names start with a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}


def head(name: str, found: State) -> State:
    """A head of bolts: linear, norm, ReLU, linear.

    In SimCLR the first map has a bias, which the norm removes. Here it is subtracted from the running mean, so the
    output does not change. The last map of SimCLR has no bias; ours is zero.
    """
    needed = {"0.weight", "3.weight"}
    needed |= {f"1.{key}" for key in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")}
    expected = needed <= set(found) <= needed | {"0.bias", "3.bias"}
    layers = "linear, batch norm, ReLU, linear, as in bolts 0.7"
    require(expected, name.rstrip("."), ", ".join(found), layers)
    bias = found.pop("0.bias", None)
    if bias is not None:
        require(bias.shape == found["1.running_mean"].shape, f"{name}0.bias", tuple(bias.shape), layers)
        found["1.running_mean"] = found["1.running_mean"] - bias
    return {"3.bias": found["3.weight"].new_zeros(len(found["3.weight"])), **found}


def widths(state: State, head: str) -> tuple[int, int]:
    """The hidden width and the output width of a head."""
    return len(state[f"{head}.0.weight"]), len(state[f"{head}.3.weight"])


def method_arguments(kind: str, hparams: dict[str, Any], state: State, name: str, normalized: bool) -> dict[str, Any]:
    """The arguments of the method. Settings that bolts lacks are our defaults."""
    from lightning_ssl.networks import SMALL

    backbone, stem = architecture(strip_prefix(state, "backbone."), hparams)
    size = 224 if name == "folder" else info(name).image_size  # info of a folder needs its files
    mean, std = MOMENTS.get(name) or (info(name).mean, info(name).std)
    hidden, out = widths(state, "projector")
    own: dict[str, Any] = {"tau": hparams.get("temperature", 0.1), "eps": 1.0, "anchors": "both"}
    if kind != "SimCLR":
        own = {"predictor": {"hidden": widths(state, "predictor")[0], **MLP}}
    if kind == "BYOL":
        own["momentum"] = hparams.get("initial_tau", 0.996)
    optimizer = {"SimCLR": hparams.get("optimizer", "adam"), "BYOL": "adam", "SimSiam": "sgd"}[kind]
    settings = {"lr": "learning_rate", "weight_decay": "weight_decay", "warmup_epochs": "warmup_epochs"}
    settings |= {"momentum": "momentum"} if kind == "SimSiam" else {}
    given = {ours: hparams[theirs] for ours, theirs in settings.items() if theirs in hparams}
    return {
        **own,
        "backbone": backbone,
        "stem": stem,
        "image_size": size,
        "mean": mean,
        "std": std,
        "augment": AUGMENT[size <= SMALL, normalized],
        "projector": {"hidden": hidden, "out": out, **MLP},
        "optimization": {"name": optimizer, "schedule": "warmup_cosine", **given},
        "seed": 0,
    }


def architecture(encoder: State, hparams: dict[str, Any]) -> tuple[str, str]:
    """The name of a ResNet, from its blocks, and its stem, from the first convolution and `maxpool1`."""
    from torchvision.models.resnet import Bottleneck

    from lightning_ssl.networks import RESNETS

    blocks = [len({key.split(".")[1] for key in encoder if key.startswith(f"layer{stage}.")}) for stage in (1, 2, 3, 4)]
    bottleneck = "layer1.0.conv3.weight" in encoder
    names = [name for name, (b, layers) in RESNETS.items() if layers == blocks and (b is Bottleneck) == bottleneck]
    shape = f"{blocks} {'bottleneck' if bottleneck else 'basic'} blocks"
    require(bool(names) and "conv1.weight" in encoder, "encoder", shape, f"one of bolts' {', '.join(RESNETS)}")
    kernel, pooled = encoder["conv1.weight"].shape[-1], hparams.get("maxpool1")
    stem = {7: "standard", 3: "cifar"}.get(kernel)
    if stem is None or pooled not in (None, kernel == 7):
        allowed = "True after a 7×7 convolution or False after a 3×3 one: there is no other stem here"
        raise UserError(f"maxpool1={shown(pooled)}: maxpool1 must be {allowed} (this one is {kernel}×{kernel})")
    return names[0], stem
