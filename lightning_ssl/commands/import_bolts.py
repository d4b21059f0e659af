"""`lightning-ssl import-bolts`: a checkpoint of lightning-bolts 0.7 becomes one of ours.

    lightning-ssl import-bolts simclr.ckpt                     writes simclr.imported.ckpt beside it
    lightning-ssl evaluate simclr.imported.ckpt
    lightning-ssl export simclr.imported.ckpt --format torchvision

Backbone, projector, predictor and BYOL's target come over with every feature as it was. Two things have no place here
and are left behind: bolts' classifier `fc`, which it never trains, and SimSiam's target network, which it never moves.
What bolts does not record (the data set, the scaling of the pixels) is taken as its own scripts have it, and said.

lightning-bolts need not be installed, and --help imports no torch.
"""

from __future__ import annotations

import argparse
import inspect
import io
import re
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lightning_ssl import data, runs
from lightning_ssl.checks import require
from lightning_ssl.commands.parser import Parser

if TYPE_CHECKING:
    from torch import Tensor

    from lightning_ssl.methods import Method, Optimization

    State = dict[str, Tensor]

METHODS = ("SimCLR", "BYOL", "SimSiam")

# bolts' names of data sets. Its own scripts' default is CIFAR-10.
DATA = {"cifar10": "cifar10", "stl10": "stl10", "imagenet": "folder", "imagenet2012": "folder"}

# Its channel statistics (`pl_bolts.transforms.dataset_normalizations`), which are not quite ours.
MOMENTS = {
    "cifar10": ((125.3 / 255, 123.0 / 255, 113.9 / 255), (63.0 / 255, 62.1 / 255, 66.7 / 255)),
    "stl10": ((0.43, 0.42, 0.39), (0.27, 0.26, 0.27)),
    "folder": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}

# The recipe with the right scaling of pixels that comes closest to bolts' own, by (small images, normalized). The
# recipe matters only to further training, the scaling to every feature.
AUGMENT = {
    (True, True): "paper_cifar",
    (True, False): "simclr_cifar",
    (False, True): "byol_cifar",
    (False, False): "simclr_stl10",
}

EXAMPLES = """examples:
  lightning-ssl import-bolts simclr.ckpt                          writes simclr.imported.ckpt beside it
  lightning-ssl import-bolts byol.ckpt --data stl10 --out byol-stl10.ckpt
  lightning-ssl import-bolts byol.ckpt --normalize                its images were normalized, by a script of your own
  lightning-ssl evaluate simclr.imported.ckpt                     what to do next

docs/migration.md has the names and arguments of bolts beside ours."""


def main(argv: Sequence[str] | None = None) -> int:
    """Read a checkpoint of bolts, write one of ours, say what became of what."""
    try:
        arguments = parser().parse_args(argv)
    except SystemExit:  # --help, which is printed by now
        return 0
    source = Path(arguments.checkpoint)
    out = Path(arguments.out or source.with_suffix(".imported.ckpt"))
    require(out.resolve() != source.resolve(), "out", str(out), "another file than the checkpoint of bolts")
    imported = convert(read(source), arguments.method, arguments.data, arguments.normalize)
    write(imported.checkpoint, out)
    print(f"{source}: {imported.summary}")
    for line in imported.remarks:
        print(f"  {line}")
    print(f"written to {out}; next: lightning-ssl evaluate {out}")
    return 0


