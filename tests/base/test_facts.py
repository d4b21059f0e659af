"""What classes declare beside themselves is read from their source, and agrees with the classes."""

import inspect
import subprocess
import sys

import pytest

import lightning_ssl
from lightning_ssl import callbacks, losses, methods
from lightning_ssl.app.config import keys, labels
from lightning_ssl.app.runs import panels
from lightning_ssl.base import facts
from lightning_ssl.base.signatures import arguments_of

ROOMS = {"losses": losses, "methods": methods, "callbacks": callbacks}
CLASSES = [
    (each, getattr(room, name))
    for name_of_room, room in ROOMS.items()
    for name, each in facts.facts_of(name_of_room).items()
    if each.public
]
every_class = pytest.mark.parametrize(("each", "kind"), CLASSES, ids=lambda x: getattr(x, "name", ""))


@every_class
def test_what_is_read_from_the_source_is_what_the_class_has(each, kind):
    assert kind.__name__ in lightning_ssl.__all__
    assert each.summary == inspect.getdoc(kind).partition("\n")[0]
    assert bool(each.abstract) == inspect.isabstract(kind)
    assert {base.__name__ for base in kind.__mro__[1:]} >= each.bases
    for name in facts.DECLARED:
        inherited = [vars(base)[name] for base in reversed(kind.__mro__) if name in vars(base)]
        if inherited and isinstance(inherited[0], dict):
            assert each.declared[name] == {key: value for part in inherited for key, value in part.items()}
        elif not isinstance(inspect.getattr_static(kind, name, None), property):
            assert each.declared.get(name) == (inherited[-1] if inherited else None)


def test_every_public_class_of_a_room_is_read():
    public = {
        kind.__name__ for room in ROOMS.values() for kind in map(vars(room).get, room.__all__) if inspect.isclass(kind)
    }
    assert public == {each.name for each, _ in CLASSES}


@every_class
def test_declared_arguments_are_arguments_of_the_class(each, kind):
    for name in ("unlabelled", "roles"):
        assert each.declared.get(name, {}).keys() <= arguments_of(kind).keys()
    for argument, value in each.declared.get("unlabelled", {}).items():
        assert arguments_of(kind)[argument].default == value


@pytest.mark.parametrize("name", ["symbols", "roles"])
def test_no_two_classes_declare_different_things_for_an_argument(name):
    every = [facts.facts_of(room)[each] for room in ("losses", "methods") for each in facts.facts_of(room)]
    together = facts.declared(name, "losses", "methods")
    assert all(each.declared.get(name, {}).items() <= together.items() for each in every)


def test_every_declared_role_is_a_role():
    roles = {keys.role(f"model.{argument}") for argument in facts.declared("roles", "methods")}
    roles |= {each.declared["role"] for each in facts.callbacks()}
    assert roles <= {"loss", "setting", "measuring", "incidental"}


def test_every_metric_has_a_panel_and_one_callback():
    shown = [metric.key for panel in panels.PANELS for metric in panel.metrics]
    logged = [metric.key for each in facts.callbacks() for metric in each.declared.get("metrics", ())]
    assert sorted(shown) == sorted([*logged, panels.TRAINING_LOSS.key])
    assert len(set(shown)) == len(shown)
    assert all(panel.metrics for panel in panels.PANELS)


def test_a_value_is_left_out_for_the_class_that_declares_it():
    assert labels.is_unlabelled("Direct", "normalize", True)
    assert not labels.is_unlabelled("Direct", "eps", 1)
    assert labels.is_unlabelled("MyAlphaCL", "anchors", "both")  # it can inherit from AlphaCL


def test_facts_roles_and_labels_are_read_without_torch():
    code = "import sys; from lightning_ssl.app.config import keys, labels; from lightning_ssl.app.runs import panels; "
    code += (
        "from lightning_ssl.app.config import catalog; catalog.names('importances'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=600).returncode == 0
