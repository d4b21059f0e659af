"""Single neurons that see moving objects: their covariance operators and training."""

import pytest
import torch
from helpers.closeness import close

from lightning_ssl.labs import translation as lab


def test_ring_holds_both_objects_at_every_position() -> None:
    x = lab.ring(5)
    assert torch.equal(x.sum(2), torch.full((2, 5), 2.0, dtype=torch.float64))
    assert x[0, 4].tolist() == [1, 0, 0, 0, 1]
    assert x[1, 3].tolist() == [1, 0, 0, 1, 0]


@pytest.mark.parametrize("d", [5, 16])
@pytest.mark.parametrize("bias", [True, False])
def test_the_operator_of_a_linear_neuron_is_exactly_zero(d: int, bias: bool) -> None:
    w = torch.randn(7, d + bias, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for width in (2, 3, d):
        seen = lab.receptive_field(lab.ring(d), width, bias)
        assert torch.count_nonzero(lab.operator(w[:, : width + bias], seen, linear=True)) == 0


def test_the_signed_sum_of_the_four_patterns_cancels_without_bias() -> None:
    u = lab.pattern("11", False) + lab.pattern("00", False) - lab.pattern("01", False) - lab.pattern("10", False)
    assert torch.count_nonzero(u) == 0


@pytest.mark.parametrize("bias", [True, False])
def test_single_pattern_neurons_respond_to_their_pattern_only(bias: bool) -> None:
    w, names = lab.single_pattern_neurons(lab.ring(6), bias)
    every = torch.stack([lab.pattern(name, bias) for name in lab.PATTERNS])
    answers = w @ every.T > 0
    assert answers.sum(1).tolist() == [1] * len(names)
    assert [lab.PATTERNS[k] for k in answers.long().argmax(1).tolist()] == names


@pytest.mark.parametrize("d", [6, 16])
@pytest.mark.parametrize("bias", [True, False])
def test_operator_of_a_selective_neuron_is_a_quarter_over_d_squared(d: int, bias: bool) -> None:
    w, names = lab.single_pattern_neurons(lab.ring(d), bias)
    OP = lab.operator(w, lab.receptive_field(lab.ring(d), 2, bias))
    for k, name in enumerate(names):
        xp = lab.pattern(name, bias)
        close(OP[k], torch.outer(xp, xp) / (4 * d**2), terms=d)


def test_no_neuron_without_bias_responds_to_11_alone() -> None:
    w = torch.randn(20_000, 2, generator=torch.Generator().manual_seed(0))
    alone = (w.sum(1) > 0) & (w < 0).all(1)
    assert not alone.any()


def test_operator_is_the_expected_gradient_of_the_simple_loss() -> None:
    """−OP w equals autograd's gradient of E[r₊ − r₋] over all pairs of positions and objects (Theorem 3)."""
    x = lab.receptive_field(lab.ring(7), 3, True)
    w = torch.randn(5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    f = torch.einsum("rk,zpk->rzp", w, x).clamp_min(0)
    # Theorem 1 differentiates the tower of x₁ only; the other tower is fixed.
    fixed = f.detach()
    r_pos = ((f[:, :, :, None] - fixed[:, :, None, :]) ** 2 / 2).mean((1, 2, 3))
    r_neg = ((f[:, :, :, None, None] - fixed[:, None, None]) ** 2 / 2).mean((1, 2, 3, 4))
    (gradient,) = torch.autograd.grad((r_pos - r_neg).sum(), w)
    expected = (lab.operator(w, x) @ w[:, :, None])[:, :, 0]
    scale = float(x.abs().max() * f.detach().abs().max())  # the terms; their differences partly cancel
    close(-gradient, expected, terms=f[0].numel() ** 2, scale=scale)


def test_response_grows_by_the_closed_form_while_selective() -> None:
    d, alpha = 8, 3.0
    x = lab.receptive_field(lab.ring(d), 2, True)
    w, names = lab.single_pattern_neurons(x, True)
    path = lab.train(w, x, alpha, 60)
    lasts = lab.selective_steps(path, x)
    assert (lasts > 3).all()
    for k, name in enumerate(names):
        xp, T = lab.pattern(name, True), int(lasts[k])
        factor = 1 + alpha * xp.square().sum() / (4 * d**2)
        close(path[T, k] @ xp, (path[0, k] @ xp) * factor**T, terms=T * d, scale=float(path[: T + 1, k].abs().max()))


def test_a_seed_in_a_batch_equals_that_seed_alone() -> None:
    settings = {"d": 7, "widths": (2, 7), "steps": 5}
    together = lab.run(seeds=4, first_seed=2, **settings).arrays
    for k in range(4):
        alone = lab.run(seeds=1, first_seed=2 + k, **settings).arrays
        for name in ("relu_norm", "object_gap"):
            scale = float(together[name].abs().max())  # one neuron's value may be 0
            close(alone[name][:, 0], together[name][:, k], terms=settings["steps"] * settings["d"], scale=scale)
