"""The argument parser of every command but `fit`. A wrong flag is an error of one line."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """An argument parser that raises ValueError instead of printing the usage and exiting. Flags have one spelling."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{self.prog}: {message}{self.suggestion(message)} (see {self.prog} --help)")

    def suggestion(self, message: str) -> str:
        """The flag that an unknown one resembles, as `; did you mean --batch-size?`; else empty."""
        unknown = re.match(r"unrecognized arguments: (--[^\s=]+)", message)
        known = [flag for action in self._actions for flag in action.option_strings]
        close = difflib.get_close_matches(unknown[1].replace("_", "-"), known, n=1) if unknown else []
        return f"; did you mean {close[0]}?" if close else ""


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
