"""Small methods, small data and short trainings."""

import logging
import socket
import warnings

import pytest
import pytorch_lightning as pl
import torch

from lightning_ssl.base.tree import Group, build
from lightning_ssl.data import DataModule
from lightning_ssl.data.split import Images
from lightning_ssl.losses.importance import Direct, Exact
from lightning_ssl.methods import BYOL, AlphaCL, Head, Method, SimCLR, SimSiam

SMALL = {"backbone": "resnet_tiny", "image_size": 32}
METHODS = {
    "SimCLR": lambda **k: SimCLR(tau=0.2, **SMALL, **k),
    "AlphaCL": lambda **k: AlphaCL(Direct(), **SMALL, **k),
    "AlphaCL exact": lambda **k: AlphaCL(Exact(), **SMALL, **k),
    "SimSiam": lambda **k: SimSiam(projector=Head(64, 32, norm="bn"), **SMALL, **k),
    "BYOL": lambda **k: BYOL(projector=Head(64, 32, norm="bn"), **SMALL, **k),
}
every_method = pytest.mark.parametrize("make", METHODS.values(), ids=METHODS.keys())


@pytest.fixture(autouse=True)
def quiet():
    """Silence Lightning's messages about hardware, workers and short epochs."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="pytorch_lightning")
        yield


def data(batch_size=16, images=64):
    return DataModule("shapes", batch_size=batch_size, options={"train_images": images, "test_images": 16})


class Relabelled(DataModule):
    """Shapes with three classes; every `step`-th image has no label."""

    step = 4

    def __init__(self, *words, **arguments):
        super().__init__(*words, **arguments)
        self.num_classes = 3

    def open_split(self, split):
        images = super().open_split(split)
        labels = images.labels % 3
        labels[:: self.step] = -1
        return Images(images.images, labels, images.classes)


def relabelled(step=4):
    module = Relabelled("shapes", batch_size=16, options={"train_images": 64, "test_images": 16})
    module.step = step
    return module


def fit(model, callbacks, module=None, ckpt_path=None, **trainer):
    settings = {"max_steps": 4, "max_epochs": -1, "logger": False, "enable_checkpointing": False, **trainer}
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 1}
    runner = pl.Trainer(accelerator="cpu", callbacks=callbacks, **quiet, **settings)
    runner.fit(model, module or data(), ckpt_path=ckpt_path)
    return runner


def seeded(make):
    torch.manual_seed(0)
    return make()


def terms_of(net):
    """`terms` of a forward pass: the numbers added up for one entry of each convolution and linear map, summed."""
    return sum(p[0].numel() for p in net.parameters() if p.ndim > 1)


def same(a, b):
    """Whether tensors, numbers, or dicts and lists of them are equal bit for bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def build_method(config):
    """The method of a configuration, with new weights."""
    return build(config["model"], Method, "model", allow=())


def build_data(config):
    return build(config["data"], Group(DataModule), "data", allow=())
