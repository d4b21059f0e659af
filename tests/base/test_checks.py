"""The checks of arguments refuse what is out of range; the error names the argument, its value and what is allowed."""

import math

import pytest

from lightning_ssl.app.commands.parser import Command
from lightning_ssl.base import checks
from lightning_ssl.base.checks import UserError

NAN, INFINITY = math.nan, math.inf
SHOWN = {"positive": "above 0", "finite": "a finite number", "seed": "between 0 and 4294967295"}


def refuse(check, value):
    """The error of one of the checks, in one line."""
    with pytest.raises(UserError) as refused:
        getattr(checks, f"require_{check}")("tau", value)
    assert str(refused.value).isprintable()
    return str(refused.value)


@pytest.mark.parametrize(
    ("check", "accepted", "refused"),
    [
        ("positive", [1e-300, 1, 1e300], [0, 0.0, -1, -1e-300, NAN, INFINITY, -INFINITY, True, "1", None]),
        ("finite", [0, -1, 1e300], [NAN, INFINITY, -INFINITY, False, "0", None, [0]]),
        ("seed", [0, 1, 2**32 - 1], [-1, 2**32, 10**25]),
    ],
)
def test_numbers_out_of_range_are_refused(check, accepted, refused):
    for value in accepted:
        getattr(checks, f"require_{check}")("tau", value)
    for value in refused:
        assert refuse(check, value).startswith(f"tau={value!r}: tau must be ")
        assert SHOWN[check] in refuse(check, value)


@pytest.mark.parametrize("name", ["", " ", ".", "..", "../x", "a/b", "a\\b", "-x", ".x", "a\nb", "\x1b[31mred", "a\0b"])
def test_a_name_that_is_no_folder_name_is_refused(name):
    assert refuse("folder_name", name) == (
        f"tau={name!r}: tau must be a folder name: no slash, no control character, no dot or hyphen at its start"
    )


def test_a_folder_name_is_counted_in_bytes():
    checks.require_folder_name("name", "n" * 200)
    checks.require_folder_name("name", "é" * 100)
    assert "at most 200 bytes long" in refuse("folder_name", "n" * 201)
    assert "at most 200 bytes long" in refuse("folder_name", "é" * 101)


@pytest.mark.parametrize("text", ["", " ", "\t", "a\nb", "a\0b", "\x1b[31mred"])
def test_a_text_that_is_no_line_is_refused(text):
    assert refuse("line", text) == f"tau={text!r}: tau must be text without control characters"


def test_a_size_that_needs_more_memory_than_there_is_is_refused():
    checks.require_memory("images", 8, needed=10**9, available=10**9)
    with pytest.raises(UserError, match=r"^images=9: images must be smaller: it needs 3 GB of memory, and"):
        checks.require_memory("images", 9, needed=3 * 10**9, available=2 * 10**9)


def test_a_long_value_is_cut():
    with pytest.raises(UserError) as refused:
        checks.require(False, "tau", "x" * 5000, "short")
    assert str(refused.value) == f"tau='{'x' * 78}…: tau must be short"


def count(*, number: int = 5) -> int:
    return number


@pytest.mark.parametrize("word", ["0", "-1", "1001", "10000000000000", "1e2", "1.0", "x", "nan"])
def test_a_flag_that_is_no_whole_number_in_its_range_is_refused(word):
    command = Command("count", count, limits={"number": (1, 1000)})
    assert [command([]), command(["--number", "1"]), command(["--number=1000"])] == [5, 1, 1000]
    with pytest.raises(UserError, match=r"number must be between 1 and 1000|--number=.*: expected int"):
        command(["--number", word])
