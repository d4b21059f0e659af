"""The probe: its steps, schedule, metrics and checkpoints; it never changes the encoder."""

import pytest
import pytorch_lightning as pl
import torch
from helpers.closeness import close
from helpers.training import METHODS, every_method, fit, relabelled, same, seeded, terms_of
from pytorch_lightning.callbacks import ModelCheckpoint
from torch.nn import functional as F
from torchmetrics.functional.classification import multiclass_accuracy

from lightning_ssl import DataModule
from lightning_ssl.callbacks import FeatureSpectrum, ImportanceMonitor, OnlineKNN, OnlineProbe
from lightning_ssl.callbacks.encoder import features_of
from lightning_ssl.callbacks.probe import EPS, STEPS, LinearProbe, labelled_features, rows_for
from lightning_ssl.networks import eval_mode


def make_probe(features=6, classes=3, lr=0.01, memory=64, **like):
    like = {"device": torch.device("cpu"), "dtype": torch.float64, **like}
    return LinearProbe(features, classes, lr, 0.0, memory, **like)


def clusters(count, seed, spread=0.5):
    """Three linearly separable classes; one coordinate is a thousand times larger than the others."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=generator)
    x = 3 * torch.eye(3, 6, dtype=torch.float64)[labels]
    x += spread * torch.randn(count, 6, dtype=torch.float64, generator=generator)
    return x * torch.tensor([1.0, 1.0, 1.0, 1000.0, 1.0, 1.0]) + 5, labels


# -- the encoder ------------------------------------------------------------------------------------------------------


@every_method
def test_callbacks_change_no_weight_no_buffer_and_no_random_number(make):
    states, generators = [], []
    for callbacks in ([], [OnlineProbe(share=1), OnlineKNN(k=5), FeatureSpectrum(), ImportanceMonitor(1)]):
        model = seeded(make)
        fit(model, callbacks)
        states.append(model.state_dict())
        generators.append(torch.get_rng_state())
    assert same(*states)
    assert same(*generators)


def test_probes_are_independent_and_share_one_forward():
    settings = {"a": {"lr": 0.01, "every_n_steps": 2, "share": 1.0}, "b": {"lr": 0.1, "share": 1.0}, "c": {"lr": 0.01}}
    alone = {}
    for name, values in settings.items():
        alone[name] = OnlineProbe(name, **values)
        fit(seeded(METHODS["SimCLR"]), [alone[name]])
    together = [OnlineProbe(name, **values) for name, values in settings.items()]
    model = seeded(METHODS["SimCLR"])
    forwards = []
    model.backbone.register_forward_hook(lambda *_: forwards.append(model.backbone.training))
    runner = fit(model, together, limit_val_batches=0)
    assert forwards == [True, False] * 4
    for probe in together:
        assert same(probe.probe.state_dict(), alone[probe.name].probe.state_dict())
    assert not same(together[0].probe.state_dict(), together[1].probe.state_dict())
    assert {"a/train_top1", "b/train_top1", "c/train_top1"} <= runner.callback_metrics.keys()


# -- the classifier ---------------------------------------------------------------------------------------------------


def test_its_steps_are_those_of_adam_on_the_cross_entropy_of_its_memory():
    probe = make_probe(memory=48)
    oracle = torch.nn.Linear(6, 3).double()
    for p in oracle.parameters():
        torch.nn.init.zeros_(p)
    optimizer = torch.optim.AdamW(oracle.parameters(), lr=0.01, weight_decay=0.0)
    for seed in range(3):
        probe.learn(*clusters(32, seed))
        seen = [clusters(32, s) for s in range(seed + 1)]
        x, labels = (torch.cat(parts)[-48:] for parts in zip(*seen, strict=True))
        offset = float((x.mean(0) / x.std(0)).abs().max())
        x = (x - x.mean(0)) / (x.var(0, unbiased=False) + EPS).sqrt()
        for _ in range(STEPS):
            optimizer.zero_grad()
            F.cross_entropy(oracle(x), labels).backward()
            optimizer.step()
    # centring a feature far from 0 multiplies its relative error by mean/std
    close([probe.weight, probe.bias], [*oracle.parameters()], terms=3 * STEPS * (48 + 6), gain=offset)


def test_features_that_are_not_finite_and_a_batch_without_labels_change_no_weight():
    probe = make_probe(memory=32)
    probe.learn(*clusters(32, 0))
    before = probe.weight.clone()
    x, labels = clusters(32, 1)
    assert probe.learn(x, torch.full((32,), -1)).tolist() == [0, 0, 0]
    assert torch.equal(probe.weight, before)
    probe.learn(x * torch.nan, labels)
    assert torch.equal(probe.weight, before)
    probe.learn(x, labels)  # the memory has forgotten them
    assert probe.weight.isfinite().all()
    assert not torch.equal(probe.weight, before)


def with_unlabelled(x, labels, rows, seed):
    """The same rows in the same order, among others without a label that have wild features."""
    generator = torch.Generator().manual_seed(seed)
    places = torch.randperm(rows, generator=generator)[: len(x)].sort().values
    wide, marks = torch.full((rows, x.shape[1]), 1e30, dtype=x.dtype), torch.full((rows,), -1)
    wide[places], marks[places] = x, labels
    return wide, marks


@pytest.mark.parametrize("memory", [8, 48])  # below and above the labelled images of a batch
def test_rows_without_a_label_count_for_nothing(memory):
    alone, among = make_probe(memory=memory), make_probe(memory=memory)
    for seed in range(3):
        x, labels = clusters(16, seed)
        found, expected = among.learn(*with_unlabelled(x, labels, 40 + seed, seed)), alone.learn(x, labels)
        close(found, expected, terms=16, gain=1000.0)  # a feature has 1000 times the scale of the others
    close(among.weight, alone.weight, terms=3 * STEPS * 48, gain=1000.0)
    close(among.mean, alone.mean, terms=48)
    assert same(among.labels[among.labels >= 0], alone.labels)


def test_the_forward_pass_has_the_labelled_images_and_few_others():
    model, trainer = METHODS["SimCLR"](), pl.Trainer(accelerator="cpu", logger=False)
    images, labels, ids = next(iter(relabelled().train_dataloader()))
    labels = torch.where(torch.arange(16) % 8 == 3, 1, -1)  # two of sixteen
    features, chosen = labelled_features(trainer, model, (images, labels, ids), share=0.01)
    assert rows_for(16, 0.01) == len(features) == 12
    assert chosen.tolist() == [1, 1] + [-1] * 10
    close(features[:2], features_of(trainer, model, images[[3, 11]]), terms=terms_of(model.backbone))
    assert same(labelled_features(trainer, model, (images, labels, ids))[1], labels)


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
def test_data_without_labels_trains_without_a_forward_pass_of_the_probe():
    images = [torch.full((3, 32, 32), shade, dtype=torch.uint8) for shade in range(32)]
    module = DataModule.of(images, batch_size=8, workers=0)
    probe = OnlineProbe(share=1)
    assert "online/top1" not in fit(METHODS["SimCLR"](), [probe], module).callback_metrics
    assert probe.latest is None


def test_validation_logs_accuracies_on_labelled_images():
    probe, model, module = OnlineProbe(share=1), seeded(METHODS["SimCLR"]), relabelled()
    metrics = fit(model, [probe], module).callback_metrics
    images, labels, _ = module.open_split("test").batch(torch.arange(16))
    with eval_mode(model), torch.no_grad():
        logits = probe.probe.logits(model(model.augment.unaugmented(images)))[labels >= 0]
    labels = labels[labels >= 0]
    close(metrics["online/top1"], multiclass_accuracy(logits, labels, 3, average="micro"))
    close(metrics["online/loss"], F.cross_entropy(logits, labels), terms=terms_of(model.backbone))
    assert metrics["online/top5"] == 1.0  # of three classes


@pytest.mark.parametrize(
    ("settings", "trainer", "learned"),  # 8 steps, 4 an epoch
    [
        ({"share": 1.0}, {}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"share": 0.2}, {}, [4, 8]),
        ({"share": 0.5}, {}, [3, 4, 7, 8]),
        ({"share": 1.0, "every_n_steps": 3}, {}, [3, 6]),
        ({"share": 0.2}, {"val_check_interval": 2}, [2, 4, 6, 8]),
        ({"share": 0.2}, {"val_check_interval": 3, "check_val_every_n_epoch": None}, [3, 6]),
        ({"share": 0.5}, {"check_val_every_n_epoch": 2}, [7, 8]),
        ({"share": 0.2}, {"limit_val_batches": 0}, [4, 8]),
        ({"share": 1.0}, {"accumulate_grad_batches": 2, "max_steps": 4}, [1, 2, 3, 4]),
    ],
)
def test_it_learns_in_the_last_share_of_steps_before_a_validation(settings, trainer, learned):
    steps = []

    class Watched(OnlineProbe):
        def on_train_batch_end(self, trainer, *rest):
            before = self.probe.weight.clone()
            super().on_train_batch_end(trainer, *rest)
            if not torch.equal(before, self.probe.weight):
                steps.append(trainer.global_step)

    fit(METHODS["SimCLR"](), [Watched(**settings)], **{"max_steps": 8, **trainer})
    assert steps == learned


# -- checkpoints ------------------------------------------------------------------------------------------------------


def test_a_resumed_probe_equals_an_uninterrupted_one(tmp_path):
    def run(folder, ckpt_path=None):
        probes = [OnlineProbe(share=1), OnlineProbe("other", lr=0.1, share=0.5)]
        keep = ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1)
        trainer = {"max_steps": 8, "enable_checkpointing": True, "ckpt_path": ckpt_path}
        return fit(seeded(METHODS["SimCLR"]), [*probes, keep], **trainer), probes

    whole, expected = run(tmp_path)
    for step in (3, 4, 6):  # in the middle of the first epoch, at its end, in the second
        checkpoint = tmp_path / f"step={step}.ckpt"
        torch.load(checkpoint, weights_only=True)
        second, resumed = run(tmp_path / str(step), checkpoint)
        for a, b in zip(expected, resumed, strict=True):
            assert same(a.state_dict(), b.state_dict())
        for key, value in whole.callback_metrics.items():
            if key.startswith(("online", "other")):
                assert value == second.callback_metrics[key], key


def test_a_probe_of_another_width_is_refused():
    probe = make_probe(classes=4)
    with pytest.raises(ValueError, match=r"weight of the checkpoint's probe=\(3, 6\)"):
        probe.load_state_dict(make_probe().state_dict())
