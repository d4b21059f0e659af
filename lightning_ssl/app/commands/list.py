"""`lightning-ssl list`: what can be chosen, one line each, with the configuration that shows its use.

examples:
  lightning-ssl list                     everything
  lightning-ssl list importances         the pair importances, for `fit --model AlphaCL --model.importance NAME`
  lightning-ssl fit --config data/cifar10 --config method/direct      a name of the second column is for --config
"""

from __future__ import annotations

from typing import Literal

from lightning_ssl.app.commands.parser import Command
from lightning_ssl.app.config import catalog


def run(section: Literal[tuple(catalog.SECTIONS)] | None = None) -> int:  # type: ignore[valid-type]
    """List what can be chosen: a name, the packaged configuration that uses it, and one line.

    Args:
        section: one section instead of all
    """
    print("\n\n".join(map(listing, [section] if section else catalog.SECTIONS)))
    return 0


def listing(section: str) -> str:
    """The entries of a section in columns: name, configuration, summary."""
    found = catalog.entries(section)
    widths = [max(len(entry[column]) for entry in found) for column in (0, 2)]
    lines = [f"{section}: {catalog.SECTIONS[section][0]}"]
    for name, summary, config in found:
        lines.append("  " + "  ".join(filter(None, (name.ljust(widths[0]), config.ljust(widths[1]), summary))))
    return "\n".join(lines)


COMMAND = main = Command("list", run, __doc__)
