"""Mixtures of softmaxes in both kernels: signed masses, an attraction and a value of their own, learned parameters."""

import contextlib

import oracles
import pytest
import torch
from helpers.closeness import close
from helpers.losses import close_each, make_views, scales_of, terms_of, value_and_gradients
from helpers.refusals import refused
from torch import nn

from lightning_ssl.losses import Mixture, PairLoss, Streaming, device
from lightning_ssl.losses.rows import Weights

T, S = 4.0, 1.5


class Signed(Mixture):
    """Near pairs repel, all pairs attract, and a third sum enters the masses without a weight of its own."""

    def log_kernels(self, d2_neg):
        return -T * d2_neg, torch.zeros_like(d2_neg), -S * d2_neg

    def weigh(self, row):
        _, log_count, log_sum = row.log_sums
        attract = -log_count.exp() / (2 * row.count)  # −1/2
        return Weights((log_sum.exp() / row.count, attract), attraction=1 + row.d2_pos)


class OfBatch(Signed):
    """The same with masses that depend on all rows and all positives."""

    needs_batch = True

    def for_batch(self, d2_pos):
        return self.altered(mean=d2_pos.mean())

    def for_rows(self, row):
        return self.altered(whole=row)

    def weigh(self, row):
        whole = getattr(self, "whole", row)
        share = (row.log_sums[0] - whole.log_sums[0].logsumexp(0)).exp() * whole.count.sum() / row.count
        return Weights((self.mean * share,), attraction=1 + row.d2_pos)


def weights_of(rule, d2_pos, d2_neg):
    """α and a by loops over the pairs."""
    near = (-T * d2_neg).exp()
    if isinstance(rule, OfBatch):
        return d2_pos.mean() * near / near.mean() / d2_neg.shape[1], 1 + d2_pos
    mass = (-S * d2_neg).exp().mean(1, keepdim=True)
    return mass * near / near.sum(1, keepdim=True) - 0.5 / d2_neg.shape[1], 1 + d2_pos


PLACES = {"tile": contextlib.nullcontext, "rows": device.acting_as_accelerator}
every_place = pytest.mark.parametrize("place", PLACES)


@pytest.mark.parametrize("rule", [Signed(), OfBatch()], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize(
    ("anchors", "beta", "beta_times"), [("both", 0, "row_sum"), ("one", 0.3, "row_sum"), ("both", 0.3, "one")]
)
@every_place
def test_value_and_gradient_are_those_of_the_loop(place, anchors, beta, beta_times, rule):
    z1, z2, _ = views = make_views()
    d2_pos, d2_neg = oracles.distances(z1, z2, anchors)
    alpha, own = (x.detach() for x in weights_of(rule, d2_pos, d2_neg))
    attraction = own + beta * (alpha.sum(1) if beta_times == "row_sum" else 1)
    value = oracles.pair_form(alpha, attraction, d2_pos, d2_neg)
    expected = value.detach(), *torch.autograd.grad(value, (z1, z2))
    for tile in (None, 4, 100):
        loss = PairLoss(rule, anchors=anchors, beta=beta, beta_times=beta_times, tile=tile)
        with PLACES[place]():
            close_each(value_and_gradients(loss, *views), expected, terms_of(views), scales_of(loss, views))


class Learned(Streaming):
    """Decoupled contrastive loss with a learned temperature: L = mean_i d2_pos_i t + log Σ_j exp(−t d2_neg_ij)."""

    is_loss = True
    t = T

    @property
    def learned(self):
        return ("t",)

    def with_learned(self, learned):
        return self.altered(t=self.t + learned["t"])

    def learned_gradients(self, sums):
        return {"t": sums.pair_value / self.t}  # ∂L/∂t

    def log_kernel(self, d2_neg):
        return d2_neg.mul_(-self.t)

    def weigh(self, row):
        (log_sum,) = row.log_sums
        return Weights((torch.ones_like(log_sum) * self.t,), value=log_sum + self.t * row.d2_pos)


@every_place
def test_a_learned_parameter_gets_its_gradient_and_the_value_is_that_of_the_loss(place):
    z1, z2, _ = views = make_views()
    t = torch.tensor(T, dtype=torch.float64, requires_grad=True)
    d2_pos, d2_neg = oracles.distances(z1, z2, "both")
    value = (t * d2_pos + (-t * d2_neg).logsumexp(1)).mean()
    expected = value.detach(), *torch.autograd.grad(value, (t, z1, z2))
    for tile in (None, 4):
        loss = PairLoss(Learned(), tile=tile).double()
        with PLACES[place]():
            value = loss(z1, z2)
            found = value.detach(), *torch.autograd.grad(3 * value, (*loss.parameters(), z1, z2))
        close(found, [expected[0], *(3 * g for g in expected[1:])], terms=terms_of(views), gain=T)
    assert list(loss.state_dict()) == ["learned.t"]
    assert loss.learned_values() == {"t": T}


def test_an_optimizer_trains_the_learned_parameter_and_the_loss_falls():
    views = [z.detach() for z in make_views()[:2]]
    loss = PairLoss(Learned()).double()
    optimizer = torch.optim.SGD(loss.parameters(), lr=0.1)
    values = []
    for _ in range(5):
        optimizer.zero_grad()
        value = loss(*views)
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values == sorted(values, reverse=True)


class WithParameter(nn.Module):
    def __init__(self, trained=True):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()), requires_grad=trained)

    def forward(self, d2_pos, d2_neg, valid):
        return torch.exp(-self.scale * d2_neg)


class WithAttribute(Signed):
    def __init__(self):
        self.bias = nn.Parameter(torch.zeros(()))


test_a_parameter_that_would_silently_stay_constant_is_refused = refused(
    (lambda: PairLoss(WithParameter()), "importance=WithParameter: it holds the parameter scale, and its derivative"),
    (lambda: PairLoss(WithAttribute()), "importance=WithAttribute: it holds the parameter bias, and its derivative"),
    (lambda: PairLoss(Signed(), backprop_alpha=True), "backprop_alpha=True: Signed has no derivative"),
)


def test_a_constant_parameter_is_accepted():
    assert PairLoss(WithParameter(trained=False))(*make_views()[:2]).isfinite()
