"""Every argument of every method has one role."""

import inspect
import subprocess
import sys
from collections import Counter

import pytest

from lightning_ssl import methods
from lightning_ssl.methods.arguments import INCIDENTAL, LOSS, NETWORK


def subclasses(kind):
    for child in kind.__subclasses__():
        if child.__module__.startswith("lightning_ssl."):
            yield child
            yield from subclasses(child)


# A class with subclasses, such as Contrastive, is a base and not a method that a user can configure.
KINDS = [methods.Method, *(kind for kind in subclasses(methods.Method) if not list(subclasses(kind)))]


def arguments_of(kind):
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]  # without self
    return [each.name for each in parameters if each.kind is not each.VAR_KEYWORD]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_argument_has_exactly_one_role(kind):
    roles = Counter([*LOSS, *NETWORK, *INCIDENTAL])
    assert {name: roles[name] for name in arguments_of(kind)} == dict.fromkeys(arguments_of(kind), 1)


def test_every_named_argument_belongs_to_a_method():
    known = {name for kind in KINDS for name in arguments_of(kind)}
    assert {*LOSS, *NETWORK, *INCIDENTAL} <= known


def test_every_method_of_the_package_is_checked():
    assert {"Method", "SimCLR", "AlphaCL", "SimSiam", "BYOL"} <= {kind.__name__ for kind in KINDS}


# ---------------------------------------------------------------------------------------------------------------------
# The package loads its classes on first use


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_reading_the_roles_does_not_import_torch():
    result = python("import sys, lightning_ssl.methods.arguments; assert 'torch' not in sys.modules")
    assert result.returncode == 0, result.stderr


def test_importing_method_imports_its_subclasses():
    result = python(
        "from lightning_ssl.methods import Method\n"
        "names = {kind.__name__ for kind in [*Method.__subclasses__(), *Method.__subclasses__()[0].__subclasses__()]}\n"
        "assert {'SimCLR', 'AlphaCL', 'SimSiam', 'BYOL'} <= names, names"
    )
    assert result.returncode == 0, result.stderr


def test_the_package_lists_its_names():
    assert set(methods.__all__) <= set(dir(methods))
    for name in methods.__all__:
        assert getattr(methods, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'MoCo'"):
        _ = methods.MoCo
