"""Text from outside: YAML and JSON within limits, and text for a terminal. Importing this imports no torch.

    read_text(file)     the text of a regular file of at most MAX_BYTES
    load_yaml(text)     plain values, or UserError in one line
    load_json(text)     the same for JSON
    check_nested(tree)  refuses values that refer to each other without end
    printable(text)     the text without control characters and escape sequences

A YAML file of 359 bytes can describe 10⁹ values by aliases of aliases. `check_yaml` counts the values of a document
with every alias written out, without building them. It also refuses a key that is given twice; YAML keeps the last.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from lightning_ssl.checks import UserError

MAX_BYTES = 4_000_000
MAX_VALUES = 100_000  # of a YAML document, with its aliases written out
MAX_DEPTH = 60
MAX_NODES = 1_000_000  # values of a checkpoint, each counted as often as it is referred to
MAX_DIGITS = 30  # of an integer; a float holds 309, and arithmetic with more raises OverflowError

# The loader written in C is ten times faster, but it is not installed everywhere.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
INTEGER = re.compile(r"[-+]?(0x[0-9a-f_]+|0b[01_]+|[0-9][0-9_:]*)", re.IGNORECASE)
# Escape sequences of terminals (ECMA-48: CSI, then OSC, DCS and the like up to their end), and all control characters
# but the tabulator and the newline. The last ranges change the direction of writing, or break a line.
CONTROL = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?|\x1b[ -/]*[0-~]?"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
)


def read_text(file: Path, errors: str = "strict", key: str = "") -> str:
    """The text of a file in UTF-8. A device, a pipe and a huge file are refused; they are never read.

    key     the option that names the file, for the error
    """
    where = f"{key}={file}" if key else str(file)
    if not file.is_file():
        raise UserError(f"{where}: {'not a regular file' if file.exists() else 'No such file or directory'}")
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise UserError(f"{where}: larger than {MAX_BYTES:,} bytes")
        return content.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: not text in UTF-8 (byte {error.start})") from error
    except OSError as error:
        raise UserError(f"{where}: {error.strerror or error}") from error


def load_yaml(text: str) -> Any:
    """The plain values of a YAML document."""
    try:
        check_yaml(text)
        return yaml.load(text, Loader=LOADER)
    except Exception as error:  # a wrong value under a tag raises almost anything
        raise UserError(one_line(error).replace(' in "<unicode string>",', " at")) from error


def load_json(text: str) -> Any:
    """The plain values of a JSON document. A key that is given twice is refused; JSON would keep the last."""
    try:
        return json.loads(text, parse_int=whole_number, object_pairs_hook=without_duplicates)
    except (ValueError, RecursionError) as error:
        raise UserError(one_line(error)) from error


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise UserError(f"duplicate key {next(name for name in names if names.count(name) > 1)!r}")
    return found


def check_nested(tree: Any) -> None:
    """Raise UserError for lists and dictionaries that contain themselves, or more values than MAX_NODES.

    A pickle of 500 bytes can describe 10⁹ values by references to references, as YAML can by aliases. Printing them, or
    any loop over them, would not end. Each object is visited once.
    """
    sizes: dict[int, int] = {}

    def size(node: Any, depth: int) -> int:
        if not isinstance(node, dict | list | tuple | set | frozenset):
            return 1
        if depth > MAX_DEPTH:
            raise UserError(f"nested more than {MAX_DEPTH} levels deep")
        if id(node) not in sizes:
            children = [*node, *node.values()] if isinstance(node, dict) else node
            sizes[id(node)] = 1 + sum(size(child, depth + 1) for child in children)
        return sizes[id(node)]

    if size(tree, 0) > MAX_NODES:
        raise UserError(f"more than {MAX_NODES:,} values")


def whole_number(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise UserError(f"an integer of {len(digits)} digits, more than {MAX_DIGITS}")
    return int(digits)


def printable(text: object) -> str:
    """A text for a terminal or a log: without escape sequences and control characters, which could change its state.

    >>> printable("\\x1b[31mred\\x1b[0m\\x07")
    'red'
    """
    return CONTROL.sub("", str(text))


def one_line(error: Exception) -> str:
    """The message of an error in one line of at most 200 characters."""
    return " ".join(printable(error).split())[:200] or type(error).__name__


# ---------------------------------------------------------------------------------------------------------------------
# The limits of YAML


@dataclass
class Collection:
    """A mapping or list that has begun and not ended."""

    is_mapping: bool
    anchor: str | None
    size: int = 1
    keys: set[str] = field(default_factory=set)
    is_key_next: bool = True


def check_yaml(text: str) -> None:
    """Raise YAMLError for a document with duplicate keys, or with more values, depth or digits than the limits."""
    if len(text) > MAX_BYTES:
        raise yaml.YAMLError(f"{len(text):,} characters, more than {MAX_BYTES:,}")
    sizes: dict[str, int] = {}
    opened: list[Collection] = [Collection(False, None)]
    for event in yaml.parse(text, Loader=LOADER):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append(Collection(isinstance(event, yaml.MappingStartEvent), event.anchor))
            if len(opened) > MAX_DEPTH:
                raise yaml.YAMLError(f"line {line}: nested more than {MAX_DEPTH} levels deep")
            continue
        key = None
        if isinstance(event, yaml.CollectionEndEvent):
            ended = opened.pop()
            anchor, size = ended.anchor, ended.size
        elif isinstance(event, yaml.ScalarEvent):
            anchor, size, key = event.anchor, 1, event.value
            check_digits(event, line)
        elif isinstance(event, yaml.AliasEvent):
            if any(each.anchor == event.anchor for each in opened):
                raise yaml.YAMLError(f"line {line}: *{event.anchor} contains itself")
            anchor, size = None, sizes.get(event.anchor, 1)
        else:
            continue
        if anchor is not None:
            sizes[anchor] = size
        add(opened[-1], size, key, line)


def add(owner: Collection, size: int, key: str | None, line: int) -> None:
    """Count a value, or a key of a mapping."""
    owner.size += size
    if owner.size > MAX_VALUES:
        raise yaml.YAMLError(f"line {line}: more than {MAX_VALUES:,} values, with its aliases written out")
    if owner.is_mapping and owner.is_key_next and key is not None:
        if key in owner.keys:
            raise yaml.YAMLError(f"line {line}: duplicate key {key!r}")
        owner.keys.add(key)
    owner.is_key_next = not owner.is_key_next


def check_digits(event: Any, line: int) -> None:
    is_integer = not event.style or str(event.tag).endswith("int")
    if is_integer and len(event.value) > MAX_DIGITS and INTEGER.fullmatch(event.value.strip()):
        raise yaml.YAMLError(f"line {line}: an integer of {len(event.value)} digits, more than {MAX_DIGITS}")
