"""A training that diverges stops with one line, and last_finite.ckpt has the state from before the bad step."""

import math
import re

import pytest
import pytorch_lightning as pl
import torch
from helpers.precision import bf16, scaled
from helpers.training import METHODS, SMALL, data, same, seeded

from lightning_ssl.app import runs
from lightning_ssl.app.runs import RunFolder
from lightning_ssl.app.training.guard import LossNotFinite
from lightning_ssl.app.training.python_runs import record_run
from lightning_ssl.callbacks import FeatureSpectrum, OnlineKNN, OnlineProbe, WeightNoise
from lightning_ssl.callbacks.checkpoints import Checkpoints
from lightning_ssl.methods import BYOL, Head, Optimization, SimCLR

BAD_STEP = 3  # of 4 in an epoch
BATCH = 16


def bad_at(kind, step, change):
    """A method whose loss is changed at one step."""

    class Bad(kind):
        def compute_loss(self, views):
            loss = super().compute_loss(views)
            return change(loss) if self.global_step == step else loss

    return Bad


def train(folder, model, checkpoints=None, plugin=None, **trainer):
    callbacks = [OnlineProbe(), OnlineKNN(k=5), FeatureSpectrum(), *trainer.pop("callbacks", [])]
    runner = pl.Trainer(
        accelerator="cpu", max_steps=8, enable_progress_bar=False, enable_model_summary=False, logger=False,
        enable_checkpointing=False, num_sanity_val_steps=0, callbacks=callbacks, plugins=plugin and plugin(),
        **{"log_every_n_steps": 100, "check_val_every_n_epoch": 2, **trainer},
    )  # fmt: skip
    run = record_run(runner, folder, checkpoints=checkpoints)
    runner.fit(model, data(BATCH, images=4 * BATCH))
    return run


def last_finite(folder):
    return runs.read_checkpoint(folder / "checkpoints" / "last_finite.ckpt")


def assert_undisturbed(bad, model, folder, step, **trainer):
    """The checkpoint of a run that diverged is the one that an undisturbed run has after `step` steps."""
    run = train(folder, seeded(model), Checkpoints(every_n_steps=step, keep=9), **trainer)
    saved, expected = last_finite(bad), runs.read_checkpoint(run.checkpoints / f"step-{step:08d}.ckpt")
    assert same(saved["state_dict"], expected["state_dict"])
    assert same(saved["optimizer_states"], expected["optimizer_states"])


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
    "clipped bf16": (SimCLR, {}, {"plugin": bf16, "gradient_clip_val": 0.1}),
    "clipped scaled noise": (
        SimCLR, {}, {"plugin": scaled, "gradient_clip_val": 0.1, "callbacks": [WeightNoise(0.1)]}
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change"),
    [*((name, not_a_number) for name in SETTINGS), ("adam", bad_gradient)],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_the_state_before_the_bad_step_is_saved_though_it_is_noticed_later(name, change, tmp_path):
    kind, arguments, trainer = SETTINGS[name]
    bad = seeded(lambda: bad_at(kind, BAD_STEP, change)(**SMALL, **arguments))
    message = (
        f"(train/loss=nan|the gradient of train/loss=.* is not finite) at step {BAD_STEP}: the last finite loss was"
    )
    with pytest.raises(LossNotFinite, match=message) as error:
        train(tmp_path / "bad", bad, log_every_n_steps=6, check_val_every_n_epoch=100, **trainer)
    assert "lower learning rate" in str(error.value)
    assert_undisturbed(tmp_path / "bad", lambda: kind(**SMALL, **arguments), tmp_path / "good", BAD_STEP, **trainer)
    assert RunFolder(tmp_path / "bad").step_checkpoints() == []


def test_accumulated_batches_are_one_step(tmp_path):
    """Epochs of 4 batches in accumulated steps of 3 and 1: batches 8 to 10 are step 4. Batch 9 is bad."""
    losses = []

    class Bad(SimCLR):
        def compute_loss(self, views):
            losses.append(super().compute_loss(views))
            return losses[-1] * (math.nan if len(losses) == 10 else 1)

    with pytest.raises(LossNotFinite, match="train/loss=nan at step 4: ") as error:
        train(tmp_path / "bad", seeded(lambda: Bad(**SMALL)), log_every_n_steps=4, accumulate_grad_batches=3)
    last = float(re.search(r"the last finite loss was (\S+) at step 3", str(error.value)).group(1))
    assert last == pytest.approx(losses[7].item(), rel=1e-4)
    assert_undisturbed(tmp_path / "bad", lambda: SimCLR(**SMALL), tmp_path / "good", 4, accumulate_grad_batches=3)


def test_a_grad_scaler_changes_nothing_and_may_skip_a_step(tmp_path):
    """The scale is a power of two, so products with it are exact."""
    weights = []
    for plugin in (None, scaled):
        model = seeded(lambda: SimCLR(**SMALL))
        train(tmp_path / str(plugin), model, plugin=plugin)
        weights.append(model.state_dict())
    assert same(*weights)
    skipping = bad_at(SimCLR, BAD_STEP, bad_gradient)(**SMALL)
    run = train(tmp_path / "skipped", skipping, plugin=scaled, log_every_n_steps=1)
    assert run.summary()["status"] == "finished"
    saved = runs.read_checkpoint(run.path)
    assert saved["Mixed"]["scale"] == 2.0**9
    assert saved["optimizer_states"][0]["state"][0]["step"] == 8 - 1


def test_a_gradient_that_is_not_finite_at_any_scale_stops_the_run(tmp_path):
    class Bad(SimCLR):
        def compute_loss(self, views):
            return bad_gradient(super().compute_loss(views))

    model = seeded(lambda: Bad(**SMALL))
    before = {name: p.clone() for name, p in model.named_parameters()}
    message = "the gradient is not finite at any scale of the GradScaler down to 7.6.*e-06 at step 4: "
    with pytest.raises(LossNotFinite, match=message):
        train(tmp_path / "run", model, plugin=lambda: scaled(2.0**-13), log_every_n_steps=2)
    checkpoint = last_finite(tmp_path / "run")
    assert same(before, {name: checkpoint["state_dict"][name] for name in before})


def test_an_optimizer_that_cannot_skip_a_step_is_stopped_before_it(tmp_path):
    class Adagrad(bad_at(SimCLR, BAD_STEP, not_a_number)):
        def configure_optimizers(self):
            return torch.optim.Adagrad(self.parameters(), lr=0.01)

    with pytest.raises(LossNotFinite, match=f"train/loss=nan at step {BAD_STEP}: "):
        train(tmp_path / "run", Adagrad(**SMALL))
    checkpoint = last_finite(tmp_path / "run")
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
    checkpoint = last_finite(run.path)
    assert all(value.isfinite().all() for value in checkpoint["state_dict"].values())
