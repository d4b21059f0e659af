"""Two gloo ranks under Lightning's own DDP measure and learn what one process with the whole batch does."""

import lightning_ssl  # noqa: F401  isort: skip  (a spawned process has no conftest)
import os

import torch
import torch.multiprocessing as mp
from helpers.training import Relabelled, fit, free_port
from torch import nn

from lightning_ssl.callbacks import ImportanceMonitor, OnlineKNN, OnlineProbe, RankMonitor, WeightNoise
from lightning_ssl.methods import SimCLR

PREFIXES = ("online/", "knn/", "rank/", "alpha/")


class Plain(SimCLR):
    """In float64 and without a batch norm, whose statistics would be each rank's own."""

    def __init__(self):
        super().__init__(backbone="resnet_tiny", image_size=32)
        self.backbone = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 12), nn.Tanh())
        self.backbone.num_features = 12
        self.projector = nn.Linear(12, 5)
        self.double()

    def forward(self, x):
        return super().forward(x.double())


def run(**trainer):
    """What is left of six steps, three an epoch: the probe, the metrics and the weights."""
    torch.manual_seed(0)
    model, probe = Plain(), OnlineProbe(share=0.5, memory=24)
    monitors = [OnlineKNN(k=5, max_reference=40), RankMonitor(), ImportanceMonitor(2, rows=10)]
    callbacks = [WeightNoise(std=1.0), probe, *monitors]
    # A quarter of all images has no label, unequally many on the two ranks; of 53 references one has 27.
    module = Relabelled("shapes", batch_size=16, options={"train_images": 53, "test_images": 12})
    metrics = fit(model, callbacks, module, max_steps=6, **trainer).callback_metrics
    found = {key: value.double() for key, value in metrics.items() if key.startswith(PREFIXES)}
    return {"metrics": found, "probe": probe.state_dict(), "weights": model.state_dict()}


def work(rank, folder, port):
    torch.set_num_threads(1)
    os.environ.update(LOCAL_RANK=str(rank), NODE_RANK="0", MASTER_ADDR="localhost", MASTER_PORT=str(port))
    torch.save(run(devices=2, strategy="ddp"), f"{folder}/{rank}.pt")


def close(found, expected, where=""):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key in expected:
            close(found[key], expected[key], f"{where} {key}")
    elif isinstance(expected, torch.Tensor):
        # what Lightning logs is float32
        tolerance = 1e-6 if where.startswith(" metrics") else 1e-9
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, msg=lambda m: f"{where}: {m}")
    else:
        assert found == expected, where


def test_two_ranks_equal_one(tmp_path):
    expected = run()
    names = {f"online/{name}" for name in ("loss", "top1", "top5", "train_loss", "train_top1")}
    assert names < expected["metrics"].keys()
    assert len(expected["metrics"]) == 5 + 1 + 5 + 4
    mp.spawn(work, (str(tmp_path), free_port()), nprocs=2)
    for rank in range(2):
        close(torch.load(tmp_path / f"{rank}.pt", weights_only=True), expected)