def parser() -> Parser:
    top = Parser(
        prog="lightning-ssl import-bolts",
        description="Turn a checkpoint of lightning-bolts' SimCLR, BYOL or SimSiam into one of ours.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("checkpoint", metavar="CKPT", help="as bolts' Trainer saved it")
    top.add_argument("--out", metavar="FILE", help="where to write (default: CKPT's name with .imported.ckpt)")
    top.add_argument(
        "--method",
        choices=METHODS,
        help="where nothing recorded tells BYOL from SimSiam, whose weights have one layout",
    )
    top.add_argument("--data", choices=tuple(data.DATASETS), help="the data set (default: as recorded, or cifar10)")
    top.add_argument(
        "--normalize",
        action=argparse.BooleanOptionalAction,
        help="whether its images were normalized (default: as in bolts' scripts: for SimCLR yes, else no)",
    )
    return top


# ---------------------------------------------------------------------------------------------------------------------
# Files


class Bolts(NamedTuple):
    """What is read of a checkpoint of bolts."""

    state: State
    recorded: dict[str, Any]
    """The hyper-parameters: the arguments of its module."""
    epoch: int
    step: int


class Imported(NamedTuple):
    """The network as a method of ours, its checkpoint, and what to tell of it."""

    method: Method
    checkpoint: dict[str, Any]
    summary: str
    remarks: list[str]


def read(path: Path) -> Bolts:
    """Read a checkpoint of Lightning without running anything it contains."""
    import torch

    require(path.is_file(), "checkpoint", str(path), "a file")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # an unpickler may raise anything
        raise ValueError(f"checkpoint={str(path)!r}: {reason(error)}") from error
    whole = isinstance(found, dict) and isinstance(found.get("state_dict"), dict)
    require(whole, "checkpoint", str(path), "one that Lightning saved, with a state_dict")
    recorded = dict(found.get("hyper_parameters") or {})
    return Bolts(found["state_dict"], recorded, int(found.get("epoch", 0)), int(found.get("global_step", 0)))


def reason(error: Exception) -> str:
    """Why a file could not be read: what it would have run, or else the first line of the error."""
    if foreign := re.search(r"GLOBAL (\S+)", str(error)):
        advice = "save it again with its state_dict and plain hyper_parameters alone"
        return f"it holds a {foreign[1]}, and nothing but tensors and plain values is read; {advice}"
    return f"not a readable checkpoint ({str(error).strip().partition(chr(10))[0] or type(error).__name__})"


def write(checkpoint: dict[str, Any], path: Path) -> None:
    import torch

    content = io.BytesIO()
    torch.save(checkpoint, content)
    runs.write_whole(path, content.getbuffer())


# ---------------------------------------------------------------------------------------------------------------------
# From theirs to ours


def convert(
    bolts: Bolts, method: str | None = None, data_name: str | None = None, normalize: bool | None = None
) -> Imported:
    """The same network as a method and a checkpoint of ours; what is None is as recorded, or as in bolts' scripts."""
    import pytorch_lightning as pl

    from lightning_ssl.data import DataModule
    from lightning_ssl.methods import Method

    kind, recorded = recognize(bolts, method), bolts.recorded
    state = weights(kind, bolts.state)
    said = data_name or DATA.get(str(recorded.get("dataset")))
    name, normalized = said or "cifar10", kind == "SimCLR" if normalize is None else normalize
    arguments = own_arguments(kind, recorded, state) | network_arguments(kind, recorded, state, name, normalized)
    built = build(kind, arguments, state)
    config = {
        "seed_everything": 0,
        "model": {
            "class_path": f"lightning_ssl.methods.{kind}",
            "init_args": plain(defaults(Method) | arguments),
        },
        "data": defaults(DataModule) | {"name": name, "batch_size": int(recorded.get("batch_size", 256)), "seed": 0},
    }
    checkpoint = {
        "epoch": bolts.epoch,
        "global_step": bolts.step,
        "pytorch-lightning_version": pl.__version__,
        "state_dict": dict(built.state_dict()),
        "lightning_ssl": {"config": config, "version": runs.version()},
    }
    hidden, out = widths(state, "projector")
    shape = f"{arguments['backbone']}, {arguments['stem']} stem, projector {hidden}-{out}"
    pixels = "normalized with bolts' mean and std" if normalized else "in [0, 1], not normalized"
    pool = "a max-pool" if arguments["stem"] == "standard" else "no max-pool"
    remarks = {
        f"the data set was not recorded: {name} is assumed, --data says otherwise": said is None,
        f"pixels are taken as {pixels}, as in bolts' own script; --[no-]normalize says otherwise": normalize is None,
        f"max-pooling was not recorded: {pool} is assumed behind the first convolution": "maxpool1" not in recorded,
        "left out: target_network, a copy of the first weights that bolts never moves": kind == "SimSiam",
        "left out: the state of the optimizer": True,
    }
    summary = f"{kind} of lightning-bolts after {bolts.step} steps: {shape}"
    return Imported(built, checkpoint, summary, [line for line, needed in remarks.items() if needed])


def recognize(bolts: Bolts, asked: str | None = None) -> str:
    """SimCLR by its keys; BYOL and SimSiam, whose keys are the same, by what was recorded or by their shapes."""
    state, recorded = bolts.state, bolts.recorded
    siamese = any(key.startswith("online_network.") for key in state) and "predictor.model.0.weight" in state
    if siamese:
        if asked:
            require(asked != "SimCLR", "method", asked, "BYOL or SimSiam: there is a predictor")
            return asked
        if "initial_tau" in recorded:
            return "BYOL"
        hidden = [len(state[f"{name}.model.0.weight"]) for name in ("online_network.projector", "predictor")]
        if "predictor_hidden_dim" in recorded or hidden[0] != hidden[1]:  # bolts' BYOL has one width for both
            return "SimSiam"
        raise ValueError("method=None: method must be given, --method BYOL or SimSiam: nothing in the file tells which")
    simclr = any(key.startswith("encoder.") for key in state) and "projection.model.0.weight" in state
    begins = ", ".join(sorted({key.partition(".")[0] for key in state})) or "nothing"
    require(simclr, "state_dict", begins, "of bolts' SimCLR (encoder, projection), BYOL or SimSiam (online_network, …)")
    require(asked in (None, "SimCLR"), "method", asked, "SimCLR: there is no predictor")
    return "SimCLR"


def weights(kind: str, state: State) -> State:
    """bolts' weights under our names."""
    arm = "" if kind == "SimCLR" else "online_network."
    found = resnet(state, f"{arm}encoder.", "backbone.")
    found |= mlp(state, "projection.model." if kind == "SimCLR" else f"{arm}projector.model.", "projector.")
    if kind != "SimCLR":
        found |= mlp(state, "predictor.model.", "predictor.")
    if kind == "BYOL":
        found |= resnet(state, "target_network.encoder.", "target.backbone.")
        found |= mlp(state, "target_network.projector.model.", "target.projector.")
    return found


def part(state: State, prefix: str) -> State:
    return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}


