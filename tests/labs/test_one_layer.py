"""The one-layer lab: A(w) against sums over pairs and autograd. Closed forms and optima are claims of the quick run."""

import math

import pytest
import torch
from helpers.closeness import bound, close
from torch import Tensor

from lightning_ssl.labs.one_layer import dynamics, irregularity, kernels, smooth


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


GATES = {
    "linear": (dynamics.linear, 1.0),
    "relu": (dynamics.relu, 0.0),
    "leaky": (dynamics.leaky_relu(0.3), 0.3),
    "abs": (dynamics.leaky_relu(-1.0), -1.0),
}


@pytest.mark.parametrize("name", [*GATES, "power"])
def test_the_direction_of_every_gate_is_A_times_w(name: str) -> None:
    gate = dynamics.power(3) if name == "power" else GATES[name][0]
    w, x, prob = random_problem()
    for alpha in (None, dynamics.filter_alpha(w, x, 0.5)):
        A = dynamics.gated_covariance(w, x, prob, alpha, gate)
        largest = float(x.abs().max()) ** 6
        found = dynamics.ascent_direction(w, x, prob, alpha, gate)
        close(found, (A @ w[..., None])[..., 0], terms=len(prob) ** 2, scale=largest, gain=2)


@pytest.mark.parametrize("name", GATES)
def test_the_covariance_of_a_mixture_is_the_integral_over_its_gaussians(name: str) -> None:
    """x = c + σ(sw + rest): the rest has the mean 0 and the covariance I − wwᵀ, and s is integrated numerically."""
    gate, slope = GATES[name]
    w, c, prob = random_problem(d=3)
    sigma = 0.4
    found = smooth.Mixture(c, prob, sigma, slope).covariance(w)[1, 2]
    v, width = w[1, 2], 0.01
    second, first = torch.zeros(3, 3, dtype=c.dtype), torch.zeros(3, dtype=c.dtype)
    for p, centre in zip(prob, c[1], strict=True):
        edge = -float(centre @ v) / sigma  # the gate jumps here; cells start at the jump
        for side in (1, -1):
            for k in range(int(14 / width)):
                s = edge + side * (k + 0.5) * width
                m, g = centre + sigma * s * v, float(gate(torch.tensor([side], dtype=c.dtype)))
                mass = float(p) * width * math.exp(-s * s / 2) / math.sqrt(2 * math.pi)
                if mass > 1e-14:
                    across = sigma**2 * (torch.eye(3, dtype=c.dtype) - torch.outer(v, v))
                    second += mass * g**2 * (torch.outer(m, m) + across)
                    first += mass * g * m
    assert torch.allclose(found, second - torch.outer(first, first), atol=5e-5)


def test_derivatives_of_A_are_its_finite_differences_along_the_sphere() -> None:
    w, c, prob = random_problem(d=3)
    mixture, h = smooth.Mixture(c, prob, 0.4), 1e-5
    found = smooth.derivatives(mixture.covariance, w)
    for k, axis in enumerate(torch.eye(3, dtype=c.dtype)):
        ahead, behind = (mixture.covariance(dynamics.unit(w + sign * h * axis)) for sign in (1, -1))
        assert torch.allclose(found[..., k], (ahead - behind) / (2 * h), atol=1e-7)
    steepest = torch.linalg.eigvalsh(found.movedim(-1, 2)).abs().amax((2, 3))
    assert (smooth.lipschitz(mixture.covariance, w) >= steepest).all()


@pytest.mark.parametrize("slope", [0.0, 0.3, -1.0])
def test_the_change_of_A_comes_from_the_mean_alone(slope: float) -> None:
    """(dA[u])w = −(1 − slope) E[h] Q u, Q = ∫_{wᵀx=0} xxᵀ p(x) dx."""
    w, c, prob = random_problem(d=3)
    sigma, v = 0.4, w[1, 2]
    mixture = smooth.Mixture(c, prob, sigma, slope)
    found = smooth.derivatives(mixture.covariance, w)[1, 2]  # (d, d, u)
    across = torch.eye(3, dtype=c.dtype) - torch.outer(v, v)
    Q, mean = torch.zeros(3, 3, dtype=c.dtype), 0.0
    for p, centre in zip(prob, c[1], strict=True):
        a = float(centre @ v) / sigma
        density = math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
        Q += p * density / sigma * (torch.outer(across @ centre, across @ centre) + sigma**2 * across)
        positive = (1 + math.erf(a / math.sqrt(2))) / 2
        mean += float(p) * ((1 - slope) * (sigma * a * positive + sigma * density) + slope * sigma * a)
    assert torch.allclose(torch.einsum("iju,j->iu", found, v), -(1 - slope) * mean * Q, atol=1e-9)


