"""Values from text and YAML, by the type of their argument."""

import typing
from pathlib import Path
from typing import Any, Literal

import pytest

from lightning_ssl.base.convert import Mismatch, as_object, convert, in_words

Precision = Literal[64, 32, 16] | Literal["16-mixed", "32", "64"] | None


@pytest.mark.parametrize(
    ("given", "hint", "expected"),
    [
        ("010", int, 10),
        ("1_000", int, 1000),
        ("0x10", int, 16),
        (3, int, 3),
        ("-3", int, -3),
        ("1e-3", float, 0.001),
        (".5", float, 0.5),
        (2, float, 2.0),
        ("2", int | float, 2),
        ("2.0", float | int, 2.0),
        ("yes", bool, True),
        ("Off", bool, False),
        ("123", str, "123"),
        ("10:00", str, "10:00"),
        ("null", str | None, None),
        (None, int | None, None),
        ("2", list[int] | str | int, "2"),
        (2, list[int] | str | int, 2),
        ("[0, 1]", list[int] | str | int, [0, 1]),
        ("32", Precision, 32),
        ("16-mixed", Precision, "16-mixed"),
        ("{a: 1}", dict[str, Any] | None, {"a": 1}),
        ("{hours: 1}", str | dict[str, int], {"hours": 1}),
        ([1, 2, 3], tuple[float, float, float], [1.0, 2.0, 3.0]),
        ("mine.f", typing.Callable[..., Any], "mine.f"),
        ({"a": [1]}, Any, {"a": [1]}),
    ],
)
def test_a_value_is_converted_to_its_type(given, hint, expected):
    found = convert(given, hint)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("given", "hint", "words"),
    [
        ("2.0", int, "int"),
        ("1e3", int, "int"),
        (True, int, "int"),
        ("9" * 400, int, "int"),
        ("inf", float, "float"),
        (float("nan"), float, "float"),
        (True, float, "float"),
        (1, bool, "bool"),
        ("1", bool, "bool"),
        (None, str, "text"),
        (3, str, "text"),
        ("c", Literal["a", "b"], "one of a, b"),
        ("x", int | None, "int or null"),
        ([1, 2], tuple[float, float, float], "a list of 3 float"),
        ({1: 2}, dict[str, int], "a mapping"),
        ("[1, 2", list[int], "a list of int"),
        ("f", typing.Callable[..., Any], "the path of a function"),
    ],
)
def test_another_value_is_refused_with_what_is_allowed(given, hint, words):
    with pytest.raises(Mismatch, match="expected"):
        convert(given, hint)
    assert in_words(hint) == words


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        ([1.0], tuple[float, ...], (1.0,)),
        ("os.path.join", typing.Callable[..., Any], __import__("os").path.join),
        ("a/b", Path | None, Path("a/b")),
    ],
)
def test_a_plain_value_gives_its_object(value, hint, expected):
    assert as_object(value, hint) == expected
