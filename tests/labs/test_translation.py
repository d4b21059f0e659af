"""Single neurons that see moving objects: their covariance operators and training."""

import torch
from helpers.closeness import close

from lightning_ssl.labs import translation as lab
from lightning_ssl.labs.translation import semantic


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


def test_semantic_views_keep_the_semantic_part_and_scramble_the_rest() -> None:
    data = semantic.inputs(2, 0)
    rest = torch.eye(semantic.INPUTS, dtype=torch.float64) - data.Q
    kept = data.views @ data.Q[:, None]
    scale, terms = float(data.views.abs().max()), 2 * semantic.INPUTS
    close(kept, (data.clean @ data.Q)[:, :, None].expand_as(kept), terms=terms, scale=scale)
    assert (data.views @ rest[:, None] - (data.clean @ rest)[:, :, None]).norm() > 1
    variances = [torch.linalg.eigvalsh(Q @ semantic.covariance(data.clean) @ Q)[:, -1] for Q in (data.Q, rest)]
    assert (variances[0] < variances[1]).all()  # the nuisance has the largest variance


def test_semantic_operator_is_the_expected_gradient_in_a_loop_over_views() -> None:
    """−OP w equals autograd's gradient of E[r₊ − r₋], one pair of views at a time, the second tower fixed."""
    data, run = semantic.inputs(2, 0), 1
    x = data.views[run, :5, : semantic.PAIRS]  # one view of each opposite pair, so that K̄ is not Q x
    w = torch.randn(semantic.INPUTS, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    loss = torch.zeros((), dtype=torch.float64)
    samples, views = x.shape[:2]
    for s in range(samples):
        for a in range(views):
            anchor = w @ x[s, a]
            for b in range(views):
                loss = loss + (anchor - (w @ x[s, b]).detach()) ** 2 / 2 / (samples * views**2)
                for other in range(samples):
                    negative = (w @ x[other, b]).detach()
                    loss = loss - (anchor - negative) ** 2 / 2 / (samples * views) ** 2
    (gradient,) = torch.autograd.grad(loss, w)
    few = semantic.Inputs(data.Q[[run]], data.clean[[run], :5], x[None])
    ours = semantic.operator(few)[0] @ w.detach()
    close(-gradient, ours, terms=(samples * views) ** 2, scale=float(x.abs().max() * (x @ w).detach().abs().max()))
