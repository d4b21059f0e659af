"""`import-bolts` with networks that bolts created, trained and saved."""

import pytest
import pytorch_lightning as pl
import torch
from helpers import bolts_layout as layout
from helpers.closeness import close
from helpers.training import terms_of
from pl_bolts.models.self_supervised import BYOL, SimCLR, SimSiam
from pl_bolts.models.self_supervised.resnets import resnet18
from pl_bolts.transforms import dataset_normalizations as normalizations
from torch.utils.data import DataLoader, Dataset

from lightning_ssl.app.commands import import_bolts as bolts

SIAMESE = {"encoder_out_dim": 512, "projector_hidden_dim": 32, "projector_out_dim": 16}
CIFAR = {"first_conv": False, "maxpool1": False}


def simclr(arch="resnet18", width=512, **stem):
    settings = {"gpus": 0, "num_samples": 12, "batch_size": 4, "dataset": "cifar10", "optimizer": "lars"}
    return SimCLR(arch=arch, hidden_mlp=width, warmup_epochs=0, learning_rate=0.5, **settings, **stem)


MODELS = {
    "SimCLR": lambda: simclr(**CIFAR),
    "SimCLR standard stem": lambda: simclr(first_conv=True, maxpool1=True),
    "SimCLR resnet50": lambda: simclr("resnet50", 2048, **CIFAR),
    "BYOL": lambda: BYOL(base_encoder="resnet18", warmup_epochs=1, **SIAMESE),
    "BYOL resnet34": lambda: BYOL(base_encoder="resnet34", warmup_epochs=1, **SIAMESE),
    "SimSiam": lambda: SimSiam(base_encoder="resnet18", predictor_hidden_dim=8, warmup_epochs=1, **SIAMESE),
    "SimSiam own encoder": lambda: SimSiam(
        base_encoder=resnet18(**CIFAR), predictor_hidden_dim=8, warmup_epochs=1, **SIAMESE
    ),
}


class Triples(Dataset):
    """The items of bolts' transforms: two views, a third one for its evaluator, and a label."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return tuple(torch.rand(3, 3, 32, 32, generator=generator)), index % 10


@pytest.fixture(scope="module", params=MODELS)
def trained(request, tmp_path_factory):
    """(name, model of bolts after two epochs, file that its trainer saved)."""
    torch.manual_seed(0)
    model = MODELS[request.param]()
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(accelerator="cpu", max_epochs=2, enable_checkpointing=False, **quiet)
    trainer.fit(model, DataLoader(Triples(), batch_size=4))
    path = tmp_path_factory.mktemp("bolts") / "model.ckpt"
    trainer.save_checkpoint(path)
    yield request.param, model.eval(), path
    for file in path.parent.iterdir():  # they are hundreds of megabytes
        file.unlink()


@torch.no_grad()
def test_features_of_the_converted_network_are_those_of_bolts(trained, capsys):
    name, theirs, path = trained
    assert bolts.main([str(path)]) == 0
    assert name.split()[0] in capsys.readouterr().out
    ours = bolts.convert(bolts.read(path)).method.eval()
    written = torch.load(path.with_suffix(".imported.ckpt"), weights_only=True)
    for p in ours.parameters():
        p.zero_()
    ours.load_state_dict(written["state_dict"])
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(99))
    features = theirs(x)
    assert features.std() > 1e-3
    terms = terms_of(ours)
    close(ours(x), features, terms=terms)
    if name.startswith("SimCLR"):
        close(ours.embed(x), theirs.projection(features), terms=terms)
    else:
        online = theirs.online_network
        prediction = theirs.predictor(online.projector(online.encoder(x)[0]))
        close(ours.predictor(ours.projector(ours(x))), prediction, terms=terms)
    if name.startswith("BYOL"):
        close(ours.target["backbone"](x), theirs.target_network.encode(x), terms=terms)


@pytest.mark.parametrize("stem", [{"first_conv": True, "maxpool1": False}, {"first_conv": False, "maxpool1": True}])
def test_stems_that_are_only_in_bolts_are_rejected(stem):
    model = simclr(**stem)
    with pytest.raises(ValueError, match=r"^maxpool1=.* there is no other stem here"):
        bolts.convert(bolts.Bolts(model.state_dict(), dict(model.hparams), 0, 0))


@pytest.mark.parametrize("kind", ["SimCLR", "BYOL", "SimSiam"])
def test_the_layout_of_the_fast_tests_is_that_of_bolts(kind):
    theirs = MODELS[kind]()
    shapes = {key: value.shape for key, value in theirs.state_dict().items()}
    assert shapes == {key: value.shape for key, value in layout.network(kind).state_dict().items()}
    assert layout.HPARAMS[kind].keys() <= theirs.hparams.keys()


def test_the_channel_statistics_are_those_of_bolts():
    names = {"cifar10": "cifar10", "stl10": "stl10", "folder": "imagenet"}
    for ours, theirs in names.items():
        normalize = getattr(normalizations, f"{theirs}_normalization")()
        assert bolts.MOMENTS[ours] == (tuple(normalize.mean), tuple(normalize.std))