def test_theorem_1_holds_and_is_tight_for_the_square() -> None:
    """h = x²: ρ(u_m) = 1 and λ_gap = E[y⁴] − 2 in the summation model."""
    q = 0.2
    U = dynamics.patterns(1, 3, 3)
    x, prob = dynamics.summation(U, q)

    def covariance(w: Tensor) -> Tensor:
        return dynamics.gated_covariance(w, x, prob, gate=dynamics.power(2))

    fourth = ((1 - q) ** 3 + q**3) / (q * (1 - q))
    assert torch.allclose(smooth.roughness(covariance, U), torch.ones(1, 3, dtype=torch.float64))
    gap = smooth.Top.of(covariance(U), U).gap
    assert torch.allclose(gap, torch.full_like(gap, fourth - 2))


def test_a_filter_that_leaves_for_another_optimum_does_not_return() -> None:
    U = dynamics.patterns(1, 3, 3)
    x, prob = dynamics.summation(U, 0.3)
    assert not dynamics.stable(U, x, prob, gate=dynamics.power(3)).any()


def test_lemma_4_needs_no_negative_eigenvalue_larger_than_the_second() -> None:
    """The lemma asks for λ₁ > 0 only; its proof needs |λ_i| ≤ λ₂ for i > 1."""
    for least, holds in ((-0.2, True), (-5.0, False)):
        A = torch.diag(torch.tensor([1.0, 0.5, least], dtype=torch.float64))
        w = torch.tensor([0.9, 0.0, math.sqrt(1 - 0.81)], dtype=torch.float64)
        top = smooth.Top.of(A, w)
        d = top.phi @ dynamics.unit(A @ w)
        assert bool(1 - d <= irregularity.mu(torch.tensor(0.9), top) * (1 - 0.9)) == holds


def test_points_of_a_cap_are_unit_vectors_within_its_chord() -> None:
    w, size = dynamics.filters(2, 3, 4), torch.tensor([[0.1, 0.5, 2.0]] * 2, dtype=torch.float64)
    points = torch.randn(2, 10, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    v = irregularity.cap(w, size, points)
    close(v.norm(dim=3), torch.ones(2, 3, 10, dtype=torch.float64), terms=4)
    chord = (v - w[:, :, None]).norm(dim=3)
    assert (chord <= size[..., None] + 1e-9).all()
    assert torch.allclose(chord.amax(2), size, atol=1e-6)


def test_both_forms_of_the_neighbourhood_of_theorem_3_are_one() -> None:
    """Eqn. 122 bounds ‖w − w(0)‖, Eqn. 96 wᵀw(0): Eqn. 98."""
    gamma, distance = torch.tensor(0.3, dtype=torch.float64), torch.tensor(0.01, dtype=torch.float64)
    c_gamma = 2 * math.sqrt(0.3) / 1.3
    inner = 1 - irregularity.radius(gamma, distance) ** 2 / 2
    assert math.isclose(float(inner), (0.99 - c_gamma) / (1 - c_gamma))


def test_relu_with_the_lipschitz_constant_of_the_whole_sphere_does_not_meet_theorem_3() -> None:
    U = dynamics.patterns(2, 3, 3, 0.02)
    points = torch.randn(2, 16, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mixture = smooth.Mixture(*dynamics.summation(U, 0.2), 0.1)
    assert irregularity.smallest_gamma(mixture, U, points).holds.all()
    assert not irregularity.smallest_gamma(mixture, U, points, whole_sphere=True).holds.any()
