"""Every argument of a method has one role: what a method does not declare is its loss."""

import pytest

from lightning_ssl import methods
from lightning_ssl.app.config.keys import role
from lightning_ssl.base.signatures import arguments_of, concrete

LOSS = {
    "SimCLR": {"tau", "eps", "anchors"},
    "AlphaCL": {"importance", "anchors", "beta", "beta_times", "backprop_alpha"},
    "SimSiam": set(),
    "BYOL": {"momentum"},
}


@pytest.mark.parametrize("name", LOSS)
def test_the_loss_of_a_method_is_what_it_does_not_declare(name):
    arguments = arguments_of(getattr(methods, name))
    assert {argument for argument in arguments if role(f"model.{argument}") == "loss"} == LOSS[name]


def test_every_method_is_checked_and_no_argument_of_the_base_is_a_loss():
    assert {kind.__name__ for kind in concrete(methods.Method)} == set(LOSS)
    assert {role(f"model.{argument}") for argument in arguments_of(methods.Method)} == {"setting", "incidental"}
