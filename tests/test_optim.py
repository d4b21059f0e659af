"""LARS equals a loop written from its equation; schedules follow their equations; both can be resumed."""

import io
import math
from functools import partial
from unittest import mock

import pytest
import torch
from helpers.closeness import close
from helpers.refusals import refused
from helpers.training import same, terms_of
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR

from lightning_ssl.methods import Optimization
from lightning_ssl.optim import LARS, constant, momentum_schedule, parameter_groups, released, warmup_cosine

STEPS, BATCH = 12, 16


def make_model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).double()


def make_batches(steps=STEPS):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(steps, BATCH, 6, dtype=torch.float64, generator=generator)


def train(model, optimizer, batches, scheduler=None):
    for x in batches:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return [p.detach() for p in model.parameters()]


def norm(x):
    return math.sqrt(sum(float(v) ** 2 for v in x.detach().flatten()))


def lars_by_hand(model, batches, lr, momentum, decay, trust, nesterov, adapted):
    """Eqn. 6 of You et al., one parameter at a time, in the form u = ratio (g + λ p), v = μ v + u, p = p − lr v."""
    velocities = [torch.zeros_like(p) for p in model.parameters()]
    for x in batches:
        parameters = list(model.parameters())
        gradients = torch.autograd.grad(model(x).square().mean(), parameters)
        for p, g, v in zip(parameters, gradients, velocities, strict=True):
            weight_decay = decay if adapted(p) else 0.0
            u = g + weight_decay * p.detach()
            if adapted(p) and norm(p) > 0:
                u = u * (trust * norm(p) / (norm(g) + weight_decay * norm(p) + 1e-8))
            v.copy_(momentum * v + u)
            p.data -= lr * (u + momentum * v if nesterov else v)
    return [p.detach() for p in model.parameters()]


def terms_of_training(model):
    """Sums over features forward and backward, and over the batch, in each step."""
    return STEPS * (2 * terms_of(model) + BATCH)


@pytest.mark.parametrize("exclude", [True, False])
@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("decay", [0.0, 0.05])
def test_lars_equals_the_loop(decay, nesterov, exclude):
    model, twin = make_model(), make_model()
    groups = parameter_groups(model, decay, exclude_bias_and_norm=exclude)
    optimizer = LARS(groups, lr=0.3, momentum=0.9, trust_coefficient=0.02, nesterov=nesterov)
    expected = lars_by_hand(twin, make_batches(), 0.3, 0.9, decay, 0.02, nesterov, lambda p: p.ndim > 1 or not exclude)
    actual = train(model, optimizer, make_batches())
    assert (actual[0] - make_model()[0].weight).abs().max() > 1e-3
    close(actual, expected, terms=terms_of_training(model))


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_lars_without_adaptation_is_sgd(momentum, nesterov):
    model, twin = make_model(), make_model()
    options = {"lr": 0.2, "momentum": momentum, "weight_decay": 0.1, "nesterov": nesterov}
    ours = LARS([{"params": model.parameters(), "adapt": False}], **options)
    theirs = SGD(twin.parameters(), **options)
    actual, expected = train(model, ours, make_batches()), train(twin, theirs, make_batches())
    close(actual, expected, terms=terms_of_training(model))


@pytest.mark.parametrize(
    ("start", "gradient", "decay", "end"),
    [
        ([0.0, 0.0], [1.0, 2.0], 0.0, [-0.1, -0.2]),  # a step of SGD
        ([0.0, 0.0], [1.0, 2.0], 0.1, [-0.1, -0.2]),
        ([3.0, 4.0], [0.0, 0.0], 0.2, [3 * (1 - 0.1 * 0.02), 4 * (1 - 0.1 * 0.02)]),  # the decay alone
        ([3.0, 4.0], [0.0, 0.0], 0.0, [3.0, 4.0]),
        ([0.0, 0.0], [0.0, 0.0], 0.0, [0.0, 0.0]),
    ],
)
def test_zero_parameters_take_the_step_of_sgd_and_zero_gradients_keep_the_decay(start, gradient, decay, end):
    p = nn.Parameter(torch.tensor(start))
    p.grad = torch.tensor(gradient)
    LARS([p], lr=0.1, weight_decay=decay, trust_coefficient=0.02).step()
    close(p.detach(), torch.tensor(end), terms=2)