def resnet(state: State, theirs: str, ours: str) -> State:
    """A ResNet of bolts, whose layers have torchvision's names; without the classifier that bolts never trains."""
    return {ours + key: value for key, value in part(state, theirs).items() if not key.startswith("fc.")}


def mlp(state: State, theirs: str, ours: str) -> State:
    """A head of bolts: linear, norm, ReLU, linear.

    SimCLR's has a bias before the norm, which takes it away again: in the running mean it changes nothing. It has none
    after the last map, where ours is then zero.
    """
    found = part(state, theirs)
    norm = {f"1.{key}" for key in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")}
    needed = {"0.weight", "3.weight"} | norm
    known = needed <= set(found) <= needed | {"0.bias", "3.bias"}
    layers = "linear, batch norm, ReLU, linear, as in bolts 0.7"
    require(known, theirs.rstrip("."), ", ".join(found) or None, layers)
    bias = found.pop("0.bias", None)
    if bias is not None:
        found["1.running_mean"] = found["1.running_mean"] - bias
    found.setdefault("3.bias", found["3.weight"].new_zeros(len(found["3.weight"])))
    return {ours + key: value for key, value in found.items()}


def widths(state: State, head: str) -> tuple[int, int]:
    """Hidden and outgoing."""
    return len(state[f"{head}.0.weight"]), len(state[f"{head}.3.weight"])


def own_arguments(kind: str, recorded: dict[str, Any], state: State) -> dict[str, Any]:
    """What a method has and the others have not."""
    from lightning_ssl.methods.siamese import PredictorHead

    if kind == "SimCLR":
        return {"tau": float(recorded.get("temperature", 0.1)), "eps": 1.0, "anchors": "both"}
    predictor = PredictorHead(widths(state, "predictor")[0], layers=2, norm="bn", last_norm=None)
    if kind == "SimSiam":
        return {"predictor": predictor}
    return {"predictor": predictor, "momentum": float(recorded.get("initial_tau", 0.996))}


def network_arguments(kind: str, recorded: dict[str, Any], state: State, name: str, normalized: bool) -> dict[str, Any]:
    """What all methods have: network, images, optimizer."""
    from lightning_ssl.methods import Head
    from lightning_ssl.networks import SMALL

    backbone, stem = architecture(part(state, "backbone."), recorded)
    size, mean, std = images(name)
    return {
        "backbone": backbone,
        "stem": stem,
        "image_size": size,
        "mean": mean,
        "std": std,
        "augment": AUGMENT[size <= SMALL, normalized],
        "projector": Head(*widths(state, "projector"), layers=2, norm="bn", last_norm=None),
        "optimization": optimization(kind, recorded),
        "seed": 0,
    }


def architecture(encoder: State, recorded: dict[str, Any]) -> tuple[str, str]:
    """A ResNet's name by its blocks, and its stem by the first convolution and bolts' `maxpool1`."""
    from torchvision.models.resnet import Bottleneck

    from lightning_ssl.networks import RESNETS

    blocks = [len({key.split(".")[1] for key in encoder if key.startswith(f"layer{at}.")}) for at in (1, 2, 3, 4)]
    bottleneck = "layer1.0.conv3.weight" in encoder
    names = [name for name, (b, layers) in RESNETS.items() if layers == blocks and (b is Bottleneck) == bottleneck]
    shape = f"{blocks} {'bottleneck' if bottleneck else 'basic'} blocks"
    require(bool(names) and "conv1.weight" in encoder, "encoder", shape, f"one of bolts' {', '.join(RESNETS)}")
    kernel, pooled = encoder["conv1.weight"].shape[-1], recorded.get("maxpool1")
    stem = {(7, True): "standard", (3, False): "cifar"}.get((kernel, kernel == 7 if pooled is None else pooled))
    if stem is None:
        allowed = "True behind the 7×7 convolution or False behind the 3×3 one: there is no other stem here"
        raise ValueError(f"maxpool1={pooled!r}: maxpool1 must be {allowed} (this one's is {kernel}×{kernel})")
    return names[0], stem


def images(name: str) -> tuple[int, tuple[float, ...], tuple[float, ...]]:
    """Side, mean and standard deviation: bolts' own where it has them."""
    if name == "folder":  # whose info need its files
        return 224, *MOMENTS[name]
    known = data.info(name)
    return known.image_size, *MOMENTS.get(name, (known.mean, known.std))


def optimization(kind: str, recorded: dict[str, Any]) -> Optimization:
    """bolts' optimizer as far as it was recorded."""
    from lightning_ssl.methods import Optimization

    usual = Optimization()
    name = {"SimCLR": str(recorded.get("optimizer", "adam")), "BYOL": "adam", "SimSiam": "sgd"}[kind]
    return Optimization(
        name=name,  # type: ignore[arg-type]  # refused there unless known
        lr=float(recorded.get("learning_rate", usual.lr)),
        momentum=float(recorded.get("momentum", usual.momentum)) if kind == "SimSiam" else usual.momentum,
        weight_decay=float(recorded.get("weight_decay", usual.weight_decay)),
        schedule="warmup_cosine",
        warmup_epochs=int(recorded.get("warmup_epochs", usual.warmup_epochs)),
    )


def build(kind: str, arguments: dict[str, Any], state: State) -> Method:
    """Our method with these weights; the first one that has no place here, or another shape, is refused by name."""
    from lightning_ssl import methods

    built: Method = getattr(methods, kind)(**arguments)
    wanted = {key: tuple(value.shape) for key, value in built.state_dict().items()}
    for key in sorted(wanted.keys() | state.keys()):
        shape = tuple(state[key].shape) if key in state else None
        here = f"of shape {wanted[key]}, as in {arguments['backbone']}" if key in wanted else f"absent from {kind}"
        require(shape == wanted.get(key, ()), key, shape, here)
    built.load_state_dict(state)
    return built


def defaults(kind: type) -> dict[str, Any]:
    """The arguments of a class that have a default, with it."""
    parameters = inspect.signature(kind).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def plain(arguments: dict[str, Any]) -> dict[str, Any]:
    """Dataclasses as dictionaries and tuples as lists, as a configuration file has them."""
    found = {}
    for key, value in arguments.items():
        value = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        found[key] = list(value) if isinstance(value, tuple) else value
    return found
