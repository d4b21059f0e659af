"""What a run ends with, compared bit for bit."""

import torch

from lightning_ssl.app import runs
from lightning_ssl.app.runs.metrics import TIMING_METRICS


def outcome(run):
    """Weights, optimizer, probe and metrics, without times."""
    checkpoint = runs.read_checkpoint(run.newest_checkpoint())
    events = [{k: v for k, v in event.items() if k not in TIMING_METRICS} for event in run.events()]
    states = {key: state for key, state in checkpoint["callbacks"].items() if "Recorder" not in key}
    return checkpoint["state_dict"], checkpoint["optimizer_states"], states, events


def assert_same(a, b, where=""):
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b), where
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            assert_same(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for k, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{where}[{k}]")
    else:
        assert a == b, where