def test_norms_of_half_precision_do_not_overflow_and_a_parameter_without_gradient_does_not_change():
    p, unused = (nn.Parameter(torch.full((1000,), 3000.0, dtype=torch.float16)) for _ in range(2))  # ‖p‖ overflows
    p.grad = torch.full((1000,), 100.0, dtype=torch.float16)
    LARS([p, unused], lr=1.0, trust_coefficient=0.1).step()
    assert torch.equal(p, torch.full((1000,), 2700.0, dtype=torch.float16))  # 3000 − 3 · 100: exact in float16
    assert (unused == 3000).all()


def test_a_resumed_run_takes_the_same_steps_bit_for_bit():
    def begin():
        model = make_model()
        optimizer = LARS(parameter_groups(model, 0.05), lr=0.3, trust_coefficient=0.02)
        return model, optimizer, LambdaLR(optimizer, partial(warmup_cosine, warmup_steps=3, total_steps=STEPS))

    def proceed(parts, batches):
        model, optimizer, schedule = parts
        return train(model, optimizer, batches, schedule)

    uninterrupted = proceed(begin(), make_batches())
    first, resumed, file = begin(), begin(), io.BytesIO()
    proceed(first, make_batches()[:5])
    torch.save([part.state_dict() for part in first], file)
    file.seek(0)
    for part, state in zip(resumed, torch.load(file, weights_only=True), strict=True):
        part.load_state_dict(state)
    assert same(proceed(resumed, make_batches()[5:]), uninterrupted)


def test_the_closure_is_called_with_gradients_enabled_and_its_value_is_returned():
    p = nn.Parameter(torch.ones(2))
    optimizer = LARS([p], lr=0.1, momentum=0.0)

    def closure():
        optimizer.zero_grad()
        loss = p.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 2.0
    assert (p < 1).all()


