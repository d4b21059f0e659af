"""`lightning-ssl export`: the file has the backbone only, and gives the same features in other code."""

import json

import pytest
import torch
import torchvision
from helpers.closeness import close
from helpers.training import build_method, terms_of
from safetensors import safe_open
from safetensors.torch import load_file

from lightning_ssl.app.commands import export
from lightning_ssl.app.config.configuration import Configuration
from lightning_ssl.networks import build_backbone

SMALL_HEAD = ["--model.projector", '{"hidden": 16, "out": 8}']


def checkpoint(tmp_path, *flags, model="SimCLR", name="resnet18"):
    """A checkpoint in the layout of `fit`, after one batch, so that the running statistics have changed."""
    config = Configuration.parse(["--model", model, "--model.backbone", name, *SMALL_HEAD, *flags]).stored()
    torch.manual_seed(1)
    method = build_method(config)
    for net in [method, *([method.target["backbone"]] if model == "BYOL" else [])]:
        size = method.augment.size
        net.train()(torch.rand(4, 3, size, size))
    file = tmp_path / f"{name}.ckpt"
    extra = {"callbacks": {"OnlineProbe{'name': 'online'}": {"probe": {"weight": torch.zeros(2, 2)}}}}
    ours = {"config": config, "version": "0.1.0+gabc"}
    torch.save({"state_dict": method.state_dict(), "global_step": 12, "lightning_ssl": ours, **extra}, file)
    return file, method.eval()


def features(net, size=32):
    torch.manual_seed(2)
    with torch.no_grad():
        return net.eval()(torch.rand(3, 3, size, size))


def assert_same_features(net, method):
    expected = features(method)
    close(features(net), expected, terms=terms_of(method.backbone))
    assert expected.abs().max() > 0


@pytest.mark.parametrize(
    ("file_format", "name", "flags"),
    [
        ("torchvision", "resnet18", []),
        ("torchvision", "resnet50", ["--model.stem", "standard", "--model.channels_last", "true"]),  # 2048 features
        ("safetensors", "resnet_tiny", []),
    ],
)
def test_the_printed_lines_load_the_file(tmp_path, capsys, file_format, name, flags):
    file, method = checkpoint(tmp_path, *flags, name=name)
    assert export.main([str(file), "--format", file_format, "--out", str(tmp_path / "net")]) == 0
    lines = capsys.readouterr().out.partition("To load it:\n")[2].splitlines()
    names = {}
    imports = "import torch, torchvision, safetensors.torch, lightning_ssl.networks"
    exec("\n".join([imports, *(line.strip() for line in lines)]), names)
    assert_same_features(names["model"], method)
    if file_format == "torchvision":
        state = torch.load(tmp_path / "net", weights_only=True)
        assert not state["fc.weight"].any()
        assert isinstance(names["model"], torchvision.models.ResNet)
        assert any("CIFAR's stem" in line for line in lines) == (not flags)


def test_safetensors_holds_the_backbone_and_its_origin(tmp_path):
    file, method = checkpoint(tmp_path, "--model.augment", "paper_cifar", model="AlphaCL", name="resnet_tiny")
    export.main([str(file), "--format", "safetensors"])
    out = tmp_path / "resnet_tiny.safetensors"
    net = build_backbone("resnet_tiny", image_size=32)
    net.load_state_dict(load_file(out), strict=True)
    assert_same_features(net, method)
    with safe_open(out, "pt") as opened:
        about = opened.metadata()
    assert (about["method"], about["step"], about["version"]) == ("AlphaCL Direct", "12", "0.1.0+gabc")
    assert json.loads(about["mean"]) == list(method.augment.mean) == [0.5, 0.5, 0.5]
    assert json.loads(about["std"]) == list(method.augment.std)
    rebuilt = build_method(json.loads(about["config"]))
    rebuilt.backbone.load_state_dict(load_file(out))


def test_the_projector_is_exported_only_with_its_flag(tmp_path):
    file, method = checkpoint(tmp_path, model="SimSiam", name="resnet_tiny")
    out = tmp_path / "both.safetensors"
    export.main([str(file), "--format", "safetensors", "--with-projector", "--out", str(out)])
    state = load_file(out)
    projector = {name.removeprefix("projector."): x for name, x in state.items() if name.startswith("projector.")}
    assert state.keys() == method.backbone.state_dict().keys() | {f"projector.{name}" for name in projector}
    method.projector.load_state_dict(projector, strict=True)


def test_byol_exports_the_online_network(tmp_path, capsys):
    file, method = checkpoint(tmp_path, model="BYOL", name="resnet_tiny")
    with torch.no_grad():
        method.backbone.conv1.weight.add_(1.0)  # now different from the target
    saved = torch.load(file, weights_only=True)
    saved["state_dict"] = method.state_dict()
    torch.save(saved, file)
    export.main([str(file), "--format", "safetensors"])
    state = load_file(tmp_path / "resnet_tiny.safetensors")
    assert torch.equal(state["conv1.weight"], method.backbone.conv1.weight)
    assert not torch.equal(state["conv1.weight"], method.target["backbone"].conv1.weight)
    assert "the online network" in capsys.readouterr().out


def test_only_an_earlier_export_is_replaced(tmp_path):
    for backbone, file_format, name in (("resnet18", "torchvision", "net.pth"), ("resnet_tiny", "safetensors", "net")):
        file, _ = checkpoint(tmp_path, name=backbone)
        words = [str(file), "--format", file_format, "--out"]
        assert export.main([*words, str(tmp_path / name)]) == export.main([*words, str(tmp_path / name)]) == 0
    config = tmp_path / "config.yaml"
    config.write_text("model: mine")
    with pytest.raises(ValueError, match=r"out='.*config.yaml': there is a file that `lightning-ssl export` did not"):
        export.main([*words, str(config)])
    assert config.read_text() == "model: mine"
    (tmp_path / "loop").symlink_to("loop")
    for out in (config, tmp_path / "loop"):
        assert export.main([*words, str(out), "--force"]) == 0
        assert load_file(out)
