"""Errors in one line: the texts of jsonargparse that are read, and the full keys of refused values.

A failure of the first part names the text that a new version of jsonargparse has changed.
"""

import argparse

import pytest

from lightning_ssl import AlphaCL, DataModule, Direct, OnlineKNN, Optimization, SimCLR, WeightNoise, data
from lightning_ssl.runs.configuration import make_parser
from lightning_ssl.runs.errors import PATTERNS, with_full_key


def error_of(*argv):
    with pytest.raises(argparse.ArgumentError) as raised:
        make_parser().parse_args(list(argv))
    return str(raised.value)


ERRORS = {
    "unknown option": ("--model=AlphaCL", "--model.foo=3"),
    "unknown option of a group": ("--model=SimCLR", "--model.optimization.lrr=3"),
    "unknown class": ("--model=AlphaCL", "--model.importance=Foo"),
    "unknown flag of a class": ("--model=SimCLR", "--model.importance.tau=3"),
    "wrong type": ("--model=SimCLR", "--data.batch_size=abc"),
    "missing file": ("--config=nope.yaml",),
    "wrong choice": ("--model=SimCLR", "--trainer.precision=foo"),
    "wrong union": ("--model=SimCLR", "--trainer.callbacks=foo"),
    "missing argument": ("--model=AlphaCL", "--model.importance=FromFamily"),
    "group that is a number": ("--model=SimCLR", "--trainer=5"),
}
READ_FROM = {
    "key": "wrong type",
    "value": "unknown class",
    "nested value": "unknown option",
    "unknown key": "unknown option",
    "unknown flag of a class": "unknown flag of a class",
    "unknown class": "unknown class",
    "class of a key": "unknown option",
    "expected type": "wrong type",
    "simple type": "wrong type",
    "choices": "wrong choice",
    "type name": "wrong type",
    "converted value": "wrong type",
    "start": "missing file",
    "subtypes": "wrong union",
    "missing argument": "missing argument",
    "refused group": "group that is a number",
    "internal": "wrong union",
}


def test_every_pattern_is_checked():
    assert READ_FROM.keys() == PATTERNS.keys()


@pytest.mark.parametrize("pattern", READ_FROM)
def test_jsonargparse_still_says_it_this_way(pattern):
    text = error_of(*ERRORS[READ_FROM[pattern]])
    where = "\n".join(line for line in text.splitlines() if "NestedArg" in line).strip() or text
    searched = where.partition("Given value: ")[2].partition("\n")[0] if pattern == "nested value" else text
    assert PATTERNS[pattern].search(searched), f"jsonargparse has changed the text for {pattern!r}:\n{text}"


# ---------------------------------------------------------------------------------------------------------------------
# Full keys

CONFIG = {
    "model": {
        "class_path": "lightning_ssl.AlphaCL",
        "init_args": {
            "importance": {"class_path": "lightning_ssl.Direct", "init_args": {"tau": -1.0, "p": 0.5}},
            "augment": "paper",
            "backbone": "resnet19",
            "projector": {"hidden": 512, "out": 128, "layers": 0},
            "optimization": {"name": "adam", "lr": -2.0},
        },
    },
    "knn": {"class_path": "lightning_ssl.OnlineKNN", "init_args": {"k": 0, "tau": 0.1}},
    "data": {"name": "shapes", "batch_size": 0, "options": {"train_images": 0}},
    "trainer": {"callbacks": [{"class_path": "lightning_ssl.WeightNoise", "init_args": {"std": -3.0}}]},
}
TINY = {"backbone": "resnet_tiny"}


def refused(build, config):
    with pytest.raises(ValueError, match="=") as raised:
        build()
    return str(with_full_key(raised.value, config))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Direct(tau=-1.0), "model.importance.tau=-1.0: tau must be a finite number above 0"),
        (lambda: Direct(p=0.5), "model.importance.p=0.5: p must be"),
        (lambda: AlphaCL(Direct(), augment="paper", **TINY), "model.augment='paper': augment must be one of"),
        (lambda: AlphaCL(Direct(), backbone="resnet19"), "model.backbone='resnet19': backbone must be one of"),
        (lambda: Optimization(lr=-2.0), "model.optimization.lr=-2.0: lr must be"),
        (lambda: OnlineKNN(k=0), "knn.k=0: k must be at least 1"),
        (lambda: WeightNoise(std=-3.0), "trainer.callbacks[0].std=-3.0: std must be"),
        (lambda: DataModule(batch_size=0), "data.batch_size=0: batch_size must be at least 1"),
    ],
)
def test_the_error_of_a_class_names_the_place_of_the_class_in_the_configuration(build, message):
    assert refused(build, CONFIG).startswith(message)


def test_an_argument_that_is_passed_on_has_the_key_of_the_class_that_has_it():
    config = {"model": {"class_path": "SimCLR", "init_args": {"tau": 0.0, "eps": 1.0}}, "knn": CONFIG["knn"]}
    assert refused(lambda: SimCLR(tau=0.0, **TINY), config).startswith("model.tau=0.0: tau must be")


def test_errors_about_the_data_have_full_keys_without_a_configuration():
    assert refused(lambda: data.info("cifar11"), None).startswith("data.name='cifar11': name must be one of shapes")
    message = refused(lambda: data.info("shapes", train_imagess=3), None)
    assert message.startswith("data.options.train_imagess=3: unknown option of shapes")


def test_the_error_of_a_class_outside_the_configuration_is_kept():
    assert refused(lambda: Direct(tau=-1.0), {"model": {"class_path": "SimCLR"}}).startswith("tau=-1.0: tau must be")
