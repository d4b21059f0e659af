"""Networks: images (B, 3, H, W) → features (B, F) → embeddings (B, D).

    net = backbone("resnet18", image_size=32)                   # net.num_features = 512, net.stem_name = "cifar"
    projector = Projector(net.num_features, **PROJECTORS["alpha_cl"])

The learned representation is the backbone's; the projector, and SimSiam's and BYOL's predictor behind it, are thrown
away after training. On a CPU `net.to(memory_format=torch.channels_last)` saves a good quarter of the time.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from itertools import pairwise
from typing import Literal, TypedDict, cast, get_args

import torch
from torch import Tensor, nn
from torchvision.models import ResNet as TorchvisionResNet
from torchvision.models.resnet import BasicBlock, Bottleneck

from lightning_ssl.checks import require

Stem = Literal["cifar", "standard"]
Norm = Literal["bn", "bn_noaffine"]


class Backbone(nn.Module):
    """What is known of every backbone: (B, 3, H, W) → (B, num_features)."""

    num_features: int
    stem_name: Stem | None
    """The stem that was chosen, for the record of a run; None where the network has only its own."""


def backbone(name: str, image_size: int, stem: Stem | None = None) -> Backbone:
    """Build a backbone by name: resnet18, resnet34, resnet50, resnet_tiny, or timm:NAME where timm is installed.

    `stem="cifar"` is a 3×3 convolution of stride 1 without pooling (He et al. 2016, Sec. 4.2; SimCLR, appendix B.9),
    `"standard"` the 7×7 one of stride 2 and a max-pool; None chooses the first up to 64 pixels. Weights are random.
    """
    require(image_size >= 1, "image_size", image_size, "at least 1 pixel")
    require(stem is None or stem in get_args(Stem), "stem", stem, f"None or one of {', '.join(get_args(Stem))}")
    if name.startswith("timm:"):
        require(stem is None, "stem", stem, f"None for {name}, which has its own")
        return timm_backbone(name, image_size)
    chosen = stem or stem_for(image_size)
    if name == "resnet_tiny":
        return ResNetTiny(chosen)
    require(name in RESNETS, "backbone", name, f"one of {', '.join(RESNETS)}, resnet_tiny, or timm:NAME")
    return ResNet(*RESNETS[name], chosen)


SMALL = 64  # pixels; above, the standard stem


def stem_for(image_size: int) -> Stem:
    """The stem of images of a size."""
    return "cifar" if image_size <= SMALL else "standard"


RESNETS: dict[str, tuple[type[BasicBlock | Bottleneck], list[int]]] = {
    "resnet18": (BasicBlock, [2, 2, 2, 2]),
    "resnet34": (BasicBlock, [3, 4, 6, 3]),
    "resnet50": (Bottleneck, [3, 4, 6, 3]),
}


class ResNet(TorchvisionResNet, Backbone):
    """torchvision's ResNet without its classifier.

    Its `state_dict`, with `fc.weight` and `fc.bias` added, loads strictly into torchvision's model of the same name.
    Where the stem is CIFAR's, that model must be given it first, `model.conv1, model.maxpool = make_stem("cifar")`,
    or by hand: `nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()`.
    """

    def __init__(self, block: type[BasicBlock | Bottleneck], layers: list[int], stem: Stem = "standard") -> None:
        super().__init__(block, layers)
        self.num_features = 512 * block.expansion
        self.fc = nn.Identity()
        self.stem_name = stem
        self.conv1, self.maxpool = make_stem(stem)


class ResNetTiny(Backbone):
    """A narrow ResNet with one block per stage, about 0.2 M parameters, for a CPU and 32×32 images.

    Its CIFAR stem has stride 2: a quarter of the work of the full resolution, where most of a narrow net's time goes.
    """

    def __init__(self, stem: Stem = "cifar", widths: tuple[int, ...] = (16, 48, 112)) -> None:
        super().__init__()
        self.stem_name = stem
        self.num_features = widths[-1]
        self.conv1, self.maxpool = make_stem(stem, widths[0], stride=2)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.relu = nn.ReLU(inplace=True)
        self.layers = nn.Sequential(
            BasicBlock(widths[0], widths[0]),
            *(halving_block(before, after) for before, after in pairwise(widths)),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        for module in self.layers.modules():
            if isinstance(module, nn.Conv2d):
                initialize(module)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))  # (B, 16, H/2, W/2)
        x = self.layers(x)  # (B, F, H/8, W/8)
        return torch.flatten(self.avgpool(x), 1)


def halving_block(before: int, after: int) -> nn.Module:
    shortcut = nn.Sequential(nn.Conv2d(before, after, 1, 2, bias=False), nn.BatchNorm2d(after))
    return BasicBlock(before, after, 2, shortcut)


def make_stem(stem: Stem, width: int = 64, stride: int = 1) -> tuple[nn.Conv2d, nn.Module]:
    """`conv1` and `maxpool` of a ResNet; `stride` is that of the CIFAR stem."""
    if stem == "cifar":
        return initialize(nn.Conv2d(3, width, 3, stride, 1, bias=False)), nn.Identity()
    return initialize(nn.Conv2d(3, width, 7, 2, 3, bias=False)), nn.MaxPool2d(3, 2, 1)


def initialize(convolution: nn.Conv2d) -> nn.Conv2d:
    """As torchvision initializes its ResNets."""
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return convolution


def timm_backbone(name: str, image_size: int) -> Backbone:
    """A network of timm without its classifier, made for the image size where the architecture fixes one."""
    installed = importlib.util.find_spec("timm") is not None
    require(installed, "backbone", name, f"one of {', '.join(RESNETS)}, resnet_tiny while timm is not installed")
    timm = importlib.import_module("timm")
    model = name.removeprefix("timm:")
    if not timm.is_model(model):
        close = ", ".join(difflib.get_close_matches(model, timm.list_models(), n=3))
        require(False, "backbone", name, "a name of timm.list_models()" + (f", such as {close}" if close else ""))
    described = timm.get_pretrained_cfg(model)
    fixed = {"img_size": image_size} if described is not None and described.fixed_input_size else {}
    net = timm.create_model(model, pretrained=False, num_classes=0, **fixed)
    net.num_features = getattr(net, "head_hidden_size", net.num_features)  # of what comes out: some keep a head layer
    net.stem_name = None
    return cast(Backbone, net)


# ---------------------------------------------------------------------------------------------------------------------
# Heads


class Head(TypedDict):
    """A published projector: everything but the backbone's width."""

    hidden: int
    out: int
    layers: int
    norm: Norm | None
    last_norm: Norm | None


