"""Networks: images (B, 3, H, W) → features (B, F) → embeddings (B, D).

    net = build_backbone("resnet18", image_size=32)    # net.num_features = 512, net.stem_name = "cifar"
    projector = Projector(net.num_features, hidden=512, out=128)

The features of the backbone are the learned representation. The projector, and the predictor of SimSiam and BYOL, are
discarded after training. On a CPU, `net.to(memory_format=torch.channels_last)` saves more than a quarter of the time.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise, starmap
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn
from torchvision.models import ResNet as TorchvisionResNet
from torchvision.models.resnet import BasicBlock, Bottleneck

from lightning_ssl.base.checks import UserError, require, require_memory
from lightning_ssl.base.machine import memory
from lightning_ssl.base.user_code import is_path, load_object, reason

Stem = Literal["cifar", "standard"]
Norm = Literal["bn", "bn_noaffine"]
MAX_SIZE = 4096  # pixels of the side of an image
MAX_LAYERS = 100  # of a projector


class Backbone(nn.Module):
    """The interface of every backbone: images (B, 3, H, W) → features (B, num_features)."""

    num_features: int
    stem_name: Stem | None
    """The stem in use; None for other networks, which have their own."""


def build_backbone(name: str | nn.Module, image_size: int, stem: Stem | None = None) -> Backbone:
    """Build a backbone with random weights, or take a network of the user's.

    name        resnet18, resnet34, resnet50, resnet_tiny; timm:NAME if timm is installed; the path of a class or a
                function that makes a network, `mypackage.MyNet`; or a network, which maps (B, 3, H, W) to (B, F)
    image_size  side of the images in pixels
    stem        "cifar": a 3×3 convolution of stride 1, no pooling (He et al. 2016, Sec. 4.2; SimCLR, appendix B.9)
                "standard": a 7×7 convolution of stride 2 and a max-pool
                None: "cifar" up to 64 pixels, "standard" above

    >>> net = build_backbone("resnet_tiny", image_size=32)
    >>> net(torch.zeros(2, 3, 32, 32)).shape, net.num_features, net.stem_name
    (torch.Size([2, 112]), 112, 'cifar')
    """
    require(1 <= image_size <= MAX_SIZE, "image_size", image_size, f"between 1 and {MAX_SIZE} pixels")
    require(stem is None or stem in get_args(Stem), "stem", stem, f"None or one of {', '.join(get_args(Stem))}")
    if isinstance(name, str) and name in NAMES:
        chosen = stem or stem_for(image_size)
        return ResNetTiny(chosen) if name == "resnet_tiny" else ResNet(*RESNETS[name], chosen)
    if isinstance(name, str) and not name.startswith("timm:") and not is_path(name):
        require(False, "backbone", name, f"one of {', '.join(NAMES)}, timm:NAME, or the path of a class")
    require(stem is None, "stem", stem, f"None for {name if isinstance(name, str) else type(name).__name__}")
    if isinstance(name, nn.Module):
        return own_backbone(name, image_size, type(name).__name__)
    if name.startswith("timm:"):
        return timm_backbone(name, image_size)
    make = load_object(name, "backbone")
    try:
        net = make()
    except Exception as error:
        raise UserError(f"backbone={name}: {reason(error)}") from error
    return own_backbone(net, image_size, name)


def own_backbone(net: nn.Module, image_size: int, name: str) -> Backbone:
    """Take a network of the user's. A forward pass of two images finds its number of features."""
    require(isinstance(net, nn.Module), "backbone", name, f"a torch.nn.Module, not {type(net).__name__}")
    example = next((p for p in net.parameters() if p.is_floating_point()), torch.zeros(()))
    images = torch.zeros(2, 3, image_size, image_size, dtype=example.dtype, device=example.device)
    try:
        with torch.no_grad(), eval_mode(net):
            features = net(images)
    except Exception as error:
        shape = tuple(images.shape)
        raise UserError(f"backbone={name}: it fails on images of shape {shape}: {reason(error)}") from error
    found = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
    allowed = isinstance(features, Tensor) and features.ndim == 2 and len(features) == 2
    require(allowed, "backbone", name, f"a network with features of shape (B, F): two images gave {found}")
    backbone = cast(Backbone, net)
    backbone.num_features, backbone.stem_name = features.shape[1], None
    return backbone


SMALL = 64  # pixels: the largest image size with the CIFAR stem by default


def stem_for(image_size: int) -> Stem:
    """Return the default stem for an image size."""
    return "cifar" if image_size <= SMALL else "standard"


RESNETS: dict[str, tuple[type[BasicBlock | Bottleneck], list[int]]] = {
    "resnet18": (BasicBlock, [2, 2, 2, 2]),
    "resnet34": (BasicBlock, [3, 4, 6, 3]),
    "resnet50": (Bottleneck, [3, 4, 6, 3]),
}
NAMES = (*RESNETS, "resnet_tiny")


class ResNet(TorchvisionResNet, Backbone):
    """torchvision's ResNet without its classifier.

    Its `state_dict`, with `fc.weight` and `fc.bias` added, loads strictly into torchvision's model of the same name.
    With the CIFAR stem, replace the stem of that model first: `model.conv1, model.maxpool = make_stem("cifar")`, or
    without this package, `nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()`.
    """

    def __init__(self, block: type[BasicBlock | Bottleneck], layers: list[int], stem: Stem = "standard") -> None:
        super().__init__(block, layers)
        self.num_features = 512 * block.expansion
        self.fc = nn.Identity()
        self.stem_name = stem
        self.conv1, self.maxpool = make_stem(stem)


