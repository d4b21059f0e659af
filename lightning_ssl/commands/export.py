"""`lightning-ssl export`: the trained backbone alone, in a file that others read.

    lightning-ssl export runs/direct --format torchvision     a state_dict for torchvision's model of the same name
    lightning-ssl export runs/direct --format safetensors     any backbone, with where it came from as metadata

Only what makes features is written: no projector, predictor, probe or optimizer, and of BYOL the online network, which
is what is evaluated here. A torchvision model has a classifier and its strict loading asks for one, so `fc` is written
as zeros, of ImageNet's 1000 classes; nothing was trained there, and features are what comes out after
`model.fc = torch.nn.Identity()`.

A network for small images has CIFAR's stem, which torchvision's model must be given before it is loaded:

    model = torchvision.models.resnet18()
    model.conv1, model.maxpool = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False), torch.nn.Identity()
    model.load_state_dict(torch.load("backbone.torchvision.pth"))
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_ssl import runs
from lightning_ssl.checks import require
from lightning_ssl.commands.evaluate import Trained, restore
from lightning_ssl.commands.parser import Parser

if TYPE_CHECKING:
    from torch import Tensor

SUFFIXES = {"torchvision": ".torchvision.pth", "safetensors": ".safetensors"}
IMAGENET_CLASSES = 1000  # of a torchvision model that is made without arguments

EXAMPLES = """examples:
  lightning-ssl export runs/direct --format torchvision               writes runs/direct/backbone.torchvision.pth
  lightning-ssl export runs/direct --format safetensors --out direct.safetensors
  lightning-ssl export runs/direct/checkpoints/step-00001560.ckpt --format safetensors     beside the checkpoint
  lightning-ssl export runs/direct --format safetensors --with-projector

torchvision   resnet18, resnet34 and resnet50; loads strictly, and `fc` is zeros. How to load it is printed
safetensors   every backbone, with method, configuration, step, version, mean and std as metadata"""


def main(argv: Sequence[str] | None = None) -> int:
    """Write the backbone of a checkpoint, and say how to load it."""
    try:
        arguments = parser().parse_args(argv)
    except SystemExit:  # --help, which is printed by now
        return 0
    require(
        arguments.format == "safetensors" or not arguments.with_projector,
        "with-projector",
        True,
        "left out with --format torchvision, whose models have none; --format safetensors takes it",
    )
    sys.path.insert(0, os.getcwd())  # a class of the user's own, by its path
    trained = restore(arguments.checkpoint)
    out = Path(arguments.out or default_out(Path(arguments.checkpoint), arguments.format))
    require(out.resolve() != trained.path.resolve(), "out", str(out), "another file than the checkpoint")
    torchvision = arguments.format == "torchvision"
    runs.write_whole(
        out, torchvision_file(trained) if torchvision else safetensors_file(trained, arguments.with_projector)
    )
    print(f"{describe(trained)}, written to {out}. To load it:\n")
    print(recipe(trained, arguments.format, out))
    return 0


def parser() -> Parser:
    """The command line, which needs no torch."""
    top = Parser(
        prog="lightning-ssl export",
        description="Write a trained backbone, and nothing else of its training, in a format that others read.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("checkpoint", metavar="CKPT", help="a checkpoint, or a run folder for its newest one")
    top.add_argument("--format", choices=tuple(SUFFIXES), required=True)
    top.add_argument("--out", metavar="FILE", help="default: backbone.… in the run folder, or beside the checkpoint")
    top.add_argument(
        "--with-projector",
        action="store_true",
        help="safetensors only: also the projector, under names that begin with `projector.`",
    )
    return top


def default_out(given: Path, file_format: str) -> Path:
    """In a run folder that was given, otherwise beside the checkpoint."""
    return given / f"backbone{SUFFIXES[file_format]}" if given.is_dir() else given.with_suffix(SUFFIXES[file_format])


# ---------------------------------------------------------------------------------------------------------------------
# Weights


def backbone_state(trained: Trained) -> dict[str, Tensor]:
    """The backbone's weights and buffers, each with memory of its own in the usual layout."""
    import torch

    state = trained.method.backbone.state_dict()
    # `contiguous_format`, for a run with channels_last leaves its convolutions in that one.
    return {name: x.detach().clone(memory_format=torch.contiguous_format) for name, x in state.items()}


