"""The one-layer lab: A(w) against sums over pairs and autograd, closed forms, thresholds, power iteration."""

import math

import pytest
import torch
from helpers.closeness import bound, close
from torch import Tensor

from lightning_ssl.labs.one_layer import data, dynamics, kernels


def pair_sum(g: Tensor, prob: Tensor, alpha: Tensor) -> Tensor:
    """C_α[g] by the double loop of the definition; g (n, d)."""
    total = torch.zeros(g.shape[1], g.shape[1], dtype=g.dtype)
    for i in range(len(g)):
        for j in range(len(g)):
            gap = g[i] - g[j]
            total += prob[i] * prob[j] * alpha[i, j] * torch.outer(gap, gap) / 2
    return total


def random_problem(seeds: int = 2, filters: int = 3, n: int = 7, d: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(seeds, n, d, generator=generator, dtype=torch.float64)
    prob = torch.rand(n, generator=generator, dtype=torch.float64)
    return data.filters(seeds, filters, d), x, prob / prob.sum()


@pytest.mark.parametrize("tau", [None, 0.5])
def test_gated_covariance_is_the_sum_over_pairs(tau: float | None) -> None:
    w, x, prob = random_problem()
    found = dynamics.gated_covariance(w, x, prob, dynamics.filter_alpha(w, x, tau))
    for s in range(2):
        for i in range(3):
            a = x[s] @ w[s, i]
            gated = x[s] * (a > 0)[:, None]
            h = a.relu()
            alpha = torch.ones(7, 7) if tau is None else torch.exp(-((h[:, None] - h) ** 2) / (2 * tau))
            close(found[s, i], pair_sum(gated, prob, alpha), terms=len(prob) ** 2, gain=1 / (tau or 1))


@pytest.mark.parametrize("tau", [None, 0.5])
def test_lemma_3_the_gradient_of_half_the_energy_is_A_times_w(tau: float | None) -> None:
    w, x, prob = random_problem()
    alpha = dynamics.filter_alpha(w, x, tau)
    found = dynamics.ascent_direction(w, x, prob, alpha)
    A = dynamics.gated_covariance(w, x, prob, alpha)
    close(found, (A @ w[..., None])[..., 0], terms=len(prob) ** 2, gain=1 / (tau or 1))
    w.requires_grad_()
    h = (w @ x.mT).relu()[..., None]  # (S, I, n, 1)
    (grad,) = torch.autograd.grad(dynamics.covariance(h, prob, alpha).sum() / 2, w)
    close(found, grad, terms=len(prob) ** 2, gain=1 / (tau or 1))


def test_linear_direction_is_the_covariance_times_w() -> None:
    w, x, prob = random_problem()
    C = dynamics.covariance(x, prob)  # (S, d, d)
    close(dynamics.ascent_direction(w, x, prob, linear=True), w @ C, terms=len(prob))


def test_eqn_34_categorical_model() -> None:
    U = data.patterns(3, 5, 8)
    A = dynamics.gated_covariance(U, *data.categorical(U))
    expected = 0.2 * 0.8 * U[..., :, None] * U[..., None, :]
    close(A, expected, terms=U.shape[2] + U.shape[1])


@pytest.mark.parametrize("q", [0.1, 0.3, 0.45])
def test_eqn_35_summation_model(q: float) -> None:
    U = data.patterns(2, 4, 4)
    x, prob = data.summation(U, q)
    A = dynamics.gated_covariance(U, x, prob)
    outer = U[..., :, None] * U[..., None, :]
    expected = (1 - q) ** 2 * outer + q * (torch.eye(4).double() - outer)
    close(A, expected, terms=len(prob), scale=float(x.square().max()))


def test_summation_model_is_standardized() -> None:
    U = data.patterns(1, 4, 4)
    x, prob = data.summation(U, 0.2)
    terms, largest = len(prob), float(x.abs().max())
    close(prob.sum(), torch.ones((), dtype=torch.float64), terms=terms)
    close(prob @ x[0], torch.zeros(4, dtype=torch.float64), terms=terms, scale=largest)
    close(dynamics.covariance(x[0], prob), torch.eye(4, dtype=torch.float64), terms=terms, scale=largest**2)


@pytest.mark.parametrize("tau", [0.5, 3.0])
def test_gaussian_alpha_closed_form_of_the_summation_model(tau: float) -> None:
    q, U = 0.25, data.patterns(1, 3, 3)
    x, prob = data.summation(U, q)
    A = dynamics.gated_covariance(U, x, prob, dynamics.filter_alpha(U, x, tau))
    outer = U[..., :, None] * U[..., None, :]
    kappa = math.exp(-(1 - q) / (2 * tau * q))
    across = q**2 + kappa * q * (1 - q)
    expected = kappa * (1 - q) ** 2 * outer + across * (torch.eye(3).double() - outer)
    close(A, expected, terms=len(prob) ** 2, scale=float(x.square().max()), gain=1 / min(tau, 1))


def test_threshold_of_q_separates_stable_from_unstable() -> None:
    U = data.patterns(2, 3, 3)
    assert abs(dynamics.THRESHOLD - 0.381966) < 1e-6  # six digits
    for q, returns in [(dynamics.THRESHOLD - 0.004, True), (dynamics.THRESHOLD + 0.004, False)]:
        assert (dynamics.stable(U, *data.summation(U, q)) == returns).all()


def test_gaussian_alpha_lowers_the_threshold_when_held_and_raises_it_when_updated() -> None:
    held, following = dynamics.gaussian_threshold(2.0, hold=True), dynamics.gaussian_threshold(2.0, hold=False)
    assert held < dynamics.THRESHOLD < following
    U = data.patterns(1, 3, 3)
    for limit, hold in [(held, True), (following, False)]:
        for q, returns in [(limit - 0.004, True), (limit + 0.004, False)]:
            x, prob = data.summation(U, q)
            assert (dynamics.stable(U, x, prob, 2.0, hold) == returns).all()


def test_lemma_1_features_are_nonnegative_and_sum_to_alpha() -> None:
    h = torch.rand(20, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
    tau = 0.5
    phi = kernels.gaussian_features(h, tau, 80)  # the rest of the series is below eps
    assert (phi >= 0).all()
    close(phi.T @ phi, dynamics.gaussian_alpha(h, tau), terms=len(phi), gain=1 / tau)


def test_lemma_2_without_augmentation_is_exact_on_support_points() -> None:
    _, x, prob = random_problem()
    h = x[0, :, 0].relu()
    tau = 0.7
    by_pairs = dynamics.covariance(x[0], prob, dynamics.gaussian_alpha(h, tau))
    phi = kernels.gaussian_features(h, tau, 80)
    close(by_pairs, kernels.kernel_covariance(x[0], prob, phi), terms=len(phi) + len(prob) ** 2, gain=1 / tau)
    largest = float(by_pairs.abs().max())
    assert torch.linalg.eigvalsh(by_pairs)[0] > -bound(torch.float64, largest, len(prob) ** 2, 1 / tau)


def test_lemma_2_error_falls_with_the_batch() -> None:
    error = kernels.batch_covariance_error(16, (32, 512), 0.5).mean(1)
    assert error[1] < error[0] / 2


def test_theorem_2_and_corollary_2_in_the_plane() -> None:
    cells = 100
    rough = kernels.roughness_in_the_plane((0.5, 0.1), cells=cells)
    assert (rough["rho"] <= rough["bound"]).all()
    close(rough["r"][1:] / rough["r"][0], rough["z0"][1:], terms=4 * cells**2)
    # The rotation is finite.
    torch.testing.assert_close(rough["rho"][1:] / rough["rho"][0], rough["exact"][1:], atol=0.03, rtol=0)


def test_power_iteration_finds_an_eigenvector_near_each_skewed_pattern() -> None:
    U = data.patterns(2, 4, 6, skew=0.05)
    x, prob = data.summation(U, 0.2)
    w, moved = dynamics.power_iteration(U, x, prob, 100)
    assert moved[-1].max() < 1e-8  # 100 iterations
    assert (w * U).sum(2).min() > 0.99
    A = dynamics.gated_covariance(w, x, prob)
    top = torch.linalg.eigh(A).eigenvectors[..., -1]
    assert ((top * w).sum(2).abs() - 1).abs().max() < 1e-6


def test_linear_layer_has_one_optimum_and_relu_layer_several() -> None:
    x = data.noisy_samples(2, 5, 40, 0.3)
    prob = x.new_full((40,), 1 / 40)
    w = data.filters(2, 20, 5)
    linear, _ = dynamics.distinct(dynamics.ascend(w, x, prob, 3000, linear=True), signed=False)
    relu, sizes = dynamics.distinct(dynamics.ascend(w, x, prob, 150))
    assert linear.tolist() == [1, 1]
    assert relu.min() > 1
    assert sizes.sum(1).tolist() == [20, 20]


def test_distinct_counts_groups_and_their_sizes() -> None:
    w = torch.eye(3, dtype=torch.float64)[[0, 1, 0, 2, 0]][None]
    count, sizes = dynamics.distinct(w)
    assert count.tolist() == [3]
    assert sizes.tolist() == [[3, 1, 1, 0, 0]]
    assert dynamics.distinct(torch.stack([w[0, 0], -w[0, 0]])[None], signed=False)[0].tolist() == [1]


def test_a_seed_in_a_batch_equals_that_seed_alone() -> None:
    samples, steps, tau = 20, 40, 0.5
    batch = data.noisy_samples(3, 4, samples, 0.3), data.filters(3, 6, 4)
    alone = data.noisy_samples(1, 4, samples, 0.3, first_seed=2), data.filters(1, 6, 4, first_seed=2)
    prob = batch[0].new_full((samples,), 1 / samples)
    together, single = (dynamics.ascend(w, x, prob, steps, tau=tau) for x, w in (batch, alone))
    close(together[2:], single, terms=steps * samples**2, gain=1 / tau)
