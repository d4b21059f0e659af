"""A user's own importance: what counts as one, and what is refused with which words."""

import functools

import pytest
import torch
from helpers.refusals import refused

from lightning_ssl.losses import Importance, PairLoss, Streaming


def function(d2_pos, d2_neg, valid):
    return torch.exp(-d2_neg)


def of_two(d2_pos, d2_neg):
    return d2_neg


class CallableClass:
    def __init__(self, scale=1.0):
        self.scale = scale

    def __call__(self, d2_pos, d2_neg, valid=None):
        return torch.exp(-self.scale * d2_neg)


class CallableOfTwo:
    def __call__(self, d2_pos, d2_neg):
        return d2_neg


class Subclass(Streaming):
    def log_kernel(self, d2_neg):
        return -d2_neg


def kind(value):
    """An id without an address, so that parallel workers agree on it."""
    return type(value).__name__


USABLE = [function, CallableClass(), CallableClass, Subclass(), functools.partial(function), torch.nn.Identity()]


@pytest.mark.parametrize("rule", USABLE, ids=kind)
def test_functions_and_callable_objects_can_be_used_in_place_of_an_importance(rule):
    assert Importance.wrong_part(rule) is None


@pytest.mark.parametrize("thing", [of_two, CallableOfTwo(), CallableOfTwo, str, function.__name__, 3, None], ids=kind)
def test_other_objects_cannot(thing):
    assert "accept (d2_pos, d2_neg, valid)" in Importance.wrong_part(thing)


def views():
    return torch.nn.functional.normalize(torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0)), dim=2)


def broken(d2_pos, d2_neg, valid):
    return d2_neg * (1 / 0)


test_a_wrong_signature_and_a_wrong_first_call_are_refused = refused(
    (
        lambda: PairLoss(of_two),
        r"importance=of_two: .*test_own_importance.py:\d+: it must accept \(d2_pos, d2_neg, valid\); its signature",
    ),
    (lambda: PairLoss(CallableOfTwo()), "importance=CallableOfTwo: .*it must accept"),
    (lambda: PairLoss(3), "importance=3: importance must be an Importance"),
    (
        lambda: PairLoss(broken)(*views()),
        r"importance=broken: .*test_own_importance.py:\d+: ZeroDivisionError: division by zero",
    ),
    (lambda: PairLoss(lambda p, n, v: None)(*views()), r"it returned NoneType; expected a tensor .* \(10, 10\)"),
    (lambda: PairLoss(lambda p, n, v: n.T[:3])(*views()), r"it returned shape \(3, 10\); expected .* \(10, 10\)"),
)


def test_the_error_names_the_key_of_the_command_line():
    loss = PairLoss(broken)
    loss.key = "model.importance"
    with pytest.raises(ValueError, match=r"^model\.importance=broken: "):
        loss(*views())