WRONG = {
    "lr": (-1.0, math.nan),
    "momentum": (1.0, -0.1),
    "weight_decay": (-1e-4,),
    "trust_coefficient": (0.0,),
    "eps": (0.0,),
}
test_bad_lars_settings_are_refused_by_name_and_value = refused(
    *(
        (
            partial(LARS, [{"params": [nn.Parameter(torch.ones(2))], **of_group}], **{"lr": 0.1, **of_all}),
            f"^{key}={value!r}: {key} must be",
        )
        for key, values in WRONG.items()
        for value in values
        for of_group, of_all in (({}, {key: value}), ({key: value}, {}))
    ),
    (
        lambda: LARS([nn.Parameter(torch.ones(2))], lr=0.1, momentum=0.0, nesterov=True),
        "nesterov=True: nesterov must be False if momentum is 0",
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# Groups


def test_groups_hold_every_trainable_parameter_and_biases_and_norms_are_neither_decayed_nor_adapted():
    model = make_model()
    model[0].bias = nn.Parameter(torch.ones(8), requires_grad=False)
    weights, excluded = parameter_groups(model, 0.1)
    assert [id(p) for p in weights["params"]] == [id(model[0].weight), id(model[3].weight)]
    assert [id(p) for p in excluded["params"]] == [id(p) for p in (model[1].weight, model[1].bias, model[3].bias)]
    assert (weights["weight_decay"], weights["adapt"]) == (0.1, True)
    assert (excluded["weight_decay"], excluded["adapt"]) == (0.0, False)
    (everything,) = parameter_groups(model, 0.1, exclude_bias_and_norm=False)
    assert (len(everything["params"]), everything["weight_decay"]) == (5, 0.1)
    SGD(parameter_groups(model), lr=0.1)  # takes the key `adapt` too


@pytest.mark.parametrize("settings", [{"weight_decay": 0.1}, {"nesterov": True}, {"momentum": 0.0}])
@pytest.mark.parametrize("unscales", [False, True])
def test_lars_under_a_grad_scaler_takes_the_steps_without_one_and_skips_infinite_gradients(unscales, settings):
    plain, scaled = (nn.Parameter(torch.tensor([3.0, 4.0])) for _ in range(2))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    reference, optimizer = LARS([plain], lr=0.5, **settings), LARS([scaled], lr=0.5, unscales=unscales, **settings)
    for gradient in ([0.6, -0.8], [math.inf, 1.0], [math.nan, 1.0], [0.1, 0.2]):
        scaled.grad = scaler.scale(torch.tensor(gradient))
        with mock.patch.object(scaler, "_maybe_opt_step", side_effect=scaler._maybe_opt_step) as read_by_host:
            scaler.step(optimizer)
        assert read_by_host.called != unscales
        scaler.update()
        if math.isfinite(sum(gradient)):
            plain.grad = torch.tensor(gradient)
            reference.step()
        close(scaled, plain, terms=2)  # a scale of 2ⁿ changes no digit


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_a_fused_optimizer_continues_the_state_of_another_memory_format(name):
    gradients = torch.randn(2, 8, 4, 3, 3)

    def steps(*phases):
        """Take one step in each phase: a memory format, and whether the optimizer is fused."""
        p, state = nn.Parameter(torch.zeros(8, 4, 3, 3)), None
        for (memory_format, fused), gradient in zip(phases, gradients, strict=True):
            p = nn.Parameter(p.detach().contiguous(memory_format=memory_format))
            optimizer = Optimization(name).optimizer([{"params": [p]}], fused)
            if state is not None:
                optimizer.load_state_dict(state)
            p.grad = gradient.contiguous(memory_format=memory_format)
            if fused:
                optimizer.found_inf = torch.zeros(())
            optimizer.step()
            state = optimizer.state_dict()
        return p.detach()

    expected = steps((torch.contiguous_format, False), (torch.contiguous_format, False))
    close(steps((torch.contiguous_format, False), (torch.channels_last, True)), expected, terms=8)
    close(steps((torch.channels_last, True), (torch.contiguous_format, True)), expected, terms=8)


# ---------------------------------------------------------------------------------------------------------------------
# Schedules


def test_warmup_cosine_has_exact_ends():
    factor = partial(warmup_cosine, warmup_steps=10, total_steps=110, start=0.2, final=0.03)
    assert [factor(step) for step in (0, 10, 110, 111, 10**6)] == [0.2, 1.0, 0.03, 0.03, 0.03]
    close(factor(5), 0.6)
    close(factor(60), (1 + 0.03) / 2)


def test_warmup_cosine_follows_its_equation_also_in_a_run_shorter_than_its_warmup():
    for step in range(200):
        expected = step / 20 if step < 20 else 0.5 * (1 + math.cos(math.pi * (step - 20) / 180))
        close(warmup_cosine(step, 20, 200), expected, scale=1.0)
    assert [warmup_cosine(step, 50, 10) for step in range(10)] == [warmup_cosine(step, 50, 99) for step in range(10)]
    assert (warmup_cosine(0, 0, 100), constant(7)) == (1.0, 1.0)


@pytest.mark.parametrize("steps_per_epoch", [4, 30])
def test_released_equals_the_cosine_of_torch_stepped_as_in_the_released_code(steps_per_epoch):
    ours, theirs = (SGD([nn.Parameter(torch.ones(1))], lr=0.01) for _ in range(2))
    schedule = LambdaLR(ours, partial(released, steps_per_epoch=steps_per_epoch))
    cosine = CosineAnnealingLR(theirs, T_max=steps_per_epoch)
    for epoch in range(25):
        for _ in range(steps_per_epoch):
            # the recursion of torch divides by 1 + cos, which is at least 1 − cos(π/T)
            rounding = {"scale": 0.01, "terms": 25, "gain": 1 / (1 - math.cos(math.pi / steps_per_epoch))}
            close(ours.param_groups[0]["lr"], theirs.param_groups[0]["lr"], **rounding)
            ours.step(), theirs.step()
            schedule.step()
        if epoch >= 10:
            cosine.step()


@pytest.mark.parametrize("base", [0.996, 0.99, 0.3, 0.0])
def test_momentum_schedule_follows_the_equation_of_byol_has_exact_ends_and_never_decreases(base):
    values = [momentum_schedule(step, 200, base) for step in range(202)]
    close(values[:-1], [1 - (1 - base) * (math.cos(math.pi * step / 200) + 1) / 2 for step in range(201)], scale=1.0)
    assert (values[0], values[200], values[201]) == (base, 1.0, 1.0)
    assert values == sorted(values)
