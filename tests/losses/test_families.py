"""The eight (φ, ψ) losses against slow loops over the table of the α-CL paper."""

import oracles
import pytest
import torch
from helpers.closeness import close
from helpers.losses import FAMILY_CASES, make_distances, scale_of
from helpers.refusals import refused

from lightning_ssl import losses
from lightning_ssl.losses.families import InfoNCE, ModifiedTriplet, SoftTriplet, Triplet
from lightning_ssl.losses.importance import FromFamily

COUNT = 9
every_case = pytest.mark.parametrize(("name", "parameters"), FAMILY_CASES)


@pytest.fixture
def distances():
    return make_distances(count=COUNT)


def family(name, parameters):
    return getattr(losses, name)(**parameters)


@every_case
def test_value_and_importance_of_a_family_equal_the_loops(name, parameters, distances):
    value, alpha = family(name, parameters).value, FromFamily(family(name, parameters))
    for found, oracle in ((value, oracles.family_values), (alpha, oracles.family_alpha)):
        expected = oracle(name, *distances, **parameters)
        close(found(*distances), expected, terms=COUNT, scale=scale_of(found, *distances))


@every_case
def test_phi_prime_and_psi_prime_are_the_derivatives_of_phi_and_psi(name, parameters):
    f = family(name, parameters)
    for function, derivative in ((f.phi, f.phi_prime), (f.psi, f.psi_prime)):
        x = torch.linspace(0.2, 3, 23, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(function(x).sum(), x)
        close(derivative(x.detach()), slope, scale=scale_of(derivative, x.detach()))


@every_case
def test_masked_negatives_do_not_count(name, parameters, distances):
    d2_pos, d2_neg = distances
    valid = torch.ones_like(d2_neg, dtype=torch.bool)
    valid[:, ::2] = False
    f = family(name, parameters)
    expected = f.value(d2_pos, d2_neg[:, 1::2])
    close(f.value(d2_pos, d2_neg, valid), expected, terms=COUNT, scale=scale_of(f.value, *distances))


def test_the_value_is_finite_at_a_tau_where_xi_overflows():
    """Only the nearest negative counts at this τ: the value is d2_pos − min d2_neg."""
    d2_pos, d2_neg = torch.tensor([1.9]), torch.tensor([[0.1, 0.2]])
    for f in (InfoNCE(tau=1e-3), SoftTriplet(tau=1e-3)):
        assert torch.isinf(f.xi(d2_pos, d2_neg)).all()
        close(f.value(d2_pos, d2_neg), torch.tensor([1.8]), terms=2)


test_an_invalid_parameter_is_refused_by_name_and_value = refused(
    (lambda: InfoNCE(tau=float("nan")), "tau=nan"),
    (lambda: InfoNCE(eps=-1.0), "eps=-1.0"),
    (lambda: SoftTriplet(margin=float("inf")), "margin=inf"),
    (lambda: Triplet(margin=float("nan")), "margin=nan"),
    (lambda: ModifiedTriplet(c=0.0), "c=0.0"),
)
