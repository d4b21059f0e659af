"""The reference of the configuration: every flag of `lightning-ssl fit`, from the signatures and docstrings."""

from __future__ import annotations

from lightning_ssl.app.config.flags import Flag, Section, sections


def page() -> str:
    """A table per class of the configuration."""
    return "\n".join(table(section) for section in sections().values() if section.flags)


def table(section: Section) -> str:
    rows = "\n".join(map(row, section.flags))
    return f"## {section.title}\n\n{intro(section)}| flag | values | default | meaning |\n|---|---|---|---|\n{rows}\n"


def intro(section: Section) -> str:
    """The first paragraph about the class, and the last one if it is about a flag."""
    first, *more = (" ".join(paragraph.split()) for paragraph in section.about.split("\n\n"))
    if more and more[-1].startswith("--"):
        first += f" {more[-1]}"
    also = f" It also has the flags of {', '.join(f'`{part}`' for part in section.parts)}." if section.parts else ""
    return f"{cell(first)}{also}\n\n"


def row(flag: Flag) -> str:
    values = f"`{flag.values}`" if flag.values else ""
    default = f"`{flag.default}`" if flag.default else ""
    return f"| `--{flag.key}` | {cell(values)} | {cell(default)} | {cell(flag.description)} |"


def cell(text: str) -> str:
    """Escape what Markdown would interpret in a table."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "\\<")
