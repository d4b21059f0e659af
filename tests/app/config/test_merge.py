"""Files and flags become one tree: a later value wins, and another class starts with its own defaults."""

import pytest

from lightning_ssl.app.config.configuration import Configuration, root
from lightning_ssl.app.config.merge import merge
from lightning_ssl.app.config.text import Step, steps

QUICK = ["--config=quickstart", "--model=AlphaCL"]


def importance(*flags):
    """The class and the arguments of the importance."""
    node = Configuration.parse([*QUICK, *flags]).values["model"]["init_args"]["importance"]
    return node["class_path"].rpartition(".")[2], node["init_args"]


def given(*words):
    """The tree of the given values, without defaults."""
    return merge(steps(words), root())


def test_words_are_steps():
    assert list(steps(["--a.b=1", "--c", "-1", "--tags+=x", "--print_config"])) == [
        Step("a.b", "1"), Step("c", "-1"), Step("tags", "x", appends=True),
    ]  # fmt: skip
    assert list(steps(["-c", "{data: {name: shapes}}"])) == [Step("", {"data": {"name": "shapes"}}, from_file=True)]


INLINE = "--config={model: {init_args: {importance: {class_path: Direct, init_args: {tau: 3}}}}}"


@pytest.mark.parametrize(
    ("words", "tau"),
    [
        (["--model.importance=Square"], 5.0),
        (["--config={model: {init_args: {importance: Square}}}"], 5.0),
        # A value of a file is one of the class of that file. A flag counts before and after the class.
        (["--config=method/entropy", "--model.importance=Square"], 5.0),
        (["--config=method/direct", "--config=method/square"], 5.0),
        ([INLINE, "--model.importance=Square"], 5.0),
        (["--model.importance=Square", "--model.importance.tau=2"], 2.0),
        (["--model.importance.tau=2", "--model.importance=Square"], 2.0),
    ],
)
def test_an_importance_has_its_own_default_and_not_that_of_the_class_before(words, tau):
    assert importance(*words) == ("Square", {"tau": tau})


def test_a_family_has_its_own_default():
    words = ["--model.importance=FromFamily", "--model.importance.family=SoftTriplet",
             "--model.importance.family=InfoNCE"]  # fmt: skip
    assert importance(*words)[1]["family"]["init_args"] == {"tau": 0.5, "eps": 1.0}
    assert importance(*words, "--model.importance=Square") == ("Square", {"tau": 5.0})


def test_a_method_keeps_the_network_and_not_the_defaults_of_the_method_before():
    tree = Configuration.parse(
        ["--config=quickstart", "--model=SimSiam", "--model.projector.hidden=64", "--model=BYOL"]
    )
    arguments = tree.values["model"]["init_args"]
    assert (arguments["backbone"], arguments["projector"]["hidden"], arguments["projector"]["out"]) == (
        "resnet_tiny", 64, 256,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--data.options={a: 1}", "--data.options={b: 1}"], {"data": {"options": {"b": 1}}}),
        (["--data.options={a: 1}", "--data.options.b=1"], {"data": {"options": {"a": 1, "b": 1}}}),
        (["--trainer={max_epochs: 2}", "--trainer.min_epochs=1"], {"trainer": {"max_epochs": 2, "min_epochs": "1"}}),
        (["--probe=null", "--probe.lr=1"], {"probe": {"init_args": {"lr": "1"}}}),
        (["--tags=[a]", "--tags+=b"], {"tags": ["a", "b"]}),
        (["--name={x"], {"name": "{x"}),
        (["--trainer.callbacks=[]"], {"trainer": {"callbacks": []}}),
        (["--config={model: {class_path: SimCLR, init_args: }}"], {"model": {"class_path": "SimCLR", "init_args": {}}}),
        (
            ["--trainer.callbacks=Timer", "--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=x"],
            {"trainer": {"callbacks": [
                {"class_path": "Timer", "init_args": {}},
                {"class_path": "EarlyStopping", "init_args": {"monitor": "x"}},
            ]}},
        ),
    ],
)  # fmt: skip
def test_values_merge(words, expected):
    assert given(*words) == expected


def test_an_argument_of_no_callback_is_refused():
    with pytest.raises(ValueError, match=r"trainer.callbacks.monitor='x': choose a class with --trainer.callbacks"):
        given("--trainer.callbacks.monitor=x")
