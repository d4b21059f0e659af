"""The vote of nearest neighbours against a slow loop, and the images that the callback compares."""

import math

import pytest
import pytorch_lightning as pl
import torch
import yaml
from helpers.closeness import close
from helpers.training import METHODS, data, fit, relabelled, seeded
from helpers.watching import peak_memory, watch
from pytorch_lightning.loggers import CSVLogger

from lightning_ssl.callbacks import OnlineKNN
from lightning_ssl.evaluation import knn
from lightning_ssl.evaluation.knn import vote
from lightning_ssl.networks import eval_mode


def slow_vote(queries, references, labels, classes, k, tau, distance):
    """One pair at a time."""
    shares = torch.zeros(len(queries), classes, dtype=torch.float64)
    for i, x in enumerate(queries.tolist()):
        found = []
        for y, label in zip(references.tolist(), labels.tolist(), strict=True):
            if distance == "cosine":
                s = sum(a * b for a, b in zip(x, y, strict=True)) / (math.hypot(*x) * math.hypot(*y))
            else:
                s = -0.5 * sum((a - b) ** 2 for a, b in zip(x, y, strict=True))
            found.append((s, label))
        found = sorted(found, reverse=True)[:k]
        total = sum(math.exp(s / tau) for s, _ in found)
        for s, label in found:
            shares[i, label] += math.exp(s / tau) / total
    return shares


def make_points(count, seed, width=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("k", [1, 7, 30, 200])
@pytest.mark.parametrize("held", [1, 64, 2**22])
def test_the_vote_equals_a_slow_loop_in_blocks_of_any_size(distance, k, held, monkeypatch):
    monkeypatch.setattr(knn, "PAIRS", held)
    queries, references = make_points(9, 0), make_points(30, 1)
    labels, tau = torch.arange(30) % 4, 0.3
    expected = slow_vote(queries, references, labels, 4, k, tau, distance)
    # exp(s/τ) has the relative error of s/τ
    s = 1 if distance == "cosine" else float(torch.cdist(queries, references).square().max()) / 2
    close(vote(queries, references, labels, 4, k, tau, distance), expected, terms=5 + 30, gain=s / tau)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_a_reference_without_a_label_has_no_vote(distance):
    queries, references, labels = make_points(9, 0), make_points(30, 1), torch.arange(30) % 4
    silent = torch.arange(30) % 3 == 0
    found = vote(queries, references, labels.masked_fill(silent, -1), 4, 25, 0.3, distance)
    close(found, vote(queries, references[~silent], labels[~silent], 4, 25, 0.3, distance), terms=5 + 30, gain=9)


def test_a_small_temperature_gives_the_nearest_neighbour():
    queries, references = make_points(9, 0), make_points(30, 1)
    labels = torch.arange(30) % 4
    one, cold = vote(queries, references, labels, 4, 1, 1.0), vote(queries, references, labels, 4, 30, 1e-5)
    close(one, cold)


@pytest.mark.parametrize("max_reference", [50_000, 20])
def test_validation_images_are_compared_with_the_labelled_training_images(max_reference):
    model, module = seeded(METHODS["SimCLR"]), relabelled()
    callback = OnlineKNN(k=5, max_reference=max_reference)
    runner = fit(model, [callback], module)
    with eval_mode(model), torch.no_grad():
        features = {
            name: model(model.augment.unaugmented(module.open_split(name).images)) for name in ("train", "test")
        }
    train, test = module.open_split("train").labels, module.open_split("test").labels
    known = train >= 0
    if max_reference == 20:
        references, labels = callback.references(runner, model, features["train"].shape[1])
        assert len(labels) == 20
        assert set(labels.tolist()) == {-1, 0, 1, 2}  # some of them have no label
    else:
        references, labels = features["train"][known], train[known]
    shares = vote(features["test"][test >= 0], references, labels, 3, 5, 0.1)
    expected = (shares.argmax(1) == test[test >= 0]).float().mean()
    close(runner.callback_metrics["knn/top1"], expected)


def test_it_measures_every_n_epochs_and_at_the_end():
    for trainer in ({"max_epochs": 5, "max_steps": -1}, {"max_steps": 5}):
        callback = OnlineKNN(k=5, every_n_epochs=2)
        epochs = watch(callback, "references", lambda trainer, *_: trainer.current_epoch)
        fit(METHODS["SimCLR"](), [callback], data(images=16), **trainer)
        assert epochs == [1, 3, 4]


def test_its_settings_are_logged_as_hyperparameters(tmp_path):
    fit(METHODS["SimCLR"](), [OnlineKNN(k=7, tau=0.2, distance="euclidean")], logger=CSVLogger(tmp_path, "", ""))
    logged = yaml.safe_load((tmp_path / "hparams.yaml").read_text())
    assert [logged[f"knn/{key}"] for key in ("k", "tau", "distance")] == [7, 0.2, "euclidean"]


def test_without_labels_nothing_is_logged():
    module = relabelled(step=1)
    assert "knn/top1" not in fit(METHODS["SimCLR"](), [OnlineKNN()], module).callback_metrics


class Still(pl.LightningModule):
    """A module whose features have a given width, and cost nothing."""

    def __init__(self, width):
        super().__init__()
        self.backbone, self.width = torch.nn.Linear(1, 1), width

    def features(self, images):
        return torch.rand(len(images), self.width)


def test_the_references_need_less_than_twice_the_memory_of_their_features():
    width, trainer = 2048, pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.datamodule = data(images=2000)
    trainer.datamodule.open_split("train")
    with torch.profiler.profile(profile_memory=True) as profile:
        references, labels = OnlineKNN().references(trainer, Still(width), width)
        vote(torch.rand(9, width), references, labels, 10, 200, 0.1)
    assert peak_memory(profile) < 2 * references.nbytes
