"""Two gloo ranks under Lightning's DDP give the metrics, probe and weights of one process with the whole batch."""

import multiprocessing
import os

import torch
from helpers.closeness import close
from helpers.training import Relabelled, fit, free_port, same, terms_of
from torch import nn

from lightning_ssl.callbacks import FeatureSpectrum, ImportanceMonitor, OnlineKNN, OnlineProbe, WeightNoise
from lightning_ssl.methods import SimCLR

PREFIXES = ("online/", "knn/", "spectrum/", "alpha/")
BATCH, STEPS, TAU = 16, 6, 0.5


class Plain(SimCLR):
    """In float64 and without batch norm, whose statistics each rank would have on its own."""

    def __init__(self):
        super().__init__(TAU, backbone="resnet_tiny", image_size=32)
        self.backbone = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 12), nn.Tanh())
        self.backbone.num_features = 12
        self.projector = nn.Linear(12, 5)
        self.double()

    def forward(self, x):
        return super().forward(x.double())


def run(**trainer):
    """Metrics, probe and weights after two epochs of three steps."""
    torch.manual_seed(0)
    model, probe = Plain(), OnlineProbe(share=0.5, memory=24)
    monitors = [OnlineKNN(k=5, max_reference=40), FeatureSpectrum(), ImportanceMonitor(2, rows=10)]
    callbacks = [WeightNoise(std=1.0), probe, *monitors]
    # A quarter of the images has no label, and the ranks have different numbers of them; 53 references is odd.
    module = Relabelled("shapes", batch_size=BATCH, options={"train_images": 53, "test_images": 12})
    metrics = fit(model, callbacks, module, max_steps=STEPS, **trainer).callback_metrics
    found = {key: value for key, value in metrics.items() if key.startswith(PREFIXES)}
    return {"metrics": found, "probe": probe.state_dict(), "weights": model.state_dict()}


def one_rank(rank, folder, port):
    os.environ.update(LOCAL_RANK=str(rank), NODE_RANK="0", MASTER_ADDR="localhost", MASTER_PORT=str(port))
    torch.save(run(devices=2, strategy="ddp"), f"{folder}/{rank}.pt")


def agree(found, expected, terms, where=""):
    """Floating-point numbers up to rounding, everything else exactly."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key in expected:
            agree(found[key], expected[key], terms, f"{where} {key}")
    elif isinstance(expected, torch.Tensor) and expected.is_floating_point():
        close(found, expected, terms=terms, gain=1 / TAU, where=where)
    else:
        assert same(found, expected), where


def test_two_ranks_equal_one(tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    expected = run()
    names = {f"online/{name}" for name in ("loss", "top1", "top5", "train_loss", "train_top1")}
    assert names < expected["metrics"].keys()
    assert len(expected["metrics"]) == 5 + 1 + 6 + 4
    context, port = multiprocessing.get_context("fork"), free_port()
    ranks = [context.Process(target=one_rank, args=(rank, str(tmp_path), port)) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    torch.set_num_threads(threads)
    assert [process.exitcode for process in ranks] == [0, 0]
    terms = STEPS * 2 * (terms_of(Plain()) + BATCH)  # forward and backward; two views
    for rank in range(2):
        agree(torch.load(tmp_path / f"{rank}.pt", weights_only=True), expected, terms)
