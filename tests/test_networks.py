"""Backbones by name and stem, their weights in torchvision, projectors and predictors, evaluation mode."""

import contextlib
import copy
import importlib.util
from dataclasses import asdict, replace
from functools import partial

import pytest
import torch
import torchvision
from helpers.closeness import close
from helpers.refusals import refused
from helpers.training import terms_of
from torch import nn
from torch.nn import functional as F

from lightning_ssl.methods import Head
from lightning_ssl.methods.siamese import BYOL_PREDICTOR, BYOL_PROJECTOR, SIMSIAM_PREDICTOR, SIMSIAM_PROJECTOR
from lightning_ssl.networks import Projector, build_backbone, eval_mode, make_stem

RESNETS = ["resnet18", "resnet34", "resnet50"]
LAST = torch.channels_last
FEATURES = {"resnet18": 512, "resnet34": 512, "resnet50": 2048}


def images(count=4, size=32, seed=0):
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------------------------------------------------------------
# Backbones


@pytest.mark.parametrize("name", [*RESNETS, "resnet_tiny"])
def test_the_output_width_is_num_features(name):
    net = build_backbone(name, 32).eval()
    assert net(images(2)).shape == (2, net.num_features)
    assert net.num_features == FEATURES.get(name, net.num_features)


STEMS = [(32, None, "cifar"), (64, None, "cifar"), (65, None, "standard"), (224, None, "standard")]


@pytest.mark.parametrize("name", ["resnet18", "resnet_tiny"])
@pytest.mark.parametrize(("size", "given", "chosen"), [*STEMS, (96, "cifar", "cifar"), (32, "standard", "standard")])
def test_the_image_size_chooses_the_stem_unless_it_is_given(name, size, given, chosen):
    net = build_backbone(name, size, stem=given)
    assert net.stem_name == chosen
    assert net.conv1.kernel_size == ((3, 3) if chosen == "cifar" else (7, 7))
    assert net.conv1.stride[0] == (1 if (name, chosen) == ("resnet18", "cifar") else 2)
    assert isinstance(net.maxpool, nn.Identity if chosen == "cifar" else nn.MaxPool2d)


@pytest.mark.parametrize(("name", "stem"), [*((name, "cifar") for name in RESNETS), ("resnet18", "standard")])
def test_torchvision_loads_the_weights_and_gives_the_same_features(name, stem):
    ours = build_backbone(name, 32, stem=stem).eval()
    theirs = getattr(torchvision.models, name)()
    if stem == "cifar":
        theirs.conv1, theirs.maxpool = make_stem("cifar")
    head = {"fc.weight": theirs.fc.weight, "fc.bias": theirs.fc.bias}
    theirs.load_state_dict({**ours.state_dict(), **head}, strict=True)
    x = images(2)
    with torch.no_grad():
        expected = theirs.eval()(x)
        actual = F.linear(ours(x), head["fc.weight"], head["fc.bias"])
    close(actual, expected, terms=terms_of(theirs))


@pytest.mark.parametrize("name", ["resnet18", "resnet_tiny"])
@pytest.mark.parametrize("stem", ["cifar", "standard"])
def test_every_convolution_starts_at_hes_scale(name, stem):
    torch.manual_seed(0)
    for module in build_backbone(name, 32, stem=stem).modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.out_channels * module.kernel_size[0] * module.kernel_size[1]
            scale = float(module.weight.detach().std()) / (2 / fan_out) ** 0.5
            # five standard errors of the standard deviation of a sample
            assert scale == pytest.approx(1, abs=5 / (2 * module.weight.numel()) ** 0.5)


@pytest.mark.parametrize("name", ["resnet18", "resnet_tiny"])
def test_channels_last_changes_the_layout_but_not_the_features(name):
    net = build_backbone(name, 32).double()
    twin, x, seen = copy.deepcopy(net).to(memory_format=torch.channels_last), images().double(), []
    for module in twin.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda *found: seen.append(found[2].is_contiguous(memory_format=LAST)))
    close(twin(x.contiguous(memory_format=LAST)), net(x), terms=terms_of(net))
    assert set(seen) == {True}


test_unknown_names_bad_sizes_and_stems_of_other_networks_are_refused = refused(
    (
        lambda: build_backbone("resnet19", 32),
        "^backbone='resnet19': backbone must be one of resnet18, resnet34, resnet50",
    ),
    (lambda: build_backbone("resnet18", 0), "^image_size=0: image_size must be between 1 and 4096"),
    (lambda: build_backbone("resnet18", 32, "imagenet"), "^stem='imagenet': stem must be None or one of cifar, stand"),
    (lambda: build_backbone("timm:resnet10t", 32, "cifar"), "^stem='cifar': stem must be None for timm:resnet10t"),
    (lambda: build_backbone(nn.Identity(), 32, "cifar"), "^stem='cifar': stem must be None for Identity"),
)


