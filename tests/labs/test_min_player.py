"""The two players: Theorems 1 and 2, Corollary 1, and the loss of every concave regularizer."""

from functools import partial

import pytest
import torch
from helpers.closeness import close

from lightning_ssl.labs import min_player
from lightning_ssl.labs.importances import batched_alpha, sphere_mixture
from lightning_ssl.labs.min_player import descent, players
from lightning_ssl.losses.families import InfoNCE
from lightning_ssl.losses.importance import FromFamily
from lightning_ssl.losses.solved import Square, Tsallis

SEEDS, N, TAU = 2, 8, 0.5
INPUTS, HIDDEN, OUTPUTS = 8, 10, 6
TERMS = N + 2 * (INPUTS + HIDDEN + OUTPUTS)  # of one loss and its gradient


def problem():
    points = sphere_mixture(3, 1, N, 3, INPUTS - 3, 0.5, 0.5, SEEDS)
    start = descent.initial(INPUTS, HIDDEN, OUTPUTS, SEEDS)
    return descent.Problem(start, points.x1[:, 0].double(), points.x2[:, 0].double(), steps=0, lr=0.0)


def distances():
    given = problem()
    return players.pair_distances(given.x1, given.x2, given.start)


def test_theorem_1_gradient_of_the_loss_is_minus_that_of_the_energy():
    given, families = problem(), players.families(TAU).values()
    of_loss, _ = given.gradient(given.start, *(partial(players.family_loss, family) for family in families))
    of_energy, _ = given.gradient(given.start, *(descent.energy_of(FromFamily(family)) for family in families))
    gap = descent.relative_gap(of_energy, of_loss)
    close(gap, torch.zeros_like(gap), terms=TERMS, scale=1, gain=1 / TAU)


def test_theorem_2_solved_alpha_is_feasible_and_cannot_be_improved():
    family, (d2_pos, d2_neg) = InfoNCE(TAU, 1.0), distances()
    alpha = players.theorem2_alpha(family, d2_pos, d2_neg)
    valid = players.negatives(N)
    xi = ((d2_pos[:, :, None] - d2_neg) / TAU).exp().masked_fill(~valid, 0).sum(2)
    close(alpha.sum(2), xi / (xi + 1), terms=N, gain=1 / TAU)

    def objective(a):
        entropy = -TAU * torch.special.xlogy(a, a).sum(2)
        return (a * (d2_neg - d2_pos[:, :, None])).sum(2) - entropy

    g = torch.Generator().manual_seed(0)
    for _ in range(50):
        other = torch.rand(SEEDS, N, N, generator=g).double().masked_fill(~valid, 0)
        other = other / other.sum(2, keepdim=True) * alpha.sum(2, keepdim=True)
        assert (objective(alpha) < objective(other)).all()


@pytest.mark.parametrize("q", [-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
def test_solved_rows_attain_the_maximum_and_the_envelope_theorem_holds(q):
    d2_pos, d2_neg = distances()
    valid = players.negatives(N)
    best = players.min_player_value(TAU, q, d2_pos, d2_neg)
    g = torch.Generator().manual_seed(0)
    for _ in range(20):
        other = (torch.rand(SEEDS, N, N, generator=g).double() + 0.01).masked_fill(~valid, 0)
        other = other / other.sum(2, keepdim=True)
        value = players.regularizer(other, TAU, q, valid).mean(1) - players.mean_energy(other, d2_pos, d2_neg)
        assert (value < best).all()
    given = problem()
    direction = [torch.randn(w.shape, generator=g).double() for w in given.start]
    assert given.envelope_gap(TAU, q, direction).max() < 1e-5  # a central difference


@pytest.mark.parametrize("q", [0.0, 1.0])
def test_regularizer_is_continuous_where_its_formula_is_a_limit(q):
    alpha = batched_alpha(Tsallis(0.5, 1.0), *distances(), players.negatives(N))
    values = [players.regularizer(alpha, 0.5, q + h, players.negatives(N)) for h in (-1e-6, 0.0, 1e-6)]
    # q differs by 1e-6 from its limit.
    torch.testing.assert_close(values[1], (values[0] + values[2]) / 2, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("q", [1.0, 2.0])
def test_closed_form_losses_differ_from_the_solved_value_by_a_constant(q):
    (d2_pos, d2_neg), tau = distances(), 0.3
    loss = players.closed_form_loss(tau, q, d2_pos, d2_neg)
    gap = loss - players.min_player_value(tau, q, d2_pos, d2_neg)
    other_pos, other_neg = d2_pos.flip(1) * 0.5, d2_neg * 0.7
    other = players.closed_form_loss(tau, q, other_pos, other_neg) - players.min_player_value(
        tau, q, other_pos, other_neg
    )
    close(gap, other, terms=N**2, gain=1 / tau)


def test_closed_form_of_q_one_is_infonce_without_the_positive():
    (d2_pos, d2_neg), tau = distances(), 0.3
    expected = players.family_loss(InfoNCE(tau, 0.0), d2_pos, d2_neg)
    close(players.closed_form_loss(tau, 1.0, d2_pos, d2_neg), expected, terms=N**2, gain=1 / tau)


def test_gradient_of_the_closed_sparsemax_loss_is_the_projection_onto_the_simplex():
    (d2_pos, d2_neg), tau = distances(), 0.3
    d2_neg = d2_neg.detach().requires_grad_(True)
    (g,) = torch.autograd.grad(players.closed_form_loss(tau, 2.0, d2_pos, d2_neg).sum(), d2_neg)
    close(-g * N, batched_alpha(Square(tau), d2_pos, d2_neg.detach(), players.negatives(N)), terms=N, gain=1 / tau)


def test_a_seed_in_a_batch_equals_that_seed_alone():
    steps = 5
    settings = {"samples": N, "steps": steps, "q": (0.5, 2.0)}
    batch = min_player.run(seeds=3, **settings).arrays
    alone = min_player.run(seeds=1, first_seed=2, **settings).arrays
    for name in ("energy", "entropy", "loss"):
        close(batch[name][:, 2], alone[name][:, 0], terms=steps * TERMS, scale=1, gain=1 / TAU)
