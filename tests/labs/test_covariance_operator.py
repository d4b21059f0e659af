"""The parts of the covariance operators. That they equal the gradients is a claim of the quick run."""

from itertools import pairwise

import pytest
import torch
from helpers.closeness import bound, close
from torch import Tensor

from lightning_ssl.labs.covariance_operator import losses, operators
from lightning_ssl.labs.covariance_operator.networks import Population, connections, forward, vec
from lightning_ssl.labs.covariance_operator.operators import residue, residue_bound, train

SIZES, X, A, R = (4, 5, 6, 3), 5, 4, 3
TAU = 0.5
# Numbers added up: fan-ins of all layers forward and back, then the weights of a layer, then all pairs of views.
NETWORK = 2 * sum(SIZES)
CONNECTION = NETWORK + max(n * m for n, m in pairwise(SIZES))
OPERATOR = CONNECTION + (X * A) ** 2
SIMPLE, TRIPLET, INFONCE = losses.simple(), losses.soft_triplet(TAU, 1.0), losses.infonce(TAU)
every_loss = pytest.mark.parametrize("loss", [SIMPLE, TRIPLET, INFONCE], ids=lambda loss: loss.name)


@pytest.fixture(scope="module")
def population() -> Population:
    return Population(SIZES, X, A, 0.3, R, 0)


def test_connection_is_the_kronecker_product_with_autograds_jacobian(population: Population) -> None:
    run, view = 1, 7
    W, x = [w[run] for w in population.W], population.views[run, view]
    K = connections(population.W, population.views)
    below = x
    for layer in range(len(W)):

        def rest(pre: Tensor, layer: int = layer) -> Tensor:
            for weight in W[layer + 1 :]:
                pre = weight @ pre.clamp_min(0)
            return pre

        pre = W[layer] @ below
        J = torch.func.jacrev(rest)(pre)  # (n_L, n_l)
        ours, w = K[layer][run, view], vec(population.W[layer])[run]
        close(ours, torch.kron(below[:, None], J.T.contiguous()), terms=NETWORK)
        close(ours.T @ w, rest(pre), terms=CONNECTION, scale=float((ours.abs().T @ w.abs()).max()))
        below = pre.clamp_min(0)


@every_loss
def test_weight_is_minus_the_derivative_for_the_negative(loss: losses.Loss) -> None:
    r = 2 * torch.rand(50, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    _, neg, _ = operators.theorem2(loss, r[:, 0], r[:, 1:])
    close(loss.weight(r[:, 0], r[:, 1]), -neg[:, 0], gain=1 / TAU)


def test_infonce_equals_the_papers_fraction() -> None:
    r_pos, r_neg = torch.tensor([0.3]), torch.tensor([[0.7, 0.2, 1.0]])
    e_pos, e_neg = (-r_pos / TAU).exp(), (-r_neg / TAU).exp()
    expected = -(e_pos / (e_pos + e_neg.sum(1))).log()
    close(losses.infonce(TAU).value(r_pos, r_neg), expected, terms=1 + r_neg.shape[1], gain=1 / TAU)


def test_expected_loss_equals_a_loop_over_all_triples(population: Population) -> None:
    f, loss = forward(population.W, population.views)[-1], INFONCE
    run, total = 2, 0.0
    view = f[run].unflatten(0, (X, A))
    for x in range(X):
        for a1 in range(A):
            for a2 in range(A):
                r_pos = (view[x, a1] - view[x, a2]).square().sum() / 2
                for other in f[run]:
                    r_neg = (view[x, a1] - other).square().sum() / 2
                    total += loss.value(r_pos, r_neg[None]).item() / (X * A * A * X * A)
    close(losses.population_loss(X, loss)(f, f)[run].item(), total, terms=X * A * A * X * A, gain=1 / TAU)


def test_theorem4_weights_equal_half_the_weighted_covariance_of_differences(population: Population) -> None:
    r = population.clean_distances()
    xi = INFONCE.weight(torch.zeros_like(r), r)
    K = connections(population.W, population.views)[1]
    averaged = K.unflatten(1, (X, A)).mean(2)
    difference = averaged[:, :, None] - averaged[:, None]  # (R, X, X, p, c)
    expected = torch.einsum("rxy,rxypc,rxyqc->rpq", xi, difference, difference) / (2 * X**2)
    close(
        operators.operator(K, K, operators.theorem4_weights(population, INFONCE)),
        expected,
        terms=OPERATOR,
        gain=1 / TAU,
    )


@pytest.mark.parametrize("loss", [TRIPLET, INFONCE])
def test_residue_vanishes_with_the_augmentation_and_obeys_its_bound(loss: losses.Loss) -> None:
    shares = []
    for sigma in (1e-4, 1e-3, 0.3):
        population = Population(SIZES, X, A, sigma, R, 0)
        norm, bound = residue_bound(population, loss)
        assert (norm <= bound).all()
        shares.append(residue(population, loss)[0].median().item())
    assert shares[0] < 1e-5
    assert 30 < shares[1] / shares[0] < 300  # quadratic in σ
    assert shares[2] > 0.01


def test_operator_of_a_positive_beta_has_a_negative_eigenvalue(population: Population) -> None:
    lowest = operators.smallest_eigenvalue(population, operators.beta_weights(X, A, 0.2))
    assert (lowest < -1e6 * bound(torch.float64, 1, OPERATOR)).all()


@pytest.mark.parametrize("normalize", [False, True])
def test_training_descends_the_loss(normalize: bool) -> None:
    population, loss = Population(SIZES, X, A, 0.3, R, 0, normalize), INFONCE
    value = losses.population_loss(X, loss)
    before = population.outputs()
    start = value(before, before)
    train(population, loss, 0.003, 20)
    after = population.outputs()
    assert (value(after, after) < start).all()


def test_normalized_distances_are_at_most_two() -> None:
    unit, free = (Population(SIZES, X, A, 0.3, R, 0, normalize).clean_distances().max() for normalize in (True, False))
    assert unit <= 2 < free


@pytest.mark.parametrize("normalize", [False, True])
def test_an_update_is_the_operator_times_the_weights(normalize: bool) -> None:
    unit = Population(SIZES, X, A, 0.3, R, 0, normalize)
    M = operators.triple_weights(unit.outputs(), X, INFONCE)
    for W, (L, K) in zip(unit.W, unit.connections(), strict=True):
        expected = (operators.operator(L, K, M) @ vec(W)[..., None])[..., 0]
        close(operators.update(L, M, unit.outputs()), expected, terms=OPERATOR, scale=float(L.abs().max()))


def test_residue_of_the_simple_loss_is_zero_and_its_size_compares_operators(population: Population) -> None:
    assert (torch.stack(residue(population, SIMPLE)) < bound(torch.float64, 1, OPERATOR)).all()
    main = operators.theorem4_weights(population, INFONCE)
    theta = operators.triple_weights(population.outputs(), X, INFONCE) - main
    squares = [
        sum(operators.operator(K, K, M).square().sum((1, 2)) for K in connections(population.W, population.views))
        for M in (theta, main)
    ]
    expected = torch.stack([torch.as_tensor(square) for square in squares]).sqrt()
    close(residue(population, INFONCE)[1], expected[0] / expected[1], terms=OPERATOR, scale=1, gain=1 / TAU)
