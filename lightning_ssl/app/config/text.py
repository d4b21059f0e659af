"""The words of a command line as steps: a key with its value, or a file with its values. Imports no torch.

--model.tau=0.5   --model.tau 0.5      Step("model.tau", "0.5")
--tags+=a                              Step("tags", "a", appends=True)
--config FILE     -c FILE              Step("", {…}, from_file=True), also for text such as `{data: {name: shapes}}`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lightning_ssl.app.config import packaged
from lightning_ssl.base.checks import MAX_SHOWN, NEGATIVE_NUMBER, UserError, cut, shown
from lightning_ssl.base.untrusted import read_text, yaml_mapping

PRINT = "print_config"
SEE = "(see lightning-ssl fit --help)"


class Step(NamedTuple):
    """One value of a command line. The empty key stands for the whole configuration."""

    key: str
    value: Any
    from_file: bool = False
    appends: bool = False


def steps(argv: Sequence[str]) -> Iterator[Step]:
    """The steps of a command line, in order. `--print_config` is none."""
    words = iter(range(len(argv)))
    for place in words:
        flag, equals, value = argv[place].partition("=")
        if not re.match(r"--?[^\W\d]", flag):
            raise UserError(f"{shown(argv[place])}: expected a flag, such as --data.name shapes {SEE}")
        key = "config" if flag == "-c" else flag.removeprefix("--")
        if key == PRINT:
            continue
        if not equals:
            if next(words, None) is None or is_flag(argv[place + 1]):
                raise UserError(f"{flag}: expected a value {SEE}")
            value = argv[place + 1]
        if key == "config":
            yield Step("", configuration(value), from_file=True)
        else:
            yield Step(key.removesuffix("+"), value, appends=key.endswith("+"))


def asks_to_print(argv: Sequence[str]) -> bool:
    """Whether a command line asks for its configuration instead of a run."""
    return any(word.partition("=")[0] == f"--{PRINT}" for word in argv)


def is_flag(word: str) -> bool:
    return word.startswith("-") and not NEGATIVE_NUMBER.match(word)


def configuration(given: str) -> dict[str, Any]:
    """The content of a file, or of YAML text. A short name is that of a packaged file."""
    is_text = given.lstrip().startswith(("{", "["))
    text = given if is_text else read_text(Path(packaged.find("configs", given)), key="config")
    return yaml_mapping(text, f"config={cut(given, MAX_SHOWN)}", "`trainer`, `model`, `data`, …")