class ResNetTiny(Backbone):
    """A narrow ResNet with one block per stage and about 0.2 M parameters, for 32×32 images on a CPU.

    Its CIFAR stem has stride 2. A narrow network spends most of its time at full resolution; stride 2 reduces this
    time to a quarter.
    """

    def __init__(self, stem: Stem = "cifar", widths: tuple[int, ...] = (16, 48, 112)) -> None:
        super().__init__()
        self.stem_name = stem
        self.num_features = widths[-1]
        self.conv1, self.maxpool = make_stem(stem, widths[0], stride=2)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.relu = nn.ReLU(inplace=True)
        first, later = BasicBlock(widths[0], widths[0]), starmap(downsampling_block, pairwise(widths))
        self.layers = nn.Sequential(first, *later)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        for module in self.layers.modules():
            if isinstance(module, nn.Conv2d):
                initialize(module)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))  # (B, 16, H/2, W/2)
        x = self.layers(x)  # (B, F, H/8, W/8)
        return torch.flatten(self.avgpool(x), 1)


def downsampling_block(before: int, after: int) -> nn.Module:
    """A residual block of stride 2, with a 1×1 convolution on the shortcut."""
    shortcut = nn.Sequential(nn.Conv2d(before, after, 1, 2, bias=False), nn.BatchNorm2d(after))
    return BasicBlock(before, after, 2, shortcut)


def make_stem(stem: Stem, width: int = 64, stride: int = 1) -> tuple[nn.Conv2d, nn.Module]:
    """Return `conv1` and `maxpool` of a ResNet; `stride` applies to the CIFAR stem."""
    if stem == "cifar":
        return initialize(nn.Conv2d(3, width, 3, stride, 1, bias=False)), nn.Identity()
    return initialize(nn.Conv2d(3, width, 7, 2, 3, bias=False)), nn.MaxPool2d(3, 2, 1)


def initialize(convolution: nn.Conv2d) -> nn.Conv2d:
    """Initialize a convolution as torchvision does in its ResNets."""
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return convolution


def timm_backbone(name: str, image_size: int) -> Backbone:
    """Build a timm network without its classifier; architectures with a fixed input size get `image_size`."""
    installed = importlib.util.find_spec("timm") is not None
    require(installed, "backbone", name, f"one of {', '.join(NAMES)} while timm is not installed (pip install timm)")
    timm = importlib.import_module("timm")
    model = name.removeprefix("timm:")
    if not timm.is_model(model):
        close = ", ".join(difflib.get_close_matches(model, timm.list_models(), n=3))
        require(False, "backbone", name, "a name of timm.list_models()" + (f", such as {close}" if close else ""))
    described = timm.get_pretrained_cfg(model)
    fixed = {"img_size": image_size} if described is not None and described.fixed_input_size else {}
    net = timm.create_model(model, pretrained=False, num_classes=0, **fixed)
    net.num_features = getattr(net, "head_hidden_size", net.num_features)  # some have a layer after the pooling
    setattr(net, "stem_name", None)  # noqa: B010  mypy takes an attribute of a module for a tensor
    return cast(Backbone, net)


# ---------------------------------------------------------------------------------------------------------------------
# Projector


class Projector(nn.Sequential):
    """An MLP from features to embeddings: linear maps, with a norm and a ReLU after each but the last.

    layers     number of linear maps
    norm       after each map but the last: "bn", "bn_noaffine" (no scale and shift) or None
    last_norm  after the last map

    A linear map before a norm has no bias, because the norm removes it. The defaults are those of the α-CL papers. The
    predictor of SimSiam and BYOL, from the embedding of one view to that of the other, is such a network too.

    >>> Projector(512, hidden=512, out=128)(torch.randn(4, 512)).shape
    torch.Size([4, 128])
    """

    def __init__(
        self,
        in_features: int,
        hidden: int = 512,
        out: int = 128,
        layers: int = 2,
        norm: Norm | None = "bn_noaffine",
        last_norm: Norm | None = None,
    ) -> None:
        for argument, size in (("in_features", in_features), ("hidden", hidden), ("out", out)):
            require(size >= 1, argument, size, "at least 1")
        require(1 <= layers <= MAX_LAYERS, "layers", layers, f"between 1 and {MAX_LAYERS}")
        for argument, kind in (("norm", norm), ("last_norm", last_norm)):
            require(kind is None or kind in get_args(Norm), argument, kind, f"None, {' or '.join(get_args(Norm))}")
        widths = [in_features] + [hidden] * (layers - 1)
        weights = sum(before * after for before, after in pairwise([*widths, out]))
        widest = ("out", out) if layers == 1 or out >= hidden else ("hidden", hidden)
        require_memory(*widest, 4 * weights, memory())
        modules: list[nn.Module] = []
        for before, after in pairwise(widths):
            modules += [*linear_and_norm(before, after, norm), nn.ReLU(inplace=True)]
        super().__init__(*modules, *linear_and_norm(widths[-1], out, last_norm))
        self.in_features, self.out_features = in_features, out


def linear_and_norm(before: int, after: int, norm: Norm | None) -> list[nn.Module]:
    linear = nn.Linear(before, after, bias=norm is None)
    return [linear] if norm is None else [linear, nn.BatchNorm1d(after, affine=norm == "bn")]


# ---------------------------------------------------------------------------------------------------------------------
# Modes


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Put a module in evaluation mode, and restore the mode of every submodule afterwards.

    `module.train()` would not do the same: a submodule that was in evaluation mode before must stay in it.
    """
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True