class Predicting(TypedDict):
    """A published predictor: everything but the embedding's width."""

    hidden: int
    layers: int
    norm: Norm | None
    last_norm: Norm | None


PROJECTORS: dict[str, Head] = {
    # The α-CL and dual-network papers, as their released code has it.
    "alpha_cl": {"hidden": 512, "out": 128, "layers": 2, "norm": "bn_noaffine", "last_norm": None},
    # Chen et al. 2020, Sec. 2.1, for ResNet50; the norm of the output is in their code and not in the text.
    "simclr": {"hidden": 2048, "out": 128, "layers": 2, "norm": "bn", "last_norm": "bn"},
    # Chen & He 2021, Sec. 3; two layers on CIFAR (appendix D). The last norm has no affine part in their code.
    "simsiam": {"hidden": 2048, "out": 2048, "layers": 3, "norm": "bn", "last_norm": "bn_noaffine"},
    "simsiam_cifar": {"hidden": 2048, "out": 2048, "layers": 2, "norm": "bn", "last_norm": "bn_noaffine"},
    # Grill et al. 2020, Sec. 3.3: contrary to SimCLR's, the output is not normalized.
    "byol": {"hidden": 4096, "out": 256, "layers": 2, "norm": "bn", "last_norm": None},
}
PREDICTORS: dict[str, Predicting] = {
    "simsiam": {"hidden": 512, "layers": 2, "norm": "bn", "last_norm": None},
    "byol": {"hidden": 4096, "layers": 2, "norm": "bn", "last_norm": None},
}


class Projector(nn.Sequential):
    """An MLP from features to embeddings: `layers` linear maps, with a norm and a ReLU after each but the last.

    A norm is "bn", "bn_noaffine" (without scale and shift) or None; `last_norm` follows the last map. A linear map has
    no bias before a norm, which would take it away again.
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
        for argument, size in (("in_features", in_features), ("hidden", hidden), ("out", out), ("layers", layers)):
            require(size >= 1, argument, size, "at least 1")
        for argument, kind in (("norm", norm), ("last_norm", last_norm)):
            require(kind is None or kind in get_args(Norm), argument, kind, f"None, {' or '.join(get_args(Norm))}")
        widths = [in_features] + [hidden] * (layers - 1)
        modules: list[nn.Module] = []
        for before, after in pairwise(widths):
            modules += [*linear_and_norm(before, after, norm), nn.ReLU(inplace=True)]
        super().__init__(*modules, *linear_and_norm(widths[-1], out, last_norm))
        self.in_features, self.out_features = in_features, out


class Predictor(Projector):
    """The MLP of SimSiam and BYOL from one view's embedding to the other's: in and out have the same width."""

    def __init__(
        self,
        in_features: int,
        hidden: int = 512,
        layers: int = 2,
        norm: Norm | None = "bn",
        last_norm: Norm | None = None,
    ) -> None:
        super().__init__(in_features, hidden, in_features, layers, norm, last_norm)


def linear_and_norm(before: int, after: int, norm: Norm | None) -> list[nn.Module]:
    linear = nn.Linear(before, after, bias=norm is None)
    return [linear] if norm is None else [linear, nn.BatchNorm1d(after, affine=norm == "bn")]
