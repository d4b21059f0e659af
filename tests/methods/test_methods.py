"""The methods: losses, views, features, targets, optimizers and schedules."""

import copy

import pytest
import pytorch_lightning as pl
import torch
from helpers import training
from helpers.closeness import close
from helpers.precision import bf16, scaled
from helpers.refusals import refused
from helpers.training import METHODS, SMALL, data, every_method, same, seeded, terms_of
from helpers.watching import watch
from torch.nn import functional as F

from lightning_ssl.losses.energy import PairLoss
from lightning_ssl.losses.families import InfoNCE, Quadratic
from lightning_ssl.losses.importance import Direct, Entropy
from lightning_ssl.methods import BYOL, AlphaCL, Optimization, SimCLR
from lightning_ssl.methods.base import Views
from lightning_ssl.optim import LARS


def fit(model, *callbacks, **trainer):
    return training.fit(model, [*callbacks], **{"max_steps": 3, "limit_val_batches": 0, **trainer})


@pytest.fixture
def images():
    return data().open_split("train").batch(torch.arange(8))[0]


@pytest.mark.parametrize("name", ["adam", "sgd", "lars"])
def test_mixed_precision_clips_the_gradients_of_the_same_optimizer(name):
    """The scale is a power of two, so products with it are exact."""
    weights = []
    for plugin in (lambda: None, bf16, scaled):
        model = seeded(lambda: SimCLR(optimization=Optimization(name), **SMALL))
        runner = fit(model, gradient_clip_val=0.1, plugins=plugin(), max_steps=2)
        weights.append(model.state_dict())
        assert runner.optimizers[0].defaults.get("fused", name == "lars")
    assert same(*weights[:2])
    assert same(*weights[1:])


@pytest.mark.parametrize("logged_elsewhere", [False, True])
def test_train_loss_goes_to_loggers_unless_a_callback_logs_it(logged_elsewhere, tmp_path):
    callback = pl.Callback()
    callback.logs_train_loss = logged_elsewhere
    logger = pl.loggers.CSVLogger(tmp_path)
    runner = fit(METHODS["SimCLR"](), callback, logger=logger, log_every_n_steps=1)
    assert "train/loss" in runner.callback_metrics
    logged = "".join(file.read_text() for file in tmp_path.rglob("metrics.csv"))
    assert ("train/loss" in logged) == (not logged_elsewhere)


def test_the_loss_of_alpha_cl_is_pair_loss_of_normalized_embeddings(images):
    model = METHODS["AlphaCL"]()
    views = model.views(images)
    z1, z2 = F.normalize(model.projector(model.backbone(torch.cat(views[:2]))), dim=1).chunk(2)
    close(model.compute_loss(views), PairLoss(Direct())(z1, z2), terms=terms_of(model))


@pytest.mark.parametrize("name", ["SimCLR", "AlphaCL"])
def test_views_apart_go_through_the_network_as_two_batches(images, name):
    together, apart = (METHODS[name](views_together=choice) for choice in (True, False))
    batches = []
    for model in (together, apart):
        model.backbone.register_forward_pre_hook(lambda _, inputs: batches.append(inputs[0]))
    views = apart.views(images)
    apart.compute_loss(views)
    together.compute_loss(views)
    assert [torch.equal(a, b) for a, b in zip(batches, [*views[:2], torch.cat(views[:2])], strict=True)] == [True] * 3


def test_simclr_has_the_gradient_of_alpha_cl_from_infonce(images):
    tau, gradients = 0.2, []
    for kind in (lambda: SimCLR(tau=tau, **SMALL), lambda: AlphaCL(InfoNCE(tau), **SMALL)):
        torch.manual_seed(0)
        model = kind()
        model.compute_loss(model.views(images)).backward()
        gradients.append(model.backbone.conv1.weight.grad)
    pixels = images[:, 0].numel()  # the gradient of a convolution is a sum over pixels
    close(*gradients, terms=2 * terms_of(model) + pixels, gain=1 / tau)


def test_only_an_importance_of_clean_samples_gets_a_clean_view(images):
    assert METHODS["AlphaCL"]().views(images).clean is None
    clean = METHODS["AlphaCL exact"]().views(images).clean
    close(clean, images / 255)


