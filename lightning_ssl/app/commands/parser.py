"""The argument parser of every command but `fit`. A wrong flag is an error of one line."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from lightning_ssl.base.checks import NEGATIVE_NUMBER, UserError, shown


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UserError instead of printing the usage and exiting. Flags have one spelling.

    Line breaks of a description and of examples are kept.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        fixed = {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter}
        super().__init__(*args, **{**kwargs, **fixed})
        self._negative_number_matcher = NEGATIVE_NUMBER

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[argparse.Namespace, list[str]]:  # type: ignore[override]
        """Refuse empty and unknown words. A command within a command would leave unknown ones to the outer one."""
        if not all(word.strip() for word in args or ()):
            self.error("empty argument; is a shell variable unset?")
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}{self.suggestion(message)} (see {self.prog} --help)")

    def suggestion(self, message: str) -> str:
        """The flag that an unknown one resembles, as `; did you mean --batch-size?`; else empty."""
        unknown = re.match(r"unrecognized arguments: (--[^\s=]+)", message)
        known = [flag for action in self._actions for flag in action.option_strings]
        close = difflib.get_close_matches(unknown[1].replace("_", "-"), known, n=1) if unknown else []
        return f"; did you mean {close[0]}?" if close else ""


def columns(entries: Mapping[str, str]) -> str:
    """Names and their lines in two columns."""
    width = max(map(len, entries), default=0)
    return "\n".join(f"  {name.ljust(width)}  {line}" for name, line in entries.items())


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add the flag that allows a checkpoint to name code outside this package."""
    parser.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module whose classes and functions the checkpoint may name, such as that of your own loss; its code is"
        " run; can be given several times",
    )


def whole_number(lowest: int, highest: int = 2**63 - 1) -> Callable[[str], int]:
    """The type of a flag: a whole number within limits."""

    def read(text: str) -> int:
        if re.fullmatch(r"[-+]?[0-9]{1,19}", text) and lowest <= int(text) <= highest:
            return int(text)
        limits = f"{lowest} or above" if highest == 2**63 - 1 else f"between {lowest} and {highest}"
        raise argparse.ArgumentTypeError(f"{shown(text)}: expected a whole number, {limits}")

    return read


def new_file(text: str) -> Path:
    """The type of a flag: a new file, in a folder that exists."""
    path = Path(text)
    try:
        path.lstat()
        is_new = False
    except FileNotFoundError:
        is_new = path.absolute().parent.is_dir()
    except (OSError, ValueError):  # such as a name that is too long
        is_new = False
    if not text.strip() or not is_new:
        raise argparse.ArgumentTypeError(f"{shown(text)}: expected a new file in a folder that exists")
    return path
