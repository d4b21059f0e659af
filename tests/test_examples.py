"""Every public name has an example in its docstring, and the examples of the package give the printed results."""

import doctest
import importlib
import inspect
from pathlib import Path

import pytest
from generators import api

import lightning_ssl

PACKAGE = Path(lightning_ssl.__file__).parent
FILES = sorted(
    file.relative_to(PACKAGE) for file in PACKAGE.rglob("*.py") if ">>> " in file.read_text(encoding="utf-8")
)
NAMES = [name for names in lightning_ssl.PUBLIC_NAMES.values() for name in names]
FURTHER = [f"{room}.{name}" for room, names in api.FURTHER.items() for name in names]  # of the API pages


@pytest.mark.filterwarnings("ignore:.*available but not used")  # a GPU
@pytest.mark.parametrize("file", FILES, ids=str)
def test_examples_give_the_printed_results(file):
    module = ".".join(["lightning_ssl", *file.with_suffix("").parts]).removesuffix(".__init__")
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", [*NAMES, *FURTHER])
def test_every_public_name_has_an_example(name):
    room, _, short = name.rpartition(".")
    public = getattr(importlib.import_module(f"lightning_ssl.{room}" if room else "lightning_ssl"), short)
    own = vars(public)["__doc__"] if inspect.isclass(public) else public.__doc__  # not that of a base class
    assert ">>>" in own
