"""`lightning-ssl export`: write the trained backbone to a file for other code.

examples:
  lightning-ssl export runs/direct --format torchvision               writes runs/direct/backbone.torchvision.pth
  lightning-ssl export runs/direct --format safetensors --out direct.safetensors
  lightning-ssl export runs/direct/checkpoints/step-00001560.ckpt --format safetensors     beside the checkpoint
  lightning-ssl export runs/direct --format safetensors --with-projector

torchvision   resnet18, resnet34 and resnet50; loads strictly; `fc` is zero
safetensors   every backbone, with method, configuration, step, version, mean and std as metadata

The command prints the lines of Python that load the file.

The file has the backbone only. For BYOL it is the online network, which `evaluate` uses too. Strict loading into a
torchvision model needs a classifier, so the file has `fc` for the 1000 classes of ImageNet, filled with zeros.
`model.fc = torch.nn.Identity()` makes the model return the features. A network for small images has the CIFAR stem. The
torchvision model needs the same stem before loading, as the printed lines show.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lightning_ssl.app.commands.parser import Command
from lightning_ssl.app.config.labels import short_label
from lightning_ssl.base.checks import UserError, require
from lightning_ssl.base.files import marked_archive, require_replaceable, write_atomic
from lightning_ssl.base.trust import trusted_modules
from lightning_ssl.base.untrusted import printable

if TYPE_CHECKING:
    from torch import Tensor

    from lightning_ssl.app.runs.restore import TrainedMethod

MARKER = b"lightning-ssl export"  # in every file that this command writes
SUFFIXES = {"torchvision": ".torchvision.pth", "safetensors": ".safetensors"}
IMAGENET_CLASSES = 1000  # the default of a torchvision model


def run(
    checkpoint: str,
    *,
    format: Literal["torchvision", "safetensors"],
    out: str | None = None,
    with_projector: bool = False,
    trust: Sequence[str] = (),
    force: bool = False,
) -> int:
    """Write a trained backbone to a file for other code.

    Args:
        checkpoint: a checkpoint, or a run folder for its newest one
        format: see below
        out: output (default: backbone.… in the run folder, or beside the checkpoint)
        with_projector: safetensors only: also write the projector, under names that start with `projector.`
        trust: a module whose classes and functions the checkpoint may name, such as that of your own loss; its code is
            run; can be given several times
        force: replace any regular file at --out
    """
    if format == "torchvision" and with_projector:
        raise UserError("with-projector=True: torchvision's models have no projector; use --format safetensors")
    target = Path(out or default_out(Path(checkpoint), format))
    require_replaceable(target, MARKER, force)
    from lightning_ssl.app.runs.restore import restore_method  # late: it imports torch, and --help needs none

    trained = restore_method(checkpoint, trusted_modules(trust))
    same = os.path.realpath(target) == os.path.realpath(trained.checkpoint)  # `resolve` raises for a link to itself
    require(not same, "out", str(target), "another file than the checkpoint")
    content = torchvision_file(trained) if format == "torchvision" else safetensors_file(trained, with_projector)
    write_atomic(target, content)
    print(f"{printable(describe(trained))}, written to {target}. To load it:\n")
    print(printable(loading_code(trained, format, target)))
    return 0


COMMAND = main = Command("export", run, __doc__)


def default_out(given: Path, file_format: str) -> Path:
    """The default output: in the run folder if one is given, else beside the checkpoint."""
    return given / f"backbone{SUFFIXES[file_format]}" if given.is_dir() else given.with_suffix(SUFFIXES[file_format])


# ---------------------------------------------------------------------------------------------------------------------
# Weights


def backbone_state(trained: TrainedMethod) -> dict[str, Tensor]:
    """Copies of the backbone's weights and buffers in the contiguous memory format."""
    import torch

    state = trained.method.backbone.state_dict()
    # A run with channels_last has its convolutions in that format.
    return {name: x.detach().clone(memory_format=torch.contiguous_format) for name, x in state.items()}


