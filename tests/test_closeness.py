"""The tolerance rule accepts differences due to rounding and rejects larger ones."""

import pytest
import torch
from helpers.closeness import close


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("terms", [10, 1000, 100_000])
def test_another_order_of_summation_is_within_the_bound(dtype, terms):
    x = torch.rand(64, terms, dtype=dtype, generator=torch.Generator().manual_seed(0))
    close(x.sum(1), x.double().sum(1), terms=terms)
    close(x.flip(1).cumsum(1)[:, -1], x.cumsum(1)[:, -1], terms=terms)


def test_an_error_in_the_fifth_digit_of_float32_is_rejected():
    x = torch.ones(10)
    with pytest.raises(AssertionError):
        close(x * (1 + 1e-5), x, terms=100)


def test_the_bound_is_that_of_the_coarser_dtype():
    x = torch.linspace(1, 2, 7, dtype=torch.float64)
    close(x.float(), x)
    with pytest.raises(AssertionError):
        close(x.float().double(), x)


def test_the_scale_is_the_largest_entry_unless_given():
    expected, off = torch.tensor([1e3, 1e-3]), torch.tensor([0.0, 3 * torch.finfo(torch.float32).eps])
    close(expected + off, expected)
    with pytest.raises(AssertionError):
        close(expected + off, expected, scale=1e-3)


def test_containers_are_compared_entry_by_entry():
    one = {"a": [torch.ones(2), 0.5]}
    close(one, {"a": [torch.ones(2), 0.5]})
    with pytest.raises(AssertionError, match=r"\['a'\]\[1\]"):
        close(one, {"a": [torch.ones(2), 0.5 + 1e-9]})


def test_shapes_and_infinities_must_agree():
    with pytest.raises(AssertionError):
        close(torch.ones(2, 1), torch.ones(2))
    close(torch.tensor([torch.inf, 1.0]), torch.tensor([torch.inf, 1.0]))
    with pytest.raises(AssertionError):
        close(torch.tensor([1e38, 1.0]), torch.tensor([torch.inf, 1.0]))


def test_integer_results_are_refused():
    with pytest.raises(AssertionError, match="compare with =="):
        close(torch.tensor([1, 2]), torch.tensor([1, 2]))
