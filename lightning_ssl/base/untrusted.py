"""Text from outside: YAML and JSON within limits, and text for a terminal. Importing this imports no torch.

    read_text(file)     the text of a regular file of at most MAX_BYTES
    load_yaml(text)     plain values, or UserError in one line
    load_json(text)     the same for JSON
    check_nested(tree)  refuses values that refer to each other without end
    printable(text)     the text without control characters and escape sequences

A YAML file of 359 bytes can describe 10⁹ values by aliases of aliases. `Limits` counts the values of a document with
every alias written out, before they are built. It also refuses a key that is given twice; YAML keeps the last.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from lightning_ssl.base.checks import UserError

MAX_BYTES = 4_000_000
MAX_VALUES = 100_000  # of a YAML document, with its aliases written out
MAX_DEPTH = 60
MAX_NODES = 1_000_000  # values of a checkpoint, each counted as often as it is referred to
MAX_DIGITS = 30  # of an integer; a float holds 309, and arithmetic with more raises OverflowError

# The parser written in C is ten times faster, but it is not installed everywhere.
SAFE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
INTEGER = "tag:yaml.org,2002:int"
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


class Limits(yaml.composer.Composer):
    """Raises YAMLError for a document with duplicate keys, or with more values, depth or digits than the limits."""

    depth = values = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event, before = self.peek_event(), self.values
        is_alias = isinstance(event, yaml.AliasEvent)
        self.depth += 1
        require_yaml(self.depth <= MAX_DEPTH, event, f"nested more than {MAX_DEPTH} levels deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        require_yaml(not is_alias or id(node) in self.sizes, event, f"*{event.anchor} contains itself")
        self.values += self.sizes[id(node)] if is_alias else 1
        require_yaml(self.values <= MAX_VALUES, event, f"more than {MAX_VALUES:,} values, with its aliases written out")
        self.sizes[id(node)] = self.values - before
        return node

    def compose_scalar_node(self, anchor: str | None) -> Any:
        node = super().compose_scalar_node(anchor)
        if node.tag == INTEGER:
            digits = len(node.value)
            require_yaml(digits <= MAX_DIGITS, node, f"an integer of {digits} digits, more than {MAX_DIGITS}")
        return node

    def compose_mapping_node(self, anchor: str | None) -> Any:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                require_yaml(key.value not in seen, key, f"duplicate key {key.value!r}")
                seen.add(key.value)
        return node


class Loader(Limits, SAFE_LOADER):
    """The safe loader of YAML within the limits."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_BYTES:
            raise yaml.YAMLError(f"{len(text):,} characters, more than {MAX_BYTES:,}")
        yaml.composer.Composer.__init__(self)
        SAFE_LOADER.__init__(self, text)
        self.sizes: dict[int, int] = {}  # the values of a complete node, by its id


def require_yaml(condition: bool, place: Any, message: str) -> None:
    """Raise YAMLError with the line of an event or a node unless the condition holds."""
    if not condition:
        raise yaml.YAMLError(f"line {place.start_mark.line + 1}: {message}")


def load_yaml(text: str) -> Any:
    """The plain values of a YAML document."""
    try:
        return yaml.load(text, Loader=Loader)
    except Exception as error:  # a wrong value under a tag raises almost anything
        raise UserError(one_line(error).replace(' in "<unicode string>",', " at")) from error


def yaml_mapping(text: str, where: str, expected: str) -> dict[str, Any]:
    """The mapping of a YAML document that a person has written. `where` begins the error."""
    try:
        content = load_yaml(text)
    except UserError as error:
        raise UserError(f"{where}: not YAML: {error}") from error
    if not isinstance(content, dict):
        found = "an empty file" if content is None else type(content).__name__
        raise UserError(f"{where}: expected {expected} and found {found}")
    return content


def load_json(text: str) -> Any:
    """The plain values of a JSON document. A key that is given twice is refused; JSON would keep the last."""
    try:
        return json.loads(text, parse_int=whole_number, object_pairs_hook=without_duplicates)
    except (ValueError, RecursionError) as error:
        raise UserError(one_line(error)) from error


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise UserError(f"duplicate key {name!r}")
        found[name] = value
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
