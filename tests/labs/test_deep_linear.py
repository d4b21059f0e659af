"""Deep linear networks under fixed α: Lemma 1 and the flow. The other statements are claims of the quick run."""

import pytest
import torch
from helpers.closeness import close

from lightning_ssl.labs.deep_linear import ascent, data, flow

WIDTHS = (5, 6, 4, 3)
INPUTS, SAMPLES = WIDTHS[0], 12
PAIRS = SAMPLES**2  # terms of X_α


def problem(seeds=3, first_seed=0, kind="random"):
    x1, x2 = data.views(INPUTS, SAMPLES, 0.6, seeds, first_seed)
    noise = torch.rand(seeds, SAMPLES, SAMPLES, generator=torch.Generator().manual_seed(0)).double()
    return x1, x2, data.fixed_alpha(x1, kind, 1.0, noise)


def test_contrastive_covariance_equals_the_double_sum_of_the_definition():
    x1, x2, alpha = problem()
    expected = torch.zeros(3, INPUTS, INPUTS).double()
    for r in range(3):
        for i in range(SAMPLES):
            for j in range(SAMPLES):
                d, e = x1[r, i] - x1[r, j], x1[r, i] - x2[r, i]
                expected[r] += alpha[r, i, j] * (torch.outer(d, d) - torch.outer(e, e)) / SAMPLES
    close(data.mean_covariance(x1, x2, alpha), expected, terms=PAIRS)


@pytest.mark.parametrize("kind", ["uniform", "entropy", "random"])
def test_fixed_alpha_rows_sum_to_one_without_the_diagonal(kind):
    _, _, alpha = problem(kind=kind)
    close(alpha.sum(2), torch.ones(3, SAMPLES).double(), terms=SAMPLES)
    assert (alpha.diagonal(dim1=1, dim2=2) == 0).all()


def test_lemma_1_is_half_the_gradient_of_the_energy():
    x_alpha = data.mean_covariance(*problem())
    weights = [w.requires_grad_() for w in ascent.initial(WIDTHS, 3)]
    w3, w2, w1 = weights[::-1]
    energy = torch.einsum("rki,rij,rkj->", w3 @ w2 @ w1, x_alpha, w3 @ w2 @ w1)
    for ours, autograd in zip(ascent.gradients(weights, x_alpha), torch.autograd.grad(energy, weights), strict=True):
        close(ours, autograd / 2, terms=2 * sum(WIDTHS))


def test_runge_kutta_drift_vanishes_with_the_fourth_power_of_the_step():
    x1, x2, alpha = problem()
    weights = [w * w.shape[1] ** 0.5 for w in ascent.initial(WIDTHS, 3)]
    coarse, fine = (
        flow.norm_drift(flow.gradient_flow(weights, x1, x2, alpha, "l2", steps, 0.02 / steps), "l2")[-1].max()
        for steps in (4, 8)
    )
    assert fine < coarse / 8
