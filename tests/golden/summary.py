"""What a run, a checkpoint or a network holds, in few numbers."""

import hashlib
import math

import torch
from helpers.closeness import close

from lightning_ssl.app import runs
from lightning_ssl.app.runs.restore import restore_method

TIMES = ("images_per_second",)
COUNTS = ("top1", "top5", "zeros")  # shares of at least 16 images: rounding can change the answer for one of them
# The sums for one output of `golden.network.Tiny` and its head, forward and backward.
TERMS = 2 * (3 * 25 + 8 * 9 + 16 + 8)


def of_tensors(state):
    """Sum, norm and number of elements of each tensor, in float64."""
    return {name: [float(x.double().sum()), float(x.double().norm()), x.numel()] for name, x in state.items()}


def of_checkpoint(file):
    """The weights and the step of a checkpoint."""
    found = torch.load(file, map_location="cpu", weights_only=True)
    return {"step": found["global_step"], "weights": of_tensors(found["state_dict"])}


def contents(run):
    """The weights of the newest checkpoint, and every value of every metric but the times."""
    metrics = {name: run.history(name) for name in sorted(run.logged_metrics()) if name not in TIMES}
    return runs.read_checkpoint(run.newest_checkpoint())["state_dict"], metrics


def of_run(run):
    weights, metrics = contents(run)
    return {"weights": of_tensors(weights), "metrics": metrics}


def exact(run):
    """Hashes of the same, to compare on one machine."""
    weights, metrics = contents(run)
    bits = b"".join(f"{name} {x.dtype} {tuple(x.shape)}".encode() + x.numpy().tobytes() for name, x in weights.items())
    texts = {name: [value.hex() for value in values] for name, values in metrics.items()}
    return {"weights": hashlib.sha256(bits).hexdigest(), "metrics": hashlib.sha256(repr(texts).encode()).hexdigest()}


LATER_METRICS = {"noise/relative", "alpha/negative"}  # logged since the files were made
LATER_ARGUMENTS = {  # with the value of every earlier run
    "views_together": True, "beta_times": "row_sum", "distances": "clean", "mean": False, "power": 1.0,
    "normalize": False, "added_to": "update",
}  # fmt: skip


def close_runs(found, expected, steps):
    """Assert that two runs have the same weights and metrics but for rounding in float32, as the views have it."""
    rounding = {"terms": steps * TERMS, "gain": 2.0}  # 1 / τ
    assert found["weights"].keys() == expected["weights"].keys()
    for name, (*numbers, size) in expected["weights"].items():
        *mine, size_of_mine = found["weights"][name]
        assert size_of_mine == size, name
        close(single(mine), single(numbers), scale=numbers[1] * size**0.5, where=name, **rounding)
    assert found["metrics"].keys() - LATER_METRICS == expected["metrics"].keys()
    for name, values in expected["metrics"].items():
        mine = found["metrics"][name]
        if name.endswith(COUNTS):
            assert len(mine) == len(values), name
            assert all(abs(a - b) <= 1 / 16 for a, b in zip(mine, values, strict=True)), name
        else:
            close(single(mine), single(values), where=name, **rounding)


def single(numbers):
    return torch.tensor(numbers, dtype=torch.float32)


@torch.no_grad()
def of_features(path, trust=()):
    """The features of two fixed images."""
    method = restore_method(str(path), trust).method.eval()
    size = method.augment.size
    wave = torch.linspace(0, 3 * math.pi, 3 * size * size).sin().reshape(1, 3, size, size)
    return method(torch.cat([wave, -0.5 * wave])).double().tolist()
