"""The progress bar: one bar for all epochs, its values, 80 columns."""

import re

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from lightning_ssl.app.training.progress import WIDTH, TrainingBar, total_batches


class Line(pl.LightningModule):
    """A linear model that logs what `lightning-ssl fit` logs."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        self.log("images_per_second", 12345.6, prog_bar=True)
        return self.layer(batch).mean()

    def validation_step(self, batch, batch_idx):
        self.log("online/top1", 0.7134)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def train(tmp_path, bar, **arguments):
    loader = DataLoader(torch.ones(8, 2), batch_size=2)  # 4 batches
    trainer = pl.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_model_summary=False,
        callbacks=[bar], default_root_dir=tmp_path, num_sanity_val_steps=0, **arguments,
    )  # fmt: skip
    trainer.fit(Line(), loader, loader)
    return trainer


pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")


def test_the_bar_counts_all_epochs_and_fits_80_columns(tmp_path, capsys):
    train(tmp_path, TrainingBar(), max_epochs=3)
    drawn = [line for line in re.split(r"[\r\n]+", capsys.readouterr().out) if line.strip()]
    assert max(map(len, drawn)) <= WIDTH
    assert drawn[0].startswith("epoch 1/3   0%|")
    assert drawn[-1].startswith("epoch 3/3 100%|")
    assert drawn[-1].rstrip().endswith("00:00 left, 12346 images/s, online/top1 0.713")


def test_the_longest_line_fits_too(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("lightning_ssl.app.training.progress.total_batches", lambda trainer: 10**7)
    train(tmp_path, TrainingBar(), max_epochs=1)
    drawn = [line for line in re.split(r"[\r\n]+", capsys.readouterr().out) if line.strip()]
    assert max(map(len, drawn)) <= WIDTH
    assert drawn[-1].rstrip().endswith("online/top1 0.713")


@pytest.mark.parametrize(
    ("arguments", "total"),
    [
        ({"max_epochs": 3}, 12),
        ({"max_epochs": 3, "max_steps": 5}, 5),
        ({"max_epochs": -1, "max_steps": 3, "accumulate_grad_batches": 2}, 6),
    ],
)
def test_the_total_is_that_of_the_whole_training(arguments, total, tmp_path):
    assert total_batches(train(tmp_path, TrainingBar(), **arguments)) == total


def test_a_training_without_an_end_shows_the_step(tmp_path, capsys):
    train(tmp_path, TrainingBar(), max_epochs=-1, max_time={"seconds": 1})
    assert re.search(r"epoch \d+ step \d+, \d\d:\d\d, 12346 images/s", capsys.readouterr().out)


def test_the_batches_before_a_resumed_epoch_are_done(tmp_path, capsys):
    bar = TrainingBar()
    trainer = pl.Trainer(max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[bar])
    trainer.fit_loop.epoch_progress.current.processed = trainer.fit_loop.epoch_progress.current.completed = 2
    trainer.fit_loop.max_batches = 10
    bar.on_train_batch_start(trainer, None, None, 5)
    assert (bar.bar.initial, bar.bar.total) == (25, 40)
    bar.close()
    assert "epoch 3/4  62%|" in capsys.readouterr().out


def test_a_disabled_bar_prints_nothing(tmp_path, capsys):
    bar = TrainingBar()
    bar.disable()
    train(tmp_path, bar, max_epochs=1)
    assert "epoch" not in capsys.readouterr().out
