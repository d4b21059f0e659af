"""Single neurons that see moving objects: their covariance operators and training."""

import torch
from helpers.closeness import close

from lightning_ssl.labs import translation as lab


def test_ring_holds_both_objects_at_every_position() -> None:
    x = lab.ring(5)
    assert torch.equal(x.sum(2), torch.full((2, 5), 2.0, dtype=torch.float64))
    assert x[0, 4].tolist() == [1, 0, 0, 0, 1]
    assert x[1, 3].tolist() == [1, 0, 0, 1, 0]


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
