"""Every public name of the losses has an example in its docstring, and the examples give the printed results."""

import doctest
import importlib
import inspect

import pytest

from lightning_ssl import losses

PUBLIC = [getattr(losses, name) for name in losses.__all__]


@pytest.mark.parametrize("file", ["energy", "families", "importance", "solved"])
def test_examples_give_the_printed_results(file):
    result = doctest.testmod(importlib.import_module(f"lightning_ssl.losses.{file}"))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("public", [each for each in PUBLIC if not inspect.isabstract(each)], ids=lambda x: x.__name__)
def test_every_public_name_has_an_example(public):
    own = vars(public)["__doc__"] if inspect.isclass(public) else public.__doc__  # not that of a base class
    assert ">>>" in own
