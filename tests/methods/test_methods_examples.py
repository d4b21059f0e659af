"""The examples in the docstrings of methods, networks, augmentation and optimizers give the printed results."""

import doctest
import importlib

import pytest

FILES = [
    "methods.base",
    "methods.contrastive",
    "methods.siamese",
    "checks",
    "networks",
    "optim",
    "augment.parameters",
    "augment.presets",
    "augment.two_views",
]


@pytest.mark.parametrize("file", FILES)
def test_examples_give_the_printed_results(file):
    result = doctest.testmod(importlib.import_module(f"lightning_ssl.{file}"))
    assert result.attempted > 0
    assert result.failed == 0