def torchvision_file(trained: TrainedMethod) -> memoryview:
    """The content of a file that loads strictly into torchvision's model of the same name."""
    import torch

    from lightning_ssl.networks import RESNETS, ResNet

    name, backbone = backbone_name(trained), trained.method.backbone
    if not isinstance(backbone, ResNet) or name not in RESNETS:
        raise UserError(f"backbone={name!r}: torchvision has no such model; --format safetensors writes any backbone")
    state = backbone_state(trained)
    state["fc.weight"] = torch.zeros(IMAGENET_CLASSES, backbone.num_features)
    state["fc.bias"] = torch.zeros(IMAGENET_CLASSES)
    return marked_archive(lambda file: torch.save(state, file), MARKER)


def safetensors_file(trained: TrainedMethod, with_projector: bool = False) -> bytes:
    """The content of a file with the backbone, optionally the projector, and the metadata."""
    from safetensors.torch import save as serialize

    state = backbone_state(trained)
    if with_projector:
        state |= {f"projector.{name}": x.detach().clone() for name, x in trained.method.projector.state_dict().items()}
    content: bytes = serialize(state, metadata(trained))
    return content


def metadata(trained: TrainedMethod) -> dict[str, str]:
    """The origin of the weights and the images they expect. Values are text, so lists and dictionaries are JSON."""
    augment, backbone = trained.method.augment, trained.method.backbone
    return {
        "generator": MARKER.decode(),
        "format": "pt",  # other readers of safetensors expect this for tensors of PyTorch
        "method": short_label(trained.config),
        "network": "online" if hasattr(trained.method, "target") else "trained",
        "backbone": backbone_name(trained),
        "stem": backbone.stem_name or "its own",
        "features": str(backbone.num_features),
        "image_size": str(augment.size),
        # For pixels in [0, 1]; 0 and 1 if training did not normalize.
        "mean": json.dumps(augment.mean),
        "std": json.dumps(augment.std),
        "step": str(trained.step),
        "config": json.dumps(trained.config, ensure_ascii=False),
        "version": trained.version,
    }


def backbone_name(trained: TrainedMethod) -> str:
    """The name of the backbone in the configuration."""
    init_args: dict[str, Any] = trained.config["model"].get("init_args", {})
    return str(init_args.get("backbone", "resnet18"))


# ---------------------------------------------------------------------------------------------------------------------
# Output


def describe(trained: TrainedMethod) -> str:
    """One line about the exported network."""
    online = ", the online network" if hasattr(trained.method, "target") else ""
    name, label, features = backbone_name(trained), short_label(trained.config), trained.method.backbone.num_features
    return f"{name} of {label} at step {trained.step} ({features} features{online})"


def loading_code(trained: TrainedMethod, file_format: str, out: Path) -> str:
    """Lines of Python that load the file."""
    name, stem, augment = backbone_name(trained), trained.method.backbone.stem_name, trained.method.augment
    if file_format == "torchvision":
        lines = [f"model = torchvision.models.{name}()"]
        if stem == "cifar":
            stem_lines = "torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False), torch.nn.Identity()"
            lines.append(f"model.conv1, model.maxpool = {stem_lines}  # CIFAR's stem")
        lines.append(f'model.load_state_dict(torch.load("{out}"))')
        lines.append("model.fc = torch.nn.Identity()  # fc is zero and untrained")
    else:
        stem_argument = f', stem="{stem}"' if stem else ""
        lines = [
            f'model = lightning_ssl.networks.build_backbone("{name}", image_size={augment.size}{stem_argument})',
            f'weights = safetensors.torch.load_file("{out}")',
            'model.load_state_dict({k: v for k, v in weights.items() if not k.startswith("projector.")})',
        ]
    scaling = (
        "in [0, 1], not normalized" if set(augment.mean) == {0.0} else f"normalized by {augment.mean}, {augment.std}"
    )
    lines.append(f"model.eval()  # images of {augment.size}×{augment.size}, {scaling}")
    return "\n".join(f"    {line}" for line in lines)
