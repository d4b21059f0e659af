"""`import-bolts` with files in the layout of lightning-bolts 0.7, which need not be installed.

`tests/bolts` compares this layout with that of bolts.
"""

import copy

import pytest
import torch
from helpers.bolts_layout import HPARAMS, network, save
from helpers.closeness import close
from helpers.training import build_data, build_method, terms_of

from lightning_ssl.app import runs
from lightning_ssl.app.commands import import_bolts as bolts


@pytest.fixture(scope="module", params=["SimCLR", "BYOL", "SimSiam"])
def imported(request, tmp_path_factory):
    """(method, network of bolts, converted checkpoint)."""
    folder, kind = tmp_path_factory.mktemp("bolts"), request.param
    theirs = network(kind)
    save(folder / "a.ckpt", theirs.state_dict(), HPARAMS[kind])
    assert bolts.main([str(folder / "a.ckpt")]) == 0
    return kind, theirs, runs.read_checkpoint(folder / "a.imported.ckpt")


@torch.no_grad()
def test_features_and_heads_are_those_of_bolts(imported):
    kind, theirs, checkpoint = imported
    ours = build_method(checkpoint["lightning_ssl"]["config"]).eval()
    ours.load_state_dict(checkpoint["state_dict"])
    x = torch.rand(4, 3, 32, 32)
    features, output = theirs(x)
    terms = terms_of(ours)
    close(ours(x), features, terms=terms)
    mine = ours.embed(x) if kind == "SimCLR" else ours.predictor(ours.projector(ours(x)))
    close(mine, output, terms=terms)
    if kind == "BYOL":
        target = theirs.target_network
        close(ours.target["backbone"](x), target.encoder(x), terms=terms)
        mine = ours.target["projector"](ours.target["backbone"](x))
        close(mine, target.projector(target.encoder(x)), terms=terms)


@torch.no_grad()
def test_the_head_in_training_mode_is_that_of_bolts(imported):
    """The bias before SimCLR's norm is converted to a change of the running mean; training mode must not change."""
    kind, theirs, checkpoint = imported
    ours = build_method(checkpoint["lightning_ssl"]["config"])
    ours.load_state_dict(checkpoint["state_dict"])
    features = torch.randn(8, 512)
    # A copy: a forward pass in training mode moves the running statistics, and other tests use this network too.
    head = copy.deepcopy(theirs.projection if kind == "SimCLR" else theirs.online_network.projector)
    mine, expected = ours.projector.train()(features), head.train()(features)
    close(mine, expected, terms=terms_of(ours.projector) + len(features))


def test_pixels_are_scaled_as_in_the_scripts_of_bolts(imported):
    kind, _, checkpoint = imported
    ours = build_method(checkpoint["lightning_ssl"]["config"])
    images = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)
    expected, gain = images / 255, 1.0
    if kind == "SimCLR":
        mean, std = (torch.tensor(x).view(3, 1, 1) / 255 for x in ([125.3, 123.0, 113.9], [63.0, 62.1, 66.7]))
        expected, gain = (expected - mean) / std, 1 / float(std.min())
    close(ours.augment.unaugmented(images), expected, terms=2, scale=1.0, gain=gain)  # a pixel and a mean


def test_the_settings_are_imported(imported):
    kind, _, checkpoint = imported
    model = checkpoint["lightning_ssl"]["config"]["model"]
    arguments = model["init_args"]
    assert model["class_path"] == f"lightning_ssl.methods.{kind}"
    assert (checkpoint["epoch"], checkpoint["global_step"]) == (3, 120)
    assert arguments["stem"] == ("cifar" if kind == "SimCLR" else "standard")
    settings = arguments["optimization"]
    assert settings["lr"] == HPARAMS[kind]["learning_rate"]
    assert settings["name"] == {"SimCLR": "lars", "BYOL": "adam", "SimSiam": "sgd"}[kind]
    own = {"SimCLR": ("tau", 0.2), "BYOL": ("momentum", 0.99), "SimSiam": ("predictor", {"hidden": 8})}
    key, value = own[kind]
    assert arguments[key] == value if kind != "SimSiam" else arguments[key].items() >= value.items()
    assert settings["momentum"] == (0.8 if kind == "SimSiam" else 0.9)
    assert build_data(checkpoint["lightning_ssl"]["config"]).data_set == "cifar10"


# ---------------------------------------------------------------------------------------------------------------------
# Errors


@pytest.fixture(scope="module")
def states():
    return {kind: network(kind).state_dict() for kind in HPARAMS}


def convert(state, hparams, *flags):
    return bolts.convert(bolts.Bolts(dict(state), hparams, 0, 0), *flags)


def test_assumptions_are_reported(states):
    remarks = " ".join(convert(states["BYOL"], HPARAMS["BYOL"]).remarks)
    assert "cifar10 is assumed" in remarks
    assert "not normalized" in remarks
    assert "a max-pool is assumed" in remarks
    remarks = " ".join(convert(states["BYOL"], HPARAMS["BYOL"], None, "stl10", False).remarks)
    assert "cifar10" not in remarks
    assert "normalized" not in remarks
    assert "never updates" in " ".join(convert(states["SimSiam"], {}).remarks)


