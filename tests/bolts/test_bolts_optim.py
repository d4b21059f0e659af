"""LARS and the schedules equal those of lightning-bolts step by step in float64, with tests of each difference."""

from functools import partial

import pytest
import torch
from pl_bolts.models.self_supervised import BYOL as BoltsBYOL
from pl_bolts.optimizers.lars import LARS as BoltsLARS
from pl_bolts.optimizers.lr_scheduler import LinearWarmupCosineAnnealingLR, linear_warmup_decay
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

from lightning_ssl.optim import LARS, parameter_groups, warmup_cosine

STEPS = 30


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).double()


def trajectory(net, optimizer, schedule):
    """The parameters after every step: (STEPS, P)."""
    generator = torch.Generator().manual_seed(1)
    path = []
    for x in torch.randn(STEPS, 16, 6, dtype=torch.float64, generator=generator):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        schedule.step()
        path.append(torch.cat([p.detach().flatten() for p in net.parameters()]))
    return torch.stack(path)


@pytest.mark.parametrize("exclude", [True, False])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_lars_with_warmup_cosine_takes_the_steps_of_bolts(momentum, nesterov, exclude):
    settings = {"lr": 1.0, "momentum": momentum, "trust_coefficient": 0.02, "nesterov": nesterov}
    net, twin = model(), model()
    ours = LARS(parameter_groups(net, 1e-2, exclude_bias_and_norm=exclude), **settings)
    groups = parameter_groups(twin, 1e-2, exclude_bias_and_norm=exclude)  # without decay, bolts' LARS is plain SGD
    theirs = BoltsLARS([{key: group[key] for key in ("params", "weight_decay")} for group in groups], **settings)
    path = trajectory(net, ours, LambdaLR(ours, partial(warmup_cosine, warmup_steps=5, total_steps=STEPS)))
    expected = trajectory(twin, theirs, LambdaLR(theirs, linear_warmup_decay(5, STEPS, cosine=True)))
    assert (path[-1] - path[0]).abs().max() > 0.1
    torch.testing.assert_close(path, expected, rtol=0, atol=1e-13)


def one_step(optimizer, p, g, **settings):
    p = nn.Parameter(p.clone())
    p.grad = g.clone()
    optimizer([p], lr=1.0, trust_coefficient=0.01, momentum=0.9, **settings).step()
    return p.detach()


def test_without_weight_decay_ours_adapts_and_bolts_does_not():
    p, g = torch.tensor([3.0, 4.0]).double(), torch.tensor([0.6, -0.8]).double()
    torch.testing.assert_close(one_step(BoltsLARS, p, g, weight_decay=0.0), p - g)
    torch.testing.assert_close(one_step(LARS, p, g, weight_decay=0.0), p - 0.01 * 5 * g)


def test_with_a_zero_gradient_ours_keeps_the_weight_decay_and_bolts_does_not():
    p, zero = torch.tensor([3.0, 4.0]).double(), torch.zeros(2).double()
    torch.testing.assert_close(one_step(BoltsLARS, p, zero, weight_decay=0.1), p)
    torch.testing.assert_close(one_step(LARS, p, zero, weight_decay=0.1), p * (1 - 0.01))
    tiny = torch.full((2,), 1e-12).double()  # with any gradient above zero, bolts applies the decay
    torch.testing.assert_close(one_step(BoltsLARS, p, tiny, weight_decay=0.1), p * (1 - 0.01))


def test_at_a_zero_parameter_both_take_the_step_of_sgd():
    zero, g = torch.zeros(2).double(), torch.tensor([0.6, -0.8]).double()
    for optimizer in (BoltsLARS, LARS):
        torch.testing.assert_close(one_step(optimizer, zero, g, weight_decay=0.1), -g)


# ---------------------------------------------------------------------------------------------------------------------
# Schedules


def rates(make, steps, lr=0.4):
    optimizer = SGD([nn.Parameter(torch.ones(1))], lr=lr)
    schedule = make(optimizer)
    used = []
    for _ in range(steps):
        used.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return used


@pytest.mark.parametrize("warmup", [0, 1, 7])
def test_warmup_cosine_equals_linear_warmup_decay_of_bolts_until_the_end(warmup):
    theirs, ours = (
        linear_warmup_decay(warmup, 50, cosine=True),
        partial(warmup_cosine, warmup_steps=warmup, total_steps=50),
    )
    assert [ours(step) for step in range(51)] == pytest.approx([theirs(step) for step in range(51)], abs=1e-15)
    assert theirs(75) > 0.3  # after the end the rate of bolts rises again; ours stays at 0
    assert ours(75) == 0.0


@pytest.mark.parametrize(("warmup", "start", "final"), [(2, 0.0, 0.0), (10, 0.0, 0.0), (10, 0.1, 0.004)])
def test_the_annealing_class_of_bolts_equals_ours_after_the_warmup(warmup, start, final):
    theirs = rates(
        lambda o: LinearWarmupCosineAnnealingLR(o, warmup, 40, warmup_start_lr=start, eta_min=final), 41, lr=0.4
    )
    factors = {"start": start / 0.4, "final": final / 0.4}
    ours = [0.4 * warmup_cosine(step, warmup, 40, **factors) for step in range(41)]
    assert theirs[warmup:] == pytest.approx(ours[warmup:], abs=1e-12)
    # Its warm-up has one step less: the full rate comes one step early and lasts for two steps.
    early = [0.4 * warmup_cosine(step, warmup - 1, 40, **factors) for step in range(warmup)]
    assert theirs[:warmup] == pytest.approx(early, abs=1e-12)
    assert theirs[:warmup] != pytest.approx(ours[:warmup], abs=1e-3)


def test_the_annealing_class_of_bolts_without_warmup_has_rate_zero():
    assert rates(lambda o: LinearWarmupCosineAnnealingLR(o, 0, 10), 11) == pytest.approx([0.0] * 11, abs=1e-12)
    assert rates(lambda o: LambdaLR(o, partial(warmup_cosine, warmup_steps=0, total_steps=10)), 1) == [0.4]


def test_byol_of_bolts_has_rate_zero_in_its_first_epoch():
    byol = BoltsBYOL(base_encoder="resnet18", encoder_out_dim=512, projector_hidden_dim=8, projector_out_dim=4)
    (optimizer,), (schedule,) = byol.configure_optimizers()
    assert not isinstance(schedule, dict)  # so Lightning steps it once per epoch
    assert optimizer.param_groups[0]["lr"] == 0.0
