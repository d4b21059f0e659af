"""The one-layer lab: A(w) against sums over pairs and autograd. Closed forms and optima are claims of the quick run."""

import pytest
import torch
from helpers.closeness import bound, close
from torch import Tensor

from lightning_ssl.labs.one_layer import dynamics, kernels


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
    return dynamics.filters(seeds, filters, d), x, prob / prob.sum()


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


def test_summation_model_is_standardized() -> None:
    U = dynamics.patterns(1, 4, 4)
    x, prob = dynamics.summation(U, 0.2)
    terms, largest = len(prob), float(x.abs().max())
    close(prob.sum(), torch.ones((), dtype=torch.float64), terms=terms)
    close(prob @ x[0], torch.zeros(4, dtype=torch.float64), terms=terms, scale=largest)
    close(dynamics.covariance(x[0], prob), torch.eye(4, dtype=torch.float64), terms=terms, scale=largest**2)


def test_lemma_2_without_augmentation_is_exact_on_support_points() -> None:
    _, x, prob = random_problem()
    h = x[0, :, 0].relu()
    tau = 0.7
    by_pairs = dynamics.covariance(x[0], prob, dynamics.gaussian_alpha(h, tau))
    phi = kernels.gaussian_features(h, tau, 80)
    close(by_pairs, kernels.kernel_covariance(x[0], prob, phi), terms=len(phi) + len(prob) ** 2, gain=1 / tau)
    largest = float(by_pairs.abs().max())
    assert torch.linalg.eigvalsh(by_pairs)[0] > -bound(torch.float64, largest, len(prob) ** 2, 1 / tau)


def test_distinct_counts_groups_and_their_sizes() -> None:
    w = torch.eye(3, dtype=torch.float64)[[0, 1, 0, 2, 0]][None]
    count, sizes = dynamics.distinct(w)
    assert count.tolist() == [3]
    assert sizes.tolist() == [[3, 1, 1, 0, 0]]
    assert dynamics.distinct(torch.stack([w[0, 0], -w[0, 0]])[None], signed=False)[0].tolist() == [1]


def test_a_seed_in_a_batch_equals_that_seed_alone() -> None:
    samples, steps, tau = 20, 40, 0.5
    batch = dynamics.noisy_samples(3, 4, samples, 0.3), dynamics.filters(3, 6, 4)
    alone = dynamics.noisy_samples(1, 4, samples, 0.3, first_seed=2), dynamics.filters(1, 6, 4, first_seed=2)
    prob = batch[0].new_full((samples,), 1 / samples)
    together, single = (dynamics.ascend(w, x, prob, steps, tau=tau) for x, w in (batch, alone))
    close(together[2:], single, terms=steps * samples**2, gain=1 / tau)
