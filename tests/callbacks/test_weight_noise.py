"""Weight noise: its size, and that it depends on the seed and the step only."""

import math
from types import SimpleNamespace

import pytest
import torch
from helpers.training import METHODS, SMALL, fit, same, seeded
from helpers.watching import watch
from pytorch_lightning.callbacks import ModelCheckpoint

from lightning_ssl.callbacks import WeightNoise, noise
from lightning_ssl.methods import Optimization, SimCLR


def train(callbacks, make=METHODS["SimCLR"], **trainer):
    model = seeded(make)
    fit(model, callbacks, limit_val_batches=0, **trainer)
    return model.state_dict()


# The size of the noise after one step of SGD with learning rate 0.1, for η = 0.5.
SIZES = {"update": 0.1 * 0.5, "gradient": 0.1 * 0.5, "weights": 0.5, "epoch": 0.5}


@pytest.mark.parametrize("added_to", SIZES)
def test_one_step_adds_xavier_noise_to_matrices_only(added_to):
    def make():  # the noise of "epoch" comes before the step, whose gradient it changes
        optimization = Optimization("sgd", lr=1e-300 if added_to == "epoch" else 0.1, momentum=0.0)
        return SimCLR(optimization=optimization, **SMALL)

    plain, noisy = (train(callbacks, make, max_steps=1) for callbacks in ([], [WeightNoise(0.5, added_to=added_to)]))
    kept = 1 - 0.5 if added_to == "epoch" else 1  # W ← (1 − η) W + η Ξ
    for key, before in plain.items():
        if "running" in key:
            continue
        added = noisy[key] - (kept * before if before.ndim >= 2 else before)
        if before.ndim < 2:
            assert not added.any(), key
        elif added.numel() > 4000:
            field = before[0, 0].numel()
            xavier = math.sqrt(2 / (field * (before.shape[0] + before.shape[1])))
            # over four standard errors of a sample of 4000
            assert added.std().item() == pytest.approx(SIZES[added_to] * xavier, rel=0.05), key
            assert abs(added.mean()) < 0.1 * added.std(), key


def test_the_rate_is_that_of_the_same_step():
    def make():
        return SimCLR(optimization=Optimization("sgd", lr=0.1, schedule="warmup_cosine", warmup_epochs=1), **SMALL)

    callback = WeightNoise()
    used = watch(callback, "add_noise", lambda optimizer, _: optimizer.param_groups[0]["lr"])
    after = watch(callback, "on_train_batch_end", lambda trainer, *_: trainer.optimizers[0].param_groups[0]["lr"])
    train([callback], make, max_steps=-1, max_epochs=2)
    assert used[0] < after[0]
    assert used[1:] == after[:-1]


def test_noise_depends_on_seed_and_step_and_draws_no_global_number():
    def run(seed):
        state = train([WeightNoise(seed=seed)])
        return state, torch.get_rng_state()

    one, same_seed, other = run(1), run(1), run(2)
    plain = train([])
    assert same(one[0], same_seed[0])
    assert not torch.equal(one[0]["backbone.conv1.weight"], other[0]["backbone.conv1.weight"])
    assert not torch.equal(one[0]["backbone.conv1.weight"], plain["backbone.conv1.weight"])
    assert torch.equal(one[1], torch.get_rng_state())


def test_zero_std_changes_nothing():
    assert same(train([]), train([WeightNoise(std=0.0)]))


def test_noise_is_added_once_per_optimizer_step(monkeypatch):
    drawn = []
    xavier = noise.xavier
    monkeypatch.setattr(noise, "xavier", lambda p: drawn.append(p) or xavier(p))
    model = METHODS["SimCLR"]()
    fit(model, [WeightNoise()], max_steps=2, accumulate_grad_batches=2, limit_val_batches=0)
    assert len(drawn) == 2 * sum(p.ndim >= 2 for p in model.parameters())


@pytest.mark.parametrize("added_to", SIZES)
def test_a_resumed_run_adds_the_same_noise(tmp_path, added_to):
    """Step 3 is within an epoch of four steps."""
    keep = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=1, save_top_k=-1)
    whole = train([WeightNoise(1.0, added_to=added_to), keep], max_steps=6, enable_checkpointing=True)
    resumed = train([WeightNoise(1.0, added_to=added_to)], max_steps=6, ckpt_path=tmp_path / "step=3.ckpt")
    assert same(whole, resumed)


@pytest.mark.parametrize(("added_to", "expected"), {"update": 0.2, "weights": 2.0, "epoch": 2.0}.items())
def test_the_logged_size_is_that_of_the_noise_over_that_of_the_step(added_to, expected):
    """A gradient of 1 at learning rate 0.1 moves a weight by 0.1. Its noise is 0.2, or for "update" 0.02."""
    weight = torch.nn.Parameter(torch.zeros(300, 300))
    callback = WeightNoise(0.2 * math.sqrt(300), added_to=added_to)  # Xavier's deviation is 1/√300
    sizes = []
    trainer = SimpleNamespace(optimizers=[torch.optim.SGD([weight], lr=0.1)], global_step=0, log_every_n_steps=1)
    trainer.loggers = [SimpleNamespace(log_metrics=lambda metrics, step: sizes.append(metrics["noise/relative"]))]
    trainer.current_epoch = 0
    module = SimpleNamespace(device="cpu", log_dict=lambda *_, **__: None)
    callback.on_train_start(trainer, module)
    callback.on_train_epoch_start(trainer, module)
    weight.grad = torch.ones_like(weight)
    trainer.optimizers[0].step()
    callback.on_train_batch_end(trainer, module, None, None, 0)
    assert sizes == [pytest.approx(expected, rel=0.05)]
