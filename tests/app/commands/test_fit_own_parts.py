"""`fit`, `sweep`, `evaluate` and the report with the user's own loss and data, from the working directory."""

import json
import signal
import textwrap

import pytest
from helpers import small_fit
from helpers.outcome import assert_same
from helpers.processes.killing import fit_until_killed, in_a_fork, one_thread  # noqa: F401

from lightning_ssl.app import cli, runs
from lightning_ssl.app.commands import fit
from lightning_ssl.app.runs import RunFolder

MODULE = """
    import torch

    def weights(d2_pos, d2_neg, valid):
        return (-2 * d2_neg).masked_fill(~valid, -torch.inf).softmax(1)

    class Scaled:
        def __init__(self, scale: float = 1.0):
            self.scale = scale

        def __call__(self, d2_pos, d2_neg, valid=None):
            return torch.exp(-self.scale * d2_neg)

    def of_wrong_shape(d2_pos, d2_neg, valid):
        return d2_pos

    def failing(d2_pos, d2_neg, valid):
        return {}["a key"]
"""
PHOTOS = """
    import torch
    from torch.utils.data import TensorDataset

    def make(split: str, count: int = 96):
        generator = torch.Generator().manual_seed(int(split == "test"))
        images = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
        return TensorDataset(images, torch.arange(count) % 3)
"""
SMALL = [*small_fit("AlphaCL"), "--trainer.max_epochs=2", "--knn.k=5", "--importance_monitor.every_n_steps=5"]


@pytest.fixture
def folder(working_directory):
    """The working directory, with the user's modules."""
    (working_directory / "mine.py").write_text(textwrap.dedent(MODULE))
    (working_directory / "photos.py").write_text(textwrap.dedent(PHOTOS))
    return working_directory


def words(*flags, name="run"):
    return [*SMALL, *flags, f"--name={name}"]


def weights_of(name):
    return runs.read_checkpoint(RunFolder(f"runs/{name}").newest_checkpoint())["state_dict"]


OWN_DATA = ["--model=SimCLR", "--data.name=photos.make", "--data.options={}", "--data.workers=1"]


@pytest.mark.parametrize(
    ("flags", "label", "module"),
    [
        (["--model.importance=mine.Scaled", "--model.importance.scale=2"], "AlphaCL Scaled scale=2", "mine"),
        (OWN_DATA, "SimCLR InfoNCE τ=0.5", "photos"),
    ],
    ids=["loss", "data"],
)
def test_a_run_with_own_parts_is_labelled_resumed_and_evaluated(folder, flags, label, module, capfd):
    assert fit.main(words(*flags)) == 0
    run = RunFolder("runs/run")
    assert (run.summary()["status"], run.summary()["label"]) == ("finished", label)
    model, data = run.config()["model"]["init_args"], run.config()["data"]
    chosen = data["name"] if module == "photos" else model["importance"]["class_path"]
    assert chosen in [flag.partition("=")[2] for flag in flags]
    assert model["image_size"] == 32
    assert "alpha/entropy" in run.summary()["last"]
    killed = words(*flags, "--checkpoint.every_n_steps=2", name="killed")
    assert in_a_fork(fit_until_killed, killed, 9) == -signal.SIGKILL
    assert cli.main(["fit", *killed]) == 0
    printed = capfd.readouterr().out
    assert "resumed from step-" in printed
    assert f"lightning-ssl evaluate runs/killed --trust {module} " in printed
    assert_same(weights_of("killed"), weights_of("run"))
    assert cli.main(["evaluate", "runs/run", "--protocol=lbfgs", f"--trust={module}"]) == 0
    data_words = ["--data=photos.make", '--options={"count": 64}', f"--trust={module}"]
    assert cli.main(["evaluate", "runs/run", "--protocol=lbfgs", *data_words]) == 0
    suffix = "" if module == "photos" else "@photos.make"  # of a data set that is not the one of training
    assert {"linear/lbfgs_top1", f"linear/lbfgs_top1{suffix}"} <= run.summary()["linear"].keys()
    assert cli.main(["fit", "--config=runs/run/config.yaml", "--name=again", "--trainer.max_epochs=1"]) == 0


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("mine.of_wrong_shape", "model.importance=of_wrong_shape: mine.py:14: it returned shape (32,); expected"),
        ("mine.failing", "model.importance=failing: mine.py:18: KeyError: 'a key'"),
    ],
)  # fmt: skip
def test_an_error_of_the_first_call_is_one_line(folder, path, line, capfd):
    assert cli.main(["fit", *words(f"--model.importance={path}")]) == 2
    printed = [each for each in capfd.readouterr().err.splitlines() if each]
    assert len(printed) == 1
    assert line in printed[0]
    assert RunFolder("runs/run").summary()["status"] == "failed"


def test_a_sweep_tries_own_losses_from_its_folder(folder, forked_trials):
    parameters = {key.lstrip("-"): {"value": value} for key, _, value in (flag.partition("=") for flag in SMALL)}
    parameters |= {
        "trainer.max_epochs": {"value": 1},
        "model.importance": {"values": ["mine.weights", "mine.Scaled", "mine.wights"]},
    }
    sweep = {
        "name": "own", "method": "grid", "metric": {"name": "online/top1", "goal": "maximize"},
        "command": ["${env}", "lightning-ssl", "fit", "${args}"], "parameters": parameters,
    }  # fmt: skip
    (folder / "own.json").write_text(json.dumps(sweep))  # JSON is YAML
    assert cli.main(["sweep", "own.json"]) == 1
    found = {run.summary().get("label"): run.summary()["status"] for run in runs.find(folder / "runs")}
    assert found == {"AlphaCL weights": "finished", "AlphaCL Scaled scale=1": "finished", None: "failed"}
    logs = "".join(log.read_text() for log in (folder / "runs").rglob("log.txt"))
    assert "model.importance=mine.wights: mine.py has no 'wights'; did you mean weights?" in logs
