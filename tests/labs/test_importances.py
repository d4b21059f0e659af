"""The comparison of importances: its batched losses equal the package's, and its measures match their definitions."""

import pytest
import torch
from helpers.closeness import close

from lightning_ssl.labs import importances as lab
from lightning_ssl.losses.energy import PairLoss
from lightning_ssl.losses.importance import Entropy, Uniform
from lightning_ssl.losses.solved import Square

SEEDS, N, TAU = 2, 6, 0.5
INPUTS, HIDDEN, OUTPUTS = 7, 12, 5
NEGATIVES = 2 * N - 2


def embeddings():
    points = lab.sphere_mixture(3, 1, N, 3, INPUTS - 3, 0.5, 0.7, SEEDS)
    weights = lab.initial(INPUTS, HIDDEN, OUTPUTS, SEEDS)
    return [lab.embed(x[:, 0], weights).requires_grad_(True) for x in (points.x1, points.x2, points.clean)]


def tangential(gradient, z):
    """The gradient along the sphere. 1 − cos and ½‖·‖² differ only in the radial part."""
    return gradient - (gradient * z).sum(1, keepdim=True) * z


@pytest.mark.parametrize("name", lab.entries(TAU, NEGATIVES))
def test_batched_loss_and_gradient_equal_pair_loss_run_by_run(name):
    entry = lab.entries(TAU, NEGATIVES)[name]
    z1, z2, clean = embeddings()
    loss, _ = lab.energy_losses([entry], z1, z2, clean, lab.negatives(N))
    gradients = torch.autograd.grad(loss.sum(), (z1, z2))
    one = PairLoss(entry.importance, backprop_alpha=entry.backprop_alpha)
    for seed in range(SEEDS):
        a, b, c = (z[seed].detach().requires_grad_(True) for z in (z1, z2, clean))
        expected = one(a, b, c.detach()) if entry.importance.uses_clean_view else one(a, b)
        close(loss[seed], expected, terms=2 * N * NEGATIVES, gain=1 / TAU)
        for ours, theirs, z in zip(gradients, torch.autograd.grad(expected, (a, b)), (a, b), strict=True):
            close(tangential(ours[seed], z), tangential(theirs, z), terms=2 * N + OUTPUTS, gain=1 / TAU)


def test_matched_temperature_has_the_curvature_of_entropy_at_uniform_weights():
    # Near uniform weights the solved rows respond to a small change of distances by the same amount for every q.
    d2 = 0.5 + 1e-4 * torch.arange(11.0).double().repeat(1, 1)
    entropy = Entropy(0.5)(torch.zeros(1).double(), d2)
    for q in (-1.0, 0.5, 1.5, 2.0):
        alpha = lab.Tsallis(lab.matched_tau(0.5, q, 11), q)(torch.zeros(1).double(), d2)
        largest = (entropy - 1 / 11).abs().max().item()
        torch.testing.assert_close(alpha, entropy, rtol=0, atol=1e-2 * largest)  # to first order


def test_effective_negatives_count_uniform_rows_and_ignore_zeros():
    valid = lab.negatives(3)
    d2_pos, d2_neg = torch.zeros(1, 6), torch.full((1, 6, 6), 0.5)
    uniform = lab.row_statistics(lab.batched_alpha(Uniform(), d2_pos, d2_neg, valid), valid)
    close(uniform["effective"], torch.tensor([4.0]), terms=4)
    close(uniform["entropy"], torch.tensor([1.0]), terms=4)
    assert uniform["zeros"].item() == 0
    d2_neg[:, :, 1::3] = 0.0  # samples 0 and 2 have one nearby sample, sample 1 has none
    square = lab.row_statistics(lab.batched_alpha(Square(0.1), d2_pos, d2_neg, valid), valid)
    close(square["zeros"], torch.tensor([(4 * 0.5 + 2 * 0.0) / 6]), terms=6)
    close(square["effective"], torch.tensor([(4 * 2 + 2 * 4) / 6]), terms=6)


def test_readout_is_perfect_on_separable_embeddings_and_at_chance_on_noise():
    g = torch.Generator().manual_seed(0)
    label = torch.randint(4, (1, 400), generator=g)
    z = torch.nn.functional.one_hot(label, 4).float()
    assert lab.readout_accuracy(z, label, z, label, 4).item() == 1
    noise, other = torch.randn(2, 1, 400, 4, generator=g)
    assert lab.readout_accuracy(noise, label, other, label, 4).item() < 0.4


def test_views_share_the_signal_and_redraw_half_of_the_nuisance():
    points = lab.sphere_mixture(3, 1, 2000, 3, 4, 0.5, 0.7, 1)
    x1, x2, clean = (x[0, 0] for x in (points.x1, points.x2, points.clean))
    close(clean[:, :3].norm(dim=1), torch.ones(2000), terms=3)
    assert (x1[:, :3] - clean[:, :3]).std() == pytest.approx(0.1, rel=0.1)  # 2000 samples
    correlation = (x1[:, 3:] * x2[:, 3:]).mean() / (x1[:, 3:].std() * x2[:, 3:].std())
    assert correlation == pytest.approx(0.5, abs=0.05)  # 2000 samples
