"""`lightning-ssl fit --help TOPIC` describes every flag of a part; without a topic it is one screen without torch."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING

from lightning_ssl.base.checks import UserError, did_you_mean

if TYPE_CHECKING:
    from lightning_ssl.app.config.flags import Flag, Section

COLUMN = 40  # where the descriptions start


def asks_for_help(words: list[str]) -> bool:
    return "-h" in words or "--help" in words or any(word.startswith("--help=") for word in words)


def main(words: list[str], page: str) -> int:
    """Print the one screen, or the topic after `--help`."""
    place = next(k for k, word in enumerate(words) if word == "-h" or word.partition("=")[0] == "--help")
    topic = words[place].partition("=")[2] or next(iter(words[place + 1 :]), "-")
    print(f"{page}\n" if topic.startswith("-") else describe(topic), end="")
    return 0


def describe(topic: str) -> str:
    """The sections of a topic. An unknown topic is a UserError."""
    from lightning_ssl.app.config.flags import sections  # here: it imports torch, which takes seconds

    known = sections()
    if topic == "all":
        return "\n".join(section_text(section) for section in known.values())
    # `model.AlphaCL`, or `AlphaCL` for short
    if title := next((each for each in known if topic in (each, each.rpartition(".")[2])), None):
        section = known[title]
        texts = [section_text(section), *(section_text(known[part], skip=section.flags) for part in section.parts)]
        below = [each for each in known if each.rpartition(".")[0] == title]
        hint = textwrap.fill(f"more: lightning-ssl fit --help {' | '.join(below)}", width())
        return "\n".join([*texts, f"{hint}\n"] if below else texts)
    key = topic.removeprefix("--")
    if found := {each.title: flag for each in known.values() for flag in each.flags if flag.key == key}:
        return "".join(f"in {title}:\n{flag_text(flag)}" for title, flag in found.items())
    names = {"all", *known, *(flag.key for each in known.values() for flag in each.flags)}
    hint = did_you_mean(key, names) or "expected all, a part or a flag"
    raise UserError(f"help={topic}: unknown topic; {hint} (see lightning-ssl fit --help)")


def section_text(section: Section, skip: list[Flag] | None = None) -> str:
    """A section: its title, what its docstring says, its flags."""
    hidden = {flag.key for flag in skip or ()}
    flags = "".join(flag_text(flag) for flag in section.flags if flag.key not in hidden)
    body = textwrap.indent(section.about, "  ")
    return f"{section.title}\n{body}\n" + (f"\n{flags}" if flags else "\n  no arguments\n")


def flag_text(flag: Flag) -> str:
    """A flag and its description, wrapped."""
    left = f"  --{flag.key} {flag.values}".rstrip()
    first = left.ljust(COLUMN) if len(left) < COLUMN - 1 else f"{left}\n{' ' * COLUMN}"
    choices = "" if len(flag.choices) <= 4 or flag.values == "NAME" else f"One of {', '.join(flag.choices)}. "
    lines = textwrap.wrap(choices + flag.text, width() - COLUMN, break_long_words=False, break_on_hyphens=False) or [""]
    return first + f"\n{' ' * COLUMN}".join(lines) + "\n"


def width() -> int:
    """The width of the terminal, at most 120 columns."""
    return max(80, min(120, shutil.get_terminal_size((100, 24)).columns))