def test_views_are_a_function_of_seed_and_step(images):
    one, same, other = (AlphaCL(Entropy(), seed=seed, **SMALL).views(images).first for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@every_method
def test_features_are_those_of_the_backbone_in_evaluation_mode_and_the_precision_of_the_caller(make, images):
    model = make().train()
    model.projector.eval()
    modes, buffers = [part.training for part in model.modules()], copy.deepcopy(dict(model.named_buffers()))
    found = model.features(images)
    assert [part.training for part in model.modules()] == modes
    assert same(dict(model.named_buffers()), buffers)
    assert found.shape == (8, model.backbone.num_features)
    assert not found.requires_grad
    assert torch.equal(found, model.eval().backbone(model.augment.unaugmented(images)))
    seen = []
    model.backbone.conv1.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model.features(images)
    assert seen == [torch.bfloat16]


def test_the_target_of_byol_starts_as_a_copy_and_moves_towards_the_online_network():
    model = METHODS["BYOL"]()
    for name in ("backbone", "projector"):
        for p, q in zip(getattr(model, name).parameters(), model.target[name].parameters(), strict=True):
            assert torch.equal(p, q)
            assert not q.requires_grad
    with torch.no_grad():
        model.backbone.conv1.weight.add_(1.0)
    before = model.target["backbone"].conv1.weight.clone()
    model.move_target(0.75)
    close(model.target["backbone"].conv1.weight, before + 0.25, scale=1.0)


def test_the_target_of_byol_moves_once_per_optimizer_step(monkeypatch):
    model = METHODS["BYOL"]()
    momenta = []
    monkeypatch.setattr(model, "move_target", momenta.append)
    fit(model, max_steps=2, accumulate_grad_batches=2)
    close(momenta, [0.998, 1.0])  # halfway and at the end


def test_siamese_losses_are_lowest_if_predictions_equal_targets():
    for kind, lowest in (("SimSiam", -1.0), ("BYOL", 0.0)):
        model = METHODS[kind]().eval()
        model.predictor = torch.nn.Identity()
        x = torch.rand(4, 3, 32, 32)
        # a cosine is a sum over the embedding; the loss of BYOL is 4 minus 2 times two cosines
        close(model.compute_loss(Views(x, x)), torch.tensor(lowest), terms=model.projector.out_features, scale=4.0)


@pytest.mark.parametrize(
    ("settings", "kind", "last"),
    [
        (Optimization("adam", lr=0.1), torch.optim.Adam, 0.1),
        (Optimization("sgd", lr=0.1, schedule="warmup_cosine", warmup_epochs=1), torch.optim.SGD, 0.0),
        (Optimization("lars", lr=0.1, weight_decay=1e-4, schedule="released"), LARS, 0.1),
    ],
)
def test_the_optimizer_is_the_configured_one(settings, kind, last):
    (optimizer,) = fit(METHODS["SimCLR"](optimization=settings), max_epochs=2, max_steps=-1).optimizers
    assert isinstance(optimizer, kind)
    assert optimizer.param_groups[0]["lr"] == last


test_bad_settings_are_refused_by_name_and_value = refused(
    (lambda: Optimization("adamw"), "name='adamw'"),
    (lambda: Optimization(schedule="step"), "schedule='step'"),
    (lambda: Optimization(lr=0.0), "lr=0.0"),
    (lambda: Optimization(warmup_epochs=5), "warmup_epochs=5"),
    (lambda: SimCLR(tau=0.0, **SMALL), "tau=0.0"),
    (lambda: SimCLR(augment="none", **SMALL), "augment='none'"),
    (lambda: BYOL(momentum=1.5, **SMALL), "momentum=1.5"),
    (lambda: AlphaCL(Quadratic(), seed=-1, **SMALL), "seed=-1"),
)


@pytest.mark.parametrize("max_epochs", [-1, 50])
def test_warm_up_counts_epochs_when_max_steps_ends_the_training(max_epochs):
    callback = pl.Callback()
    rates = watch(callback, "on_train_batch_start", lambda trainer, *_: trainer.optimizers[0].param_groups[0]["lr"])
    settings = Optimization(lr=1e-3, schedule="warmup_cosine", warmup_epochs=1)
    fit(SimCLR(**SMALL, optimization=settings), callback, max_epochs=max_epochs, max_steps=12)
    assert rates.index(max(rates)) == 4  # steps per epoch
    assert max(rates) == 1e-3


def test_a_cosine_schedule_needs_max_epochs_or_max_steps():
    with pytest.raises(ValueError, match="max_epochs=-1"):
        fit(SimCLR(**SMALL, optimization=Optimization(schedule="warmup_cosine")), max_steps=-1)


@pytest.mark.parametrize(
    ("channels_last", "device", "precision", "expected"),
    [
        ("auto", "cpu", "32-true", torch.channels_last),
        ("auto", "cuda", "16-mixed", torch.channels_last),
        ("auto", "cuda", "bf16-mixed", torch.channels_last),
        ("auto", "cuda", "32-true", torch.contiguous_format),
        ("auto", "mps", "32-true", torch.contiguous_format),
        (True, "cuda", "32-true", torch.channels_last),
        (False, "cpu", "32-true", torch.contiguous_format),
    ],
)
def test_channels_last_is_chosen_by_device_and_precision(channels_last, device, precision, expected):
    model = METHODS["BYOL"](channels_last=channels_last)
    model.choose_memory_format(torch.device(device), precision)
    assert model.memory_format == expected
    for net in (model.backbone, model.target["backbone"]):
        assert net.conv1.weight.is_contiguous(memory_format=expected)
    images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
    assert all(x.is_contiguous(memory_format=expected) for x in model.views(images)[:2])


def test_training_keeps_the_configured_memory_format():
    model = METHODS["SimCLR"](channels_last=False)
    fit(model)
    assert model.backbone.conv1.weight.is_contiguous()
