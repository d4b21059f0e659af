"""Two ReLU layers on an orthogonal mixture: Lemma 3 and Theorems 4 to 6."""

import pytest
import torch
from helpers.closeness import close

from lightning_ssl.labs import relu_two_layer
from lightning_ssl.labs.deep_linear.data import fixed_alpha, mean_covariance
from lightning_ssl.labs.relu_two_layer import network

HIDDEN, MODES, SAMPLES, OUTPUTS, SEEDS = (1, 3), 4, 20, 5, 3
STEP = 2 * (MODES + max(HIDDEN) + OUTPUTS)  # terms of one gradient, given X_α


def problem(augmentation=1.0, init="positive"):
    x1, x2 = network.mixture(MODES, SAMPLES, augmentation, SEEDS)
    alpha = fixed_alpha(x1, "entropy", 1.0, torch.ones(SEEDS, SAMPLES, SAMPLES).double())
    return x1, x2, alpha, *network.initial(MODES, HIDDEN, OUTPUTS, init, SEEDS)


def test_mixture_is_nonnegative_one_hot_and_views_differ_by_a_positive_factor():
    x1, x2 = network.mixture(MODES, SAMPLES, 1.0, SEEDS)
    assert ((x1 > 0).sum(2) == 1).all()
    assert (x1.amax(1) > 0).all()
    gamma = x2.sum(2) / x1.sum(2)
    assert (gamma > 0).all()
    close(x2, gamma[:, :, None] * x1)


@pytest.mark.parametrize("init", ["positive", "gaussian"])
def test_theorem_4_relu_gradient_is_the_linear_one_where_weights_are_positive(init):
    x1, x2, alpha, w1, w2 = problem(init=init)
    assert init == "positive" or (w1[1] == 0).any()
    x_alpha = mean_covariance(x1, x2, alpha)
    for ours, autograd in zip(
        network.sticky_gradients(w1, w2, x_alpha), network.relu_gradients(w1, w2, x1, x2, alpha), strict=True
    ):
        close(ours, autograd, terms=STEP + SAMPLES**2)


def test_padding_with_zero_nodes_changes_nothing():
    steps = 300
    settings = {"modes": 4, "samples": 20, "steps": steps, "seeds": 2, "augmentation": (1.5,), "outputs": 3}
    together = relu_two_layer.run(hidden=(1, 1), **settings).arrays["reached"]
    close(together[:, 0], together[:, 1], terms=steps * STEP)
    x1, x2 = network.mixture(4, 20, 1.5, 2)
    x_alpha = mean_covariance(x1, x2, fixed_alpha(x1, "uniform", 1.0, torch.ones(2, 20, 20).double()))
    w1, w2 = network.initial(4, (2,), 3, "positive", 2)
    p1, p2 = torch.nn.functional.pad(w1, (0, 0, 0, 3)), torch.nn.functional.pad(w2, (0, 3))
    for _ in range(steps):
        w1, w2 = network.step(w1, w2, *network.sticky_gradients(w1, w2, x_alpha), 0.1)
        p1, p2 = network.step(p1, p2, *network.sticky_gradients(p1, p2, x_alpha), 0.1)
    close(p1[..., :2, :], w1, terms=steps * STEP)
    assert (p1[..., 2:, :] == 0).all()


def test_two_modes_under_strong_augmentation_end_at_rank_two():
    # X = [[a, −c], [−c, a]] with c > a > 0 has λ_min < 0; the split W_1 = I/√2 has energy (a + c)/2 > a.
    x_alpha = torch.tensor([[[0.1, -1.0], [-1.0, 0.1]]]).double()
    w1, w2 = network.initial(2, (2,), 2, "positive", 1)
    for _ in range(3000):
        w1, w2 = network.step(w1, w2, *network.sticky_gradients(w1, w2, x_alpha), 0.05)
    assert network.classify(w1)[0].item() == 2
    assert abs(network.energy(w1, w2, x_alpha).item() - 0.55) < 1e-4  # 3000 steps
