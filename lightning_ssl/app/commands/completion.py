"""`lightning-ssl completion SHELL`: print a script that completes commands, flags and names with the tab key.

examples:
  eval "$(lightning-ssl completion bash)"                       for this terminal
  lightning-ssl completion bash > ~/.local/share/bash-completion/completions/lightning-ssl     for every terminal
  lightning-ssl completion zsh > DIR/_lightning-ssl             DIR is a folder of $fpath

Make the script again after an update: it contains the names of flags, configurations and sweeps.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from typing import Any, Literal

from lightning_ssl.app.commands import bench, data, lab
from lightning_ssl.app.commands.names import COMMANDS
from lightning_ssl.app.commands.parser import Command
from lightning_ssl.app.config import catalog, packaged
from lightning_ssl.app.reproduce import recipe
from lightning_ssl.app.sweep import scales
from lightning_ssl.data import DATASETS

FILES = {"bash": "_shtab_compgen_files", "zsh": "_files"}


def run(shell: Literal["bash", "zsh"]) -> int:
    """Print a script that completes commands, flags, files and names with the tab key.

    Args:
        shell: bash or zsh
    """
    # Static: a key press starts no Python. argcomplete would run the program at each one, and the flags of `fit` need
    # torch, which takes seconds to import.
    import shtab

    print(shtab.complete(program(), shell=shell, root_prefix="lightning_ssl"))
    return 0


COMMAND = main = Command("completion", run, __doc__)


def program() -> argparse.ArgumentParser:
    """One parser with every command and every flag. It is only read, never used to parse."""
    top = argparse.ArgumentParser(prog="lightning-ssl")
    top.add_argument("--version", action="store_true", help="print the version")
    commands = top.add_subparsers()
    parts = {"data": data.PARTS, "lab": {name: lab.command_of(name) for name in ("all", *catalog.names("labs"))}}
    for name, line in COMMANDS.items():
        about = first_words(line)
        if name == "fit":
            add_fit_flags(commands.add_parser(name, help=about, add_help=False))
        elif name == "bench":
            commands.add_parser(name, help=about).add_argument("name", choices=list(bench.summaries()))
        elif name in parts:
            below = commands.add_parser(name, help=about).add_subparsers()
            if name == "lab":
                below.add_parser("list", help="list the labs", add_help=False)
            for part, command in parts[name].items():
                below.add_parser(part, help=part, add_help=False, parents=[command.parser()])
        else:
            module = importlib.import_module(f"lightning_ssl.app.commands.{name.replace('-', '_')}")
            commands.add_parser(name, help=about, add_help=False, parents=[module.COMMAND.parser()])
    for name, each in leaves(top):
        for action in each._actions:
            set_completion(name, action)
    return top


def add_fit_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of `fit`, with those of every method, importance and callback."""
    from lightning_ssl.app.config.flags import sections  # here: both import torch, and `completion --help` does not
    from lightning_ssl.callbacks import BY_FLAG

    known = sections()
    parser.add_argument("--help", choices=["all", *known], help="describe the flags")
    for section in known.values():
        for flag in section.flags:
            if f"--{flag.key}" not in parser._option_string_actions:
                names = [name for name in flag.choices if ":" not in name]
                values: dict[str, Any] = {"choices": names or None} if flag.values else {"action": "store_true"}
                parser.add_argument(f"--{flag.key}", dest=flag.key, help=flag.description, **values)
    for key in BY_FLAG:
        parser.add_argument(f"--{key}", choices=["null"], help="null switches it off")


def first_words(text: str) -> str:
    """The first part of a description, without the characters that a shell reads."""
    plain = "".join(character for character in text if character not in "`'\"\\$[]{}%")
    return plain.partition(":")[0].partition(". ")[0][:70]


def set_completion(command: str, action: argparse.Action) -> None:
    """Complete names where there are some, else files."""
    action.help = first_words(action.help or "")
    if action.choices:
        return
    if command == "lightning-ssl data fetch" and action.dest == "name":
        action.choices = [name for name, each in DATASETS.items() if each.published]
    elif command == "lightning-ssl reproduce" and action.dest in ("name", "scale"):
        action.choices = ["list", *recipe.names()] if action.dest == "name" else list(scales.scales())
    elif action.dest in ("config", "file"):
        action.complete = names_or_files("configs" if action.dest == "config" else "sweeps")  # type: ignore[attr-defined]
    elif action.nargs != 0:
        action.complete = FILES  # type: ignore[attr-defined]


def names_or_files(folder: packaged.Folder) -> dict[str, Any]:
    """Complete the short names of packaged files, and files."""
    names, function = " ".join(packaged.names(folder)), f"_lightning_ssl_{folder}"
    bash = f'{function}() {{\n  compgen -W "{names}" -- "$1"\n  _shtab_compgen_files "$1"\n}}\n'
    zsh = f'{function}() {{\n  _alternative "names:name:({names})" "files:file:_files"\n}}\n'
    return {"bash": function, "zsh": function, "preamble": {"bash": bash, "zsh": zsh}}


def leaves(
    parser: argparse.ArgumentParser, name: str = "lightning-ssl"
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every parser of a program with its name, such as `lightning-ssl data fetch`."""
    yield name, parser
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for word, each in action.choices.items():
                yield from leaves(each, f"{name} {word}")


def all_flags() -> list[str]:
    """Every flag of every command, as `lightning-ssl data fetch --root`."""
    found = [
        f"{name} {flag}"
        for name, parser in leaves(program())
        for action in parser._actions
        for flag in action.option_strings or ([] if isinstance(action.choices, dict) else [action.dest.upper()])
        if flag.startswith("--") or not action.option_strings
    ]
    return sorted(dict.fromkeys(found))
