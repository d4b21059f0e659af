"""The texts of jsonargparse that runs/errors.py reads. A failure names the text that a new version has changed."""

import argparse

import pytest

from lightning_ssl.runs.configuration import make_parser
from lightning_ssl.runs.errors import PATTERNS


def error_of(*argv):
    with pytest.raises(argparse.ArgumentError) as raised:
        make_parser().parse_args(list(argv))
    return str(raised.value)


ERRORS = {
    "unknown option": ("--model=AlphaCL", "--model.foo=3"),
    "unknown option of a group": ("--model=SimCLR", "--model.optimization.lrr=3"),
    "unknown class": ("--model=AlphaCL", "--model.importance=Foo"),
    "wrong type": ("--model=SimCLR", "--data.batch_size=abc"),
    "missing file": ("--config=nope.yaml",),
    "wrong choice": ("--model=SimCLR", "--trainer.precision=foo"),
}
READ_FROM = {
    "key": "wrong type",
    "value": "unknown class",
    "nested value": "unknown option",
    "unknown key": "unknown option",
    "unknown class": "unknown class",
    "class of a key": "unknown option",
    "expected type": "wrong type",
    "simple type": "wrong type",
    "choices": "wrong choice",
    "type name": "wrong type",
    "converted value": "wrong type",
    "start": "missing file",
}


def test_every_pattern_is_checked():
    assert READ_FROM.keys() == PATTERNS.keys()


@pytest.mark.parametrize("pattern", READ_FROM)
def test_jsonargparse_still_says_it_this_way(pattern):
    text = error_of(*ERRORS[READ_FROM[pattern]])
    where = "\n".join(line for line in text.splitlines() if "NestedArg" in line).strip() or text
    searched = where.partition("Given value: ")[2].partition("\n")[0] if pattern == "nested value" else text
    assert PATTERNS[pattern].search(searched), f"jsonargparse has changed the text for {pattern!r}:\n{text}"
