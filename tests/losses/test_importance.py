"""Every importance against a slow loop and its optimality condition."""

import oracles
import pytest
import torch
from helpers.closeness import bound, close
from helpers.losses import CASES, DIFFERENTIABLE, SOLVER_STOP, label, largest, make_distances, oracle_gain, scale_of
from helpers.refusals import refused

from lightning_ssl.losses import solved
from lightning_ssl.losses.importance import Direct, Entropy, Exact, FromFamily
from lightning_ssl.losses.solved import Inverse, Regularized, Square, Tsallis

SOLVED = [case for case in CASES if isinstance(case[0], solved.Solved)]


ROWS, COUNT = 5, 12
d2_pos, d2_neg = make_distances(rows=ROWS, count=COUNT)


@pytest.mark.parametrize(("rule", "oracle", "parameters"), CASES, ids=label)
def test_alpha_equals_the_loop(rule, oracle, parameters):
    expected = oracles.each_row(oracle, d2_neg, **parameters)
    scale = scale_of(rule, d2_pos, d2_neg)
    close(rule(d2_pos, d2_neg), expected, terms=COUNT, scale=scale, gain=oracle_gain(expected, d2_neg, **parameters))


def slope_of_regularizer(rule, alpha):
    """r'(α), written from the regularizers' definitions."""
    if isinstance(rule, Regularized):
        return rule.r_prime(alpha)
    if isinstance(rule, Inverse):
        return rule.tau * alpha**-rule.gamma
    q = {Entropy: 1.0, Square: 2.0}.get(type(rule)) or rule.q
    return -rule.tau * (alpha.log() + 1 if q == 1 else alpha ** (q - 1) / (q - 1))


@pytest.mark.parametrize("rule", [Entropy(), Entropy(tau=0.05), *(case[0] for case in SOLVED)], ids=label)
def test_the_optimality_condition_holds(rule):
    """Theorem 2: r'(α_ij) = c_ij − μ_i on the support, and c_ij − μ_i ≥ r'(0) outside of it."""
    alpha = rule(d2_pos, d2_neg)
    close(alpha.sum(1), torch.ones(ROWS, dtype=torch.float64), terms=COUNT)
    for c, row in zip(d2_neg, alpha, strict=True):
        support = row > 0
        multiplier = c[support] - slope_of_regularizer(rule, row[support])
        mu = multiplier.mean()
        scale = max(largest(c), largest(multiplier))
        close(multiplier, mu.expand_as(multiplier), terms=COUNT, scale=scale, gain=SOLVER_STOP)
        at_zero = slope_of_regularizer(rule, torch.zeros(1, dtype=torch.float64))
        assert (c[~support] - mu >= at_zero - bound(torch.float64, scale, COUNT, SOLVER_STOP)).all()


@pytest.mark.parametrize("rule", DIFFERENTIABLE, ids=label)
def test_the_weights_can_be_differentiated_by_autograd(rule):
    assert torch.autograd.gradcheck(lambda d: rule(d2_pos, d), (d2_neg.clone().requires_grad_(),), rtol=1e-4, atol=1e-7)


test_bad_input_is_refused_by_name_and_value = refused(
    (lambda: Entropy(tau=0), "tau=0:"),
    (lambda: Entropy(tau="0.5"), "tau='0.5'"),
    (lambda: Tsallis(q=50), "q=50: q must be a number from -5 to 3"),
    (lambda: Tsallis(q="1.5"), "q='1.5'"),
    (lambda: Inverse(gamma=6.5), "gamma=6.5: gamma must be a number above 1 and up to 6"),
    (lambda: Direct(p=1.0), "p=1.0"),
    (lambda: Exact(kind="triplet"), "kind='triplet'"),
    (lambda: Exact(r0=1.0), "r0=1.0"),
    (lambda: FromFamily("InfoNCE"), "family='InfoNCE'"),
    (lambda: Regularized(lambda a: a, lambda x: x), "r_prime="),
    (lambda: Regularized(lambda a: 1 / a, lambda x: 2 / x), "r_prime_inverse="),
    (lambda: Entropy()(torch.zeros(3, 1), torch.zeros(3, 4)), "d2_pos="),
    (lambda: Entropy()(torch.zeros(3), torch.zeros(3)), "d2_neg="),
    (lambda: Entropy()(torch.zeros(3), torch.zeros(3, 4), torch.ones(3, 4)), "valid="),
    (lambda: Entropy()(torch.zeros(3), torch.zeros(3, 4), torch.ones(4, 3, dtype=torch.bool)), "valid="),
)
