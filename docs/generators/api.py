"""The API pages: one per package, with its public names."""

from __future__ import annotations

import inspect
import re
from typing import Any

import lightning_ssl

TITLES = {
    "losses": "Losses",
    "methods": "Methods",
    "callbacks": "Callbacks",
    "data": "Data",
    "app.runs": "Run folders",
    "app.training": "Training",
}
# Names that users import from a package although the top level does not export them.
FURTHER = {
    "data": ("adapt", "load", "fetch", "info"),
    "app.runs": ("find", "read_checkpoint", "RunFolder"),
    "app.training": ("record_run",),
}
INDEX = """\
# API

Every name below `lightning_ssl` is imported from there: `from lightning_ssl import Direct`. The examples are tests.

```{{toctree}}
{names}
```
"""


def pages() -> dict[str, str]:
    """The text of each page, by name."""
    names = {room: [f"lightning_ssl.{name}" for name in public] for room, public in lightning_ssl.PUBLIC_NAMES.items()}
    for room, further in FURTHER.items():
        names.setdefault(room, []).extend(f"lightning_ssl.{room}.{name}" for name in further)
    found = {room: f"# {TITLES[room]}\n\n" + "\n".join(map(entry, public)) for room, public in names.items()}
    return {"index": INDEX.format(names="\n".join(found)), **found}


def entry(path: str) -> str:
    """The directive of autodoc for one name."""
    package, _, name = path.rpartition(".")
    module = __import__(package, fromlist=[name])
    public = getattr(module, name)
    kind = "autoclass" if inspect.isclass(public) else "autofunction"
    members = "   :members:\n" if kind == "autoclass" else ""
    # The module of a callback has the equations of what it measures.
    before = f".. automodule:: {public.__module__}\n\n" if ".callbacks." in public.__module__ else ""
    return f"## {name}\n\n```{{eval-rst}}\n{before}.. {kind}:: {path}\n{members}```\n"


def process_docstring(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Replace a docstring by its reStructuredText: a handler of Sphinx's event `autodoc-process-docstring`."""
    lines[:] = to_rst("\n".join(lines)).splitlines()


def to_rst(text: str) -> str:
    """Translate a docstring of this package: paragraphs, indented equations, columns of arguments, examples.

    >>> print(to_rst("α of `Direct`.\\n\\n    α = 1\\n\\ntau  temperature"))
    α of :py:obj:`~lightning_ssl.Direct`.
    <BLANKLINE>
    ::
    <BLANKLINE>
        α = 1
    <BLANKLINE>
    ``tau``
       temperature
    """
    return "\n\n".join(block_to_rst(block) for block in re.split(r"\n\s*\n", text.strip("\n")))


def block_to_rst(block: str) -> str:
    if block.startswith(">>>"):
        return block
    if block.startswith("    "):
        return f"::\n\n{block}"
    if re.match(COLUMNS, block):
        return columns_to_rst(block.splitlines())
    return inline(block)


COLUMNS = r"((?:\w+, )*\w+)  +(?=\S)"


def columns_to_rst(lines: list[str]) -> str:
    """`name  description` lines as a definition list."""
    found: list[list[str]] = []
    for line in lines:
        if start := re.match(COLUMNS, line):
            found.append([", ".join(f"``{name}``" for name in start[1].split(", ")), line[start.end() :]])
        else:
            found[-1].append(line.strip())
    return "\n".join(f"{names}\n   {inline(' '.join(text))}" for names, *text in found)


def inline(text: str) -> str:
    """Escape the text outside of backticks. A public name in backticks becomes a link."""
    parts = re.split(r"`+([^`]+)`+", text)
    for k, part in enumerate(parts):
        if k % 2 == 0:
            parts[k] = re.sub(r"(?<=\w)_(?!\w)", r"\\_", re.sub(r"([\\*|])", r"\\\1", part))
            continue
        name = part.removeprefix("lightning_ssl.")
        public = name in lightning_ssl.__all__ and name != "__version__"
        parts[k] = f":py:obj:`~lightning_ssl.{name}`" if public else f"``{part}``"
        if parts[k + 1][:1].isalnum():
            parts[k] += "\\ "
    return "".join(parts)
