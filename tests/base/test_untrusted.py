"""Text from outside: limits of YAML and JSON, and what reaches a terminal."""

import pytest

from lightning_ssl.base.untrusted import MAX_BYTES, check_nested, load_json, load_yaml, printable, read_text

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)
MERGES = "a: &a {x: 1}\n" + "".join(
    f"b{k}: &b{k} {{<<: [*{o}, *{o}]}}\n" for k, o in enumerate(["a", *[f"b{k}" for k in range(30)]])
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (BOMB, "more than 100,000 values, with its aliases written out"),
        (MERGES, "more than 100,000 values"),
        ("a: &x {b: *x}", "line 1: .x contains itself"),
        ("a: 1\nb: {c: 1,\n  c: 2}", "line 3: duplicate key 'c'"),
        ("a: 1\n'a': 1", "line 2: duplicate key 'a'"),
        ("a: " + "9" * 400, "an integer of 400 digits"),
        ("a: !!int '" + "9" * 400 + "'", "an integer of 400 digits"),
        ("[" * 500 + "]" * 500, "nested more than 60 levels deep"),
        ("- " * 5000 + "x", "nested"),
        ("a: !!timestamp x", "NoneType"),
        ("a: [", "expected .*node content"),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
        ("a: *nothing", "found undefined alias"),
        ("a: 'x" + "x" * MAX_BYTES + "'", "characters, more than"),
        ("\x00", "special characters are not allowed|control characters are not allowed"),
    ],
)  # fmt: skip
def test_yaml_beyond_the_limits_is_one_line(text, line):
    with pytest.raises(ValueError, match=line) as refused:
        load_yaml(text)
    assert len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) <= 200


def test_plain_yaml_and_repeated_aliases_are_read():
    text = "x: &x {lr: 0.1}\na: *x\nb: *x\nc: {<<: *x, p: 4}\nversion: '" + "1" * 40 + "'"
    assert load_yaml(text)["c"] == {"lr": 0.1, "p": 4}
    assert load_yaml("[{a: 1}, {a: 1}]") == [{"a": 1}, {"a": 1}]
    assert load_yaml("") is None


@pytest.mark.parametrize("text", ['{"a": ' + "9" * 400 + "}", "[" * 100_000, "{", "", '{"a": 1, "a": 1}'])
def test_json_beyond_the_limits_is_one_line(text):
    with pytest.raises(ValueError, match=r"\w") as refused:
        load_json(text)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x9b2Jb\x00\x08c", "abc"),
        ("\x1bPq#0\x1b\\x\x1bc", "x"),
        ("left\u202eright", "leftright"),
        ("τ=0.5\tα\n", "τ=0.5\tα\n"),
    ],
)
def test_escape_sequences_do_not_reach_a_terminal(text, shown):
    assert printable(text) == shown


def test_only_regular_text_files_of_moderate_size_are_read(tmp_path):
    large, binary = tmp_path / "large", tmp_path / "binary"
    with large.open("wb") as file:
        file.truncate(10**12)  # a sparse file: it has no blocks
    binary.write_bytes(b"\xff\xfe\x00")
    for file, line in ((large, "larger than"), (binary, "not text in UTF-8"), (tmp_path, "not a regular file")):
        with pytest.raises(ValueError, match=line):
            read_text(file)
    with pytest.raises(ValueError, match="No such file"):
        read_text(tmp_path / "nothing")


def test_values_that_refer_to_each_other_are_counted_each_time_and_a_list_in_itself_is_refused():
    shared = [0]
    for _ in range(15):
        shared = [shared, shared]
    check_nested(shared)
    for _ in range(25):
        shared = {"a": shared, "b": (shared,)}
    with pytest.raises(ValueError, match="more than 1,000,000 values"):
        check_nested(shared)
    loop = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested more than 60 levels deep"):
        check_nested(loop)
