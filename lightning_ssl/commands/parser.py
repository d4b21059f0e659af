"""The argument parser of every command but `fit`: a wrong flag is one line."""

from __future__ import annotations

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """A command line that refuses as everything else does, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{self.prog}: {message} (see {self.prog} --help)")