def test_flags_override_the_data_set_and_normalization(states):
    config = convert(states["SimCLR"], HPARAMS["SimCLR"], None, "cifar100", False).checkpoint["lightning_ssl"]["config"]
    assert config["data"]["name"] == "cifar100"
    assert config["model"]["init_args"]["augment"] == "simclr_cifar"


WEIGHT, FIRST, CONVOLUTION = "encoder.conv1.weight", "projection.model.0", "encoder.layer1.0.conv1.weight"
GONE = object()  # every key with this start is removed


@pytest.mark.parametrize(
    ("part", "key", "value", "message"),
    [
        (None, "epoch", None, "epoch=None: epoch must be a whole number"),
        (None, "hyper_parameters", [1], r"hyper_parameters=\[1\]: "),
        ("hyper_parameters", "temperature", "hot", "^model.tau=hot: expected float"),
        ("hyper_parameters", "learning_rate", float("nan"), "^model.optimization.lr=nan: "),
        ("hyper_parameters", "batch_size", True, "^data.batch_size=true: "),
        ("hyper_parameters", "maxpool1", True, "^maxpool1=True: maxpool1 must be .*3×3"),
        ("hyper_parameters", "optimizer", "adagrad", "^model.optimization.name=adagrad: "),
        ("state_dict", WEIGHT, torch.zeros(()), f"state_dict='{WEIGHT}'"),
        ("state_dict", 7, torch.zeros(1), "state_dict=7: "),
        ("state_dict", f"{FIRST}.weight", torch.zeros(1, 1).expand(10**9, 512), f"state_dict='{FIRST}.weight': "),
        ("state_dict", f"{FIRST}.bias", torch.zeros(3), f"{FIRST}.bias=.* must be linear, batch norm"),
        ("state_dict", "encoder.layer4.1", GONE, r"^encoder='\[2, 2, 2, 1\] basic blocks': .*resnet18"),
        ("state_dict", CONVOLUTION, torch.zeros(128, 64, 3, 3), "do not fit .*: backbone.layer1"),
        ("state_dict", "encoder.layer1.0.gate", torch.zeros(1), r"layer1.0.gate is \(1,\) instead of absent"),
        ("state_dict", "encoder.bn1", GONE, "backbone.bn1.weight is absent instead of .*; "),
        ("state_dict", "projection.model.1", GONE, "^projection.model='.*': .*batch norm"),
        ("state_dict", "projection", GONE, "^state_dict='encoder': .*of bolts' SimCLR"),
        ("state_dict", "", GONE, "^state_dict='nothing': .*of bolts' SimCLR"),
    ],
)
def test_a_checkpoint_of_another_shape_is_refused_in_one_line(states, tmp_path, part, key, value, message):
    content = {"state_dict": dict(states["SimCLR"]), "hyper_parameters": {"dataset": "cifar10"}, "epoch": 1}
    changed = content if part is None else content[part]
    if value is GONE:
        content[part] = {name: each for name, each in changed.items() if not name.startswith(key)}
    else:
        changed[key] = value
    torch.save(content, tmp_path / "a.ckpt")
    with pytest.raises(ValueError, match=message) as refused:
        bolts.main([str(tmp_path / "a.ckpt")])
    assert "\n" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a.ckpt"]


def test_a_max_pool_after_the_wrong_stem_is_refused(states):
    with pytest.raises(ValueError, match=r"^maxpool1=False: maxpool1 must be .*7×7"):
        convert(states["BYOL"], {"maxpool1": False, "initial_tau": 1.0})


def test_byol_and_simsiam_are_told_apart_by_shape_and_another_method_is_rejected(states):
    assert convert(states["SimSiam"], {}).summary.startswith("SimSiam")
    assert convert(states["BYOL"], {}, "BYOL").summary.startswith("BYOL")
    for kind, method, message in (
        ("BYOL", None, "^method=None: --method BYOL or SimSiam"),
        ("SimCLR", "BYOL", "^method='BYOL': method must be SimCLR"),
        ("BYOL", "SimCLR", "^method='SimCLR': method must be BYOL or SimSiam"),
    ):
        with pytest.raises(ValueError, match=message):
            convert(states[kind], {}, method)


def test_only_an_earlier_import_is_replaced(states, tmp_path):
    path = save(tmp_path / "a.ckpt", states["SimCLR"], {})
    words = [str(path), "--out", str(tmp_path / "out.ckpt")]
    assert bolts.main(words) == bolts.main(words) == 0
    other = save(tmp_path / "b.ckpt", {}, {})
    before = other.read_bytes()
    with pytest.raises(ValueError, match=r"out='.*b.ckpt': there is a file that `lightning-ssl import-bolts` did not"):
        bolts.main([str(path), "--out", str(other)])
    assert other.read_bytes() == before
    assert bolts.main([str(path), "--out", str(other), "--force"]) == 0
