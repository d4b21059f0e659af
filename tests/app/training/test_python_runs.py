"""Trainings from Python and from the command line leave the same run folders."""

import pytest
import pytorch_lightning as pl
import torch
from helpers.training import METHODS, data, same, seeded
from torch import nn

from lightning_ssl import AlphaCL, Direct, OnlineKNN, OnlineProbe, SimCLR
from lightning_ssl.app import cli, report
from lightning_ssl.app.runs import read_checkpoint
from lightning_ssl.app.training import record_run


def trainer(epochs=2, callbacks=(), **settings):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    return pl.Trainer(
        accelerator="cpu", max_epochs=epochs, callbacks=list(callbacks), logger=False, **{**quiet, **settings}
    )


@pytest.mark.parametrize("name", ["AlphaCL", "BYOL"])
def test_a_python_training_leaves_a_complete_run_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = trainer(callbacks=[OnlineProbe(), OnlineKNN(k=5)])
    run = record_run(runner, "runs/mine", tags=["a"])
    runner.fit(METHODS[name](), data())
    summary = run.summary()
    assert (summary["status"], summary["step"], summary["tags"]) == ("finished", 8, ["a"])
    assert {"online/top1", "knn/top1", "train/loss_epoch", "images_per_second"} <= summary["last"].keys()
    assert [path.name for path in run.step_checkpoints()] == ["step-00000008.ckpt", "step-00000004.ckpt"]
    assert run.config()["data"]["name"] == "shapes"
    assert cli.main(["evaluate", "runs/mine", "--protocol", "lbfgs", "--device", "cpu"]) == 0
    assert cli.main(["export", "runs/mine", "--format", "safetensors"]) == 0
    built = report.build(["runs"], "page.html", figures=False)
    assert built.rows[0].group.results


def test_a_checkpoint_of_the_command_line_loads_in_python(tmp_path):
    options = '{"train_images": 64, "test_images": 16}'
    argv = ["fit", "--model=AlphaCL", "--model.importance=Direct", "--model.importance.p=6", f"--runs={tmp_path}"]
    argv += ["--model.backbone=resnet_tiny", f"--data.options={options}", "--data.batch_size=16", "--name=a"]
    assert cli.main([*argv, "--trainer.max_epochs=1", "--trainer.accelerator=cpu", "--knn.k=5"]) == 0
    saved = read_checkpoint(tmp_path / "a")
    (file,) = (tmp_path / "a/checkpoints").glob("step-*.ckpt")
    loaded = AlphaCL.load_from_checkpoint(file)
    assert loaded.loss.importance == Direct(p=6)
    assert same(dict(loaded.state_dict()), saved["state_dict"])


def test_a_recorded_run_resumes_to_the_same_result(tmp_path):
    def training(folder, epochs, resume=False):
        runner = trainer(epochs, [OnlineProbe()])
        run = record_run(runner, tmp_path / folder, resume=resume)
        checkpoint = run.newest_checkpoint() if resume else None
        runner.fit(seeded(METHODS["SimCLR"]), data(), ckpt_path=checkpoint, weights_only=True)
        return run

    whole = training("whole", 3)
    training("parts", 2).update_summary(started="2026-01-01T00:00:00Z")
    parts = training("parts", 3, resume=True)
    assert parts.summary()["started"] == "2026-01-01T00:00:00Z"
    assert same(*(read_checkpoint(run.path)["state_dict"] for run in (whole, parts)))
    assert parts.history("train/loss_epoch") == whole.history("train/loss_epoch")


def test_the_recorded_loss_is_that_of_the_batch_when_gradients_are_accumulated(tmp_path):
    losses = []

    class Watched(SimCLR):
        def compute_loss(self, views):
            losses.append(super().compute_loss(views))
            return losses[-1]

    runner = trainer(epochs=1, accumulate_grad_batches=2, log_every_n_steps=2)
    run = record_run(runner, tmp_path / "mine")
    runner.fit(Watched(backbone="resnet_tiny"), data())
    values = [loss.item() for loss in losses]
    assert run.history("train/loss") == pytest.approx(values[1::2])
    assert run.history("train/loss_epoch") == pytest.approx([sum(values) / 4])


def test_a_recorded_run_has_the_label_of_the_command_line_and_is_not_overwritten(tmp_path):
    runner = trainer(epochs=1, log_every_n_steps=0)
    run = record_run(runner, tmp_path / "mine")
    runner.fit(AlphaCL(Direct(p=6), backbone="resnet_tiny"), data())
    assert run.summary()["label"] == "AlphaCL Direct p=6 τ=0.5"
    assert "train/loss" not in run.summary()["last"]  # no step is logged
    assert "train/loss_epoch" in run.summary()["last"]
    with pytest.raises(ValueError, match="there is a run already; choose another folder, or resume=True"):
        record_run(trainer(), tmp_path / "mine")


class Own(pl.LightningModule):
    """A module of the user's."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Conv2d(3, width, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def features(self, images):
        return self.net(images / 255)

    def training_step(self, batch, batch_idx):
        return self.features(batch[0]).square().mean()

    def validation_step(self, batch, batch_idx):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_a_module_of_the_user_is_recorded_and_reported(tmp_path):
    runner = trainer(epochs=1, callbacks=[OnlineProbe()])
    run = record_run(runner, tmp_path / "runs/own")
    runner.fit(Own(width=6), data())
    assert run.summary()["label"] == "Own width=6"
    built = report.build([tmp_path / "runs"], tmp_path / "page.html", figures=False)
    assert built.rows[0].group.label == "Own width=6"
