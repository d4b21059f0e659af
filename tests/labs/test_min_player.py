"""The two players: the min player's α and value. The gradients and paths are claims of the quick run."""

import pytest
import torch
from helpers.closeness import close

from lightning_ssl.labs.importances import batched_alpha, sphere_mixture
from lightning_ssl.labs.min_player import descent, players
from lightning_ssl.losses.families import InfoNCE
from lightning_ssl.losses.solved import Tsallis

SEEDS, N, TAU = 2, 8, 0.5
INPUTS, HIDDEN, OUTPUTS = 8, 10, 6
TERMS = N + 2 * (INPUTS + HIDDEN + OUTPUTS)  # of one loss and its gradient


def distances():
    points = sphere_mixture(3, 1, N, 3, INPUTS - 3, 0.5, 0.5, SEEDS)
    start = descent.initial(INPUTS, HIDDEN, OUTPUTS, SEEDS)
    return players.pair_distances(points.x1[:, 0].double(), points.x2[:, 0].double(), start)


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


@pytest.mark.parametrize("q", [0.0, 1.0])
def test_regularizer_is_continuous_where_its_formula_is_a_limit(q):
    alpha = batched_alpha(Tsallis(0.5, 1.0), *distances(), players.negatives(N))
    values = [players.regularizer(alpha, 0.5, q + h, players.negatives(N)) for h in (-1e-6, 0.0, 1e-6)]
    # q differs by 1e-6 from its limit.
    torch.testing.assert_close(values[1], (values[0] + values[2]) / 2, rtol=1e-5, atol=1e-6)
