"""A training that diverges stops with one line, and last_finite.ckpt has the state from before the bad step."""

import math

import pytest
import pytorch_lightning as pl
import torch
from helpers.training import METHODS, SMALL, data, same, seeded

from lightning_ssl import cli, runs
from lightning_ssl.callbacks import FeatureSpectrum, OnlineKNN, OnlineProbe, WeightNoise
from lightning_ssl.methods import BYOL, Head, Optimization, SimCLR
from lightning_ssl.runs import RunFolder
from lightning_ssl.runs.checkpointing import Checkpoints
from lightning_ssl.runs.guard import LossNotFinite
from lightning_ssl.runs.python import record_run

BAD_STEP = 3  # of 4 in an epoch
BATCH = 16


def bad_at(kind, step, change):
    """A method whose loss is changed at one step."""

    class Bad(kind):
        def compute_loss(self, views):
            loss = super().compute_loss(views)
            return change(loss) if self.global_step == step else loss

    return Bad


def train(folder, model, checkpoints=None, **trainer):
    callbacks = [OnlineProbe(), OnlineKNN(k=5), FeatureSpectrum(), *trainer.pop("callbacks", [])]
    runner = pl.Trainer(
        accelerator="cpu", max_steps=8, enable_progress_bar=False, enable_model_summary=False, logger=False,
        enable_checkpointing=False, num_sanity_val_steps=0, callbacks=callbacks,
        **{"log_every_n_steps": 100, "check_val_every_n_epoch": 2, **trainer},
    )  # fmt: skip
    run = record_run(runner, folder, checkpoints=checkpoints)
    runner.fit(model, data(BATCH, images=4 * BATCH))
    return run


def not_a_number(loss):
    return loss * math.nan


def bad_gradient(loss):
    """The value of the loss, with a gradient that is not finite."""
    return loss + 0 * (loss - loss.detach()).sqrt()


SETTINGS = {
    "adam": (SimCLR, {}, {}),
    "sgd": (SimCLR, {"optimization": Optimization("sgd", lr=0.1)}, {}),
    "lars": (SimCLR, {"optimization": Optimization("lars", lr=0.1, weight_decay=1e-4)}, {}),
    "noise": (SimCLR, {}, {"callbacks": [WeightNoise(0.1)]}),
    "target": (BYOL, {"projector": Head(64, 32, norm="bn")}, {}),
}


@pytest.mark.parametrize(
    ("name", "change"),
    [*((name, not_a_number) for name in SETTINGS), ("adam", bad_gradient)],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_the_state_before_the_bad_step_is_saved_though_it_is_noticed_later(name, change, tmp_path):
    kind, arguments, trainer = SETTINGS[name]
    bad = seeded(lambda: bad_at(kind, BAD_STEP, change)(**SMALL, **arguments))
    good = seeded(lambda: kind(**SMALL, **arguments))
    message = (
        f"(train/loss=nan|the gradient of train/loss=.* is not finite) at step {BAD_STEP}: the last finite loss was"
    )
    with pytest.raises(LossNotFinite, match=message) as error:
        train(tmp_path / "bad", bad, log_every_n_steps=6, check_val_every_n_epoch=100, **trainer)
    assert "lower learning rate" in str(error.value)
    checkpoint = runs.read_checkpoint(tmp_path / "bad" / "checkpoints" / "last_finite.ckpt")
    run = train(tmp_path / "good", good, Checkpoints(every_n_steps=BAD_STEP, keep=9), **trainer)
    undisturbed = runs.read_checkpoint(run.checkpoints / f"step-{BAD_STEP:08d}.ckpt")
    assert same(checkpoint["state_dict"], undisturbed["state_dict"])
    assert same(checkpoint["optimizer_states"], undisturbed["optimizer_states"])
    assert RunFolder(tmp_path / "bad").step_checkpoints() == []


def test_an_optimizer_that_cannot_skip_a_step_is_stopped_before_it(tmp_path):
    class Adagrad(bad_at(SimCLR, BAD_STEP, not_a_number)):
        def configure_optimizers(self):
            return torch.optim.Adagrad(self.parameters(), lr=0.01)

    with pytest.raises(LossNotFinite, match=f"train/loss=nan at step {BAD_STEP}: "):
        train(tmp_path / "run", Adagrad(**SMALL))
    checkpoint = runs.read_checkpoint(tmp_path / "run" / "checkpoints" / "last_finite.ckpt")
    assert checkpoint["global_step"] == BAD_STEP
    assert all(value.isfinite().all() for value in checkpoint["state_dict"].values())


@pytest.mark.parametrize("make", [METHODS[name] for name in ("AlphaCL", "SimSiam")], ids=["AlphaCL", "SimSiam"])
@pytest.mark.parametrize("batches", [1, 1.0], ids=["the last step of an epoch", "within an epoch"])
def test_weights_that_explode_stop_the_run_before_a_checkpoint(make, batches, tmp_path):
    model = seeded(lambda: make(optimization=Optimization(lr=1e30)))
    with pytest.raises(LossNotFinite, match=r"at step .*: the last finite loss was .* at step 0; try a lower"):
        train(tmp_path / "run", model, limit_train_batches=batches, check_val_every_n_epoch=1)
    run = RunFolder(tmp_path / "run")
    assert run.step_checkpoints() == []
    assert run.summary()["status"] == "failed"
    checkpoint = runs.read_checkpoint(run.checkpoints / "last_finite.ckpt")
    assert all(value.isfinite().all() for value in checkpoint["state_dict"].values())


def test_the_command_prints_one_line_with_the_step_and_what_to_try(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    argv = [
        "fit",
        "--model=SimCLR",
        "--model.backbone=resnet_tiny",
        "--model.optimization.lr=1e30",
        "--data.batch_size=16",
    ]
    argv += ['--data.options={"train_images": 96, "test_images": 32}', "--trainer.accelerator=cpu", "--name=run"]
    assert cli.main([*argv, "--trainer.max_epochs=1"]) == 2
    err = [line for line in capfd.readouterr().err.splitlines() if line]
    assert len(err) == 1
    assert "train/loss=nan at step 1: the last finite loss was" in err[0]
    assert "try a lower learning rate" in err[0]
    assert "last_finite.ckpt" in err[0]
