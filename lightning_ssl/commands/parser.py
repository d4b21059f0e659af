"""The argument parser of every command but `fit`. A wrong flag is an error of one line."""

from __future__ import annotations

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """An argument parser that raises ValueError instead of printing the usage and exiting."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{self.prog}: {message} (see {self.prog} --help)")
