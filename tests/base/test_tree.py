"""Objects and their plain trees: one walker, one builder, and the key of every mistake."""

import pytest
import pytorch_lightning as pl
import torch

from lightning_ssl import AlphaCL, Direct, FromFamily, Head, Importance, InfoNCE, Method, OnlineProbe, Optimization
from lightning_ssl.base.tree import Group, build, complete, import_path, to_tree, with_key
from lightning_ssl.base.walk import walk
from lightning_ssl.data import DataModule

FAMILY = {"class_path": "lightning_ssl.InfoNCE", "init_args": {"tau": 0.3, "eps": 1.0}}


def test_a_tree_holds_classes_groups_and_values():
    assert to_tree(FromFamily(InfoNCE(0.3))) == {
        "class_path": "lightning_ssl.FromFamily",
        "init_args": {"family": FAMILY},
    }
    assert to_tree(Head(64, 32), Head)["hidden"] == 64
    assert to_tree([OnlineProbe(), (1, None)])[1] == [1, None]
    assert to_tree(torch.relu) == "torch.relu"


def test_the_path_of_a_class_is_the_shortest_public_one():
    assert import_path(Direct) == "lightning_ssl.Direct"
    assert import_path(pl.callbacks.EarlyStopping) == "pytorch_lightning.callbacks.EarlyStopping"
    assert import_path(Own) == f"{__name__}.Own"


class Own:
    pass


@pytest.mark.parametrize(
    "value", [Direct(p=6), FromFamily(InfoNCE(0.3)), OnlineProbe(lr=0.5)], ids=lambda each: type(each).__name__
)
def test_build_inverts_to_tree(value):
    kind = Importance if isinstance(value, Importance) else pl.Callback
    assert to_tree(build(to_tree(value), kind, "part", allow=())) == to_tree(value)


def test_missing_arguments_get_the_defaults_of_their_owner():
    wrong = []
    tree = complete({"class_path": "BYOL", "init_args": {"projector": {"hidden": 8}}}, Method, "model", wrong)
    assert wrong == []
    assert (tree["class_path"], tree["init_args"]["projector"]["out"]) == ("lightning_ssl.BYOL", 256)  # BYOL's own
    alpha = {"class_path": "AlphaCL", "init_args": {"importance": {"init_args": {"p": 2}}}}
    assert complete(alpha, Method, "model", wrong)["init_args"]["importance"] == to_tree(Direct(p=2.0))


def test_all_mistakes_are_told_at_once_with_their_full_keys():
    tree = {"class_path": "AlphaCL", "init_args": {"importance": {"class_path": "Direct", "init_args": {"q": 1}},
                                                   "optimization": {"lr": "fast"}, "bta": 1, "tile": None}}  # fmt: skip
    with pytest.raises(ValueError, match=r"\S") as refused:
        build(tree, Method, "model")
    assert str(refused.value).split("; ")[:1] == ["model.importance.q=1: unknown key q for Direct"]
    assert "model.optimization.lr=fast: expected float" in str(refused.value)
    assert "model.bta=1: unknown key bta for AlphaCL; did you mean beta?" in str(refused.value)


@pytest.mark.parametrize(
    ("tree", "hint", "line"),
    [
        ({"class_path": "Direct", "init_args": {"tau": -1}}, Importance, r"part.tau=-1.0: tau must be"),
        ({"class_path": "AlphaCL", "init_args": {"projector": {"hidden": 0}}}, Method, "part.projector.hidden=0: hid"),
        ({"class_path": "AlphaCL", "init_args": {"augment": "x"}}, Method, r"part.augment='x': augment must be one of"),
        ({"batch_size": 0}, Group(DataModule), r"part.batch_size=0: batch_size must be at least 1"),
        ({"class_path": "Nothing"}, Importance, r"part=Nothing: expected one of AdaptiveNegative,"),
        ({"class_path": "Dirct"}, Importance, r"part=Dirct: did you mean Direct\?"),
        ({"class_path": "torch.nn.ReLU"}, Method, r"part=torch.nn.ReLU: expected a subclass of Method"),
        ({"class_path": "Direct", "more": 1}, Importance, r"part=.*: expected the name of a class, or class_path"),
        (["SimCLR"], Method, r"part=\['SimCLR'\]: expected Method"),
        ("fast", Group(DataModule), r"part='fast': expected keys below it, such as name"),
    ],
)  # fmt: skip
def test_a_mistake_names_its_key_and_what_is_allowed(tree, hint, line):
    with pytest.raises(ValueError, match=f"^{line}"):
        build(tree, hint, "part")


def test_a_default_of_a_library_that_is_no_plain_value_is_left_to_the_library():
    strategy = build({"class_path": "DDPStrategy", "init_args": {"find_unused_parameters": True}},
                     pl.strategies.Strategy, "trainer.strategy")  # fmt: skip
    assert strategy._ddp_kwargs["find_unused_parameters"] is True


def test_the_full_key_of_a_message():
    tree = {"name": "shapes", "options": {"size": 3}}
    assert with_key("options.size=3: size must be", "data", tree) == "data.options.size=3: size must be"
    assert with_key("name='x': no", "data", tree) == "data.name='x': no"
    assert with_key("data.name='x': no", "data", tree) == "data.name='x': no"
    assert with_key("no images", "data", tree) == "data: no images"


def test_the_walker_visits_every_value_once():
    model = AlphaCL(FromFamily(InfoNCE()), backbone="resnet_tiny", optimization=Optimization(lr=0.5))
    found = list(walk({"model": model.configuration(), "trainer": {"callbacks": [to_tree(OnlineProbe())]}}))
    flat = dict(found)
    assert len(found) == len(flat)
    assert flat["model.importance.family"] == "lightning_ssl.InfoNCE"
    assert flat["model.optimization.lr"] == 0.5
    assert dict(walk({"a": ["x", {"b": "y"}]}, into_lists=True)) == {"a": "x", "a.b": "y"}
