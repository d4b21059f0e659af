"""A method with a backbone of the user's own: a network, or the path of a class."""

import pytest
from helpers.training import data, fit, same
from torch import nn

from lightning_ssl import AlphaCL, Direct, OnlineProbe
from lightning_ssl.networks import build_backbone


class Small(nn.Module):
    """A network of one convolution, with `width` features."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.width = width
        self.conv = nn.Conv2d(3, width, 3, 2)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return self.norm(self.conv(x)).relu().mean((2, 3))


def test_the_number_of_features_is_found_by_a_forward_pass():
    net = Small(20)
    found = build_backbone(net, 32)
    assert found is net
    assert (found.num_features, found.stem_name) == (20, None)
    assert net.training
    assert net.norm.num_batches_tracked == 0


def test_a_method_trains_with_a_network_and_its_checkpoint_rebuilds_it_from_attributes(tmp_path):
    model = AlphaCL(Direct(), backbone=Small(20))
    runner = fit(model, [OnlineProbe(share=1)])
    assert "online/top1" in runner.callback_metrics
    runner.save_checkpoint(tmp_path / "a.ckpt")
    loaded = AlphaCL.load_from_checkpoint(tmp_path / "a.ckpt")
    assert isinstance(loaded.backbone, Small)
    assert same(loaded.state_dict(), model.state_dict())
    other = AlphaCL.load_from_checkpoint(tmp_path / "a.ckpt", backbone=Small(20))
    assert same(other.state_dict(), model.state_dict())


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        ("own_nets.Missing", r"backbone=own_nets.Missing: own_nets.py has no 'Missing'"),
        ("own_nets.Fails", r"backbone=own_nets.Fails: own_nets.py:8: ZeroDivisionError"),
        ("own_nets.maps", r"backbone='own_nets.maps': .* features of shape \(B, F\): two images gave \(2, 3, 32, 32\)"),
        ("own_nets.number", r"backbone='own_nets.number': .* a torch.nn.Module, not int"),
        ("own_nets.Wrong", r"backbone=own_nets.Wrong: it fails on images of shape \(2, 3, 32, 32\): own_nets.py:14:"),
        ("no_such_module.Net", r"backbone=no_such_module.Net: no module named 'no_such_module'"),
        ("timm:resnet18", r"pip install timm"),
    ],
)
def test_each_mistake_has_its_own_message(backbone, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_nets.py").write_text(
        "from torch import nn\n\n"
        "maps = nn.Identity\n"
        "number = lambda: 3\n\n"
        "class Fails(nn.Module):\n    def __init__(self):\n        1 / 0\n\n"
        "class Wrong(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "    def forward(self, x):\n        return x @ x.new_zeros(7)\n"
    )
    monkeypatch.delitem(__import__("sys").modules, "own_nets", raising=False)
    with pytest.raises(ValueError, match=message):
        build_backbone(backbone, 32)


# -- the data module ---------------------------------------------------------------------------------------------------


def test_a_method_takes_size_and_moments_from_the_data_module_where_they_are_not_given():
    model, module = AlphaCL(Direct(), backbone="resnet_tiny", augment="paper_cifar", mean=(0.1, 0.2, 0.3)), data()
    fit(model, [], module)
    assert (model.augment.mean, model.augment.std) == ((0.1, 0.2, 0.3), module.std)
    assert (model.hparams["std"], model.hparams["image_size"]) == (list(module.std), 32)


def test_images_of_another_size_are_refused_where_the_backbone_would_differ():
    module = data()
    module.image_size = 96
    with pytest.raises(ValueError, match=r"image_size=None: the images have 96 .* pass image_size=96 to AlphaCL"):
        fit(AlphaCL(Direct(), backbone="resnet_tiny"), [], module)