def torchvision_file(trained: Trained) -> memoryview:
    """A whole file that loads strictly into torchvision's model of the same name; tried before it is written."""
    import torch
    import torchvision

    from lightning_ssl.networks import RESNETS, ResNet, make_stem

    name, backbone = name_of(trained), trained.method.backbone
    if not isinstance(backbone, ResNet) or name not in RESNETS:
        raise ValueError(f"backbone={name!r}: torchvision has no such model; --format safetensors writes any backbone")
    state = backbone_state(trained)
    state["fc.weight"] = torch.zeros(IMAGENET_CLASSES, backbone.num_features)
    state["fc.bias"] = torch.zeros(IMAGENET_CLASSES)
    model = getattr(torchvision.models, name)()
    assert backbone.stem_name is not None
    model.conv1, model.maxpool = make_stem(backbone.stem_name)
    model.load_state_dict(state)
    content = io.BytesIO()
    torch.save(state, content)
    return content.getbuffer()


def safetensors_file(trained: Trained, with_projector: bool = False) -> bytes:
    """A whole file: the backbone under its own names, the projector only when asked for, and the metadata."""
    from safetensors.torch import save as serialize

    state = backbone_state(trained)
    if with_projector:
        state |= {f"projector.{name}": x.detach().clone() for name, x in trained.method.projector.state_dict().items()}
    content: bytes = serialize(state, metadata(trained))
    return content


def metadata(trained: Trained) -> dict[str, str]:
    """Where the weights came from and what images they expect; the format has text only, so the rest is JSON."""
    augment, backbone = trained.method.augment, trained.method.backbone
    return {
        "format": "pt",  # how other readers of safetensors know whose tensors these are
        "method": runs.label_of(trained.config),
        "network": "online" if hasattr(trained.method, "target") else "trained",
        "backbone": name_of(trained),
        "stem": backbone.stem_name or "its own",
        "features": str(backbone.num_features),
        "image_size": str(augment.size),
        # Of pixels on a scale of 0 to 1; 0 and 1 where training did not normalize.
        "mean": json.dumps(augment.mean),
        "std": json.dumps(augment.std),
        "step": str(trained.step),
        "config": json.dumps(trained.config, ensure_ascii=False),
        "version": trained.version,
    }


def name_of(trained: Trained) -> str:
    """The backbone's name in the configuration."""
    init_args: dict[str, Any] = trained.config["model"].get("init_args", {})
    return str(init_args.get("backbone", "resnet18"))


# ---------------------------------------------------------------------------------------------------------------------
# Words


def describe(trained: Trained) -> str:
    """What is written, in one line."""
    online = ", the online network" if hasattr(trained.method, "target") else ""
    features = trained.method.backbone.num_features
    return f"{name_of(trained)} of {runs.label_of(trained.config)} at step {trained.step} ({features} features{online})"


def recipe(trained: Trained, file_format: str, out: Path) -> str:
    """Lines of Python that load the file."""
    name, stem, augment = name_of(trained), trained.method.backbone.stem_name, trained.method.augment
    if file_format == "torchvision":
        lines = [f"model = torchvision.models.{name}()"]
        if stem == "cifar":
            stem_lines = "torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False), torch.nn.Identity()"
            lines.append(f"model.conv1, model.maxpool = {stem_lines}  # CIFAR's stem")
        lines.append(f'model.load_state_dict(torch.load("{out}"))')
        lines.append("model.fc = torch.nn.Identity()  # what is there is zeros: nothing was trained in it")
    else:
        about = f', stem="{stem}"' if stem else ""
        lines = [
            f'model = lightning_ssl.networks.backbone("{name}", image_size={augment.size}{about})',
            f'weights = safetensors.torch.load_file("{out}")',
            'model.load_state_dict({k: v for k, v in weights.items() if not k.startswith("projector.")})',
        ]
    scaled = (
        "in [0, 1], not normalized" if set(augment.mean) == {0.0} else f"normalized by {augment.mean}, {augment.std}"
    )
    lines.append(f"model.eval()  # images of {augment.size}×{augment.size}, {scaled}")
    return "\n".join(f"    {line}" for line in lines)