def test_timm_names_are_refused_if_timm_is_not_installed(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "timm" else find_spec(name))
    with pytest.raises(ValueError, match=r"^backbone='timm:resnet10t'.*timm is not installed"):
        build_backbone("timm:resnet10t", 32)


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
@pytest.mark.parametrize("name", ["resnet10t", "mobilenetv3_small_050", "vit_tiny_patch16_224", "convnext_atto"])
def test_the_output_width_of_timm_networks_is_num_features(name):
    net = build_backbone(f"timm:{name}", 64).eval()
    assert net(images(2, 64)).shape == (2, net.num_features)
    assert net.stem_name is None


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
def test_a_misspelt_timm_name_gets_similar_names():
    with pytest.raises(ValueError, match=r"^backbone='timm:resnet10tt'.*such as resnet10t"):
        build_backbone("timm:resnet10tt", 32)


# ---------------------------------------------------------------------------------------------------------------------
# Projector and predictor


def kinds(module):
    return [type(m).__name__ for m in module]


def weight_shapes(head):
    return [tuple(p.shape) for p in head.parameters() if p.ndim == 2]


@pytest.mark.parametrize(
    ("make", "width", "head", "shapes"),
    [
        (Projector, 2048, Head(), [(512, 2048), (128, 512)]),
        (Projector, 2048, SIMSIAM_PROJECTOR, [(2048, 2048)] * 2),
        (Projector, 2048, replace(SIMSIAM_PROJECTOR, layers=3), [(2048, 2048)] * 3),  # on ImageNet
        (Projector, 2048, BYOL_PROJECTOR, [(4096, 2048), (256, 4096)]),
        (partial(Projector, out=2048), 2048, SIMSIAM_PREDICTOR, [(512, 2048), (2048, 512)]),
        (partial(Projector, out=256), 256, BYOL_PREDICTOR, [(4096, 256), (256, 4096)]),
    ],
)
def test_projectors_and_predictors_have_the_shapes_of_the_papers(make, width, head, shapes):
    assert weight_shapes(make(width, **asdict(head))) == shapes


def test_the_default_projector_is_that_of_alpha_cl_and_the_last_norm_of_simsiam_has_no_affine_part():
    assert kinds(Projector(512)) == ["Linear", "BatchNorm1d", "ReLU", "Linear"]
    assert [tuple(p.shape) for p in Projector(512, **asdict(Head())).parameters()] == [(512, 512), (128, 512), (128,)]
    projector = Projector(8, **asdict(SIMSIAM_PROJECTOR))
    assert kinds(projector) == ["Linear", "BatchNorm1d", "ReLU", "Linear", "BatchNorm1d"]
    assert [norm.affine for norm in (projector[1], projector[-1])] == [True, False]


@pytest.mark.parametrize("layers", [1, 2, 3, 5])
def test_layers_is_the_number_of_linear_maps(layers):
    projector = Projector(6, hidden=7, out=3, layers=layers)
    assert kinds(projector).count("Linear") == layers
    assert kinds(projector).count("ReLU") == layers - 1
    assert projector(torch.randn(4, 6)).shape == (4, projector.out_features) == (4, 3)


@pytest.mark.parametrize("norm", ["bn", "bn_noaffine", None])
@pytest.mark.parametrize("last_norm", ["bn", "bn_noaffine", None])
def test_a_linear_map_has_a_bias_only_without_a_norm_after_it(norm, last_norm):
    projector = Projector(6, hidden=7, out=3, norm=norm, last_norm=last_norm)
    first, last = (m for m in projector if isinstance(m, nn.Linear))
    assert (first.bias is None, last.bias is None) == (norm is not None, last_norm is not None)
    norms = [m for m in projector if isinstance(m, nn.BatchNorm1d)]
    assert [m.affine for m in norms] == [kind == "bn" for kind in (norm, last_norm) if kind is not None]


def test_the_projector_follows_its_equation():
    torch.manual_seed(0)
    projector = Projector(6, hidden=7, out=3).double()
    x = torch.randn(9, 6, dtype=torch.float64)
    first, _, _, last = projector
    h = x @ first.weight.T
    h = (h - h.mean(0)) / (h.var(0, unbiased=False) + 1e-5).sqrt()
    close(projector(x), h.clamp(min=0) @ last.weight.T + last.bias, terms=terms_of(projector) + len(x))


BAD_HEADS = [
    ({"in_features": 0}, "^in_features=0: in_features must be at least 1"),
    ({"hidden": 0}, "^hidden=0: hidden must be at least 1"),
    ({"out": -1}, "^out=-1: out must be at least 1"),
    ({"layers": 0}, "^layers=0: layers must be between 1 and 100"),
    ({"norm": "ln"}, "^norm='ln': norm must be None, bn or bn_noaffine"),
    ({"last_norm": "batch"}, "^last_norm='batch': last_norm must be None, bn or bn_noaffine"),
]
test_bad_head_settings_are_refused_by_name_and_value = refused(
    *((partial(Projector, **{"in_features": 6, **bad}), line) for bad, line in BAD_HEADS)
)


# ---------------------------------------------------------------------------------------------------------------------
# Evaluation mode


def test_eval_mode_restores_the_mode_of_every_submodule():
    net = build_backbone("resnet_tiny", 32)
    net.bn1.eval()
    before = [part.training for part in net.modules()]
    with eval_mode(net):
        assert not any(part.training for part in net.modules())
    assert [part.training for part in net.modules()] == before
    with contextlib.suppress(KeyError), eval_mode(net):
        raise KeyError
    assert [part.training for part in net.modules()] == before
