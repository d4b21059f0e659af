"""The published figures, as data: one YAML file per paper. coverage.yaml says where each statement is tested.

>>> load("dual_networks")["hltm"]["table6"]["root"][0.7][0]
[0.35, 0.2]
"""

from functools import cache
from importlib.resources import files
from typing import Any

import yaml  # type: ignore[import-untyped]

from lightning_ssl.base.checks import UserError


def names() -> list[str]:
    """The papers whose figures are shipped, alphabetically."""
    found = (file.name.removesuffix(".yaml") for file in files(__name__).iterdir() if file.name.endswith(".yaml"))
    return sorted(name for name in found if name != "coverage")


@cache
def load(name: str) -> dict[str, Any]:
    """The figures of one paper, as nested dictionaries that all callers share; a cell is [mean, std]."""
    if name not in names():
        raise UserError(f"papers.load: name={name!r}: expected one of {', '.join(names())}")
    return yaml.safe_load((files(__name__) / f"{name}.yaml").read_text(encoding="utf-8"))


@cache
def coverage() -> dict[str, Any]:
    """The statements of the papers and where each is tested: `papers` (name → title) and `items`.

    >>> coverage()["items"][0]["item"]
    'Theorem 1'
    """
    return yaml.safe_load((files(__name__) / "coverage.yaml").read_text(encoding="utf-8"))
