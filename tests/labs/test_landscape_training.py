"""The training of the landscape lab: gradients against autograd, the batch against single runs."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from helpers.closeness import close
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl.labs.landscape import losses, tables
from lightning_ssl.labs.landscape.models import Model
from lightning_ssl.labs.landscape.recipes import RECIPES, Setting
from lightning_ssl.labs.landscape.tables import Row
from lightning_ssl.labs.landscape.training import InitialValues, train
from lightning_ssl.losses.families import InfoNCE
from lightning_ssl.losses.importance import FromFamily

SMALL = Setting(epochs=3, samples=23, batch=8, p=9, d=3, m=7, tau=0.3)
STEP = 2 * (SMALL.p + SMALL.m + 2 * SMALL.batch)  # numbers added up in one step, forward and back
STEPS = SMALL.epochs * math.ceil(SMALL.samples / SMALL.batch)
MODELS = {
    **tables.MODELS,
    "normalized linear": Model("dual", batch_norm=False, activation=False),
    "no batch norm": Model("dual", batch_norm=False),
    "predictor": Model("dual", head=True),
    "row-normalized": Model("dual", unit="row"),
    "column-normalized": Model("dual", unit="column"),
    "projector": Model("siamese", head=True, depth=2),
}


# The oracle: one run, the sample axis first, torch's layers and autograd. It shares only the random draws with the lab.


def oracle_encoder(x: Tensor, P: dict[str, Tensor], model: Model, symmetric: bool) -> Tensor:
    for layer in range(1, model.depth + 1):
        W, b = P[f"W{layer}"], P[f"b{layer}"]
        if model.batch_norm:
            h = F.batch_norm(
                F.linear(x, W, b), None, None, P.get(f"gamma{layer}"), P.get(f"beta{layer}"), training=True
            )
            x = F.relu(h + b) - F.relu(b - h) if symmetric else F.relu(h) - F.relu(-h + 2 * b)
        elif model.activation:
            h = F.linear(x, W)
            x = F.relu(h + b) - F.relu(b - h)
        else:
            x = F.linear(x, W, b)
    return x


def oracle_loss(
    x1: Tensor, x2: Tensor, P: dict[str, Tensor], other: dict[str, Tensor], model: Model, s: Setting
) -> Tensor:
    y1 = oracle_encoder(x1, P, model, s.symmetric)
    if model.objective == "dual":
        target = oracle_encoder(x2, other, model, s.symmetric).detach()
        out = F.linear(y1, P["H"], P["c"]) if model.head else y1
        if model.normalized:
            out, target = F.normalize(out), F.normalize(target)
        return (out - target).square().sum(1).mean()
    y2 = oracle_encoder(x2, P, model, s.symmetric)
    head = (lambda y: F.linear(y, P["H"], P["c"])) if model.head else (lambda y: y)
    if model.objective == "siamese":
        return -(F.cosine_similarity(head(y1), y2.detach()) + F.cosine_similarity(head(y2), y1.detach())).mean() / 2
    z = F.normalize(torch.cat([head(y1), head(y2)]))
    N = len(y1)
    logits = (z @ z.T / s.tau).masked_fill(torch.eye(2 * N, dtype=torch.bool), -torch.inf)
    return F.cross_entropy(logits, torch.arange(2 * N).roll(N))


def oracle_train(row: Row, sparsity: float, seed: int, s: Setting) -> tuple[Tensor, float]:
    """The trained weights, and the smallest standard deviation that batch normalization divided by."""
    model = row.model
    start = InitialValues(row, [sparsity], [seed], s)
    networks = [{name: value[0].clone() for name, value in P.items()} for P in start.networks]
    if model.objective == "dual" and model.head:
        networks[1] |= {"H": networks[0]["H"], "c": networks[0]["c"]}
    (generator,) = start.generators
    deviation = 1.0
    for _ in range(s.epochs):
        order = torch.randperm(s.samples, generator=generator)
        words = torch.empty(math.ceil(2 * s.samples * s.p / 4), dtype=torch.int64).random_(
            -(2**63), None, generator=generator
        )
        bits = words.view(torch.int16)[: 2 * s.samples * s.p].view(2, s.samples, s.p)
        mask = (bits.double() < row.keep * 65536 - 32768.5).float()
        if row.dependent:
            mask = torch.stack([2 * mask[0], 2 * (1 - mask[0])])
        dropped = model.objective == "pairs" and s.drop_last
        for step in range(s.samples // s.batch if dropped else math.ceil(s.samples / s.batch)):
            batch = slice(step * s.batch, (step + 1) * s.batch)
            views = start.X[0, order[batch]] * mask[:, batch]
            k = step % 2 if model.objective == "dual" else 0
            P = networks[k]
            leaves = [P[name].requires_grad_() for name in P if name not in start.frozen]
            loss = oracle_loss(views[k], views[1 - k], P, networks[1 - k], model, s)
            grads = torch.autograd.grad(loss, leaves, allow_unused=True)
            with torch.no_grad():
                for network in networks:
                    variance = F.linear(views, network["W1"]).var(1, correction=0).min()
                    deviation = min(deviation, float(variance + 1e-5) ** 0.5)
                for leaf, grad in zip(leaves, grads, strict=True):
                    leaf.requires_grad_(False).sub_(0 if grad is None else s.lr * grad)
                if model.unit != "none":
                    for network in networks:
                        network["W1"] /= network["W1"].norm(dim=int(model.unit == "row"), keepdim=True)
    return networks[0]["W1"], deviation


@pytest.mark.parametrize(
    ("recipe", "lr", "keep"), [("released", 0.1, 0.5), ("text", 0.05, 0.8)], ids=["released", "text"]
)
@pytest.mark.parametrize("name", MODELS)
def test_every_run_of_the_batch_equals_a_plain_autograd_loop(name: str, recipe: str, lr: float, keep: float) -> None:
    model, s = MODELS[name], replace(SMALL, lr=lr, **RECIPES[recipe])
    sparsities, seeds = [0.2, 0.6], [0, 4]
    for sigma, dependent in ((None, False), (0.1, False), (None, True)):
        row = Row("", name, model, keep, sigma, dependent)
        _, found = train(row, sparsities, seeds, s)
        for c, k in itertools.product(range(2), repeat=2):
            expected, deviation = oracle_train(row, sparsities[c], seeds[k], s)
            # A step adds lr times a gradient that batch normalization divides by the deviation of a batch.
            close(found[c, k], expected, terms=STEPS * STEP, gain=1 + lr / deviation)


@pytest.mark.parametrize("tile", [5, 8, 64])
def test_gradient_of_nt_xent_is_that_of_cross_entropy(tile: int) -> None:
    tau = 0.2
    y = torch.randn(2, 3, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    grad = losses.nt_xent(y.detach(), tau, tile)
    z = F.normalize(torch.cat([y[0], y[1]], 2), dim=1).mT  # (R, 2N, m)
    logits = (z @ z.mT / tau).masked_fill(torch.eye(16, dtype=torch.bool), -torch.inf)
    loss = sum(F.cross_entropy(row, torch.arange(16).roll(8)) for row in logits)
    close(grad, torch.autograd.grad(loss, y)[0], terms=16 + 5, gain=1 / tau)


def test_infonce_importance_in_place_of_nt_xent_gives_its_gradient() -> None:
    tau = 0.2
    y = torch.randn(2, 2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = losses.nt_xent(y, tau)
    found = losses.weighted_pairs(y, FromFamily(InfoNCE(tau=tau, eps=1.0)), 1 / tau)
    close(found, expected, terms=16 + 5, gain=1 / tau)
